"""Counting and learning again from documents alone, to compare with what the service keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, Passage, Weighting, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from streamtopic.events import Passages

__all__ = ["Difference", "Numbering", "compare", "recount"]

BATCH = 4_000


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two models are apart: the largest difference of A's entries over all words of both."""

    max_abs_difference: float
    words_equal: bool


def recount(documents: Iterable[Passages], weighting: Weighting) -> Counts:
    """Count documents from scratch, in memory, over all their words.

    documents: passages (L, word counts) of each document; L counts every token.
    """
    numbering = Numbering()
    return numbering.count([numbering.number(passages) for passages in documents], weighting)


class Numbering:
    """Gives words numbers as they come, so that documents can be held in a tenth of the memory of their words."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def number(self, passages: Passages) -> tuple[Passage, ...]:
        """Return a document over numbers, for `count`."""
        ids = self._ids
        return tuple(
            Passage(
                length,
                np.array([ids.setdefault(word, len(ids)) for word in counts], np.int32),
                np.array(list(counts.values()), np.int32),
            )
            for length, counts in passages
        )

    def count(self, documents: Sequence[Sequence[Passage]], weighting: Weighting) -> Counts:
        """Count documents that were numbered here, over the words that they hold, in the order of words."""
        words, place = self._places(documents)
        parts = []
        for start in range(0, len(documents), BATCH):
            rows = [[_placed(passage, place) for passage in p] for p in documents[start : start + BATCH]]
            parts.append(count(DocumentBatch.build(rows), len(words), weighting))
        return Counts(words, Cooccurrence.sum(parts, len(words)))

    def batch(self, documents: Sequence[Sequence[Passage]]) -> tuple[list[str], DocumentBatch]:
        """Return documents that were numbered here as one batch, over the words that they hold, in their order."""
        words, place = self._places(documents)
        return words, DocumentBatch.build([[_placed(passage, place) for passage in p] for p in documents])

    def _places(self, documents: Sequence[Sequence[Passage]]) -> tuple[list[str], npt.NDArray[np.int32]]:
        used = np.zeros(len(self._ids), np.bool_)
        for passages in documents:
            for passage in passages:
                used[passage.words] = True
        words = sorted(word for word, number in self._ids.items() if used[number])
        place = np.full(len(self._ids), -1, np.int32)
        place[[self._ids[word] for word in words]] = np.arange(len(words), dtype=np.int32)
        return words, place


def _placed(passage: Passage, place: npt.NDArray[np.int32]) -> Passage:
    words = place[passage.words]
    order = np.argsort(words)
    return Passage(passage.length, words[order], passage.counts[order])


class Topics(Protocol):
    """A model before noise: words (n,) ascending, A (n, r)."""

    @property
    def words(self) -> tuple[str, ...]:
        """Its words."""

    @property
    def A(self) -> npt.NDArray[np.float64]:  # noqa: N802 -- the paper's symbol
        """Words given topics."""


def compare(one: Topics, other: Topics) -> Difference:
    """Compare two models before noise. Topics are compared in order: both sort them by anchor word."""
    words = sorted({*one.words, *other.words})
    place = {word: k for k, word in enumerate(words)}
    topics = max(one.A.shape[1], other.A.shape[1])
    gap = np.zeros((len(words), topics))
    for fit, sign in ((one, 1.0), (other, -1.0)):
        gap[[place[word] for word in fit.words], : fit.A.shape[1]] += sign * fit.A
    return Difference(float(np.abs(gap).max(initial=0.0)), one.words == other.words)
