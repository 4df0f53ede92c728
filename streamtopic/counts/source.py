"""What a learner reads: words, their statistics, and the pair counts of those it keeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamtopic.counts.cooccurrence import Cooccurrence
from streamtopic.counts.symmetric import SymmetricCounts

__all__ = ["CountSource", "Counts", "CountsWithout"]


class CountSource(Protocol):
    """Counts of a set of documents, or the signed difference of two sets, with the words they are about."""

    @property
    def words(self) -> Sequence[str]:
        """The words, ascending by code point."""

    @property
    def frequency(self) -> npt.NDArray[np.int64]:
        """Documents that hold each word, (n,)."""

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Occurrences of each word, (n,)."""

    @property
    def documents(self) -> int:
        """Documents counted."""

    def restrict(self, keep: npt.NDArray[np.intp]) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions, in their order."""

    def touching(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> Cooccurrence:
        """Return those of them that have a chosen word, chosen: one a word of `keep`; `restrict` holds these too."""

    def symmetric(self, keep: npt.NDArray[np.intp]) -> SymmetricCounts:
        """Return the same as a working matrix, holding little beside it meanwhile."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """A count source in memory.

    words: ascending by code point, one an id of `cooccurrence`.
    """

    words: Sequence[str]
    cooccurrence: Cooccurrence

    @classmethod
    def named(cls, words: Sequence[str], cooccurrence: Cooccurrence) -> "Counts":
        """Sort words of any order, their counts with them."""
        order = sorted(range(len(words)), key=words.__getitem__)
        ids = np.empty(len(words), np.int64)
        ids[order] = np.arange(len(words))
        return cls([words[k] for k in order], cooccurrence.relabel(ids, len(words)))

    @property
    def frequency(self) -> npt.NDArray[np.int64]:
        """Documents that hold each word, (n,)."""
        return self.cooccurrence.frequency

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Occurrences of each word, (n,)."""
        return self.cooccurrence.tokens

    @property
    def documents(self) -> int:
        """Documents counted."""
        return self.cooccurrence.documents

    def restrict(self, keep: npt.NDArray[np.intp]) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions."""
        return self.cooccurrence.restrict(keep)

    def touching(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> Cooccurrence:
        """Return those of them that have a chosen word."""
        return self.cooccurrence.touching(keep, chosen)

    def symmetric(self, keep: npt.NDArray[np.intp]) -> SymmetricCounts:
        """Return the same as a working matrix, written from the counts themselves."""
        return SymmetricCounts.of(self.cooccurrence, keep)


@dataclass(frozen=True, slots=True, eq=False)
class CountsWithout:
    """Counts less those of some documents over the same words; the whole is not copied for it."""

    source: CountSource
    part: Cooccurrence

    @property
    def words(self) -> Sequence[str]:
        """The words, ascending by code point."""
        return self.source.words

    @property
    def frequency(self) -> npt.NDArray[np.int64]:
        """Documents that hold each word, (n,)."""
        return np.asarray(self.source.frequency - self.part.frequency)

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Occurrences of each word, (n,)."""
        return np.asarray(self.source.tokens - self.part.tokens)

    @property
    def documents(self) -> int:
        """Documents counted."""
        return self.source.documents - self.part.documents

    def restrict(self, keep: npt.NDArray[np.intp]) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions."""
        return self.source.restrict(keep) - self.part.restrict(keep)

    def touching(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> Cooccurrence:
        """Return those of them that have a chosen word."""
        return self.source.touching(keep, chosen) - self.part.touching(keep, chosen)

    def symmetric(self, keep: npt.NDArray[np.intp]) -> SymmetricCounts:
        """Return the same as a working matrix. A pair that no document left holds has no entry in it."""
        return SymmetricCounts.of(self.restrict(keep))
