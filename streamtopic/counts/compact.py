"""Integer matrices in few bytes: whole rows of numbers, nearly all of which are below 2^32.

An entry is a column, in two bytes where there are at most 65,536, and the value in four. A value that four bytes do
not hold (2^32 - 1 and above, or negative) is marked there and stands in a table of wide values, itself sorted by row
and column: six bytes an entry, and ten more for a wide one. Nothing is rounded (docs/decisions/0022).

    Compact      the rows; pack and unpack, merged (a + b), restricted to some words
    RowWriter    rows appended one after the other
    mirrored     both triangles from an upper one, which is given as parts of whole rows (UpperRows)
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.errors import CountsOverflow

__all__ = [
    "MARK",
    "SHORT",
    "Compact",
    "RowWriter",
    "UpperRows",
    "add_entries",
    "allocate",
    "fits",
    "merged",
    "mirrored",
    "pack",
    "put",
    "put_wide",
    "read",
    "restricted",
    "seek",
    "shrink",
    "unpack",
]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Integer = int | np.int64
MARK = 0xFFFFFFFF
"""Stands in `low` for a wide value."""

SHORT = 1 << 16
"""Columns that two bytes can name."""
# Sums stay two bits below the end of int64, so that one more addition cannot wrap before it is checked.
_ROOM = 1 << 62
Positions = npt.NDArray[np.intp]


class Compact(NamedTuple):
    """Rows of integers, and beside them a table of the wide ones. A tuple, since compiled code takes it whole.

    indptr: (rows + 1,) where rows begin.
    columns: (entries,) ascending in each row; uint16 for at most 65,536 columns, else int32.
    low: (entries,) uint32 values, all bits set where the value is wide.
    wide_indptr: (rows + 1,) where the wide values of rows begin.
    wide_columns, wide: (wide entries,) columns and int64 values, in the order of the entries that they stand for.
    """

    indptr: Int64
    columns: npt.NDArray[np.uint16]
    low: npt.NDArray[np.uint32]
    wide_indptr: Int64
    wide_columns: npt.NDArray[np.uint16]
    wide: Int64


def allocate(n_columns: int, indptr: Int64, wide_indptr: Int64) -> Compact:
    """Return room for rows of these lengths."""
    kind = np.uint16 if n_columns <= SHORT else np.int32
    entries, wide = int(indptr[-1]), int(wide_indptr[-1])
    return Compact(
        indptr,
        np.empty(entries, kind),
        np.empty(entries, np.uint32),
        wide_indptr,
        np.empty(wide, kind),
        np.empty(wide, np.int64),
    )


def pack(n_columns: int, indptr: Int64, columns: Int32, values: Int64) -> Compact:
    """Return rows in few bytes; columns ascending in each."""
    out = allocate(n_columns, indptr, _wide_indptr(indptr, values))
    _pack(columns, values, out)
    return out


def merged(n_columns: int, a: Compact, b: Compact) -> Compact:
    """Return a + b, zeros left out. Raises CountsOverflow where a sum leaves 62 bits."""
    entries = len(a.low) + len(b.low)
    rows = len(a.indptr)
    # Room for the worst case: pages that are never written take no memory.
    indptr, wide_indptr = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    indptr[-1], wide_indptr[-1] = entries, min(entries, len(a.wide) + len(b.wide) + len(b.low))
    out = allocate(n_columns, indptr, wide_indptr)
    if not _merge(a, b, n_columns, out):
        raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
    shrink(out)
    return out


def shrink(m: Compact) -> None:
    """Give back the room behind the last entry."""
    entries, wide = int(m.indptr[-1]), int(m.wide_indptr[-1])
    m.columns.resize(entries, refcheck=False)
    m.low.resize(entries, refcheck=False)
    m.wide_columns.resize(wide, refcheck=False)
    m.wide.resize(wide, refcheck=False)


@numba.njit(cache=True, nogil=True)
def fits(value: Integer) -> bool:
    """Return whether four bytes hold a value."""
    return bool(0 <= value < MARK)


@numba.njit(cache=True, nogil=True)
def read(m: Compact, k: int, w: int) -> tuple[Integer, int]:
    """Return entry k of a row, and the place of the next wide one; w: of the next wide one at k."""
    value = np.int64(m.low[k])
    if value == MARK:
        return m.wide[w], w + 1
    return value, w


@numba.njit(cache=True, nogil=True)
def seek(m: Compact, row: int, column: int) -> tuple[int, int]:
    """Return the place of a row's first entry at or behind a column, and of its first wide one."""
    k = m.indptr[row] + np.searchsorted(m.columns[m.indptr[row] : m.indptr[row + 1]], column)
    first, last = m.wide_indptr[row], m.wide_indptr[row + 1]
    return k, first + np.searchsorted(m.wide_columns[first:last], column)


@numba.njit(cache=True, nogil=True)
def unpack(m: Compact, values: Int64) -> None:
    """Write all values, in order."""
    w = 0
    for k in range(len(m.low)):
        values[k], w = read(m, k, w)


@numba.njit(cache=True, nogil=True)
def _wide_indptr(indptr: Int64, values: Int64) -> Int64:
    wide = np.zeros(len(indptr), np.int64)
    for row in range(len(indptr) - 1):
        found = 0
        for k in range(indptr[row], indptr[row + 1]):
            found += not fits(values[k])
        wide[row + 1] = wide[row] + found
    return wide


@numba.njit(cache=True, nogil=True)
def _pack(columns: Int32, values: Int64, out: Compact) -> None:
    w = 0
    for k in range(len(values)):
        w = put(out, k, w, columns[k], values[k])


@numba.njit(cache=True, nogil=True)
def put_wide(out: Compact, w: int, column: int, value: Integer) -> int:
    """Write a wide value to place w; return the place of the next."""
    out.wide_columns[w] = column
    out.wide[w] = value
    return w + 1


@numba.njit(cache=True, nogil=True)
def put(out: Compact, k: int, w: int, column: int, value: Integer) -> int:
    """Write entry k, wide ones to place w; return the place of the next."""
    out.columns[k] = column
    if fits(value):
        out.low[k] = value
        return w
    out.low[k] = MARK
    return put_wide(out, w, column, value)


@numba.njit(cache=True, nogil=True)
def add_entries(m: Compact, other: Compact, sign: int, most: int) -> int:
    """Add up to `most` entries of another matrix in place; return how many were added before one had no place.

    An entry has no place where the pair is not stored here yet, where the sum would be negative or near the end of 64
    bits, or where it would become wide. sign: 1; -1 undoes, it takes the first `most` away again.
    """
    done = 0
    for row in range(len(other.indptr) - 1):
        at, last, u = m.indptr[row], m.indptr[row + 1], other.wide_indptr[row]
        for k in range(other.indptr[row], other.indptr[row + 1]):
            if done == most:
                return done
            column = other.columns[k]
            change, u = read(other, k, u)
            # Columns ascend in both, so the search begins where the last one ended.
            at += np.searchsorted(m.columns[at:last], column)
            if at == last or m.columns[at] != column:
                return done
            if m.low[at] == MARK:
                _, w = seek(m, row, column)
                after = m.wide[w] + sign * change
                if sign > 0 and not 0 <= after < _ROOM:
                    return done
                m.wide[w] = after
            else:
                after = np.int64(m.low[at]) + sign * change
                if not fits(after):
                    return done
                m.low[at] = after
            done += 1
    return done


@numba.njit(cache=True, nogil=True)
def _next(m: Compact, k: int, w: int, stop: int, end: int) -> tuple[Integer, Integer, int]:
    """Return column, value and next wide place of entry k; the column `end` behind the row's last."""
    # A column behind all others ends a row, so that merging needs no case for it.
    if k == stop:
        return end, 0, w
    value, w = read(m, k, w)
    return np.int64(m.columns[k]), value, w


@numba.njit(cache=True, nogil=True)
def _merge(a: Compact, b: Compact, end: int, out: Compact) -> bool:
    """Write a + b without zeros; return whether every sum is within 62 bits."""
    k, w = 0, 0
    sound = True
    for row in range(len(a.indptr) - 1):
        i, j, u, v = a.indptr[row], b.indptr[row], a.wide_indptr[row], b.wide_indptr[row]
        left, x, u = _next(a, i, u, a.indptr[row + 1], end)
        right, y, v = _next(b, j, v, b.indptr[row + 1], end)
        while left < end or right < end:
            column = min(left, right)
            value = np.int64(0)
            if left == column:
                value += x
                i += 1
                left, x, u = _next(a, i, u, a.indptr[row + 1], end)
            if right == column:
                value += y
                j += 1
                right, y, v = _next(b, j, v, b.indptr[row + 1], end)
            if value != 0:
                sound &= bool(-_ROOM < value < _ROOM)
                w = put(out, k, w, int(column), value)
                k += 1
        out.indptr[row + 1], out.wide_indptr[row + 1] = k, w
    return sound


@dataclass(frozen=True, slots=True, eq=False)
class UpperRows:
    """Rows first, first + 1, ... of an upper triangle."""

    first: int
    rows: Compact

    @property
    def stop(self) -> int:
        """The row behind the last."""
        return self.first + len(self.rows.indptr) - 1


class RowWriter:
    """Rows appended in order. The arrays grow in place, which the operating system does without a copy."""

    def __init__(self, n_columns: int) -> None:
        self._n = n_columns
        self._sizes: list[Int64] = []
        self._wide_sizes: list[Int64] = []
        nothing = np.zeros(1, np.int64)
        self._rows = allocate(n_columns, nothing, nothing)

    def append(self, sizes: Int64, columns: Int32, values: Int64) -> Self:
        """Take rows of these sizes, columns ascending in each."""
        part = pack(self._n, np.concatenate([[0], np.cumsum(sizes)]), columns, values)
        rows = self._rows
        for array, more in (
            (rows.columns, part.columns),
            (rows.low, part.low),
            (rows.wide_columns, part.wide_columns),
            (rows.wide, part.wide),
        ):
            held = len(array)
            array.resize(held + len(more), refcheck=False)
            array[held:] = more
        self._sizes.append(np.diff(part.indptr))
        self._wide_sizes.append(np.diff(part.wide_indptr))
        return self

    def result(self) -> Compact:
        """Return all rows."""
        begin = [np.zeros(1, np.int64)]
        indptr, wide_indptr = (np.cumsum(np.concatenate(begin + sizes)) for sizes in (self._sizes, self._wide_sizes))
        return self._rows._replace(indptr=indptr, wide_indptr=wide_indptr)


def restricted(m: Compact, keep: Positions, n_columns: int, chosen: npt.NDArray[np.bool_] | None = None) -> Compact:
    """Return the rows and columns at these ascending positions of an upper triangle, zeros left out.

    keep: (k,) positions of words. n_columns: words of `m`.
    chosen: (k,) whether a word is chosen; entries without a chosen word are left out too. None: all are chosen.
    """
    wanted = np.ones(len(keep), bool) if chosen is None else chosen
    ids = np.full(n_columns, -1, np.int64)
    ids[keep] = np.arange(len(keep))
    sizes, wide = np.zeros(len(keep) + 1, np.int64), np.zeros(len(keep) + 1, np.int64)
    _restricted_sizes(m, keep, ids, wanted, sizes, wide)
    out = allocate(len(keep), np.cumsum(sizes), np.cumsum(wide))
    _restrict(m, keep, ids, wanted, out)
    return out


def mirrored(n: int, parts: list[UpperRows]) -> Compact:
    """Return both triangles of an upper one, zeros left out.

    parts: whole rows each, in order; they are taken off the list as they are used up.
    """
    sizes, wide = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    for part in parts:
        _mirrored_sizes(part.rows, part.first, sizes, wide)
    out = allocate(n, np.cumsum(sizes), np.cumsum(wide))
    # The last rows come first: they need nothing of the parts behind them, so each part is given back once its rows are
    # written, and the whole takes hardly more memory than its result.
    while parts:
        start, stop = parts[-1].first, parts[-1].stop
        fill, wide_fill = out.indptr[start:stop].copy(), out.wide_indptr[start:stop].copy()
        for part in parts:
            _mirror(part.rows, part.first, start, stop, fill, wide_fill, out)
        # The loop's own name would keep the last part alive.
        del part
        parts.pop()
    return out


@numba.njit(cache=True, nogil=True)
def _restricted_sizes(
    m: Compact, keep: Positions, ids: Int64, chosen: npt.NDArray[np.bool_], sizes: Int64, wide: Int64
) -> None:
    for i in range(len(keep)):
        w = m.wide_indptr[keep[i]]
        for k in range(m.indptr[keep[i]], m.indptr[keep[i] + 1]):
            value, w = read(m, k, w)
            column = ids[m.columns[k]]
            if column >= 0 and value != 0 and (chosen[i] or chosen[column]):
                sizes[i + 1] += 1
                wide[i + 1] += not fits(value)


@numba.njit(cache=True, nogil=True)
def _restrict(m: Compact, keep: Positions, ids: Int64, chosen: npt.NDArray[np.bool_], out: Compact) -> None:
    slot, wide = 0, 0
    for i in range(len(keep)):
        w = m.wide_indptr[keep[i]]
        for k in range(m.indptr[keep[i]], m.indptr[keep[i] + 1]):
            value, w = read(m, k, w)
            column = ids[m.columns[k]]
            if column >= 0 and value != 0 and (chosen[i] or chosen[column]):
                wide = put(out, slot, wide, column, value)
                slot += 1


@numba.njit(cache=True, nogil=True)
def _mirrored_sizes(m: Compact, first: int, sizes: Int64, wide: Int64) -> None:
    for i in range(len(m.indptr) - 1):
        row, w = first + i, m.wide_indptr[i]
        for k in range(m.indptr[i], m.indptr[i + 1]):
            value, w = read(m, k, w)
            if value != 0:
                column = np.int64(m.columns[k])
                other = column != row
                sizes[row + 1] += 1
                sizes[column + 1] += other
                if not fits(value):
                    wide[row + 1] += 1
                    wide[column + 1] += other


@numba.njit(cache=True, nogil=True)
def _mirror(m: Compact, first: int, start: int, stop: int, fill: Int64, wide: Int64, out: Compact) -> None:
    """Write the part that rows first ... of the upper triangle have in rows start ... stop - 1 of both.

    fill, wide: (stop - start,) the next place of each row. Called for all parts in order, so that entries left of the
    diagonal arrive in column order, before those of the row itself.
    """
    for i in range(len(m.indptr) - 1):
        row = first + i
        k, w = seek(m, i, start)
        while k < m.indptr[i + 1] and m.columns[k] < stop:
            value, w = read(m, k, w)
            column = np.int64(m.columns[k])
            if value != 0 and column != row:
                at = column - start
                wide[at] = put(out, fill[at], wide[at], row, value)
                fill[at] += 1
            k += 1
        if row >= start:
            own, w = row - start, m.wide_indptr[i]
            for k in range(m.indptr[i], m.indptr[i + 1]):
                value, w = read(m, k, w)
                if value != 0:
                    wide[own] = put(out, fill[own], wide[own], int(m.columns[k]), value)
                    fill[own] += 1
