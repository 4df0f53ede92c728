"""Counts that stay in memory and change there: what the estimator holds beside its model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamtopic.counts.batch import DocumentBatch
from streamtopic.counts.compact import Compact, add_entries, merged, pack, unpack
from streamtopic.counts.cooccurrence import Cooccurrence
from streamtopic.counts.kernel import count_rows, pieces, statistics
from streamtopic.counts.symmetric import SymmetricCounts
from streamtopic.counts.upper import Panel, RowWriter, mirrored, restricted
from streamtopic.counts.weights import Weighting
from streamtopic.errors import NegativeCounts

__all__ = ["KeptCounts"]

Int64 = npt.NDArray[np.int64]
_BLOCK = 1 << 18


@dataclass(slots=True, eq=False)
class KeptCounts:
    """A count source whose pairs take six bytes each, and that `add` changes in place.

    words: ascending by code point; upper: the upper triangle over them; frequency, tokens: (n,) int64.
    """

    words: Sequence[str]
    upper: Compact
    frequency: Int64
    tokens: Int64
    documents: int

    @classmethod
    def counted(cls, words: Sequence[str], batch: DocumentBatch, weighting: Weighting) -> "KeptCounts":
        """Count documents; the same numbers as `count`, with little memory beside them."""
        n, signs = len(words), np.ones(batch.documents, np.int64)
        edges = np.linspace(0, batch.documents, pieces(batch, n) + 1).astype(np.int64).tolist()
        upper: Compact | None = None
        for first, stop in pairwise(edges):
            part = _counted(batch.span(first, stop), n, weighting)
            upper = part if upper is None else merged(n, upper, part)
        assert upper is not None  # noqa: S101  there is one piece at least
        return cls(words, upper, *statistics(batch, n, signs), batch.documents)

    def add(self, change: Cooccurrence) -> None:
        """Add signed counts over the same words; `add` of their negative is the inverse.

        Raises NegativeCounts or CountsOverflow, with nothing changed, where the sum cannot be counts of documents.
        """
        frequency, tokens = self.frequency + change.frequency, self.tokens + change.tokens
        documents = self.documents + change.documents
        if documents < 0 or int(frequency.min(initial=0)) < 0 or int(tokens.min(initial=0)) < 0:
            raise _negative()
        self.upper = self._changed(pack(change.n_words, change.indptr, change.columns, change.values))
        self.frequency, self.tokens, self.documents = frequency, tokens, documents

    def _changed(self, change: Compact) -> Compact:
        """Change pairs in place where all have an entry; else return new ones."""
        done = add_entries(self.upper, change, 1, len(change.low))
        if done == len(change.low):
            return self.upper
        add_entries(self.upper, change, -1, done)
        upper = merged(len(self.words), self.upper, change)
        if int(upper.wide.min(initial=0)) < 0:
            raise _negative()
        return upper

    def restrict(self, keep: npt.NDArray[np.intp]) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions, eight bytes a value."""
        return self.touching(keep, np.ones(len(keep), bool))

    def touching(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> Cooccurrence:
        """Return those of them that have a chosen word, chosen: one a word of `keep`."""
        some = restricted(self.upper, keep, len(self.words), chosen)
        values = np.empty(len(some.low), np.int64)
        unpack(some, values)
        columns = some.columns.astype(np.int32)
        frequency, tokens = self.frequency[keep], self.tokens[keep]
        return Cooccurrence(len(keep), some.indptr, columns, values, frequency, tokens, self.documents)

    def symmetric(self, keep: npt.NDArray[np.intp]) -> SymmetricCounts:
        """Return the same as a working matrix. A pair that no document left holds has no entry in it."""
        whole = len(keep) == len(self.words)
        upper = self.upper if whole else restricted(self.upper, keep, len(self.words))
        return SymmetricCounts(len(keep), mirrored(len(keep), [Panel(0, upper)]))


def _counted(batch: DocumentBatch, n: int, weighting: Weighting) -> Compact:
    """Count documents, their pairs packed as they are found."""
    writer = RowWriter(n)
    for block in count_rows(batch, n, weighting, np.ones(batch.documents, np.int64), _BLOCK):
        writer.append(block.sizes, block.columns, block.values)
    return writer.result()


def _negative() -> NegativeCounts:
    return NegativeCounts("a count fell below zero: a document was deleted that was not counted, or twice")
