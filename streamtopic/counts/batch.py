"""Documents as word counts, ready to be counted.

Passage         word counts of a document, or of one part of a long one
DocumentBatch   passages of several documents, one row a passage
narrowed        the same batch over some of its words
WordSets        only which words each document holds
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["DocumentBatch", "Passage", "WordSets", "narrowed"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


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
        # Not bincount, whose weights are floats.
        tokens = np.zeros(self.documents, np.int64)
        np.add.at(tokens, self.owners, self.lengths)
        return tokens[self.owners]

    @classmethod
    def build(cls, documents: Sequence[Sequence[Passage]]) -> "DocumentBatch":
        """Lay the passages of `documents` one below the other."""
        passages = [passage for document in documents for passage in document]
        indptr = np.zeros(len(passages) + 1, np.int64)
        np.cumsum([len(passage.words) for passage in passages], out=indptr[1:])
        owners = np.repeat(np.arange(len(documents), dtype=np.int32), [len(document) for document in documents])
        return cls(
            indptr=indptr,
            words=_joined([passage.words for passage in passages]),
            counts=_joined([passage.counts for passage in passages]),
            lengths=np.array([passage.length for passage in passages], np.int64),
            owners=owners.astype(np.int32),
            documents=len(documents),
        )

    @classmethod
    def joined(cls, first: "DocumentBatch", second: "DocumentBatch") -> "DocumentBatch":
        """Return the documents of both, those of `second` behind."""
        return cls.stacked([first, second])

    @classmethod
    def stacked(cls, batches: Sequence["DocumentBatch"]) -> "DocumentBatch":
        """Return the documents of several batches, one batch behind the other."""
        before = np.cumsum([0, *(batch.documents for batch in batches)], dtype=np.int32)
        owners = [batch.owners + start for batch, start in zip(batches, before[:-1], strict=True)]
        sizes = [np.diff(batch.indptr) for batch in batches]
        # An empty array in front gives sums of no batch their type.
        nothing = np.zeros(1, np.int64)
        return cls(
            indptr=np.cumsum(np.concatenate([nothing, *sizes])),
            words=_joined([batch.words for batch in batches]),
            counts=_joined([batch.counts for batch in batches]),
            lengths=np.concatenate([nothing[:0], *(batch.lengths for batch in batches)]),
            owners=_joined(owners),
            documents=int(before[-1]),
        )

    def take(self, documents: npt.NDArray[np.intp]) -> "DocumentBatch":
        """Return these documents, ascending positions, in their order."""
        place = np.full(self.documents, -1, np.int32)
        place[documents] = np.arange(len(documents))
        wanted = place[self.owners] >= 0
        rows = np.flatnonzero(wanted)
        sizes = np.diff(self.indptr)
        words = np.repeat(wanted, sizes)
        return DocumentBatch(
            indptr=np.concatenate([[0], np.cumsum(sizes[rows])]),
            words=self.words[words],
            counts=self.counts[words],
            lengths=self.lengths[rows],
            owners=place[self.owners[rows]],
            documents=len(documents),
        )

    def span(self, start: int, stop: int) -> "DocumentBatch":
        """Return documents start ... stop - 1, sharing this one's arrays."""
        first, last = np.searchsorted(self.owners, [start, stop])
        low, high = self.indptr[first], self.indptr[last]
        return DocumentBatch(
            indptr=self.indptr[first : last + 1] - low,
            words=self.words[low:high],
            counts=self.counts[low:high],
            lengths=self.lengths[first:last],
            owners=self.owners[first:last] - np.int32(start),
            documents=stop - start,
        )


def _joined(parts: Sequence[Int32]) -> Int32:
    return np.concatenate(parts).astype(np.int32, copy=False) if parts else np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class WordSets:
    """Which words each document holds.

    indptr: (documents + 1,) where documents begin.
    words: (positions,) in any order, repeated or not.
    """

    indptr: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def joined(cls, parts: Sequence["WordSets"]) -> "WordSets":
        """Return the documents of several."""
        lengths = [np.diff(part.indptr) for part in parts]
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]) if parts else np.zeros(1)
        words = np.concatenate([part.words for part in parts]) if parts else np.zeros(0)
        return cls(indptr.astype(np.int64), words.astype(np.int64))


def narrowed(batch: DocumentBatch, ids: Int32) -> DocumentBatch:
    """Give word k the position `ids[k]`, in the same order; words with a negative one are left out of all passages.

    Every passage stays, and its length counts all of its tokens as before.
    """
    indptr = np.zeros(len(batch.indptr), np.int64)
    _kept_sizes(batch.indptr, batch.words, ids, indptr)
    indptr = np.cumsum(indptr)
    words, counts = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int32)
    _keep(batch.words, batch.counts, ids, words, counts)
    return replace(batch, indptr=indptr, words=words, counts=counts)


@numba.njit(cache=True, nogil=True)
def _kept_sizes(indptr: Int64, words: Int32, ids: Int32, sizes: Int64) -> None:
    for row in range(len(indptr) - 1):
        kept = 0
        for k in range(indptr[row], indptr[row + 1]):
            kept += ids[words[k]] >= 0
        sizes[row + 1] = kept


@numba.njit(cache=True, nogil=True)
def _keep(words: Int32, counts: Int32, ids: Int32, out_words: Int32, out_counts: Int32) -> None:
    slot = 0
    for k in range(len(words)):
        word = ids[words[k]]
        if word >= 0:
            out_words[slot], out_counts[slot] = word, counts[k]
            slot += 1
