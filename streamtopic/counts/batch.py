"""Documents as word counts, ready to be counted, and the integer weight of their word pairs.

Passage          word counts of a document, or of one part of a long one
DocumentBatch    passages of several documents, one row a passage
narrowed         the same batch over some of its words
Weighting        how often words count, and the weight of a document's pairs; MAX_LENGTH: tokens of a passage
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.counts.arrays import Int32, Int64, Mask, Positions, entry_rows
from streamtopic.errors import UsageError

__all__ = ["MAX_LENGTH", "TWICE", "DocumentBatch", "Passage", "Weighting", "joined", "narrowed", "row_ends"]


MAX_LENGTH = 8192
"""Tokens of the longest passage that is counted as one; longer texts are counted as several passages."""

# Both keep cap << shift within 2^38, so that 2^18 documents of 64 passages stay within 64 bits.
_SHIFTS = {1: 36, 256: 30}

_Kind = TypeVar("_Kind", np.int32, np.int64)

TWICE = 2
"""How often a word counts in the pairs of a passage at most. The published learner has no such limit."""


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
    limited: (rows,) int64, tokens of each passage if a word counts at most twice. Words that were left out of the batch
        count as in the whole passage, and a token that is no word counts once. If it is the passage's length, nothing
        is limited: a passage of fractions, in parts of 1, has words of any count then.
    owners: (rows,) int32, the document that each row belongs to, non-decreasing.
    documents: how many there are, those without a row included.
    """

    indptr: Int64
    words: Int32
    counts: Int32
    lengths: Int64
    limited: Int64
    owners: Int32
    documents: int

    @classmethod
    def whole(
        cls, *, indptr: Int64, words: Int32, counts: Int32, lengths: Int64, owners: Int32, documents: int
    ) -> "DocumentBatch":
        """Take passages with all of their words. The parameters are the fields of the class."""
        # The third and each later occurrence of a word does not count.
        beyond = row_ends(np.maximum(counts - TWICE, 0))
        limited = lengths - np.diff(beyond[indptr])
        return cls(indptr, words, counts, lengths, limited, owners, documents)

    def of_documents(self, tokens: Int64) -> Int64:
        """Return the tokens of the document that each row belongs to, (rows,). tokens: (rows,) of each row."""
        # bincount would add floats, which lose whole tokens above 2^53.
        sums = np.zeros(self.documents, np.int64)
        np.add.at(sums, self.owners, tokens)
        return sums[self.owners]

    @classmethod
    def build(cls, documents: Sequence[Sequence[Passage]]) -> "DocumentBatch":
        """Lay the passages of `documents` one below the other."""
        passages = [passage for document in documents for passage in document]
        lengths = [passage.length for passage in passages]
        sizes = [len(passage.words) for passage in passages]
        amounts = [len(document) for document in documents]
        passages_each = np.array(amounts, np.int64)
        numbers = np.arange(len(documents), dtype=np.int32)
        words = [passage.words for passage in passages]
        counts = [passage.counts for passage in passages]
        return cls.whole(
            indptr=row_ends(np.array(sizes, np.int64)),
            words=joined(words, np.int32),
            counts=joined(counts, np.int32),
            lengths=np.array(lengths, np.int64),
            owners=np.repeat(numbers, passages_each),
            documents=len(documents),
        )

    @classmethod
    def stacked(cls, batches: Sequence["DocumentBatch"]) -> "DocumentBatch":
        """Return the documents of several batches, in the order of the batches."""
        documents = [batch.documents for batch in batches]
        before = np.cumsum([0, *documents], dtype=np.int32)
        spans = zip(batches, before[:-1], strict=True)
        owners = [batch.owners + start for batch, start in spans]
        lengths = [batch.lengths for batch in batches]
        limited = [batch.limited for batch in batches]
        sizes = [np.diff(batch.indptr) for batch in batches]
        words = [batch.words for batch in batches]
        counts = [batch.counts for batch in batches]
        return cls(
            indptr=row_ends(joined(sizes, np.int64)),
            words=joined(words, np.int32),
            counts=joined(counts, np.int32),
            lengths=joined(lengths, np.int64),
            limited=joined(limited, np.int64),
            owners=joined(owners, np.int32),
            documents=int(before[-1]),
        )

    def take(self, documents: npt.ArrayLike) -> "DocumentBatch":
        """Return the documents at these positions, in this order. A position may occur several times."""
        # Of the type of owners, so that a search need not copy them.
        chosen = np.asarray(documents, np.int32)
        firsts = np.searchsorted(self.owners, chosen)
        lasts = np.searchsorted(self.owners, chosen + 1)
        rows = _ranges(firsts, lasts)
        held = _ranges(self.indptr[rows], self.indptr[rows + 1])
        indptr = row_ends(np.diff(self.indptr)[rows])
        numbers = np.arange(len(chosen), dtype=np.int32)
        owners = np.repeat(numbers, lasts - firsts)
        return DocumentBatch(
            indptr=indptr,
            words=self.words[held],
            counts=self.counts[held],
            lengths=self.lengths[rows],
            limited=self.limited[rows],
            owners=owners,
            documents=len(chosen),
        )

    def with_words(self, chosen: Mask) -> "DocumentBatch":
        """Return the documents that hold a chosen word. chosen: (n,) whether a word is chosen."""
        owners = self.owners[entry_rows(self.indptr)]
        return self.take(np.unique(owners[chosen[self.words]]))


def row_ends(sizes: npt.NDArray[Any]) -> Int64:
    """Return where rows of these sizes begin and the last one ends, (rows + 1,)."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends


def joined(parts: Sequence[npt.NDArray[_Kind]], kind: type[_Kind]) -> npt.NDArray[_Kind]:
    """Lay arrays one after the other, also if there are none. A single one is not copied. kind: type of the numbers."""
    if not parts:
        return np.zeros(0, kind)
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return whole.astype(kind, copy=False)


def _ranges(firsts: npt.NDArray[np.integer[Any]], lasts: npt.NDArray[np.integer[Any]]) -> Positions:
    """Return first, first + 1, ... last - 1 of each pair, one range after the other."""
    sizes = lasts - firsts
    ends = np.cumsum(sizes)
    # Counting goes on through all ranges; each begins at its own number in place of the one that is reached.
    shifts = firsts - (ends - sizes)
    steps = np.arange(int(sizes.sum()))
    return np.asarray(steps + np.repeat(shifts, sizes), np.intp)


def narrowed(batch: DocumentBatch, ids: Int32) -> DocumentBatch:
    """Rename the words of all passages and leave some words out.

    ids: the new position of each word, in the same order; negative for a word that is left out.
    Every passage stays. Its lengths count all of its tokens as before, those of the words left out included.
    """
    words = ids[batch.words]
    kept = words >= 0
    indptr = row_ends(kept)[batch.indptr]
    return replace(batch, indptr=indptr, words=words[kept], counts=batch.counts[kept])


@dataclass(frozen=True, slots=True)
class Weighting:
    """How often words count in pairs, and the document mass f(L) = min(L, cap) as fixed-point integers.

    A passage with word counts h adds w g_i g_j to the pair (i, j), and w g_i (g_i - 1) to (i, i), with g = min(h, 2): a
    word that is repeated says little more than a word that is there twice (docs/decisions/0009). The published learner
    has g = h.

    Each passage has a part of its document's mass f(L) by its counted tokens, and shares it among their ordered pairs.
    L, too, has only the tokens that count: a document that repeats itself weighs no more for that. So a passage of G
    counted tokens has w = f(L) / (L (G - 1)) (Arora et al. 2013, section 2, times f). That number is stored as
    `round(2**shift * w)`. The shift keeps the rounding below 5e-4 of the weight up to L = 8,192, and below .8 %
    (cap 1: 3.1 %) up to 64 passages of that length.

    cap: tokens from which on a longer document has no more mass; fixed when a model is created. 1 is the published
        learner. 256 lets long documents count for more, but no single spam document for everything.
    """

    cap: int = 256

    def __post_init__(self) -> None:
        if self.cap not in _SHIFTS:
            raise UsageError(f"document mass cap {self.cap} is not supported: use one of {sorted(_SHIFTS)}")

    @property
    def shift(self) -> int:
        """Binary places of the fixed-point weight."""
        return _SHIFTS[self.cap]

    def counted(self, batch: DocumentBatch) -> Int32:
        """Return how often each word of each passage counts in pairs, g, (nnz,)."""
        if self.cap == 1:
            return batch.counts
        limited = np.repeat(batch.limited < batch.lengths, np.diff(batch.indptr))
        return np.where(limited, np.minimum(batch.counts, np.int32(TWICE)), batch.counts)

    def tokens(self, batch: DocumentBatch) -> Int64:
        """Return the tokens of each passage that count in pairs, G, (rows,)."""
        return batch.lengths if self.cap == 1 else batch.limited

    def of(self, batch: DocumentBatch) -> Int64:
        """Return the integer weight of each passage, (rows,). Raises UsageError as `weights`."""
        tokens = self.tokens(batch)
        return self.weights(tokens, batch.of_documents(tokens))

    def weights(self, tokens: npt.ArrayLike, totals: npt.ArrayLike) -> Int64:
        """Return the integer weight of each passage; 0 for fewer than two tokens, which make no pair.

        tokens: G of each passage, its tokens that count in pairs.
        totals: L, those of its whole document; the same as `tokens` for documents of one passage.
        Raises UsageError for a passage above 8,192, if rounding would no longer be negligible.
        """
        counted = np.asarray(tokens, dtype=np.int64)
        total = np.asarray(totals, dtype=np.int64)
        longest = int(counted.max(initial=0))
        if longest > MAX_LENGTH:
            raise UsageError(
                f"a passage of {longest} tokens is longer than {MAX_LENGTH}: cut the document into several passages"
            )
        # At least 1, so that a passage without a pair is not divided by 0. Below 2^33, and twice the mass below 2^40.
        pairs = np.maximum(total * (counted - 1), 1)
        mass = np.minimum(total, self.cap) << self.shift
        # In integers, half rounded up, so that every machine gets the same weight.
        rounded = (2 * mass + pairs) // (2 * pairs)
        return np.where(counted < 2, 0, rounded)
