"""Counting and learning again from documents alone, to compare with what the service keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, Passage, Weighting, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamtopic.events import Passages
    from streamtopic.topics.fit import TopicFit

__all__ = ["Difference", "compare", "recount"]

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
    kept = list(documents)
    words = sorted({word for passages in kept for _, counts in passages for word in counts})
    ids = {word: k for k, word in enumerate(words)}
    parts = []
    for start in range(0, len(kept), BATCH):
        rows = [[_numbered(length, counts, ids) for length, counts in p] for p in kept[start : start + BATCH]]
        parts.append(count(DocumentBatch.build(rows), len(words), weighting))
    return Counts(words, Cooccurrence.sum(parts, len(words)))


def _numbered(length: int, counts: Mapping[str, int], ids: Mapping[str, int]) -> Passage:
    found = sorted((ids[word], number) for word, number in counts.items())
    table = np.array(found, np.int32).reshape(-1, 2)
    return Passage(length, table[:, 0].copy(), table[:, 1].copy())


def compare(one: TopicFit, other: TopicFit) -> Difference:
    """Compare two models before noise. Topics are compared in order: both sort them by anchor word."""
    words = sorted({*one.words, *other.words})
    place = {word: k for k, word in enumerate(words)}
    topics = max(one.A.shape[1], other.A.shape[1])
    gap = np.zeros((len(words), topics))
    for fit, sign in ((one, 1.0), (other, -1.0)):
        gap[[place[word] for word in fit.words], : fit.A.shape[1]] += sign * fit.A
    return Difference(float(np.abs(gap).max(initial=0.0)), one.words == other.words)
