"""The working matrix Q in integers: symmetric, whole rows, six bytes for nearly every entry.

SymmetricCounts   the matrix, made of an upper triangle or counted from documents
Uncounted         documents whose pairs are counted when somebody reads the rows: a cold start reads Q only as
                  sums of rows, pairs of a few words, and one product, which all need no matrix
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from streamtopic.compiled import kernel
from streamtopic.counts.arrays import Float, Int32, Int64, Positions, places
from streamtopic.counts.batch import DocumentBatch, Weighting, row_ends
from streamtopic.counts.compact import (
    MARK,
    Compact,
    allocate,
    fits,
    merged,
    put_wide,
    read,
)
from streamtopic.counts.cooccurrence import Cooccurrence
from streamtopic.counts.count_pairs import PairBlock, count_rows
from streamtopic.errors import CountsOverflow

__all__ = ["PassageSource", "SymmetricCounts", "Uncounted"]


# Pairs that are counted before they are packed or used.
_PAIRS = 1 << 18


_Part = tuple[int, Int64, Int32, Int64, Positions, Int32]
"""Rows of an upper triangle.

The number of the first, among the words that are wanted; row pointers, columns and values of all; which rows are
wanted; and the number of each column among the wanted words, -1 for others."""


class PassageSource(Protocol):
    """Documents that stay in memory and do not change."""

    @property
    def weighting(self) -> Weighting:
        """The weight of their pairs."""

    def passages(self, keep: Positions) -> DocumentBatch:
        """Return all passages over the words at these ascending positions."""


@dataclass(frozen=True, slots=True, eq=False)
class Uncounted:
    """Documents over the words at `keep`. Each method counts what it needs, and keeps nothing.

    keep: (n,) ascending positions.
    """

    source: PassageSource
    keep: Positions

    def blocks(self, words: Positions | None = None) -> Iterator[PairBlock]:
        """Yield the upper triangle of the words at these ascending positions of `keep`, None for all, in blocks."""
        keep = self.keep if words is None else self.keep[words]
        return _blocks(self.source.passages(keep), len(keep), self.source.weighting)

    def grouped(self, group: Int64, groups: int) -> Int64:
        """Return the sums of the rows of each group, (groups, n), as of `products.grouped_rows`.

        Cost: the words of each passage for each group that it holds; no pair is counted.
        """
        batch = self.source.passages(self.keep)
        weighting = self.source.weighting
        out = np.zeros((groups, len(self.keep)), np.int64)
        passages = (batch.indptr, batch.words, weighting.counted(batch), weighting.of(batch))
        _grouped(*passages, group, np.zeros(groups, np.int64), out)
        return out


@dataclass(slots=True, eq=False)
class SymmetricCounts:
    """Both triangles of the pair counts of a working vocabulary.

    n: words.
    held: the rows; before somebody reads them, the documents that they are counted from then.
    counted_lengths: (n,) entries of each row, if these alone were counted.
    A change makes another matrix; only rows that are counted take the place of their documents.
    """

    n: int
    held: Compact | Uncounted
    counted_lengths: Int64 | None = None

    @classmethod
    def counted(cls, batch: DocumentBatch, n: int, weighting: Weighting) -> "SymmetricCounts":
        """Count documents over n words, with little memory besides the result.

        A pair that no document holds has no entry.
        """
        ids = np.arange(n, dtype=np.int32)

        def parts() -> Iterator[_Part]:
            for block in _blocks(batch, n, weighting):
                rows = np.arange(len(block.sizes))
                yield block.first, row_ends(block.sizes), block.columns, block.values, rows, ids

        # Counted twice: that takes less time than to keep one triangle until rows of the other can be written.
        return cls(n, _mirrored(n, parts))

    @classmethod
    def of(cls, counts: Cooccurrence, keep: Positions | None = None) -> "SymmetricCounts":
        """Mirror an upper triangle.

        keep: ascending positions of the words that are wanted; None for all.
        """
        kept = np.arange(counts.n_words) if keep is None else keep
        # Words are renamed on the way: a triangle of the wanted words alone would be a copy as large as Q's half.
        ids = places(counts.n_words, kept, np.int32)
        part = (0, counts.indptr, counts.columns, counts.values, kept, ids)
        return cls(len(kept), _mirrored(len(kept), lambda: [part]))

    @property
    def rows(self) -> Compact:
        """Whole rows with ascending columns. Q is these values over their total."""
        held = self.held
        if isinstance(held, Uncounted):
            # In place of the documents: one that is forgotten later must not stay here.
            source = held.source
            held = SymmetricCounts.counted(source.passages(held.keep), self.n, source.weighting).rows
            self.held = held
        return held

    @property
    def uncounted(self) -> Uncounted | None:
        """The documents, if nobody has read the rows yet."""
        held = self.held
        return held if isinstance(held, Uncounted) else None

    @property
    def lengths(self) -> Int64:
        """Entries of each row, (n,)."""
        if self.counted_lengths is not None and self.uncounted is not None:
            return self.counted_lengths
        return np.diff(self.indptr)

    @property
    def indptr(self) -> Int64:
        """Where rows begin, (n + 1,)."""
        return self.rows.indptr

    @property
    def entries(self) -> int:
        """How many entries are stored."""
        return len(self.rows.low)

    def plus(self, change: "SymmetricCounts", place: Int64 | None = None) -> "SymmetricCounts":
        """Return the sum with signed counts, without zeros.

        change: over the words of the result.
        place: (n,) where the words are among those of the result, ascending; -1 for a word that is left out with its
            pairs. None if the words are the same.
        Raises CountsOverflow if a sum leaves 62 bits.
        """
        ids = np.arange(self.n) if place is None else place
        return SymmetricCounts(change.n, merged(self.rows, ids, change.rows))

    def only(self, left: Positions) -> "SymmetricCounts":
        """Return the counts of the words at these ascending positions."""
        if isinstance(self.held, Uncounted):
            return SymmetricCounts(len(left), replace(self.held, keep=self.held.keep[left]))
        nothing = SymmetricCounts.of(Cooccurrence.zero(len(left)))
        return self.plus(nothing, places(self.n, left))

    def upper(self) -> Cooccurrence:
        """Return the upper triangle. Word statistics are not known here: they are 0."""
        most = (self.entries + self.n) // 2
        columns = np.empty(most, np.int32)
        values = np.empty(most, np.int64)
        indptr = np.zeros(self.n + 1, np.int64)
        _upper(self.rows, indptr, columns, values)
        columns.resize(indptr[-1], refcheck=False)
        values.resize(indptr[-1], refcheck=False)
        nothing = np.zeros(self.n, np.int64)
        return Cooccurrence(self.n, indptr, columns, values, nothing, nothing, nothing, 0)

    def row_sums(self) -> Int64:
        """Return exact row sums, (n,). Raises CountsOverflow if one leaves 64 bits."""
        uncounted = self.uncounted
        if uncounted is not None:
            # A source has no more documents than 64 bits have room for.
            return np.asarray(uncounted.grouped(np.zeros(self.n, np.int64), 1)[0])
        # Integers wrap in silence. A sum of floats is off by little, and so shows where they would.
        rough = np.zeros(self.n)
        sums = np.zeros(self.n, np.int64)
        _row_sums(self.rows, sums, rough)
        if self.n and float(np.abs(rough).max()) >= 2.0**62:
            raise CountsOverflow("a row of counts exceeds 64 bits: too many documents for one model, split the corpus")
        return sums


def _blocks(batch: DocumentBatch, n: int, weighting: Weighting) -> Iterator[PairBlock]:
    """Yield the upper triangle of documents over n words."""
    return count_rows(batch, n, weighting, np.ones(batch.documents, np.int64), _PAIRS)


def _mirrored(n: int, parts: Callable[[], Iterable[_Part]]) -> Compact:
    """Return both triangles of an upper one over n words. parts: gives its rows in order, each time it is called."""
    sizes = np.zeros(n + 1, np.int64)
    wide = np.zeros(n + 1, np.int64)
    for part in parts():
        _mirrored_sizes(*part, sizes, wide)
    out = allocate(n, np.cumsum(sizes), np.cumsum(wide))
    fill = out.indptr[:-1].copy()
    wide_fill = out.wide_indptr[:-1].copy()
    for part in parts():
        _mirror(*part, out, fill, wide_fill)
    return out


@kernel
def _mirrored_sizes(
    first: int, indptr: Int64, columns: Int32, values: Int64, kept: Positions, ids: Int32, full: Int64, wide: Int64
) -> None:
    """Add the entries, and the wide ones, that each row has once both triangles are there, (rows + 1,)."""
    for i, kept_row in enumerate(kept):
        row = first + i
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
    first: int, indptr: Int64, columns: Int32, values: Int64, kept: Positions, ids: Int32,
    out: Compact, fill: Int64, wide: Int64,
) -> None:  # fmt: skip
    """Write every entry to its own row and to that of its column.

    fill, wide: (rows,) the next place of each row, and of its wide values.
    """
    # Rows are visited in order, so entries left of the diagonal arrive in column order before those of the row itself.
    for i, kept_row in enumerate(kept):
        row = first + i
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
def _grouped(indptr: Int64, words: Int32, counts: Int32, weights: Int64, group: Int64, held: Int64, out: Int64) -> None:
    """Add the rows that passages give each group to `out` (groups, n).

    counts: (nnz,) how often each word counts, g.
    group: (n,) the group of each word, -1 for none.
    held: (groups,) zeros; zeros again afterwards.
    """
    for row in range(len(weights)):
        span = range(indptr[row], indptr[row + 1])
        for k in span:
            if group[words[k]] >= 0:
                held[group[words[k]]] += counts[k]
        for t in range(len(held)):
            if held[t] != 0:
                for k in span:
                    # A pair of a word with itself counts g (g - 1).
                    met = held[t] - (group[words[k]] == t)
                    out[t, words[k]] += weights[row] * counts[k] * met
                held[t] = 0


@kernel
def _upper(q: Compact, indptr: Int64, columns: Int32, values: Int64) -> None:
    """Write the entries from the diagonal of each row on, and where rows begin."""
    slot = 0
    for row in range(len(q.indptr) - 1):
        w = q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            value, w = read(q, k, w)
            column = q.columns[k]
            if column >= row:
                columns[slot] = column
                values[slot] = value
                slot += 1
        indptr[row + 1] = slot


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
