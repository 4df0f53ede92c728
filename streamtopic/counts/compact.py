"""Integer matrices in few bytes: whole rows of numbers, nearly all of which are below 2^32.

An entry is a column and a value. The column takes two bytes if there are at most 65,536 of them. The value takes
four. A value that four bytes do not hold (2^32 - 1 and above, or negative) is wide: a mark is in its place, and the
value is in a table of wide values, which is sorted by row and column. So an entry takes six bytes, and a wide one
ten more. Nothing is rounded (docs/decisions/0003).

    Compact      the rows; unpack: all values; merged: a + b
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import inner, kernel
from streamtopic.counts.arrays import Int64, UInt16
from streamtopic.errors import CountsOverflow

__all__ = [
    "MARK",
    "SHORT",
    "Compact",
    "add_entries",
    "allocate",
    "fits",
    "merged",
    "put",
    "put_wide",
    "read",
    "seek",
    "shrink",
    "unpack",
    "value_at",
]

Integer = int | np.int64
MARK = 0xFFFFFFFF
"""Stands in `low` for a wide value."""

SHORT = 1 << 16
"""Columns that two bytes can name."""
# Sums stay two bits below the end of int64, so that one more addition cannot wrap before it is checked.
_ROOM = 1 << 62


class Compact(NamedTuple):
    """Rows of integers, and a table of the wide ones. It is a tuple, since compiled code takes that whole.

    indptr: (rows + 1,) where rows begin.
    columns: (entries,) ascending in each row; uint16 for at most 65,536 columns, else int32.
    low: (entries,) uint32 values, all bits set if the value is wide.
    wide_indptr: (rows + 1,) where the wide values of rows begin.
    wide_columns, wide: (wide entries,) columns and int64 values, in the order of the entries that they represent.
    """

    indptr: Int64
    columns: UInt16
    low: npt.NDArray[np.uint32]
    wide_indptr: Int64
    wide_columns: UInt16
    wide: Int64


def allocate(n_columns: int, indptr: Int64, wide_indptr: Int64) -> Compact:
    """Return arrays, not yet written, for rows of these lengths.

    n_columns: words, which decide on the type of columns.
    indptr, wide_indptr: (rows + 1,) where rows and their wide values begin.
    """
    kind: Any = np.uint16 if n_columns <= SHORT else np.int32
    entries = int(indptr[-1])
    wide = int(wide_indptr[-1])
    columns = np.empty(entries, kind)
    low = np.empty(entries, np.uint32)
    wide_columns = np.empty(wide, kind)
    return Compact(indptr, columns, low, wide_indptr, wide_columns, np.empty(wide, np.int64))


def merged(n_columns: int, a: Compact, b: Compact) -> Compact:
    """Return a + b without zeros. Raises CountsOverflow if a sum leaves 62 bits."""
    entries = len(a.low) + len(b.low)
    rows = len(a.indptr)
    # Arrays for the worst case: pages that are never written take no memory.
    indptr = np.zeros(rows, np.int64)
    wide_indptr = np.zeros(rows, np.int64)
    indptr[-1] = entries
    # A sum is wide if a part of it is, or if an entry of b meets one of a.
    most = len(a.wide) + len(b.wide) + len(b.low)
    wide_indptr[-1] = min(entries, most)
    out = allocate(n_columns, indptr, wide_indptr)
    if not _merge(a, b, n_columns, out):
        raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
    shrink(out)
    return out


def shrink(m: Compact) -> None:
    """Give back the memory after the last entry."""
    entries = int(m.indptr[-1])
    wide = int(m.wide_indptr[-1])
    m.columns.resize(entries, refcheck=False)
    m.low.resize(entries, refcheck=False)
    m.wide_columns.resize(wide, refcheck=False)
    m.wide.resize(wide, refcheck=False)


@kernel
def fits(value: Integer) -> bool:
    """Return whether four bytes hold a value."""
    return bool(0 <= value < MARK)


@inner
def read(m: Compact, k: Integer, w: Integer) -> tuple[Integer, Integer]:
    """Return entry k, and the place of the next wide value after it.

    w: the place of the first wide value that belongs to entry k or to one after it.
    """
    # A loop over a row counts wide values along, so that no entry needs a search in their table.
    value = np.int64(m.low[k])
    if value == MARK:
        return m.wide[w], w + 1
    return value, w


@inner
def search(columns: UInt16, first: Integer, last: Integer, column: Integer) -> Integer:
    """Return the place of the first of columns[first:last], which ascend, at or after a column; `last` without one."""
    while first < last:
        middle = (first + last) >> 1
        if columns[middle] < column:
            first = middle + 1
        else:
            last = middle
    return first


@inner
def seek(m: Compact, row: Integer, column: Integer) -> tuple[Integer, Integer]:
    """Return the place of a row's first entry at or after a column, and that of the first wide value from there on."""
    first = m.indptr[row]
    last = m.indptr[row + 1]
    first_wide = m.wide_indptr[row]
    last_wide = m.wide_indptr[row + 1]
    place = search(m.columns, first, last, column)
    return place, search(m.wide_columns, first_wide, last_wide, column)


@inner
def value_at(m: Compact, row: Integer, k: Integer) -> Integer:
    """Return entry k of a row. A wide value takes a search, so a loop over all of a row uses `read`."""
    value: Integer = np.int64(m.low[k])
    if value == MARK:
        _, w = seek(m, row, np.int64(m.columns[k]))
        value = m.wide[w]
    return value


def unpack(m: Compact, values: Int64) -> None:
    """Write all values, in order."""
    values[:] = m.low
    values[m.low == MARK] = m.wide


@inner
def put_wide(out: Compact, w: Integer, column: Integer, value: Integer) -> Integer:
    """Write a wide value to place w. Return the place of the next."""
    out.wide_columns[w] = column
    out.wide[w] = value
    return w + 1


@inner
def put(out: Compact, k: Integer, w: Integer, column: Integer, value: Integer) -> Integer:
    """Write entry k, and its value to place w if it is wide. Return the place of the next wide value."""
    out.columns[k] = column
    if fits(value):
        out.low[k] = value
        return w
    out.low[k] = MARK
    return put_wide(out, w, column, value)


@kernel
def add_entries(m: Compact, other: Compact, sign: int, most: int) -> int:
    """Add entries of another matrix in place. Stop at the first that has no place, and return how many were added.

    An entry has no place if the pair is not stored here yet, if the sum would be negative or near the end of 64
    bits, or if it would become wide.

    sign: 1 to add; -1 to undo, which takes the same entries away again.
    most: how many entries of `other` are added at most.
    """
    done = 0
    for row in range(len(other.indptr) - 1):
        at = m.indptr[row]
        last = m.indptr[row + 1]
        u = other.wide_indptr[row]
        for k in range(other.indptr[row], other.indptr[row + 1]):
            if done == most:
                return done
            column = other.columns[k]
            change, u = read(other, k, u)
            # Columns ascend in both, so the search begins where the last one ended.
            at = search(m.columns, at, last, np.int64(column))
            if at == last or m.columns[at] != column:
                return done
            if m.low[at] == MARK:
                _, w = seek(m, row, np.int64(column))
                after = m.wide[w] + sign * change
                # Undoing gives back a number that was there before, so only additions can leave the range.
                if sign > 0 and not 0 <= after < _ROOM:
                    return done
                # A small number may stay wide: moving it would shift the whole table.
                m.wide[w] = after
            else:
                after = np.int64(m.low[at]) + sign * change
                if not fits(after):
                    return done
                m.low[at] = after
            done += 1
    return done


@inner
def _next(m: Compact, k: Integer, w: Integer, stop: Integer, end: Integer) -> tuple[Integer, Integer, Integer]:
    """Return column and value of entry k, and the next wide place. After the row's last entry the column is `end`."""
    # A column after all others ends a row, so that merging needs no case for it.
    if k == stop:
        return end, 0, w
    value, w = read(m, k, w)
    return np.int64(m.columns[k]), value, w


@kernel
def _merge(a: Compact, b: Compact, end: int, out: Compact) -> bool:
    """Write a + b without zeros. Return whether every sum is within 62 bits."""
    k = np.int64(0)
    w: Integer = np.int64(0)
    sound = True
    for row in range(len(a.indptr) - 1):
        i = a.indptr[row]
        j = b.indptr[row]
        last_i = a.indptr[row + 1]
        last_j = b.indptr[row + 1]
        u = a.wide_indptr[row]
        v = b.wide_indptr[row]
        left, x, u = _next(a, i, u, last_i, end)
        right, y, v = _next(b, j, v, last_j, end)
        while left < end or right < end:
            column = min(left, right)
            value = np.int64(0)
            if left == column:
                value += x
                i += 1
                left, x, u = _next(a, i, u, last_i, end)
            if right == column:
                value += y
                j += 1
                right, y, v = _next(b, j, v, last_j, end)
            if value != 0:
                sound &= bool(-_ROOM < value < _ROOM)
                w = put(out, k, w, int(column), value)
                k += 1
        out.indptr[row + 1] = k
        out.wide_indptr[row + 1] = w
    return sound
