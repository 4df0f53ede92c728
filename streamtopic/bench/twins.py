"""Twins on documents: a model that forgot some of them against one that never saw them.

Everything happens before noise, on counts in memory: no comparison is sharper.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.audit.subtraction import difference
from streamtopic.bench.figures import timed
from streamtopic.counts import Cooccurrence, Counts, KeptCounts, count
from streamtopic.service.verify.recount import batch_of
from streamtopic.topics.learner import learn
from streamtopic.topics.update import NeedsRetrain, update

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from streamtopic.counts import DocumentBatch
    from streamtopic.documents.corpus import Corpus
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

    Positions = npt.NDArray[np.intp]

__all__ = ["KINDS", "Chain", "ForgetSet", "TwinOutcome", "Twins", "same_counts"]

KINDS = (
    "1 document",
    "1 % of documents",
    "10 % of documents",
    "one class",
    "an anchor's heaviest document",
    "all documents of an anchor",
)
_LOOSE = "the certificate does not reach the tolerance"


@dataclass(frozen=True, slots=True, eq=False)
class ForgetSet:
    """Documents to forget, ascending positions, of one of KINDS."""

    kind: str
    documents: Positions


@dataclass(frozen=True, slots=True)
class TwinOutcome:
    """The outcome of one forget set.

    retrain: why the update was refused and the model learned again; empty if it was not.
    new_anchors: number of anchor words that the model before did not have.
    same_counts: whether the counts less the forget set are those of the twin, bit for bit.
    same_words: whether vocabulary and anchors are those of the twin.
    difference: largest difference of an entry of A to the twin, before noise.
    certificate: bound on ||A - A*||_F of the model that forgot.
    update, relearn: seconds, nan if there was no update.
    """

    kind: str
    forgotten: int
    retrain: str
    new_anchors: int
    same_counts: bool
    same_words: bool
    difference: float
    certificate: float
    update: float
    relearn: float


@dataclass(frozen=True, slots=True)
class Chain:
    """The outcome of deletions of single documents, one after another.

    retrains: number of models that were learned again, by the first words of the reason.
    difference: largest difference of an entry of A between the last model and its twin, before noise.
    same_words: whether vocabulary and anchors of the two are the same.
    """

    steps: int
    retrains: Counter[str]
    difference: float
    same_words: bool


class Twins:
    """A corpus with its model, learned once; each forget set is taken out of a copy.

    Raises CannotLearn if the whole corpus, or the rest of it, gives no model.
    """

    def __init__(self, corpus: Corpus, options: LearnerOptions) -> None:
        self.words, self.batch = batch_of(document.passages for document in corpus.documents)
        self.classes = [next(iter(document.labels.values()), None) for document in corpus.documents]
        self.options = options
        self.whole = self._counted(self.batch)
        self.fit: TopicFit = learn(self.whole, options)
        self.certificate = self.fit.certificate.bound

    def forget_sets(self, draws: int, seed: int = 0) -> Iterator[ForgetSet]:
        """Yield `draws` forget sets of each kind, fewer if there are fewer classes or topics; none without classes.

        Classes go by size, largest first; anchors by the number of their documents, fewest first.
        """
        rng = np.random.default_rng(seed)
        m = self.batch.documents
        for kind, size in zip(KINDS[:3], (1, max(m // 100, 1), max(m // 10, 1)), strict=True):
            for _ in range(draws):
                yield ForgetSet(kind, np.sort(rng.choice(m, size, replace=False)))
        sizes = Counter(name for name in self.classes if name is not None)
        for name, _ in sizes.most_common(draws) if len(sizes) > 1 else ():
            yield ForgetSet(KINDS[3], np.flatnonzero([own == name for own in self.classes]))
        place = {word: k for k, word in enumerate(self.words)}
        anchors = sorted(self.fit.anchors, key=lambda anchor: int(self.whole.frequency[place[anchor]]))
        for anchor in anchors[:draws]:
            yield ForgetSet(KINDS[4], self._heaviest(place[anchor]))
            yield ForgetSet(KINDS[5], self._holding(anchor))

    def outcome(self, forget: ForgetSet) -> TwinOutcome:
        """Forget by an update or, where it is refused, from counts; count the rest, and learn it from scratch."""
        gone = self.batch.take(forget.documents)
        part = self._counted(gone).cooccurrence
        now = Counts(self.words, self.whole.cooccurrence - part)
        delta = Counts(self.words, Cooccurrence.zero(len(self.words)) - part)
        left = self._counted(self.batch.take(np.setdiff1d(np.arange(self.batch.documents), forget.documents)))
        seconds, updated = timed(partial(update, self.fit, now, delta))
        relearn, twin = timed(partial(learn, left, self.options))
        refused = isinstance(updated, NeedsRetrain)
        fit = learn(now, self.options) if isinstance(updated, NeedsRetrain) else updated
        return TwinOutcome(
            kind=forget.kind,
            forgotten=len(forget.documents),
            retrain=updated.reason if isinstance(updated, NeedsRetrain) else "",
            new_anchors=len({*fit.anchors} - {*self.fit.anchors}),
            same_counts=same_counts(now.cooccurrence, left.cooccurrence),
            same_words=(fit.words, fit.anchors) == (twin.words, twin.anchors),
            difference=float(np.abs(difference(fit, twin)).max()),
            certificate=fit.certificate.bound,
            update=float("nan") if refused else seconds,
            relearn=relearn,
        )

    def chain(self, steps: int, seed: int = 0) -> Chain:
        """Forget random documents one after another, each out of the model that the last one left.

        A model whose certificate is above the tolerance is learned again, as a service does it.
        """
        drawn = np.random.default_rng(seed).choice(self.batch.documents, steps, replace=False)
        fit, reasons = self.fit, Counter[str]()
        nothing = Cooccurrence.zero(len(self.words))
        now = KeptCounts.counted(self.words, self.batch, self.options.weighting)
        for gone in drawn:
            batch = self.batch.take(np.array([gone]))
            now = now.minus(batch)
            delta = Counts(self.words, nothing - self._counted(batch).cooccurrence)
            updated = update(fit, now, delta)
            if isinstance(updated, NeedsRetrain):
                # Later clauses of a reason name words, which differ each time.
                reasons[re.split("[:,]", updated.reason)[0]] += 1
                fit = learn(now, self.options)
            elif updated.certificate.bound > self.options.tolerance:
                reasons[_LOOSE] += 1
                fit = learn(now, self.options)
            else:
                fit = updated
        left = np.setdiff1d(np.arange(self.batch.documents), drawn)
        twin = learn(self._counted(self.batch.take(left)), self.options)
        same = (fit.words, fit.anchors) == (twin.words, twin.anchors)
        return Chain(steps, reasons, float(np.abs(difference(fit, twin)).max()), same)

    def _heaviest(self, anchor: int) -> Positions:
        """Return the document that has the largest part in the row of an anchor word, (1,)."""
        batch, weighting = self.batch, self.options.weighting
        passages = len(batch.lengths)
        rows = np.repeat(np.arange(passages), np.diff(batch.indptr))
        here = batch.words == anchor
        held = np.bincount(rows[here], weighting.counted(batch)[here], passages)
        # A passage with l tokens that count and weight w adds w g (l - 1) to the row of a word that counts g times.
        added = held * weighting.of(batch) * (weighting.tokens(batch) - 1.0)
        carried = np.bincount(batch.owners, added, batch.documents)
        return np.array([np.argmax(carried)], np.intp)

    def _holding(self, word: str) -> Positions:
        rows = np.repeat(np.arange(len(self.batch.lengths)), np.diff(self.batch.indptr))
        held = rows[self.batch.words == self.words.index(word)]
        return np.unique(self.batch.owners[held]).astype(np.intp)

    def _counted(self, batch: DocumentBatch) -> Counts:
        return Counts(self.words, count(batch, len(self.words), self.options.weighting))


def same_counts(one: Cooccurrence, other: Cooccurrence) -> bool:
    """Return whether counts over the same words are equal, bit for bit."""
    arrays = ("indptr", "columns", "values", "frequency", "tokens", "heavy")
    equal = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
    return equal and one.documents == other.documents
