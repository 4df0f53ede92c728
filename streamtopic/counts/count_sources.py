"""Count sources: a learner reads words, their statistics, and the pair counts of the words that it keeps.

    CountSource     the protocol; `state.Reader` gives one whose counts are in Redis. PairSource: its pairs alone
    Counts          pair counts of all words, in memory
    KeptCounts      no pairs, but the passages of the documents: pairs are counted when they are asked for

Most words of a corpus are too rare for any vocabulary, and nearly all pairs have such a word: 93 pairs in 100 of 18,846
newsgroup posts. Those pairs took 860 MB; the passages that they come from take 15. So KeptCounts keeps no pairs: those
of the working vocabulary are counted for each learner. When a word enters the vocabulary later, the documents that hold
it are still there to be counted. docs/decisions/0010 has the measurements.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from streamtopic.compiled import kernel
from streamtopic.counts.arrays import Int32, Int64, Mask, Positions, UInt64, places
from streamtopic.counts.batch import DocumentBatch, Weighting, narrowed
from streamtopic.counts.cooccurrence import Cooccurrence, moved
from streamtopic.counts.count_pairs import count, statistics
from streamtopic.counts.symmetric import SymmetricCounts, Uncounted
from streamtopic.errors import CountsOverflow, NegativeCounts

__all__ = ["CountSource", "Counts", "KeptCounts", "PairSource"]


# Passages times the largest mass of one must stay below this, so that no sum of pairs can leave 64 bits. Weights are
# rounded, which adds less than 2^25 to each mass.
_ROOM = 1 << 62
# Words of one block. A deletion rewrites the blocks that hold its documents, so they are not large.
_BLOCK = 1 << 18
# Fibonacci hashing: 2^64 over the golden ratio.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class PairSource(Protocol):
    """Pair counts of a set of documents, or the signed difference of two sets, and the words that are counted."""

    @property
    def words(self) -> Sequence[str]:
        """The words, ascending by code point."""

    def restrict(self, keep: Positions) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions, in their order."""


class CountSource(PairSource, Protocol):
    """Counts of a set of documents, with statistics of words."""

    @property
    def frequency(self) -> Int64:
        """Documents that hold each word, (n,)."""

    @property
    def tokens(self) -> Int64:
        """Occurrences of each word, (n,)."""

    @property
    def heavy(self) -> Int64:
        """Documents in which each word is a tenth of the tokens or more, (n,)."""

    @property
    def documents(self) -> int:
        """How many documents are counted."""

    def touching(self, keep: Positions, chosen: Mask) -> Cooccurrence:
        """Return those pair counts of `restrict` whose pairs have a chosen word.

        chosen: (len(keep),) whether a word is chosen.
        Word statistics may be those of the documents that hold one.
        """

    def symmetric(self, keep: Positions) -> SymmetricCounts:
        """Return the pair counts of `restrict` as a working matrix, with little memory besides the result."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """A count source in memory.

    words: ascending by code point, one an id of `cooccurrence`.
    """

    words: Sequence[str]
    cooccurrence: Cooccurrence

    @property
    def frequency(self) -> Int64:
        """Documents that hold each word, (n,)."""
        return self.cooccurrence.frequency

    @property
    def tokens(self) -> Int64:
        """Occurrences of each word, (n,)."""
        return self.cooccurrence.tokens

    @property
    def heavy(self) -> Int64:
        """Documents in which each word is a tenth of the tokens or more, (n,)."""
        return self.cooccurrence.heavy

    @property
    def documents(self) -> int:
        """How many documents are counted."""
        return self.cooccurrence.documents

    def restrict(self, keep: Positions) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions."""
        return self.cooccurrence.restrict(keep)

    def touching(self, keep: Positions, chosen: Mask) -> Cooccurrence:
        """See CountSource.touching."""
        return self.cooccurrence.touching(keep, chosen)

    def symmetric(self, keep: Positions) -> SymmetricCounts:
        """Return the counts of these words as a working matrix."""
        return SymmetricCounts.of(self.cooccurrence, keep)


@dataclass(frozen=True, slots=True, eq=False)
class KeptCounts:
    """A count source that keeps the passages of its documents. It is a value: a change makes another one.

    words: (n,) ascending by code point.
    weighting: the weight of pairs.
    frequency, tokens, heavy: (n,) int64, as of Cooccurrence.
    documents: how many documents are kept.
    blocks: the documents, in any order.
    marks: for each block one number a document. Equal documents have equal numbers.
    Counts are sums of integers: they depend neither on the order of documents nor on how they came and went.
    """

    words: Sequence[str]
    weighting: Weighting
    frequency: Int64
    tokens: Int64
    heavy: Int64
    documents: int
    blocks: tuple[DocumentBatch, ...]
    marks: tuple[UInt64, ...]

    @classmethod
    def counted(cls, words: Sequence[str], batch: DocumentBatch, weighting: Weighting) -> "KeptCounts":
        """Keep the documents of a batch over these words."""
        nothing = np.zeros(len(words), np.int64)
        return cls(words, weighting, nothing, nothing, nothing, 0, (), ()).plus(batch)

    def plus(self, batch: DocumentBatch) -> "KeptCounts":
        """Return the counts with these documents added. Their words are positions in `words`.

        Raises CountsOverflow if there are so many passages that a sum of their pairs might leave 64 bits.
        """
        passages = [len(block.lengths) for block in self.blocks]
        held = sum(passages) + len(batch.lengths)
        largest_mass = self.weighting.cap << self.weighting.shift
        if held * largest_mass > _ROOM:
            raise CountsOverflow(
                f"sums over {held} passages could exceed 64 bits: too many documents for one model, split the corpus"
            )
        blocks = list(self.blocks)
        marks = list(self.marks)
        whole = batch
        # Documents that come one by one share a block.
        if blocks and len(blocks[-1].words) + len(batch.words) <= _BLOCK:
            whole = DocumentBatch.stacked([blocks.pop(), batch])
            marks.pop()
        for part in _cut(whole):
            blocks.append(part)
            marks.append(_marks(part))
        return self._changed(batch, 1, blocks, marks)

    def minus(self, batch: DocumentBatch) -> "KeptCounts":
        """Return the counts without these documents: the inverse of `plus`.

        A document is taken away once for each time that it is in `batch`. Two documents are equal if their passages
        have the same lengths, words and counts.
        Cost: one look at each document's mark, and the blocks that change.
        Raises NegativeCounts if not all of the documents are there.
        """
        numbers = np.arange(batch.documents)
        wanted = Counter(_contents(batch, numbers))
        sought = np.unique(_marks(batch))
        blocks: list[DocumentBatch] = []
        marks: list[UInt64] = []
        for block, own in zip(self.blocks, self.marks, strict=True):
            # A mark may be shared by chance, so candidates are compared in full.
            candidates = np.flatnonzero(np.isin(own, sought))
            gone = _found(block, candidates, wanted)
            if not len(gone):
                blocks.append(block)
                marks.append(own)
            elif len(gone) < block.documents:
                numbers = np.arange(block.documents)
                left = np.setdiff1d(numbers, gone)
                blocks.append(block.take(left))
                marks.append(own[left])
        if missing := wanted.total():
            raise NegativeCounts(
                f"{missing} of {batch.documents} documents are not there: they were never counted, were changed since, "
                "or are deleted twice"
            )
        return self._changed(batch, -1, blocks, marks)

    def over(self, words: Sequence[str], ids: Int64) -> "KeptCounts":
        """Return the same documents over more words.

        words: ascending by code point, the present words among them.
        ids: (n,) where the present words are among them.
        """
        names = ids.astype(np.int32)
        blocks = tuple(replace(block, words=names[block.words]) for block in self.blocks)
        # A mark is a function of the positions of words, so it changes with them.
        marks = tuple(map(_marks, blocks))
        statistics_of_all = self.frequency, self.tokens, self.heavy
        frequency, tokens, heavy = (moved(array, ids, len(words)) for array in statistics_of_all)
        return replace(self, words=words, blocks=blocks, marks=marks, frequency=frequency, tokens=tokens, heavy=heavy)

    def positions(self, words: Sequence[str]) -> Positions:
        """Return where some of the words are. The words are given ascending."""
        found = np.empty(len(words), np.intp)
        low = 0
        for k, word in enumerate(words):
            # Both ascend, so the search begins where the last one ended.
            low = bisect_left(self.words, word, low)
            found[k] = low
        return found

    def restrict(self, keep: Positions) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions. Cost: their pairs in all passages."""
        return count(self.passages(keep), len(keep), self.weighting)

    def touching(self, keep: Positions, chosen: Mask) -> Cooccurrence:
        """Return those pair counts of `restrict` whose pairs have a chosen word.

        Cost: the pairs of documents that hold a chosen word.
        """
        holders = self.passages(keep).with_words(chosen)
        some = count(holders, len(keep), self.weighting)
        return some.touching(np.arange(len(keep)), chosen)

    def symmetric(self, keep: Positions) -> SymmetricCounts:
        """Return the counts of these words as a working matrix, whose rows are counted only if somebody reads them."""
        return SymmetricCounts(len(keep), Uncounted(self, keep))

    def _changed(
        self, batch: DocumentBatch, sign: int, blocks: Sequence[DocumentBatch], marks: Sequence[UInt64]
    ) -> "KeptCounts":
        """Return the counts with documents that came (sign 1) or went (-1), given the blocks after the change."""
        signs = np.full(batch.documents, sign, np.int64)
        frequency, tokens, heavy = statistics(batch, len(self.words), signs)
        return replace(
            self,
            frequency=self.frequency + frequency,
            tokens=self.tokens + tokens,
            heavy=self.heavy + heavy,
            documents=self.documents + sign * batch.documents,
            blocks=tuple(blocks),
            marks=tuple(marks),
        )

    def passages(self, keep: Positions) -> DocumentBatch:
        """Return all passages over the words at these ascending positions."""
        ids = places(len(self.words), keep, np.int32)
        return DocumentBatch.stacked([narrowed(block, ids) for block in self.blocks])


def _cut(batch: DocumentBatch) -> Iterator[DocumentBatch]:
    """Yield the documents of a batch in blocks of limited size, as arrays of their own."""
    numbers = np.arange(batch.documents + 1)
    first_rows = np.searchsorted(batch.owners, numbers)
    starts = batch.indptr[first_rows]
    first = 0
    while first < batch.documents:
        enough = starts[first] + _BLOCK
        stop = int(np.searchsorted(starts, enough, side="right")) - 1
        # A document that is longer than a block is a block of its own.
        stop = min(max(stop, first + 1), batch.documents)
        # Not a view, which would keep the whole batch alive for as long as one block of it.
        yield batch.take(numbers[first:stop])
        first = stop


def _contents(batch: DocumentBatch, documents: Positions) -> Iterator[tuple[bytes, ...]]:
    """Yield the contents of documents as bytes, in order: equal documents have equal bytes."""
    sizes = np.diff(batch.indptr)
    firsts = np.searchsorted(batch.owners, documents)
    lasts = np.searchsorted(batch.owners, documents + 1)
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        held = slice(batch.indptr[first], batch.indptr[last])
        # Words and counts alone do not say where a passage ends, nor whether its counts are parts of 1.
        passages = (batch.lengths[first:last], batch.limited[first:last], sizes[first:last])
        entries = (batch.words[held], batch.counts[held])
        yield tuple(array.tobytes() for array in (*passages, *entries))


def _found(block: DocumentBatch, candidates: Positions, wanted: Counter[tuple[bytes, ...]]) -> Positions:
    """Return the candidates that are wanted, and take them off `wanted`."""
    gone = []
    for k, contents in zip(candidates.tolist(), _contents(block, candidates), strict=True):
        if wanted[contents]:
            wanted[contents] -= 1
            gone.append(k)
    return np.array(gone, np.intp)


def _marks(batch: DocumentBatch) -> UInt64:
    """Return a number for each document, (documents,). Equal documents have equal numbers; others rarely do."""
    marks = np.zeros(batch.documents, np.uint64)
    _mark(batch.indptr, batch.words, batch.counts, batch.lengths, batch.owners, marks)
    return marks


@kernel
def _mark(indptr: Int64, words: Int32, counts: Int32, lengths: Int64, owners: Int32, marks: UInt64) -> None:
    """Go on with the mark of a document for each of its passages, in order."""
    for row in range(len(owners)):
        length = np.uint64(lengths[row] + 1)
        mark = (marks[owners[row]] + length) * _FACTOR
        for k in range(indptr[row], indptr[row + 1]):
            pair = (np.int64(words[k]) << 16) + counts[k]
            mark = (mark ^ (mark >> _SHIFT) ^ np.uint64(pair)) * _FACTOR
        marks[owners[row]] = mark ^ (mark >> _SHIFT)
