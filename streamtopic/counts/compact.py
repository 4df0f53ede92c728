"""Integer matrices in few bytes: whole rows of numbers that are nearly all below 2^32.

An entry is a column, in two bytes where there are at most 65,536, and the value in four. A value that four bytes do
not hold (2^32 - 1 and above, or negative) is marked there and stands in a table of wide values, itself sorted by row
and column: six bytes an entry, and ten more for a wide one. Nothing is rounded.
"""

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.errors import CountsOverflow

__all__ = [
    "MARK",
    "SHORT",
    "Compact",
    "add_entries",
    "allocate",
    "fits",
    "merged",
    "pack",
    "put",
    "put_wide",
    "read",
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
_ROOM = 1 << 62


class Compact(NamedTuple):
    """Rows of integers: indptr (rows + 1,), columns ascending in each row, low; the wide ones beside them.

    low (entries,) uint32, all bits set where the value is wide; wide_indptr (rows + 1,), wide_columns, wide (int64) in
    the order of the entries they stand for. columns: uint16 for at most 65,536, else int32. A tuple, since compiled
    code takes it whole.
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
    # Room for the worst case, of which only what is written takes memory.
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
    """Return the place of a row's first entry from a column on, and of its first wide one."""
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

    An entry has no place where there is none here yet, where the sum would be negative or near the end of 64 bits, or
    where it would become wide. sign -1 undoes: it takes the first `most` away again.
    """
    done = 0
    for row in range(len(other.indptr) - 1):
        at, last, u = m.indptr[row], m.indptr[row + 1], other.wide_indptr[row]
        for k in range(other.indptr[row], other.indptr[row + 1]):
            if done == most:
                return done
            column = other.columns[k]
            change, u = read(other, k, u)
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
