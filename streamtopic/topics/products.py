"""Products of the integer matrix Q with thin float matrices: everything a learner asks of it.

Each entry is summed in column order by one thread, so the same rows give the same bits for any number of threads, and
entries that have become zero change nothing.
"""

from itertools import pairwise

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read
from streamtopic.topics.threads import each, workers

__all__ = [
    "BLOCK",
    "column_sums",
    "dense_rows",
    "grouped_rows",
    "product_roundings",
    "shift_roundings",
    "times",
]

Int64 = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]
BLOCK = 256
"""Columns whose part of a product is summed by itself."""

# Rows that share a pass over the blocks of V: their own sums stay in the cache meanwhile.
_PANEL = 1024


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
    # Four spans a thread: rows differ in length, and so do the spans' times.
    edges = np.searchsorted(entries, np.linspace(0, entries[-1], 4 * workers() + 1)[:-1], side="left").tolist()
    each(_times, [(q.rows, chosen, thin, ends, out, *span) for span in pairwise([*edges, len(chosen)])])
    return out


def product_roundings(terms: Int64, n: int) -> Float:
    """Bound the roundings on the way of a term of `times`, for each row of Q, (rows,).

    terms: (rows,) entries of the rows; n: words that they are among. Four are before the sum: N and Q become doubles,
    N times D^2, Q times V. No term is negative and zeros change nothing, so with k of these the exact W* = Q D^2 N^T
    has |W - W*| <= gamma(k) W, entry by entry, for the W that was computed.
    """
    blocks = -(-n // BLOCK)
    return np.asarray(4.0 + np.minimum(terms, BLOCK) + np.minimum(terms, blocks))


def shift_roundings(terms: Int64, changed: Int64, passages: int = 0, longest: int = 0) -> Float:
    """Bound the roundings on the way of a term of `product_shift`, for each row, (n,).

    terms, changed: (n,) entries of the rows of Q' and of dQ; passages, longest: those of the change that are taken as
    outer products and the words of the longest. A term may go through the sum over a passage, over passages and over a
    row, one after the other, however much of dQ cancels.
    """
    return np.asarray(terms + changed + float(2 * passages + longest + 16))


def dense_rows(q: SymmetricCounts, rows: Positions) -> Int64:
    """Return rows of Q as a dense integer matrix, (len(rows), n)."""
    out = np.zeros((len(rows), q.n), np.int64)
    _dense_rows(q.rows, rows, out)
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


@numba.njit(cache=True, nogil=True)
def _times(q: Compact, rows: Positions, thin: Float, ends: Int64, out: Float, start: int, stop: int) -> None:
    """Go through panels of rows, and in them through blocks of columns, whose part of V stays in the cache.

    ends: where the columns of a block end. The terms of a block are summed by themselves and added once: rounding grows
    with 256 + n / 256, not with n. Where blocks begin does not depend on which pairs are stored, so a forgotten one
    that still is, as 0, leaves no trace in the last bits.
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
def _grouped_rows(q: Compact, group: Int64, out: Int64) -> None:
    for row in range(len(group)):
        if group[row] >= 0:
            total = out[group[row]]
            w = q.wide_indptr[row]
            for k in range(q.indptr[row], q.indptr[row + 1]):
                value, w = read(q, k, w)
                total[q.columns[k]] += value
