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

from streamtopic.compiled import inner, kernel, once
from streamtopic.counts.arrays import Int64, UInt16
from streamtopic.errors import CountsOverflow

__all__ = [
    "MARK",
    "SHORT",
    "Compact",
    "allocate",
    "fits",
    "merged",
    "put",
    "put_wide",
    "read",
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


def merged(a: Compact, place: Int64, b: Compact) -> Compact:
    """Return a + b without zeros, over the words of b.

    place: (n,) where the words of a are among those of b, ascending; -1 for a word that is left out.
    Raises CountsOverflow if a sum leaves 62 bits.
    """
    n = len(b.indptr) - 1
    entries = len(a.low) + len(b.low)
    # Arrays for the worst case: pages that are never written take no memory.
    indptr = np.zeros(n + 1, np.int64)
    wide_indptr = np.zeros(n + 1, np.int64)
    indptr[-1] = entries
    # A sum is wide if a part of it is, or if an entry of b meets one of a.
    most = len(a.wide) + len(b.wide) + len(b.low)
    wide_indptr[-1] = min(entries, most)
    out = allocate(n, indptr, wide_indptr)
    stays = np.flatnonzero(place >= 0)
    origin = np.full(n, -1, np.int64)
    origin[place[stays]] = stays
    if not _merge(a, place, origin, b, np.arange(n), out):
        raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
    out.columns.resize(indptr[-1], refcheck=False)
    out.low.resize(indptr[-1], refcheck=False)
    out.wide_columns.resize(wide_indptr[-1], refcheck=False)
    out.wide.resize(wide_indptr[-1], refcheck=False)
    return out


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
def value_at(m: Compact, row: Integer, k: Integer) -> Integer:
    """Return entry k of a row. A wide value takes a search, so a loop over all of a row uses `read`."""
    value: Integer = np.int64(m.low[k])
    if value == MARK:
        first = m.wide_indptr[row]
        last = m.wide_indptr[row + 1]
        # The table is sorted, so half of what is left goes at each step.
        while last - first > 1:
            middle = (first + last) >> 1
            if m.wide_columns[middle] <= m.columns[k]:
                first = middle
            else:
                last = middle
        value = m.wide[first]
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


@inner
def _next(
    m: Compact, k: Integer, w: Integer, stop: Integer, place: Int64, end: Integer
) -> tuple[Integer, Integer, Integer, Integer]:
    """Return column and value of the first entry from k on whose column has a place, and the next k and w.

    stop: where the row's entries end. After the last one the column is `end`.
    place: (columns,) the new number of each column, ascending; -1 for an entry that is left out.
    """
    # A column after all others ends a row, so that merging needs no case for it.
    while k < stop:
        value, w = read(m, k, w)
        column = place[m.columns[k]]
        k += 1
        if column >= 0:
            return column, value, k, w
    return end, np.int64(0), k, w


@once
def _copy_row(m: Compact, row: Integer, place: Int64, out: Compact, k: Integer, w: Integer) -> tuple[Integer, Integer]:
    """Write the entries of a row whose columns have a place, from k and w on. Return the next k and w."""
    for at in range(m.indptr[row], m.indptr[row + 1]):
        column = place[m.columns[at]]
        if column >= 0:
            out.columns[k] = column
            out.low[k] = m.low[at]
            k += 1
    for at in range(m.wide_indptr[row], m.wide_indptr[row + 1]):
        column = place[m.wide_columns[at]]
        if column >= 0:
            w = put_wide(out, w, column, m.wide[at])
    return k, w


@once
def _copy_whole(m: Compact, row: Integer, out: Compact, k: Integer, w: Integer) -> tuple[Integer, Integer]:
    """Do the same for a row over the same columns, without a look at each entry."""
    # Unsigned, since numba lets signed numbers count from the end of an array, and asks about it at each access.
    first = np.uint64(m.indptr[row])
    size = np.uint64(m.indptr[row + 1]) - first
    to = np.uint64(k)
    for t in range(size):
        out.columns[to + t] = m.columns[first + t]
    for t in range(size):
        out.low[to + t] = m.low[first + t]
    for at in range(m.wide_indptr[row], m.wide_indptr[row + 1]):
        w = put_wide(out, w, np.int64(m.wide_columns[at]), m.wide[at])
    return k + np.int64(size), w


@kernel
def _merge(a: Compact, place: Int64, origin: Int64, b: Compact, same: Int64, out: Compact) -> bool:
    """Write a + b without zeros. Return whether every sum is within 62 bits.

    place: (columns of a,) where they are in b, or -1.
    origin: (rows,) the row of a for each row of b, or -1.
    same: (columns of b,) their own numbers.
    """
    end = np.int64(len(same))
    k: Integer = np.int64(0)
    w: Integer = np.int64(0)
    sound = True
    unmoved = len(place) == len(same)
    for at in range(len(place)):
        unmoved &= bool(place[at] == at)
    for row in range(len(origin)):
        old = origin[row]
        # A word that enters has no entry in a.
        i: Integer = a.indptr[old] if old >= 0 else np.int64(0)
        last_i = a.indptr[old + 1] if old >= 0 else np.int64(0)
        u: Integer = a.wide_indptr[old] if old >= 0 else np.int64(0)
        j: Integer = b.indptr[row]
        last_j = b.indptr[row + 1]
        v: Integer = b.wide_indptr[row]
        if j == last_j:
            # Most rows do not change.
            if unmoved:
                k, w = _copy_whole(a, row, out, k, w)
            elif old >= 0:
                k, w = _copy_row(a, old, place, out, k, w)
            out.indptr[row + 1] = k
            out.wide_indptr[row + 1] = w
            continue
        left, x, i, u = _next(a, i, u, last_i, place, end)
        right, y, j, v = _next(b, j, v, last_j, same, end)
        while left < end or right < end:
            first = min(left, right)
            value = np.int64(0)
            if left == first:
                value += x
                left, x, i, u = _next(a, i, u, last_i, place, end)
            if right == first:
                value += y
                right, y, j, v = _next(b, j, v, last_j, same, end)
            if value != 0:
                sound &= bool(-_ROOM < value < _ROOM)
                w = put(out, k, w, int(first), value)
                k += 1
        out.indptr[row + 1] = k
        out.wide_indptr[row + 1] = w
    return sound
