"""A keyed digest of everything that a released model is a function of: retained counts of its vocabulary, settings."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Protocol

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read

__all__ = ["RetainedCounts", "fingerprint"]

# Sums of 64 bits a row: four make a chance collision as unlikely as one of 256 bits.
_SKETCHES = 4


class RetainedCounts(Protocol):
    """Counts of the documents that are left, over n internal words of which those at `live` are published."""

    @property
    def names(self) -> tuple[str, ...]:
        """The internal words, (n,), ascending."""

    @property
    def q(self) -> SymmetricCounts:
        """Their pair counts."""

    @property
    def live(self) -> npt.NDArray[np.intp]:
        """Positions of the published words."""

    @property
    def words(self) -> tuple[str, ...]:
        """The published words."""

    @property
    def documents(self) -> int:
        """How many documents were counted."""


def fingerprint(fit: RetainedCounts, frequency: Sequence[int], settings: Sequence[str], key: bytes) -> str:
    """Return a hex digest of words, their document frequencies, pair counts, m and settings, under a secret key.

    fit: the retained counts. frequency: (n',) of its published words. settings: any texts. key: at least 32 bytes.

    Equal for equal counts on every path to them: pair counts enter as sums over each row times factors that depend on
    the key and the column's word alone, modulo 2^64, four sums a row. One pass over Q.

    Without the key nobody can tell which of several candidates the counts belong to. And nobody can choose documents so
    that
    two counts have one digest, and so one noise: factors that are known have small integer combinations that vanish.
    """
    factors = np.array([_factors(word, key) for word in fit.names], np.uint64).reshape(-1, _SKETCHES)
    sketch = _sketch(fit.q.rows, factors)
    state = hmac.new(key, b"streamtopic model 2\0", hashlib.sha256)
    for text in (*settings, str(fit.documents), *fit.words):
        data = text.encode("utf-8", "surrogatepass")
        state.update(len(data).to_bytes(8, "big") + data)
    state.update(np.asarray(frequency, "<i8").tobytes())
    state.update(np.ascontiguousarray(sketch[fit.live]).astype("<u8").tobytes())
    return state.hexdigest()


def _factors(word: str, key: bytes) -> list[int]:
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8 * _SKETCHES, key=key).digest()
    return [int.from_bytes(digest[8 * k : 8 * k + 8], "little") for k in range(_SKETCHES)]


@numba.njit(cache=True, nogil=True)
def _sketch(q: Compact, factors: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    out = np.zeros((len(q.indptr) - 1, factors.shape[1]), np.uint64)
    for row in range(len(out)):
        w = q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            exact, w = read(q, k, w)
            value = np.uint64(exact)
            for t in range(factors.shape[1]):
                out[row, t] += value * factors[q.columns[k], t]
    return out
