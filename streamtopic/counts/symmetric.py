"""The working matrix Q in integers: symmetric, read as blocks of whole rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts.cooccurrence import Cooccurrence
from streamtopic.errors import CountsOverflow

__all__ = ["RowBlock", "SymmetricCounts"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Rows start ... stop - 1 in CSR form; `indptr` is absolute into `columns` and `values`."""

    start: int
    stop: int
    indptr: Int64
    columns: Int32
    values: Int64


@dataclass(slots=True, eq=False)
class SymmetricCounts:
    """Both triangles of the pair counts of a working vocabulary.

    indptr (n + 1,), columns (nnz,) int32 ascending in each row, values (nnz,) int64. Q is these values over their
    total. `subtract_within` changes values in place; everything else leaves them alone.
    """

    n: int
    indptr: Int64
    columns: Int32
    values: Int64

    @classmethod
    def of(cls, counts: Cooccurrence) -> "SymmetricCounts":
        """Mirror the upper triangle."""
        indptr = _mirrored_indptr(counts.indptr, counts.columns)
        columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
        _mirror(counts.indptr, counts.columns, counts.values, indptr, columns, values)
        return cls(counts.n_words, indptr, columns, values)

    def add_within(self, counts: Cooccurrence) -> bool:
        """Add signed counts in place; False, with nothing changed, where a pair has no entry here yet."""
        delta = SymmetricCounts.of(counts)
        here = (self.indptr, self.columns, self.values, delta.indptr, delta.columns, delta.values)
        if _add_within(*here, 1):
            _add_within(*here, -1)
            return False
        return True

    def blocks(self, pairs: int = 1 << 22) -> Iterator[RowBlock]:
        """Yield blocks of whole rows of about `pairs` entries each, in word order."""
        start = 0
        while start < self.n:
            stop = int(np.searchsorted(self.indptr, self.indptr[start] + pairs, side="right")) - 1
            stop = min(max(stop, start + 1), self.n)
            yield RowBlock(start, stop, self.indptr, self.columns, self.values)
            start = stop

    def upper(self) -> Cooccurrence:
        """Return the upper triangle, entries that have become zero left out."""
        indptr = _upper_indptr(self.indptr, self.columns, self.values)
        columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
        _upper(self.indptr, self.columns, self.values, columns, values)
        nothing = np.zeros(self.n, np.int64)
        return Cooccurrence(self.n, indptr, columns, values, nothing, nothing, 0)

    def magnitudes(self) -> "SymmetricCounts":
        """Return the absolute values of a signed change."""
        return SymmetricCounts(self.n, self.indptr, self.columns, np.abs(self.values))

    def row_sums(self) -> Int64:
        """Return exact row sums, (n,). Raises CountsOverflow where one leaves 64 bits."""
        rough = _row_sums_float(self.indptr, self.values)
        if self.n and float(np.abs(rough).max()) >= 2.0**62:
            raise CountsOverflow("a row of counts exceeds 64 bits: too many documents for one model, split the corpus")
        return _row_sums(self.indptr, self.values)


@numba.njit(cache=True, nogil=True)
def _mirrored_indptr(indptr: Int64, columns: Int32) -> Int64:
    n = len(indptr) - 1
    full = np.zeros(n + 1, np.int64)
    for row in range(n):
        for k in range(indptr[row], indptr[row + 1]):
            full[row + 1] += 1
            if columns[k] != row:
                full[columns[k] + 1] += 1
    for row in range(n):
        full[row + 1] += full[row]
    return full


@numba.njit(cache=True, nogil=True)
def _mirror(indptr: Int64, columns: Int32, values: Int64, full: Int64, out_columns: Int32, out_values: Int64) -> None:
    fill = full[:-1].copy()
    # Rows are visited in order, so entries left of the diagonal arrive in column order before those of the row itself.
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            column = columns[k]
            slot = fill[row]
            fill[row] = slot + 1
            out_columns[slot] = column
            out_values[slot] = values[k]
            if column != row:
                slot = fill[column]
                fill[column] = slot + 1
                out_columns[slot] = row
                out_values[slot] = values[k]


@numba.njit(cache=True, nogil=True)
def _upper_indptr(indptr: Int64, columns: Int32, values: Int64) -> Int64:
    upper = np.zeros(len(indptr), np.int64)
    for row in range(len(indptr) - 1):
        kept = 0
        for k in range(indptr[row], indptr[row + 1]):
            kept += columns[k] >= row and values[k] != 0
        upper[row + 1] = upper[row] + kept
    return upper


@numba.njit(cache=True, nogil=True)
def _upper(indptr: Int64, columns: Int32, values: Int64, out_columns: Int32, out_values: Int64) -> None:
    slot = 0
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            if columns[k] >= row and values[k] != 0:
                out_columns[slot] = columns[k]
                out_values[slot] = values[k]
                slot += 1


@numba.njit(cache=True, nogil=True)
def _row_sums(indptr: Int64, values: Int64) -> Int64:
    sums = np.zeros(len(indptr) - 1, np.int64)
    for row in range(len(sums)):
        for k in range(indptr[row], indptr[row + 1]):
            sums[row] += values[k]
    return sums


@numba.njit(cache=True, nogil=True)
def _row_sums_float(indptr: Int64, values: Int64) -> npt.NDArray[np.float64]:
    sums = np.zeros(len(indptr) - 1, np.float64)
    for row in range(len(sums)):
        for k in range(indptr[row], indptr[row + 1]):
            sums[row] += values[k]
    return sums


@numba.njit(cache=True, nogil=True)
def _add_within(
    indptr: Int64, columns: Int32, values: Int64, add_indptr: Int64, add_columns: Int32, add_values: Int64, sign: int
) -> int:
    """Add entries that all exist already; return how many were missing (nothing is then written for those)."""
    missing = 0
    for row in range(len(add_indptr) - 1):
        low = indptr[row]
        for k in range(add_indptr[row], add_indptr[row + 1]):
            low += np.searchsorted(columns[low : indptr[row + 1]], add_columns[k])
            if low < indptr[row + 1] and columns[low] == add_columns[k]:
                values[low] += sign * add_values[k]
            else:
                missing += 1
    return missing
