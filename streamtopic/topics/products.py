"""Products of the integer matrix Q with thin float matrices: everything a learner asks of it.

Each entry is summed in column order by one thread, so the same rows give the same bits whatever the number of
threads, and entries that have become zero change nothing.
"""

from itertools import pairwise

import numba
import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import dsyrk

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read
from streamtopic.topics.threads import each, workers

__all__ = [
    "BLOCK",
    "candidate_gram",
    "candidate_gram_roundings",
    "column_sums",
    "dense_part",
    "dense_rows",
    "grouped_rows",
    "times",
]

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]
BLOCK = 256
"""Columns whose part of a product is summed by itself."""

_PANEL = 1024
_WIDTH = 512


def times(q: SymmetricCounts, thin: Float, rows: Positions | None = None, live: Positions | None = None) -> Float:
    """Return Q V, or only some rows of it, in the units of the counts, for V (n, r). Cost: their entries times r.

    live: ascending positions of the words that have entries, where others are left of forgotten ones: the same bits
    as without those.
    """
    starts = np.arange(0, q.n, BLOCK) if live is None else live[::BLOCK]
    ends = np.append(starts[1:], q.n).astype(np.int64)
    chosen = np.arange(q.n) if rows is None else rows
    out = np.empty((len(chosen), thin.shape[1]))
    entries = np.concatenate([[0], np.cumsum(q.indptr[chosen + 1] - q.indptr[chosen])])
    edges = np.searchsorted(entries, np.linspace(0, entries[-1], 4 * workers() + 1)[:-1], side="left").tolist()
    each(_times, [(q.rows, chosen, thin, ends, out, *span) for span in pairwise([*edges, len(chosen)])])
    return out


def dense_rows(q: SymmetricCounts, rows: Positions) -> Int64:
    """Return rows of Q as a dense integer matrix, (len(rows), n)."""
    out = np.zeros((len(rows), q.n), np.int64)
    _dense_rows(q.rows, rows, out)
    return out


def dense_part(q: SymmetricCounts, rows: Positions, columns: Positions) -> Float:
    """Return Q[rows][:, columns] as a dense float matrix."""
    place = np.full(q.n, -1, np.int32)
    place[columns] = np.arange(len(columns))
    out = np.zeros((len(rows), len(columns)))
    _dense_part(q.rows, rows, place, out)
    return out


def column_sums(q: SymmetricCounts, rows: Positions) -> Int64:
    """Return the sums of some rows, (n,)."""
    group = np.full(q.n, -1, np.int64)
    group[rows] = 0
    return np.asarray(grouped_rows(q, group, 1)[0])


def grouped_rows(q: SymmetricCounts, group: npt.NDArray[np.int64], groups: int) -> Int64:
    """Return the sums of the rows of each group, (groups, n) integers; a row of group -1 is left out."""
    out = np.zeros((groups, q.n), np.int64)
    _grouped_rows(q.rows, group, out)
    return out


def candidate_gram(q: SymmetricCounts, candidates: Positions, weights: Float, width: int = _WIDTH) -> Float:
    """Return Q_c diag(weights) Q_c^T, (c, c), for the candidates' rows. Cost: c^2 n / 2, in dense blocks of columns."""
    gram = np.zeros((len(candidates), len(candidates)), order="F")
    root = np.sqrt(weights)
    cursor, wide = q.rows.indptr[candidates], q.rows.wide_indptr[candidates]
    for start in range(0, q.n, width):
        stop = min(start + width, q.n)
        part = np.zeros((len(candidates), stop - start))
        _scatter(q.rows, candidates, root, cursor, wide, start, stop, part)
        # Added to one triangle in place: no second matrix of this size beside it.
        gram = dsyrk(1.0, part.T, beta=1.0, c=gram, trans=1, lower=1, overwrite_c=1)
    _mirror_lower(gram)
    return np.asarray(gram.T)


def candidate_gram_roundings(n: int) -> int:
    """Bound the roundings of an entry of `candidate_gram`; its terms are positive, so none exceeds a unit of the entry.

    A block's terms are summed in some order, then added to what there is; each is rounded on the way there.
    """
    return min(n, _WIDTH) + 2 * -(-n // _WIDTH) + 8


@numba.njit(cache=True, nogil=True)
def _times(q: Compact, rows: Positions, thin: Float, ends: Int64, out: Float, start: int, stop: int) -> None:
    """Go through panels of rows, and in them through blocks of columns, whose part of V stays in the cache.

    ends: where the columns of a block end. What a block gives is summed by itself and added once: rounding grows with
    256 + n / 256, not with n. Where blocks begin does not depend on which pairs are stored, so a forgotten one that
    still is, as 0, leaves no trace in the last bits.
    """
    r = thin.shape[1]
    run = np.zeros(r)
    place, wide = np.empty(_PANEL, np.int64), np.empty(_PANEL, np.int64)
    for first in range(start, stop, _PANEL):
        last = min(first + _PANEL, stop)
        for i in range(first, last):
            place[i - first], wide[i - first] = q.indptr[rows[i]], q.wide_indptr[rows[i]]
            out[i] = 0.0
        for edge in ends:
            for i in range(first, last):
                k, w, end = place[i - first], wide[i - first], q.indptr[rows[i] + 1]
                if k == end or q.columns[k] >= edge:
                    continue
                run[:] = 0.0
                while k < end and q.columns[k] < edge:
                    exact, w = read(q, k, w)
                    value = float(exact)
                    factors = thin[q.columns[k]]
                    for t in range(r):
                        run[t] += value * factors[t]
                    k += 1
                total = out[i]
                for t in range(r):
                    total[t] += run[t]
                place[i - first], wide[i - first] = k, w


@numba.njit(cache=True, nogil=True)
def _dense_rows(q: Compact, rows: Positions, out: Int64) -> None:
    for i in range(len(rows)):
        w = q.wide_indptr[rows[i]]
        for k in range(q.indptr[rows[i]], q.indptr[rows[i] + 1]):
            out[i, q.columns[k]], w = read(q, k, w)


@numba.njit(cache=True, nogil=True)
def _dense_part(q: Compact, rows: Positions, place: npt.NDArray[np.int32], out: Float) -> None:
    for i in range(len(rows)):
        w = q.wide_indptr[rows[i]]
        for k in range(q.indptr[rows[i]], q.indptr[rows[i] + 1]):
            value, w = read(q, k, w)
            column = place[q.columns[k]]
            if column >= 0:
                out[i, column] = float(value)


@numba.njit(cache=True, nogil=True)
def _grouped_rows(q: Compact, group: Int64, out: Int64) -> None:
    for row in range(len(group)):
        if group[row] >= 0:
            total = out[group[row]]
            w = q.wide_indptr[row]
            for k in range(q.indptr[row], q.indptr[row + 1]):
                value, w = read(q, k, w)
                total[q.columns[k]] += value


@numba.njit(cache=True, nogil=True)
def _mirror_lower(square: Float) -> None:
    for row in range(len(square)):
        for column in range(row):
            square[column, row] = square[row, column]


@numba.njit(cache=True, nogil=True)
def _scatter(
    q: Compact, rows: Positions, scale: Float, cursor: Positions, wide: Positions, start: int, stop: int, out: Float
) -> None:
    for i in range(len(rows)):
        k, w = cursor[i], wide[i]
        while k < q.indptr[rows[i] + 1] and q.columns[k] < stop:
            column = q.columns[k]
            value, w = read(q, k, w)
            out[i, column - start] = float(value) * scale[column]
            k += 1
        cursor[i], wide[i] = k, w
