"""Trying out deletions: what becomes of a model when some of its documents are forgotten."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopic.counts import (
    Cooccurrence,
    Counts,
    CountSource,
    CountsWithout,
    DocumentBatch,
    SignedPassages,
    count,
    statistics,
)
from streamtopic.errors import UsageError
from streamtopic.topics.display import top_words
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.update import NeedsRetrain, update

__all__ = ["DeletionTrials", "Trial"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

_TOP = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """One forget set taken out.

    moved: largest change of an entry of A; l1: mean over topics of the L1 distance; overlap: mean share of the ten top
    words that stay. All nan where the model has to be retrained, for `reason`.
    """

    moved: float
    l1: float
    overlap: float
    reason: str = ""


class DeletionTrials:
    """A model, its counts, and documents of it that can be taken out for a try; the model stays as it is.

    source: the counts that `fit` was learned from; documents: all counted documents or some, their words positions in
    `source.words`. Raises UsageError where they cannot be among the counted ones.
    """

    def __init__(self, source: CountSource, documents: DocumentBatch, fit: TopicFit) -> None:
        n = len(source.words)
        if documents.documents > source.documents or int(documents.words.max(initial=-1)) >= n:
            raise UsageError("the documents are not those that were counted: there are too many, or unknown words")
        frequency, _ = statistics(documents, n, np.ones(documents.documents, np.int64))
        if (frequency > source.frequency).any():
            raise UsageError(
                "the documents are not those that were counted: a word is in more of them than was counted"
            )
        self._source, self._documents, self._fit = source, documents, fit
        place = {word: k for k, word in enumerate(source.words)}
        self._anchors = np.array([place[word] for word in fit.anchors], np.intp)
        self._place = place

    @property
    def anchor_frequency(self) -> Int64:
        """Documents that hold each anchor word, (r,)."""
        return np.asarray(self._source.frequency[self._anchors])

    def aimed(self, topic: int, generator: np.random.Generator) -> Positions:
        """Return all documents, those first that carry most of a topic's anchor row; the rest in random order.

        A document adds w_L h (L - 1) to the row of a word that it holds h times.
        """
        batch = self._documents
        rows = np.repeat(np.arange(len(batch.lengths)), np.diff(batch.indptr))
        here = batch.words == self._anchors[topic]
        held = np.bincount(rows[here], batch.counts[here], len(batch.lengths))
        weight = held * self._fit.options.weighting.weights(batch.lengths) * (batch.lengths - 1.0)
        carried = np.bincount(batch.owners, weight, batch.documents)
        return np.lexsort((generator.permutation(batch.documents), -carried))

    def forget(self, chosen: Positions) -> Trial:
        """Take documents at these distinct positions out of a copy of the model and compare. Cost: one update."""
        gone, weighting = self._documents.take(np.sort(chosen)), self._fit.options.weighting
        part = count(gone, len(self._source.words), weighting)
        delta = Counts(self._source.words, Cooccurrence.zero(part.n_words) - part)
        passages = SignedPassages.gone(gone, weighting)
        outcome = update(_copied(self._fit), CountsWithout(self._source, part), delta, passages)
        if isinstance(outcome, NeedsRetrain):
            return Trial(np.nan, np.nan, np.nan, outcome.reason)
        return self._compared(outcome.fit)

    def _compared(self, after: TopicFit) -> Trial:
        words = sorted({*self._fit.words, *after.words})
        first, second = _over(self._fit, words), _over(after, words)
        change = np.abs(first - second)
        frequency = self._source.frequency[[self._place[word] for word in words]]
        tops = [top_words(A, frequency, self._source.documents, _TOP) for A in (first, second)]
        kept = [len(np.intersect1d(a, b)) / len(a) for a, b in zip(*tops, strict=True)]
        return Trial(float(change.max()), float(change.sum(axis=0).mean()), float(np.mean(kept)))


def _copied(fit: TopicFit) -> TopicFit:
    """Return the fit with copies of those arrays that an update changes in place, which are few of them."""
    gram = None if fit.gram is None else fit.gram.copy()
    return replace(fit, q=fit.q.copy(), gram=gram, rounds=[part.copied() for part in fit.rounds])


def _over(fit: TopicFit, words: list[str]) -> Float:
    """Return A over more words, (len(words), r)."""
    place = {word: k for k, word in enumerate(words)}
    wide = np.zeros((len(words), fit.A.shape[1]))
    wide[[place[word] for word in fit.words]] = fit.A
    return wide
