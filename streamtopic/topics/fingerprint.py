"""A keyed digest of the retained counts of a vocabulary and of settings: a released model is a function of these."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Protocol

import numba
import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Positions, UInt64
from streamtopic.counts.compact import Compact, read

__all__ = ["RetainedCounts", "fingerprint"]

# Sums of 64 bits for each row. Four of them collide by chance as rarely as one of 256 bits.
_SKETCHES = 4


class RetainedCounts(Protocol):
    """Counts of the documents that are left, over n internal words. The words at `live` are published."""

    @property
    def names(self) -> tuple[str, ...]:
        """The internal words, (n,), ascending."""

    @property
    def q(self) -> SymmetricCounts:
        """Their pair counts."""

    @property
    def live(self) -> Positions:
        """Positions of the published words."""

    @property
    def words(self) -> tuple[str, ...]:
        """The published words."""

    @property
    def documents(self) -> int:
        """How many documents are counted."""


def fingerprint(fit: RetainedCounts, frequency: Sequence[int], settings: Sequence[str], key: bytes) -> str:
    """Return a hex digest of words, their document frequencies, pair counts, m and settings, under a secret key.

    fit: the retained counts.
    frequency: (n',) documents that hold each published word.
    settings: any texts.
    key: at least 32 bytes.

    Equal counts have equal digests on every path to them. Cost: one pass over Q.
    Without the key nobody can tell which of several candidates the counts belong to. Nor can anybody choose documents
    so that two counts have one digest, and so one noise.
    """
    # Pair counts enter as sums over each row, modulo 2^64, times factors that depend on the key and the column's word
    # alone: a sum does not depend on order or positions. Known factors would have small integer combinations that
    # vanish, so they are secret.
    factors = np.array([_factors(word, key) for word in fit.names], np.uint64).reshape(-1, _SKETCHES)
    sketch = _sketch(fit.q.rows, factors)
    state = hmac.new(key, b"streamtopic model 2\0", hashlib.sha256)
    for text in (*settings, str(fit.documents), *fit.words):
        data = text.encode("utf-8", "surrogatepass")
        # With its length, so that no two lists of texts run together to the same bytes.
        state.update(len(data).to_bytes(8, "big") + data)
    state.update(np.asarray(frequency, "<i8").tobytes())
    state.update(np.ascontiguousarray(sketch[fit.live]).astype("<u8").tobytes())
    return state.hexdigest()


def _factors(word: str, key: bytes) -> list[int]:
    """Return the factors of a word: numbers of 64 bits."""
    data = word.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(data, digest_size=8 * _SKETCHES, key=key).digest()
    return [int.from_bytes(digest[8 * k : 8 * k + 8], "little") for k in range(_SKETCHES)]


@numba.njit(cache=True, nogil=True)
def _sketch(q: Compact, factors: UInt64) -> UInt64:
    """Return each row's sums of pair counts times the factors of their columns, modulo 2^64, (n, 4)."""
    out = np.zeros((len(q.indptr) - 1, factors.shape[1]), np.uint64)
    for row in range(len(out)):
        w = q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            exact, w = read(q, k, w)
            value = np.uint64(exact)
            for t in range(factors.shape[1]):
                out[row, t] += value * factors[q.columns[k], t]
    return out
