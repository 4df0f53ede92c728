"""The working matrix Q in integers: symmetric, whole rows, six bytes for nearly every entry."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamtopic.compiled import allocating, kernel
from streamtopic.counts.arrays import Float, Int32, Int64, Positions, UInt16, places
from streamtopic.counts.compact import (
    MARK,
    SHORT,
    Compact,
    add_entries,
    allocate,
    fits,
    merged,
    put_wide,
    read,
    unpack,
)
from streamtopic.counts.cooccurrence import Cooccurrence
from streamtopic.errors import CountsOverflow

__all__ = ["SymmetricCounts"]


@dataclass(slots=True, eq=False)
class SymmetricCounts:
    """Both triangles of the pair counts of a working vocabulary.

    n: words.
    rows: whole rows with ascending columns. Q is these values over their total.
    shared: whether other counts have the same arrays. Then the values are copied before they change.
    Only `add_within` changes values in place, and only `drop_empty` changes the words.
    """

    n: int
    rows: Compact
    shared: bool = False

    @classmethod
    def of(cls, counts: Cooccurrence, keep: Positions | None = None) -> "SymmetricCounts":
        """Mirror an upper triangle.

        keep: ascending positions of the words that are wanted; None for all.
        """
        kept = np.arange(counts.n_words) if keep is None else keep
        # Words are renamed on the way: a triangle of the wanted words alone would be a copy as large as Q's half.
        ids = places(counts.n_words, kept, np.int32)
        entries = counts.indptr, counts.columns, counts.values
        sizes = np.zeros(len(kept) + 1, np.int64)
        wide = np.zeros(len(kept) + 1, np.int64)
        _mirrored_sizes(*entries, kept, ids, sizes, wide)
        out = allocate(len(kept), np.cumsum(sizes), np.cumsum(wide))
        fill = out.indptr[:-1].copy()
        wide_fill = out.wide_indptr[:-1].copy()
        _mirror(*entries, kept, ids, out, fill, wide_fill)
        return cls(len(kept), out)

    @property
    def indptr(self) -> Int64:
        """Where rows begin, (n + 1,)."""
        return self.rows.indptr

    @property
    def columns(self) -> UInt16:
        """The column of each entry, ascending in each row: uint16, or int32 for more than 65,536 words."""
        return self.rows.columns

    @property
    def entries(self) -> int:
        """How many entries are stored."""
        return len(self.rows.low)

    @property
    def values(self) -> Int64:
        """A copy of all values, in the order of `columns`: eight bytes each."""
        values = np.empty(self.entries, np.int64)
        unpack(self.rows, values)
        return values

    @property
    def nbytes(self) -> int:
        """Bytes that the entries take."""
        return sum(part.nbytes for part in self.rows)

    def copy(self) -> "SymmetricCounts":
        """Return the same counts, to be changed by themselves: these here must not change any more."""
        # Nothing is copied yet: a change that brings words or pairs makes new arrays in any case.
        return SymmetricCounts(self.n, self.rows, shared=True)

    def spread(self, ids: Int64, n: int) -> "SymmetricCounts":
        """Give word k the position `ids[k]` among n. Positions ascend, so nothing is sorted and values are shared."""
        rows = self.rows
        kind: Any = np.uint16 if n <= SHORT else np.int32
        names = ids.astype(kind)
        indptr = _spread_indptr(rows.indptr, ids, n)
        wide_indptr = _spread_indptr(rows.wide_indptr, ids, n)
        columns = rows.columns.astype(kind)
        wide_columns = rows.wide_columns.astype(kind)
        _rename(columns, names)
        _rename(wide_columns, names)
        moved = rows._replace(indptr=indptr, columns=columns, wide_indptr=wide_indptr, wide_columns=wide_columns)
        return SymmetricCounts(n, moved, self.shared)

    def drop_empty(self, left: Positions) -> None:
        """Keep the words at these ascending positions, in place. The other words must not have an entry."""
        rows = self.rows
        ids = np.zeros(self.n, self.columns.dtype)
        ids[left] = np.arange(len(left))
        # The rows that go are empty, so where they began does not matter to the others.
        rows_left = rows.indptr[left]
        indptr = np.append(rows_left, rows.indptr[-1])
        wide_left = rows.wide_indptr[left]
        wide_indptr = np.append(wide_left, rows.wide_indptr[-1])
        _rename(rows.columns, ids)
        _rename(rows.wide_columns, ids)
        self.n = len(left)
        self.rows = self.rows._replace(indptr=indptr, wide_indptr=wide_indptr)

    def add_within(self, counts: Cooccurrence) -> bool:
        """Add signed counts in place. Return False, with nothing changed, if one of them has no place.

        A count has no place if its pair has no entry here yet, or if the sum would be negative or would need a
        wider entry.
        """
        delta = SymmetricCounts.of(counts).rows
        if self.shared:
            # Values alone: the places of entries stay shared.
            self.rows = self.rows._replace(low=self.rows.low.copy(), wide=self.rows.wide.copy())
            self.shared = False
        done = add_entries(self.rows, delta, 1, len(delta.low))
        if done < len(delta.low):
            # The same entries in the same order, so the matrix is the one of before to the bit.
            add_entries(self.rows, delta, -1, done)
            return False
        return True

    def plus(self, counts: Cooccurrence) -> "SymmetricCounts":
        """Return the sum with signed counts, without zeros. Raises CountsOverflow if a sum leaves 62 bits."""
        change = SymmetricCounts.of(counts)
        rows = merged(self.n, self.rows, change.rows)
        return SymmetricCounts(self.n, rows)

    def upper(self) -> Cooccurrence:
        """Return the upper triangle without zeros. Word statistics are not known here: they are 0."""
        indptr = _upper_indptr(self.rows)
        columns = np.empty(indptr[-1], np.int32)
        values = np.empty(indptr[-1], np.int64)
        _upper(self.rows, columns, values)
        nothing = np.zeros(self.n, np.int64)
        return Cooccurrence(self.n, indptr, columns, values, nothing, nothing, nothing, 0)

    def row(self, row: int) -> tuple[Int64, Int64]:
        """Return columns and values of one row, (entries,) each."""
        first, last = self.indptr[row : row + 2]
        values = self.rows.low[first:last].astype(np.int64)
        first_wide, last_wide = self.rows.wide_indptr[row : row + 2]
        values[values == MARK] = self.rows.wide[first_wide:last_wide]
        columns = self.columns[first:last].astype(np.int64)
        return columns, values

    def row_sums(self) -> Int64:
        """Return exact row sums, (n,). Raises CountsOverflow if one leaves 64 bits."""
        # Integers wrap in silence. A sum of floats is off by little, and so shows where they would.
        rough = np.zeros(self.n)
        sums = np.zeros(self.n, np.int64)
        _row_sums(self.rows, sums, rough)
        if self.n and float(np.abs(rough).max()) >= 2.0**62:
            raise CountsOverflow("a row of counts exceeds 64 bits: too many documents for one model, split the corpus")
        return sums


def _spread_indptr(indptr: Int64, ids: Int64, n: int) -> Int64:
    """Return row pointers of n rows, of which those at `ids` have the entries and the others are empty."""
    lengths = np.zeros(n + 1, np.int64)
    lengths[ids + 1] = np.diff(indptr)
    return np.cumsum(lengths)


@kernel
def _mirrored_sizes(
    indptr: Int64, columns: Int32, values: Int64, kept: Positions, ids: Int32, full: Int64, wide: Int64
) -> None:
    """Add the entries, and the wide ones, that each row has once both triangles are there, (rows + 1,)."""
    for row, kept_row in enumerate(kept):
        for k in range(indptr[kept_row], indptr[kept_row + 1]):
            column = ids[columns[k]]
            if column >= 0:
                full[row + 1] += 1
                full[column + 1] += column != row
                if not fits(values[k]):
                    wide[row + 1] += 1
                    wide[column + 1] += column != row


@kernel
def _mirror(
    indptr: Int64, columns: Int32, values: Int64, kept: Positions, ids: Int32, out: Compact, fill: Int64, wide: Int64
) -> None:
    """Write every entry to its own row and to that of its column.

    fill, wide: (rows,) the next place of each row, and of its wide values.
    """
    # Rows are visited in order, so entries left of the diagonal arrive in column order before those of the row itself.
    for row, kept_row in enumerate(kept):
        # Arrays named once, and the row's own place in a register: five times as fast as `put` for each entry.
        out_columns = out.columns
        out_low = out.low
        here = fill[row]
        for k in range(indptr[kept_row], indptr[kept_row + 1]):
            value = values[k]
            # In 64 bits, as all callers of `put_wide` pass it: it would be compiled once more for others.
            column = np.int64(ids[columns[k]])
            if column < 0:
                continue
            narrow = fits(value)
            low = np.uint32(value) if narrow else np.uint32(MARK)
            out_columns[here] = column
            out_low[here] = low
            here += 1
            if column != row:
                there = fill[column]
                fill[column] = there + 1
                out_columns[there] = row
                out_low[there] = low
            if not narrow:
                wide[row] = put_wide(out, wide[row], column, value)
                if column != row:
                    wide[column] = put_wide(out, wide[column], row, value)


@kernel
def _rename(columns: UInt16, ids: UInt16) -> None:
    for k in range(len(columns)):
        columns[k] = ids[columns[k]]


@allocating
def _upper_indptr(q: Compact) -> Int64:
    """Return where the rows of the upper triangle begin. An entry may have become zero in place."""
    upper = np.zeros(len(q.indptr), np.int64)
    for row in range(len(q.indptr) - 1):
        kept, w = 0, q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            value, w = read(q, k, w)
            kept += q.columns[k] >= row and value != 0
        upper[row + 1] = upper[row] + kept
    return upper


@kernel
def _upper(q: Compact, columns: Int32, values: Int64) -> None:
    slot = 0
    for row in range(len(q.indptr) - 1):
        w = q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            value, w = read(q, k, w)
            column = q.columns[k]
            if column >= row and value != 0:
                columns[slot] = column
                values[slot] = value
                slot += 1


@kernel
def _row_sums(q: Compact, sums: Int64, rough: Float) -> None:
    """Add up the values of each row, as integers and as floats, (n,) each."""
    for row in range(len(sums)):
        w = q.wide_indptr[row]
        # In registers: with a write to both arrays for each entry the pass takes twice as long.
        total = np.int64(0)
        about = 0.0
        for k in range(q.indptr[row], q.indptr[row + 1]):
            value, w = read(q, k, w)
            total += value
            about += value
        sums[row] += total
        rough[row] += about
