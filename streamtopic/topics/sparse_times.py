"""Q S for a sparse S, and Q V for a V of few columns: what is left of a product once most of it is carried over."""

from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read, seek
from streamtopic.topics.products import times
from streamtopic.topics.threads import each, workers

__all__ = ["SparseRows", "add_times_sparse", "times_few"]

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
_BLOCK_BYTES = 1 << 18
_FEW = 4
_TOGETHER = 8


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """S (n, k) by those rows that have entries: rows (t,) ascending, ends (t + 1,), columns and values (nnz,)."""

    rows: Int64
    ends: Int64
    columns: Int64
    values: Float

    @classmethod
    def of(cls, rows: Int64, dense: Float) -> "SparseRows":
        """Take rows at ascending positions from (t, k)."""
        held, columns = np.nonzero(dense)
        ends = np.searchsorted(held, np.arange(len(rows) + 1))
        return cls(rows.astype(np.int64), ends, columns, dense[held, columns])

    @property
    def owners(self) -> Int64:
        """Which of the rows each entry is in, (nnz,)."""
        return np.repeat(np.arange(len(self.rows)), np.diff(self.ends))

    def only(self, chosen: npt.NDArray[np.bool_]) -> "SparseRows":
        """Return some of the rows."""
        kept = chosen[self.owners]
        ends = np.concatenate([[0], np.cumsum(np.diff(self.ends)[chosen])])
        return SparseRows(self.rows[chosen], ends, self.columns[kept], self.values[kept])


def add_times_sparse(q: SymmetricCounts, S: SparseRows, out: Float) -> Float:
    """Add Q S to `out` (n, k); return a bound on the sum of its terms' sizes in any column, (n,).

    Q is symmetric, so its columns are read as rows: those that S has entries in. Cost: their entries times those of S.
    """
    sizes = np.zeros(q.n)
    spans = [(k, min(k + _TOGETHER, out.shape[1])) for k in range(0, out.shape[1], _TOGETHER)]
    long = np.diff(S.ends) > _TOGETHER
    # Rows with few entries go column by column, so that what is added to is read in order.
    few = S.only(~long)
    order = np.argsort(few.columns, kind="stable")
    starts = np.searchsorted(few.columns[order], np.arange(out.shape[1] + 1))
    found = [np.zeros(q.n) for _ in spans]
    same = q.rows, few.rows[few.owners[order]], few.values[order], starts, out
    each(_by_columns, [(*same, size, *span) for size, span in zip(found, spans, strict=True)])
    for size in found:
        np.maximum(sizes, size, out=sizes)
    if long.any():
        sizes += _add_long(q, S.only(long), out)
    return sizes


def _add_long(q: SymmetricCounts, S: SparseRows, out: Float) -> Float:
    sizes, largest = np.zeros(q.n), np.zeros(len(S.rows))
    np.maximum.at(largest, S.owners, np.abs(S.values))
    edges = np.linspace(0, q.n, workers() + 1).astype(np.int64).tolist()
    block = max(64, _BLOCK_BYTES // (8 * max(1, out.shape[1])))
    same = q.rows, S.rows, S.ends, S.columns, S.values, largest, out, sizes
    each(_by_rows, [(*same, *span, block) for span in pairwise(edges)])
    return sizes


def times_few(q: SymmetricCounts, thin: Float) -> Float:
    """Return Q V for V (n, t): four columns at a time, as plain sums, where t is small."""
    n, t = thin.shape
    if t > 2 * _FEW:
        return times(q, np.ascontiguousarray(thin))
    padded = np.zeros((n, -(-t // _FEW) * _FEW))
    padded[:, :t] = thin
    out = np.empty((n, padded.shape[1]))
    edges = np.linspace(0, n, workers() + 1).astype(np.int64).tolist()
    for first in range(0, padded.shape[1], _FEW):
        four = np.ascontiguousarray(padded[:, first : first + _FEW])
        each(_times_four, [(q.rows, four, out, first, *span) for span in pairwise(edges)])
    return out[:, :t]


@numba.njit(cache=True, nogil=True)
def _by_columns(
    q: Compact, rows: Int64, values: Float, starts: Int64, out: Float, sizes: Float, first: int, last: int
) -> None:
    """Add to columns first ... last - 1 of the result; positive and negative terms are summed by themselves."""
    n = len(out)
    sums = np.zeros((last - first, 2, n))
    for column in range(first, last):
        for j in range(starts[column], starts[column + 1]):
            row, factor = rows[j], abs(values[j])
            total, w = sums[column - first, 0 if values[j] > 0.0 else 1], q.wide_indptr[row]
            for k in range(q.indptr[row], q.indptr[row + 1]):
                exact, w = read(q, k, w)
                total[q.columns[k]] += float(exact) * factor
    for i in range(n):
        for column in range(first, last):
            up, down = sums[column - first, 0, i], sums[column - first, 1, i]
            out[i, column] += up - down
            sizes[i] = max(sizes[i], up + down)


@numba.njit(cache=True, nogil=True)
def _by_rows(
    q: Compact, chosen: Int64, ends: Int64, columns: Int64, values: Float,
    largest: Float, out: Float, sizes: Float, start: int, stop: int, block: int,
) -> None:  # fmt: skip
    """Add to rows start ... stop - 1 of the result, a block of them at a time, so that they stay in the cache."""
    cursor, wide = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64)
    for j in range(len(chosen)):
        cursor[j], wide[j] = seek(q, chosen[j], start)
    for edge in range(start, stop, block):
        end = min(edge + block, stop)
        for j in range(len(chosen)):
            k, w, last = cursor[j], wide[j], q.indptr[chosen[j] + 1]
            while k < last and q.columns[k] < end:
                exact, w = read(q, k, w)
                value, row = float(exact), q.columns[k]
                sizes[row] += value * largest[j]
                total = out[row]
                for t in range(ends[j], ends[j + 1]):
                    total[columns[t]] += value * values[t]
                k += 1
            cursor[j], wide[j] = k, w


@numba.njit(cache=True, nogil=True)
def _times_four(q: Compact, thin: Float, out: Float, first: int, start: int, stop: int) -> None:
    for row in range(start, stop):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        w = q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            exact, w = read(q, k, w)
            value, factors = float(exact), thin[q.columns[k]]
            a += value * factors[0]
            b += value * factors[1]
            c += value * factors[2]
            d += value * factors[3]
        out[row, first], out[row, first + 1], out[row, first + 2], out[row, first + 3] = a, b, c, d
