"""Documents as word counts, ready to be counted.

Passage         word counts of a document, or of one part of a long one
DocumentBatch   passages of several documents, one row a passage
narrowed        the same batch over some of its words
WordSets        only which words each document holds
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamtopic.compiled import kernel
from streamtopic.counts.arrays import Int32, Int64, Positions

__all__ = ["DocumentBatch", "Passage", "WordSets", "narrowed"]


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """Word counts of a document, or of one part of a long one.

    length: tokens L, those outside the vocabulary included.
    words: (k,) int32 word ids, ascending and distinct.
    counts: (k,) int32, at least 1 each, their sum at most L.
    """

    length: int
    words: Int32
    counts: Int32


@dataclass(frozen=True, slots=True, eq=False)
class DocumentBatch:
    """Passages of several documents as a sparse matrix, one row a passage.

    indptr: (rows + 1,) int64, where rows begin.
    words: (nnz,) int32, ascending in each row.
    counts: (nnz,) int32.
    lengths: (rows,) int64, tokens of each passage.
    owners: (rows,) int32, the document that each row belongs to, non-decreasing.
    documents: how many there are, those without a row included.
    """

    indptr: Int64
    words: Int32
    counts: Int32
    lengths: Int64
    owners: Int32
    documents: int

    @property
    def totals(self) -> Int64:
        """Tokens of the document that each row belongs to, all its passages together, (rows,)."""
        # bincount would add floats, which lose whole tokens above 2^53.
        tokens = np.zeros(self.documents, np.int64)
        np.add.at(tokens, self.owners, self.lengths)
        return tokens[self.owners]

    @classmethod
    def build(cls, documents: Sequence[Sequence[Passage]]) -> "DocumentBatch":
        """Lay the passages of `documents` one below the other."""
        passages = [passage for document in documents for passage in document]
        lengths = [passage.length for passage in passages]
        sizes = [len(passage.words) for passage in passages]
        indptr = np.zeros(len(passages) + 1, np.int64)
        np.cumsum(sizes, out=indptr[1:])
        amounts = [len(document) for document in documents]
        passages_each = np.array(amounts, np.int64)
        numbers = np.arange(len(documents), dtype=np.int32)
        owners = np.repeat(numbers, passages_each)
        words = [passage.words for passage in passages]
        counts = [passage.counts for passage in passages]
        return cls(
            indptr=indptr,
            words=_joined(words),
            counts=_joined(counts),
            lengths=np.array(lengths, np.int64),
            owners=owners,
            documents=len(documents),
        )

    @classmethod
    def joined(cls, first: "DocumentBatch", second: "DocumentBatch") -> "DocumentBatch":
        """Return the documents of both: first those of `first`, then those of `second`."""
        return cls.stacked([first, second])

    @classmethod
    def stacked(cls, batches: Sequence["DocumentBatch"]) -> "DocumentBatch":
        """Return the documents of several batches, in the order of the batches."""
        documents = [batch.documents for batch in batches]
        before = np.cumsum([0, *documents], dtype=np.int32)
        spans = zip(batches, before[:-1], strict=True)
        owners = [batch.owners + start for batch, start in spans]
        lengths = [batch.lengths for batch in batches]
        sizes = [np.diff(batch.indptr) for batch in batches]
        # An integer array in front: concatenate refuses an empty list, and its sum would have no type.
        nothing = np.zeros(1, np.int64)
        all_sizes = np.concatenate([nothing, *sizes])
        words = [batch.words for batch in batches]
        counts = [batch.counts for batch in batches]
        return cls(
            indptr=np.cumsum(all_sizes),
            words=_joined(words),
            counts=_joined(counts),
            lengths=np.concatenate([nothing[:0], *lengths]),
            owners=_joined(owners),
            documents=int(before[-1]),
        )

    def take(self, documents: Positions) -> "DocumentBatch":
        """Return the documents at these ascending positions, in their order."""
        # Through a table of documents and not of rows: a document may have no row, and still has its number.
        place = np.full(self.documents, -1, np.int32)
        place[documents] = np.arange(len(documents))
        wanted = place[self.owners] >= 0
        rows = np.flatnonzero(wanted)
        sizes = np.diff(self.indptr)
        words = np.repeat(wanted, sizes)
        ends = np.cumsum(sizes[rows])
        return DocumentBatch(
            indptr=np.concatenate([[0], ends]),
            words=self.words[words],
            counts=self.counts[words],
            lengths=self.lengths[rows],
            owners=place[self.owners[rows]],
            documents=len(documents),
        )

    def span(self, start: int, stop: int) -> "DocumentBatch":
        """Return documents start ... stop - 1. The result shares this batch's arrays."""
        first, last = np.searchsorted(self.owners, [start, stop])
        low = self.indptr[first]
        high = self.indptr[last]
        indptr = self.indptr[first : last + 1]
        owners = self.owners[first:last]
        return DocumentBatch(
            indptr=indptr - low,
            words=self.words[low:high],
            counts=self.counts[low:high],
            lengths=self.lengths[first:last],
            owners=owners - np.int32(start),
            documents=stop - start,
        )


def _joined(parts: Sequence[Int32]) -> Int32:
    """Lay arrays one behind the other; numpy cannot concatenate an empty list."""
    if not parts:
        return np.zeros(0, np.int32)
    return np.concatenate(parts).astype(np.int32, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class WordSets:
    """Which words each document holds.

    indptr: (documents + 1,) where documents begin.
    words: (positions,) in any order, repeated or not.
    """

    indptr: Int64
    words: Int64

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def joined(cls, parts: Sequence["WordSets"]) -> "WordSets":
        """Return the documents of several parts, in the order of the parts."""
        # Empty arrays in front, so that a join of no parts works as well.
        nothing = np.zeros(1, np.int64)
        sizes = [np.diff(part.indptr) for part in parts]
        indptr = np.cumsum(np.concatenate([nothing, *sizes]))
        words = np.concatenate([nothing[:0], *[part.words for part in parts]])
        return cls(indptr.astype(np.int64), words.astype(np.int64))


def narrowed(batch: DocumentBatch, ids: Int32) -> DocumentBatch:
    """Rename the words of all passages and leave some words out.

    ids: the new position of each word, in the same order; negative for a word that is left out.
    Every passage stays. Its length counts all of its tokens as before, those of the words left out included.
    """
    indptr = np.zeros(len(batch.indptr), np.int64)
    _kept_sizes(batch.indptr, batch.words, ids, indptr)
    indptr = np.cumsum(indptr)
    words = np.empty(indptr[-1], np.int32)
    counts = np.empty(indptr[-1], np.int32)
    _keep(batch.words, batch.counts, ids, words, counts)
    return replace(batch, indptr=indptr, words=words, counts=counts)


@kernel
def _kept_sizes(indptr: Int64, words: Int32, ids: Int32, sizes: Int64) -> None:
    """Write how many words each row keeps, one place further on: `sizes` becomes row pointers by a cumulative sum."""
    for row in range(len(indptr) - 1):
        kept = 0
        for k in range(indptr[row], indptr[row + 1]):
            kept += ids[words[k]] >= 0
        sizes[row + 1] = kept


@kernel
def _keep(words: Int32, counts: Int32, ids: Int32, out_words: Int32, out_counts: Int32) -> None:
    """Write the entries of the words that stay, under their new positions."""
    slot = 0
    for k in range(len(words)):
        word = ids[words[k]]
        if word >= 0:
            out_words[slot] = word
            out_counts[slot] = counts[k]
            slot += 1
