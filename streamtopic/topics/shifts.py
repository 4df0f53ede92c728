"""How products with Q move when Q does: at the cost of the entries that changed, and of the rows they stand in."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.topics.products import dense_part, times
from streamtopic.topics.threads import CORES

__all__ = ["ThinShift", "gram_shift", "grouped_change", "product_shift"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]
_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class ThinShift:
    """A change dV of V (n, r), as the sum of two: `moved` (len(rows), r) in some rows, `whole` (n, t) in some columns.

    rows: ascending positions; columns: (t,) ascending.
    """

    rows: Positions
    moved: Float
    columns: Positions
    whole: Float


def product_shift(q: SymmetricCounts, delta: SymmetricCounts, before: Float, thin: ThinShift) -> tuple[Float, Float]:
    """Return dQ V + Q' dV, (n, r), and for each of its rows the largest sum of its terms' sizes, (n,).

    q: Q'; delta: dQ, signed; before: V (n, r), not negative; thin: dV. Cost: nnz(dQ) r, the entries of the rows of Q'
    that dV has entries in, times those, and nnz(Q') t for the t columns that changed as a whole.
    """
    shift, sizes = np.zeros(before.shape), np.zeros(len(before))
    _add_change(delta.indptr, delta.columns, delta.values, before, before.max(axis=1), shift, sizes)
    _add_moved(q, thin, shift, sizes)
    if len(thin.columns):
        largest = np.abs(thin.whole).max(axis=1, keepdims=True)
        together = times(q, np.ascontiguousarray(np.hstack([thin.whole, largest])))
        shift[:, thin.columns] += together[:, :-1]
        sizes += together[:, -1]
    return shift, sizes


def _add_moved(q: SymmetricCounts, thin: ThinShift, shift: Float, sizes: Float) -> None:
    """Add Q'[:, rows] moved. Q is symmetric, so its columns are read as rows."""
    held, topics = np.nonzero(thin.moved)
    ends = np.searchsorted(held, np.arange(len(thin.rows) + 1))
    factors, largest = thin.moved[held, topics], np.abs(thin.moved).max(axis=1, initial=0.0)
    block = max(64, _BLOCK_BYTES // (8 * max(1, shift.shape[1])))
    edges = np.linspace(0, q.n, CORES + 1).astype(np.int64)
    with ThreadPoolExecutor(CORES) as pool:
        tasks = [
            pool.submit(
                _add_rows, q.indptr, q.columns, q.values, thin.rows, ends, topics, factors, largest,
                shift, sizes, edges[k], edges[k + 1], block,
            )
            for k in range(CORES)
        ]  # fmt: skip
        for task in tasks:
            task.result()


def grouped_change(delta: SymmetricCounts, group: Int64, groups: int) -> Int64:
    """Return the sums of the rows of each group of a signed change, (groups, n); a row of group -1 is left out."""
    out = np.zeros((groups, delta.n), np.int64)
    _add_groups(delta.indptr, delta.columns, delta.values, group, out)
    return out


def gram_shift(
    q: SymmetricCounts, delta: SymmetricCounts, rows: Positions, weights: Float, before: Float, columns: Positions
) -> Float:
    """Return the change of Q_c D^2 Q_c^T, (c, c), for the rows c = `rows` ascending, as Q - dQ becomes Q = `q`.

    weights: D^2 (n,) now; before: the same then; columns: ascending, all in which a row of c, or D, changed.
    With Y = dQ_c D^2 (Q_c - dQ_c / 2)^T it is Y + Y^T, and (Q_c - dQ_c) (D^2 - D_then^2) (Q_c - dQ_c)^T where D moved.
    """
    place = np.full(q.n, -1, np.int64)
    place[columns] = np.arange(len(columns))
    own = np.full(q.n, -1, np.int64)
    own[rows] = np.arange(len(rows))
    Z = dense_part(q, columns, rows)
    _subtract_half(delta.indptr, delta.columns, delta.values, columns, own, Z)
    touched = np.flatnonzero(np.diff(delta.indptr)[rows] > 0)
    Y = np.zeros((len(touched), len(rows)))
    _scale_and_add(delta.indptr, delta.columns, delta.values, rows[touched], place, weights, Z, Y)
    shift = np.zeros((len(rows), len(rows)))
    shift[touched] = Y
    shift[:, touched] += Y.T
    some = columns[weights[columns] != before[columns]]
    if len(some):
        then = dense_part(q, some, rows) - dense_part(delta, some, rows)
        shift += (then * (weights[some] - before[some])[:, None]).T @ then
    return shift


@numba.njit(cache=True, nogil=True)
def _add_change(
    indptr: Int64, columns: Int32, values: Int64, thin: Float, largest: Float, out: Float, sizes: Float
) -> None:
    for row in range(len(indptr) - 1):
        total = out[row]
        for k in range(indptr[row], indptr[row + 1]):
            value = float(values[k])
            factors = thin[columns[k]]
            sizes[row] += abs(value) * largest[columns[k]]
            for t in range(thin.shape[1]):
                total[t] += value * factors[t]


@numba.njit(cache=True, nogil=True)
def _add_rows(
    indptr: Int64, columns: Int32, values: Int64, chosen: Positions, ends: Int64, topics: Int64, factors: Float,
    largest: Float, out: Float, sizes: Float, start: int, stop: int, block: int,
) -> None:  # fmt: skip
    """Add to rows start ... stop - 1 of the result, a block of them at a time, so that they stay in the cache."""
    cursor = np.empty(len(chosen), np.int64)
    for j in range(len(chosen)):
        first, last = indptr[chosen[j]], indptr[chosen[j] + 1]
        cursor[j] = first + np.searchsorted(columns[first:last], start)
    for edge in range(start, stop, block):
        end = min(edge + block, stop)
        for j in range(len(chosen)):
            k, last = cursor[j], indptr[chosen[j] + 1]
            while k < last and columns[k] < end:
                value = float(values[k])
                row = columns[k]
                sizes[row] += value * largest[j]
                total = out[row]
                for t in range(ends[j], ends[j + 1]):
                    total[topics[t]] += value * factors[t]
                k += 1
            cursor[j] = k


@numba.njit(cache=True, nogil=True)
def _add_groups(indptr: Int64, columns: Int32, values: Int64, group: Int64, out: Int64) -> None:
    for row in range(len(group)):
        if group[row] >= 0:
            total = out[group[row]]
            for k in range(indptr[row], indptr[row + 1]):
                total[columns[k]] += values[k]


@numba.njit(cache=True, nogil=True)
def _subtract_half(indptr: Int64, columns: Int32, values: Int64, rows: Positions, own: Int64, out: Float) -> None:
    for i in range(len(rows)):
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            column = own[columns[k]]
            if column >= 0:
                out[i, column] -= float(values[k]) / 2


@numba.njit(cache=True, nogil=True)
def _scale_and_add(
    indptr: Int64, columns: Int32, values: Int64, rows: Positions, place: Int64, weights: Float, Z: Float, out: Float
) -> None:
    for i in range(len(rows)):
        total = out[i]
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            column = columns[k]
            factor = float(values[k]) * weights[column]
            part = Z[place[column]]
            for t in range(len(total)):
                total[t] += factor * part[t]
