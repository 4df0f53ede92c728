"""What a released model is a function of, as a digest: the retained counts of its vocabulary, and the settings."""

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read

__all__ = ["Retained", "fingerprint"]

_SKETCHES = 4


class Retained(Protocol):
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
        """How many documents they are of."""


def fingerprint(fit: Retained, frequency: Sequence[int], settings: Sequence[str]) -> str:
    """Return a hex digest of words, their document frequencies, pair counts, m and settings.

    Equal for equal counts, whatever the path to them: pair counts enter as sums over each row times factors that
    depend on the column's word alone, modulo 2^64, four sums a row. One pass over Q.
    """
    factors = np.array([_factors(word) for word in fit.names], np.uint64).reshape(-1, _SKETCHES)
    sketch = _sketch(fit.q.rows, factors)
    state = hashlib.sha256(b"streamtopic model 1\0")
    for text in settings:
        state.update(text.encode() + b"\0")
    state.update(str(fit.documents).encode() + b"\0")
    for word in fit.words:
        state.update(word.encode("utf-8", "surrogatepass") + b"\0")
    state.update(np.asarray(frequency, "<i8").tobytes())
    state.update(np.ascontiguousarray(sketch[fit.live]).astype("<u8").tobytes())
    return state.hexdigest()


def _factors(word: str) -> list[int]:
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8 * _SKETCHES).digest()
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
