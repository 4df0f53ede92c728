"""How products with Q move when Q does: at the cost of the entries that changed, and of the rows they stand in."""

from dataclasses import dataclass, field

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read
from streamtopic.topics.outer import OuterChange
from streamtopic.topics.products import dense_part
from streamtopic.topics.sparse_times import SparseRows, add_times_sparse, times_few

__all__ = [
    "ThinShift",
    "add_gram_columns",
    "add_gram_outer",
    "add_gram_reweighted",
    "add_gram_shift",
    "dearer_than_whole",
    "product_shift",
]

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]
_ROWS = 128


@dataclass(frozen=True, slots=True, eq=False)
class ThinShift:
    """A change dV of V (n, r), as `moved` (len(rows), r) in some rows, ascending, and whole (n, m) mixing (m, r).

    whole: not negative; mixing: integers. With passages X (k, n) also D^2 X^T sums, sums: (k, r) integers.
    """

    rows: Positions
    moved: Float
    whole: Float
    mixing: Int64
    outer: OuterChange | None = None
    sums: Int64 = field(default_factory=lambda: np.zeros((0, 0), np.int64))


def dearer_than_whole(q: SymmetricCounts, delta: SymmetricCounts, thin: ThinShift) -> bool:
    """Return whether `product_shift` would take longer than the product with all of Q.

    That adds up vectors, four numbers at a time; here single numbers are added, and an entry costs about three more.
    """
    vector = 4
    r = thin.moved.shape[1]
    held = np.count_nonzero(thin.moved, axis=1) + 3
    single = int(np.diff(q.indptr)[thin.rows] @ held)
    vectors = delta.entries * r + q.entries * thin.whole.shape[1]
    return bool(single + vectors / vector > q.entries * r / vector)


def product_shift(q: SymmetricCounts, delta: SymmetricCounts, before: Float, thin: ThinShift) -> tuple[Float, Float]:
    """Return dQ V + Q' dV, (n, r), and for each of its rows the largest sum of its terms' sizes, (n,).

    q: Q'; delta: dQ, signed; before: V (n, r), not negative; thin: dV. Cost: nnz(dQ) r, the entries of the rows of Q'
    that `moved` has entries in, times those, nnz(Q') m, and n r for a passage.
    """
    shift, sizes = np.zeros(before.shape), np.zeros(len(before))
    outer = thin.outer
    if outer is not None and outer.whole:
        sizes += outer.add_times(before, shift)
    else:
        _add_change(delta.rows, before, before.max(axis=1), shift, sizes)
    sizes += add_times_sparse(q, SparseRows.of(thin.rows, thin.moved), shift)
    if thin.whole.shape[1]:
        sizes += _add_mixed(times_few(q, thin.whole), thin.mixing, shift)
    if outer is not None:
        sizes += _add_mixed(outer.reach, thin.sums, shift)
    return shift, sizes


def _add_mixed(thin: Float, mixing: Int64, out: Float) -> Float:
    """Add T M for T (n, k), not negative, and M (k, r); return the largest sum of sizes in each row."""
    out += thin @ mixing.astype(float)
    return np.asarray((thin @ np.abs(mixing).astype(float)).max(axis=1))


def add_gram_shift(
    gram: Float,
    q: SymmetricCounts,
    delta: SymmetricCounts,
    rows: Positions,
    weights: Float,
    columns: Positions,
) -> None:
    """Change Q_c D^2 Q_c^T, (c, c), in place, for the rows c = `rows` ascending, as Q - dQ becomes Q = `q`.

    weights: D^2 (n,); columns: ascending, all in which a row that counts changed: what becomes of rows that changed
    elsewhere has no meaning.
    With Y = dQ_c D^2 (Q_c - dQ_c / 2)^T it is Y + Y^T.
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


def add_gram_outer(
    gram: Float, q: SymmetricCounts, delta: SymmetricCounts, outer: OuterChange, rows: Positions, weights: Float
) -> None:
    """Do what `add_gram_shift` does where dQ_cc = (X^T S X - E)_cc, from the reach Y = Q D^2 X^T of the passages.

    Columns of words that are in no passage stay as they are: see `add_gram_columns`.
    With R = Y_c S - X_c^T S (X D^2 X^T) S / 2 it is X_c^T R^T - E_c D_c^2 (Q - dQ - E / 2)_cc, and that transposed.
    """
    X, E = outer.X, outer.E.astype(float)
    weight = outer.passages.weights.astype(float)
    held = np.zeros(q.n, bool)
    held[outer.words] = True
    touched = np.flatnonzero(held[rows])
    own = X[:, rows[touched]].T.toarray()
    R = outer.reach[rows] * weight
    crossed = (X * weights) @ X.T
    R[touched] -= own @ (weight[:, None] * crossed.toarray() * weight) / 2
    without = dense_part(q, rows[touched], rows) - dense_part(delta, rows[touched], rows)
    without[np.arange(len(touched)), touched] -= E[rows[touched]] / 2
    Y = own @ R.T - (E * weights)[rows[touched], None] * without
    _add_both_ways(Y, np.ascontiguousarray(Y.T), touched, gram)


def add_gram_columns(
    gram: Float, q: SymmetricCounts, delta: SymmetricCounts, rows: Positions, weights: Float, columns: Positions
) -> None:
    """Change it for what some columns changed by: Q_c D^2 Q_c^T less (Q - dQ)_c D^2 (Q - dQ)_c^T over these."""
    if len(columns):
        now = dense_part(q, columns, rows)
        then = now - dense_part(delta, columns, rows)
        both, signs = np.vstack([now, then]), np.repeat([1.0, -1.0], len(columns))
        _add_weighted(gram, both, signs * np.tile(weights[columns], 2))


def add_gram_reweighted(
    gram: Float, q: SymmetricCounts, delta: SymmetricCounts, rows: Positions, weights: Float, before: Float
) -> None:
    """Change (Q - dQ)_c D^2 (Q - dQ)_c^T, (c, c), in place, as D^2 goes from `before` to `weights`, (n,) each."""
    some = np.flatnonzero(weights != before)
    if len(some):
        then = dense_part(q, some, rows) - dense_part(delta, some, rows)
        _add_weighted(gram, then, weights[some] - before[some])


def _add_weighted(gram: Float, rows: Float, weights: Float) -> None:
    """Add R^T diag(weights) R for R (k, c), a block at a time, so that no second matrix of this size is needed."""
    factors = (rows * weights[:, None]).T
    for first in range(0, len(gram), _ROWS):
        gram[first : first + _ROWS] += factors[first : first + _ROWS] @ rows


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
