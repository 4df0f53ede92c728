"""How products with Q move when Q does: at the cost of the entries that changed, and of the rows they stand in."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read, seek
from streamtopic.topics.products import dense_part, times
from streamtopic.topics.threads import workers

__all__ = ["ThinShift", "add_gram_shift", "dearer_than_whole", "product_shift"]

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


def dearer_than_whole(q: SymmetricCounts, delta: SymmetricCounts, thin: ThinShift) -> bool:
    """Return whether `product_shift` would take longer than the product with all of Q.

    That adds up vectors, four numbers at a time; here single numbers are added, and an entry costs about three more.
    """
    vector = 4
    r = thin.moved.shape[1]
    held = np.count_nonzero(thin.moved, axis=1) + 3
    single = int(np.diff(q.indptr)[thin.rows] @ held)
    vectors = delta.entries * r + q.entries * (len(thin.columns) + 1)
    return bool(single + vectors / vector > q.entries * r / vector)


def product_shift(q: SymmetricCounts, delta: SymmetricCounts, before: Float, thin: ThinShift) -> tuple[Float, Float]:
    """Return dQ V + Q' dV, (n, r), and for each of its rows the largest sum of its terms' sizes, (n,).

    q: Q'; delta: dQ, signed; before: V (n, r), not negative; thin: dV. Cost: nnz(dQ) r, the entries of the rows of Q'
    that dV has entries in, times those, and nnz(Q') t for the t columns that changed as a whole.
    """
    shift, sizes = np.zeros(before.shape), np.zeros(len(before))
    _add_change(delta.rows, before, before.max(axis=1), shift, sizes)
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
    count = workers()
    edges = np.linspace(0, q.n, count + 1).astype(np.int64)
    with ThreadPoolExecutor(count) as pool:
        tasks = [
            pool.submit(
                _add_rows, q.rows, thin.rows, ends, topics, factors, largest,
                shift, sizes, edges[k], edges[k + 1], block,
            )
            for k in range(count)
        ]  # fmt: skip
        for task in tasks:
            task.result()


def add_gram_shift(
    gram: Float,
    q: SymmetricCounts,
    delta: SymmetricCounts,
    rows: Positions,
    weights: Float,
    before: Float,
    columns: Positions,
) -> None:
    """Change Q_c D^2 Q_c^T, (c, c), in place, for the rows c = `rows` ascending, as Q - dQ becomes Q = `q`.

    weights: D^2 (n,) now; before: the same then; columns: ascending, all in which D, or a row that counts, changed:
    what becomes of rows that changed elsewhere has no meaning.
    With Y = dQ_c D^2 (Q_c - dQ_c / 2)^T it is Y + Y^T, and (Q_c - dQ_c) (D^2 - D_then^2) (Q_c - dQ_c)^T where D moved.
    """
    place = np.full(q.n, -1, np.int64)
    place[columns] = np.arange(len(columns))
    own = np.full(q.n, -1, np.int64)
    own[rows] = np.arange(len(rows))
    Z = dense_part(q, columns, rows)
    _subtract_half(delta.rows, columns, own, Z)
    touched = np.flatnonzero(np.diff(delta.indptr)[rows] > 0)
    Y = np.zeros((len(touched), len(rows)))
    _scale_and_add(delta.rows, rows[touched], place, weights, Z, Y)
    _add_both_ways(Y, np.ascontiguousarray(Y.T), touched, gram)
    some = columns[weights[columns] != before[columns]]
    if len(some):
        then = dense_part(q, some, rows) - dense_part(delta, some, rows)
        gram += (then * (weights[some] - before[some])[:, None]).T @ then


@numba.njit(cache=True, nogil=True)
def _add_change(q: Compact, thin: Float, largest: Float, out: Float, sizes: Float) -> None:
    for row in range(len(q.indptr) - 1):
        total, w = out[row], q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            exact, w = read(q, k, w)
            value, column = float(exact), q.columns[k]
            factors = thin[column]
            sizes[row] += abs(value) * largest[column]
            for t in range(thin.shape[1]):
                total[t] += value * factors[t]


@numba.njit(cache=True, nogil=True)
def _add_rows(
    q: Compact, chosen: Positions, ends: Int64, topics: Int64, factors: Float,
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
                    total[topics[t]] += value * factors[t]
                k += 1
            cursor[j], wide[j] = k, w


@numba.njit(cache=True, nogil=True)
def _subtract_half(q: Compact, rows: Positions, own: Int64, out: Float) -> None:
    for i in range(len(rows)):
        w = q.wide_indptr[rows[i]]
        for k in range(q.indptr[rows[i]], q.indptr[rows[i] + 1]):
            exact, w = read(q, k, w)
            column = own[q.columns[k]]
            if column >= 0:
                out[i, column] -= float(exact) / 2


@numba.njit(cache=True, nogil=True)
def _scale_and_add(q: Compact, rows: Positions, place: Int64, weights: Float, Z: Float, out: Float) -> None:
    for i in range(len(rows)):
        total, w = out[i], q.wide_indptr[rows[i]]
        for k in range(q.indptr[rows[i]], q.indptr[rows[i] + 1]):
            exact, w = read(q, k, w)
            column = q.columns[k]
            if place[column] < 0:
                continue
            factor = float(exact) * weights[column]
            part = Z[place[column]]
            for t in range(len(total)):
                total[t] += factor * part[t]


@numba.njit(cache=True, nogil=True)
def _add_both_ways(Y: Float, turned: Float, touched: Positions, out: Float) -> None:
    """Add Y, (len(touched), c), to the rows `touched` of a matrix and to its columns, symmetric to the bit."""
    line = np.zeros(len(out))
    at = 0
    for i in range(len(out)):
        row = at < len(touched) and touched[at] == i
        if row:
            line[:] = Y[at]
            at += 1
        for j in range(len(touched)):
            line[touched[j]] += turned[i, j]
        total = out[i]
        if row:
            for k in range(len(line)):
                total[k] += line[k]
            line[:] = 0.0
        else:
            for j in range(len(touched)):
                total[touched[j]] += line[touched[j]]
                line[touched[j]] = 0.0
