"""Documents as word counts, ready to be counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["DocumentBatch", "Passage"]

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

    indptr (rows + 1,) int64, words (nnz,) int32 ascending in each row, counts (nnz,) int32, lengths (rows,) int64,
    owners (rows,) int32: the document each row belongs to, non-decreasing; documents: how many there are, those
    without any row included.
    """

    indptr: Int64
    words: Int32
    counts: Int32
    lengths: Int64
    owners: Int32
    documents: int

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
        return cls(
            indptr=np.concatenate([first.indptr, second.indptr[1:] + first.indptr[-1]]),
            words=_joined([first.words, second.words]),
            counts=_joined([first.counts, second.counts]),
            lengths=np.concatenate([first.lengths, second.lengths]),
            owners=_joined([first.owners, second.owners + np.int32(first.documents)]),
            documents=first.documents + second.documents,
        )

    def take(self, documents: npt.NDArray[np.intp]) -> "DocumentBatch":
        """Return these documents, ascending positions, in their order."""
        place = np.full(self.documents, -1, np.int32)
        place[documents] = np.arange(len(documents))
        rows = np.flatnonzero(place[self.owners] >= 0)
        sizes = np.diff(self.indptr)
        words = np.repeat(place[self.owners] >= 0, sizes)
        indptr = np.concatenate([[0], np.cumsum(sizes[rows])])
        owners = place[self.owners[rows]]
        return DocumentBatch(indptr, self.words[words], self.counts[words], self.lengths[rows], owners, len(documents))

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
