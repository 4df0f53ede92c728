"""The counting kernel: a batch of documents to pair counts, G^T W G less the pairs of a token with itself.

Row by row (Gustavson): for every word, the tails of the documents that hold it are added into one dense accumulator.
This is about four times as fast as scipy's product (docs/decisions/0003): the upper triangle alone is half the work,
the weights are applied on the way, and the accumulator stays in the cache.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, fetch_early, inner, kernel, once
from streamtopic.counts.arrays import Int32, Int64, UInt64, joined, row_ends
from streamtopic.counts.batch import DocumentBatch, Weighting
from streamtopic.counts.cooccurrence import Cooccurrence

__all__ = ["HEAVY", "PairBlock", "add_statistics", "count", "count_rows", "statistics"]


HEAVY = 10
"""A word is heavy in a document if at least one token in ten is that word."""

# The most pairs of a buffer: 1.6 GB if all were written.
_BUFFER = 1 << 27
# A row asks the memory so many documents ahead for the rest of a document, which takes about three lines of 64 bytes.
_AHEAD = 4
_LINE = 16
# A row is read off column by column if it has this many additions a column or more.
_DENSE = 1 / 3
Packed = npt.NDArray[np.uint32] | UInt64
Places = Int32 | Int64
_Buffer = tuple[Int32, Int64]
# numba turns a sum of uint64 and a plain int into a float, so bits need a one of their own type.
ONE = np.uint64(1)
# A de Bruijn sequence: its products with each of the 64 single bits differ in their top six bits.
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
BIT = np.zeros(64, np.int64)
for _k in range(64):
    _product = (int(DE_BRUIJN) << _k) % (1 << 64)
    BIT[_product >> 58] = _k


@dataclass(frozen=True, slots=True, eq=False)
class PairBlock:
    """Pairs of some whole rows. Those of `count_rows` are valid until the next block but one.

    first: the number of the first row.
    sizes: (rows,) pairs of each row.
    columns, values: (pairs,) in the order of rows. Columns ascend in each row.
    """

    first: int
    sizes: Int64
    columns: Int32
    values: Int64


def count(batch: DocumentBatch, n_words: int, weighting: Weighting, signs: Int64 | None = None) -> Cooccurrence:
    """Count the word pairs of a batch.

    A passage adds w g_i g_j to the pair (i, j), i < j, and w g_i (g_i - 1) to (i, i). How often a word counts, g, and
    the weight w come from `weighting`. The result holds the word statistics too, of all occurrences (see `statistics`).

    batch: documents over word ids 0 ... n_words - 1.
    n_words: words.
    weighting: the rule of the counts.
    signs: (documents,) 1 to add a document, -1 to take it away; None adds all.

    Returns the upper triangle as int64 CSR. The caller keeps sums within 64 bits, as 2**18 documents of 64
    passages each do, whatever words they hold.
    Cost: one addition per pair of distinct words in a passage.
    Source: the paper, appendix "Complete Description", times f(L).
    """
    if signs is None:
        signs = np.ones(batch.documents, np.int64)
    sizes = np.diff(batch.indptr)
    largest = int(sizes.astype(np.float64) @ (sizes + 1.0) / 2)
    # As large as the pairs could be: pages that are never written cost nothing, and numpy puts a large array on huge
    # pages, which halves the time of large batches. Nearly always all rows fit, and nothing is copied.
    buffers = _buffers(min(largest, _BUFFER), n_words)
    blocks = list(_counted(batch, n_words, weighting, signs, buffers))
    frequency, tokens, heavy = statistics(batch, n_words, signs)
    return Cooccurrence(
        n_words=n_words,
        indptr=row_ends(joined([block.sizes for block in blocks], np.int64)),
        columns=joined([block.columns for block in blocks], np.int32),
        values=joined([block.values for block in blocks], np.int64),
        frequency=frequency,
        tokens=tokens,
        heavy=heavy,
        documents=int(signs.sum()),
    )


def count_rows(
    batch: DocumentBatch, n_words: int, weighting: Weighting, signs: Int64, pairs: int
) -> Iterator[PairBlock]:
    """Yield the counts of `count` in blocks of rows, in order, so that they need not be in memory at once.

    signs: (documents,) as in `count`.
    pairs: the most pairs of a block; a single row may have more.
    """
    # Two buffers, so that one can be written out while the other is filled.
    two = list(islice(_buffers(pairs, n_words), 2))
    return _counted(batch, n_words, weighting, signs, cycle(two))


def _buffers(pairs: int, n_words: int) -> Iterator[_Buffer]:
    """Yield memory for the columns and values of so many pairs, again and again."""
    # A single row may have a pair with every word. One more, since a row may write a place after its end.
    size = max(pairs, n_words) + 1
    while True:
        yield np.empty(size, np.int32), np.empty(size, np.int64)


def _counted(
    batch: DocumentBatch, n_words: int, weighting: Weighting, signs: Int64, buffers: Iterator[_Buffer]
) -> Iterator[PairBlock]:
    """Yield blocks of rows, each in the next buffer. The parameters are those of `count`."""
    weights = weighting.of(batch) * signs[batch.owners]
    starts, positions, rows = _occurrences_of(batch.indptr, batch.words, n_words)
    entries, bits = _packed(batch.words, weighting.counted(batch))
    accumulator = np.zeros(n_words, np.int64)
    # One bit a column finds the touched columns in order without sorting them.
    touched = np.zeros(n_words // 64 + 1, np.uint64)
    lengths = np.zeros(n_words + 1, np.int64)
    word = 0
    while word < n_words:
        first = word
        columns, values = next(buffers)
        word, used = _fill_rows(
            batch.indptr, entries, bits, weights, starts, positions, rows,
            accumulator, touched, word, lengths, columns, values,
        )  # fmt: skip
        yield PairBlock(first, lengths[first + 1 : word + 1], columns[:used], values[:used])


def statistics(batch: DocumentBatch, n_words: int, signs: Int64) -> tuple[Int64, Int64, Int64]:
    """Return for each word the documents that hold it, its occurrences, and the documents in which it is heavy.

    Each is (n_words,). A word is heavy in a document of L tokens that holds it h times if 10 h >= L. Both h and L
    are those of all passages of the document together, and a word of several passages counts once.
    """
    totals = np.zeros((4, n_words), np.int64)
    add_statistics(batch, signs, totals)
    frequency, tokens, heavy, _ = totals
    return frequency, tokens, heavy


def add_statistics(batch: DocumentBatch, signs: Int64, totals: Int64) -> None:
    """Add the `statistics` of documents to those that are known.

    totals: (4, n_words) documents, occurrences and heavy documents of each word, and zeros as memory.
    """
    _statistics(batch.indptr, batch.words, batch.counts, batch.lengths, batch.owners, signs, *totals)


@kernel
def _statistics(
    indptr: Int64, words: Int32, counts: Int32, lengths: Int64, owners: Int32, signs: Int64,
    frequency: Int64, tokens: Int64, heavy: Int64, held: Int64,
) -> None:  # fmt: skip
    """Go through the documents; the rows of one document follow each other.

    frequency, tokens, heavy: (n_words,) added to.
    held: (n_words,) zeros; zeros again afterwards.
    """
    row = 0
    while row < len(owners):
        sign = signs[owners[row]]
        stop = row
        length = np.int64(0)
        while stop < len(owners) and owners[stop] == owners[row]:
            length += lengths[stop]
            stop += 1
        if stop == row + 1:
            # The words of one passage are distinct: nothing has to be added up first.
            for position in range(indptr[row], indptr[stop]):
                word = words[position]
                times = np.int64(counts[position])
                frequency[word] += sign
                tokens[word] += sign * times
                if HEAVY * times >= length:
                    heavy[word] += sign
        else:
            for position in range(indptr[row], indptr[stop]):
                held[words[position]] += counts[position]
            for position in range(indptr[row], indptr[stop]):
                word = words[position]
                times = held[word]
                # A word of several passages is met several times; only the first meeting finds its sum.
                if times > 0:
                    held[word] = 0
                    frequency[word] += sign
                    tokens[word] += sign * times
                    if HEAVY * times >= length:
                        heavy[word] += sign
        row = stop


def _occurrences_of(indptr: Int64, words: Int32, n_words: int) -> tuple[Int64, Places, Places]:
    """Return where each word is: starts (n_words + 1,), and for each occurrence its position and its row."""
    amounts = np.bincount(words, minlength=n_words)
    starts = row_ends(amounts)
    # Half the memory if places are below 2^31, as they are unless a batch fills gigabytes.
    kind: Any = np.int32 if len(words) < 1 << 31 else np.int64
    positions: Places = np.empty(len(words), kind)
    rows: Places = np.empty(len(words), kind)
    fill = starts[:-1].copy()
    _occurrences(indptr, words, fill, positions, rows)
    return starts, positions, rows


@kernel
def _occurrences(indptr: Int64, words: Int32, fill: Int64, positions: Places, rows: Places) -> None:
    """Write the position and the row of each occurrence. fill: (n_words,) where those of each word go."""
    for row in range(len(indptr) - 1):
        for position in range(indptr[row], indptr[row + 1]):
            slot = fill[words[position]]
            fill[words[position]] = slot + 1
            positions[slot] = position
            rows[slot] = row


@inner
def drain(sums: Int64, touched: UInt64, first: Whole, last: Whole, columns: Int32, values: Int64, used: Whole) -> Whole:
    """Move the sums of columns first ... last after the entries of a row. Return where the entries end then.

    sums: (n,) int64, zero afterwards if they were moved.
    touched: a bit for each column that was added to, zero afterwards.
    columns, values: the entries, `used` of them so far.
    """
    for group in range(first >> 6, (last >> 6) + 1):
        bits = touched[group]
        touched[group] = 0
        while bits != 0:
            # The lowest bit that is set comes first, so columns come out in order.
            low = bits & (~bits + ONE)
            bits ^= low
            column = (group << 6) + BIT[(low * DE_BRUIJN) >> np.uint64(58)]
            # A sum of zero is not stored: such is the diagonal of a word that each passage holds once.
            if sums[column] != 0:
                columns[used] = column
                values[used] = sums[column]
                sums[column] = 0
                used += 1
    return used


def _packed(words: Int32, counts: Int32) -> tuple[Packed, np.uint64]:
    """Return each word and its count as one number, and how many of its low bits hold the count.

    A row reads the rest of every document that holds its word, each from another place of the memory, which is most of
    its time. One array of four bytes an entry is read twice as fast as two of them.
    """
    bits = int(counts.max(initial=1)).bit_length()
    largest = int(words.max(initial=0))
    # A count may be so large, or the words so many, that four bytes do not hold both.
    together = largest.bit_length() + bits
    kind: type[np.unsignedinteger] = np.uint32 if together <= 32 else np.uint64
    entries = words.astype(kind)
    entries <<= kind(bits)
    entries |= counts.astype(kind)
    return entries, np.uint64(bits)


@once
def _sweep(sums: Int64, first: Whole, last: Whole, columns: Int32, values: Int64, used: Whole) -> Whole:
    """Move the sums of columns first ... last after the entries of a row, as `drain` does without marks.

    It may write one place after the entries.
    """
    for column in range(first, last + 1):
        # Written whether it counts or not: a branch would often be predicted wrong.
        columns[used] = column
        values[used] = sums[column]
        used += sums[column] != 0
        sums[column] = 0
    return used


@kernel
def _fill_rows(
    indptr: Int64, entries: Packed, bits: np.uint64, weights: Int64, starts: Int64, positions: Places, rows: Places,
    accumulator: Int64, touched: UInt64, word: int, lengths: Int64, columns: Int32, values: Int64,
) -> tuple[int, Whole]:  # fmt: skip
    """Write rows from `word` on until the buffer might not hold the next. Return the next word and how many entries.

    entries, bits: as `_packed` returns them.
    """
    # Of one type from the start: numba would compile `drain` again for a literal.
    used: Whole = np.int64(0)
    # Unsigned, since numba lets signed numbers count from the end of an array, and asks about it at each access.
    mask = (ONE << bits) - ONE
    while word < len(accumulator):
        work = np.int64(0)
        last = np.int64(word)
        for slot in range(starts[word], starts[word + 1]):
            end = indptr[rows[slot] + 1]
            work += end - np.int64(positions[slot])
            last = max(last, np.int64(entries[end - 1] >> bits))
        # A row has no more pairs than columns up to its last one, nor than its documents have words from here on.
        if used + min(work, last - word + 1) >= len(columns):
            break
        dense = work >= _DENSE * (last - word + 1)
        for slot in range(starts[word], starts[word + 1]):
            if slot + _AHEAD < len(positions):
                ahead = np.int64(positions[slot + _AHEAD])
                fetch_early(entries, ahead)
                fetch_early(entries, ahead + _LINE)
                fetch_early(entries, ahead + 2 * _LINE)
            row = rows[slot]
            first = np.int64(positions[slot])
            times = np.int64(entries[first] & mask)
            factor = weights[row] * times
            accumulator[word] += factor * (times - 1)
            rest = range(np.uint64(first + 1), np.uint64(indptr[row + 1]))
            if dense:
                for position in rest:
                    entry = np.uint64(entries[position])
                    accumulator[entry >> bits] += factor * np.int64(entry & mask)
            else:
                touched[word >> 6] |= ONE << np.uint64(word & 63)
                for position in rest:
                    entry = np.uint64(entries[position])
                    column = entry >> bits
                    accumulator[column] += factor * np.int64(entry & mask)
                    touched[column >> np.uint64(6)] |= ONE << (column & np.uint64(63))
        begin = used
        if dense:
            used = _sweep(accumulator, np.int64(word), last, columns, values, used)
        elif work > 0:
            used = drain(accumulator, touched, word, last, columns, values, used)
        lengths[word + 1] = used - begin
        word += 1
    return word, used
