"""Calibrated deletion capacity: how many deletions this corpus bears, found by deleting.

The paper's capacity is m over powers of r and n, times a constant of the corpus that nobody knows. Here the definition
itself is tried out, with the trained model in place of the ground truth: forget sets are drawn, taken out exactly, and
a set counts as borne where the anchors stay and no entry of A, before noise, moves by more than 0.01. The capacity is
the largest k at which at least 90 % of the sets are borne, among those drawn at random and among those aimed.

    random      k documents drawn uniformly
    aimed       for each anchor, the k documents that carry most of its weight, so as to push it out

Sets are nested: a trial has one order of documents, of which size k takes the first k. Sizes are searched by
bisection, two an octave, which takes being borne as decreasing in k; near the limit it is not quite, so the answer is
the largest size that passed below the least that failed. An estimate: it bounds nothing for sets that were not tried.

Source: the paper's definition "Utility-preserving unlearning with deletion capacity".
"""

from collections.abc import Callable, Sequence
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
from streamtopic.paper.capacity_formulas import Capacity, base_capacity, most_deletions
from streamtopic.topics.anchors import changed_anchors
from streamtopic.topics.display import WordEvidence, named, top_words
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import NeedsRetrain, update

__all__ = ["Calibration", "CalibrationPlan", "DeletionTrials", "Probe", "Trial", "calibrate"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

_TOP = 10


@dataclass(frozen=True, slots=True)
class Trial:
    """One forget set taken out.

    moved: the largest change of an entry of A.
    l1: mean over topics of the L1 distance.
    overlap: mean share of the ten words shown before that are shown after as well.
    reason: why topics cannot be compared, "" where they can: other anchor words stand for them, or the documents that
        are left allow no model. The three figures are nan then.
    """

    moved: float
    l1: float
    overlap: float
    reason: str = ""


class DeletionTrials:
    """A model, its counts, and documents of it that can be taken out for a try; the model stays as it is.

    source: the counts that `fit` was learned from.
    documents: all counted documents or some, their words positions in `source.words`.
    Raises UsageError where they cannot be among the counted ones.
    """

    def __init__(self, source: CountSource, documents: DocumentBatch, fit: TopicFit) -> None:
        n = len(source.words)
        if documents.documents > source.documents or int(documents.words.max(initial=-1)) >= n:
            raise UsageError("the documents are not those that were counted: there are too many, or unknown words")
        frequency, _, _ = statistics(documents, n, np.ones(documents.documents, np.int64))
        if (frequency > source.frequency).any():
            raise UsageError(
                "the documents are not those that were counted: a word is in more of them than was counted"
            )
        self._source, self._documents, self._fit = source, documents, fit
        place = {word: k for k, word in enumerate(source.words)}
        self._anchors = np.array([place[word] for word in fit.anchors], np.intp)
        self._place = place
        self._top = self._shown(fit, source.frequency)

    @property
    def anchor_frequency(self) -> Int64:
        """Documents that hold each anchor word, (r,)."""
        return np.asarray(self._source.frequency[self._anchors])

    def aimed(self, topic: int, generator: np.random.Generator) -> Positions:
        """Return all documents, those first that carry most of a topic's anchor row; the rest in random order."""
        # A passage of l tokens and weight w adds w h (l - 1) to the row of a word that it holds h times.
        batch = self._documents
        rows = np.repeat(np.arange(len(batch.lengths)), np.diff(batch.indptr))
        here = batch.words == self._anchors[topic]
        held = np.bincount(rows[here], batch.counts[here], len(batch.lengths))
        weights = self._fit.options.weighting.weights(batch.lengths, batch.totals)
        carried = np.bincount(batch.owners, held * weights * (batch.lengths - 1.0), batch.documents)
        return np.lexsort((generator.permutation(batch.documents), -carried))

    def forget(self, chosen: Positions) -> Trial:
        """Take documents at these distinct positions out of a copy of the model and compare. Cost: one update."""
        gone, weighting = self._documents.take(np.sort(chosen)), self._fit.options.weighting
        part = count(gone, len(self._source.words), weighting)
        delta = Counts(self._source.words, Cooccurrence.zero(part.n_words) - part)
        passages = SignedPassages.gone(gone, weighting)
        left = CountsWithout(self._source, part)
        # The update works in place, and the model must serve the next trial as well.
        outcome = update(_copied(self._fit), left, delta, passages)
        if isinstance(outcome, NeedsRetrain):
            return Trial(np.nan, np.nan, np.nan, outcome.reason)
        if outcome.new_anchors:
            return Trial(np.nan, np.nan, np.nan, changed_anchors(self._fit.anchors, outcome.fit.anchors))
        return self._compared(outcome.fit, left.frequency)

    def _compared(self, after: TopicFit, frequency: Int64) -> Trial:
        words = sorted({*self._fit.words, *after.words})
        change = np.abs(_over(self._fit, words) - _over(after, words))
        kept = [
            len({*before} & {*now}) / len(before)
            for before, now in zip(self._top, self._shown(after, frequency), strict=True)
        ]
        return Trial(float(change.max()), float(change.sum(axis=0).mean()), float(np.mean(kept)))

    def _shown(self, fit: TopicFit, frequency: Int64) -> tuple[tuple[str, ...], ...]:
        """Return the words that are shown of a model; frequency: of all words of the source."""
        held = frequency[[self._place[word] for word in fit.words]]
        return named(top_words(fit.A, WordEvidence.of(fit, held), _TOP), fit.words)


def _copied(fit: TopicFit) -> TopicFit:
    """Return the fit with copies of those arrays that an update changes in place, which are few of them."""
    return replace(fit, q=fit.q.copy(), mixtures=fit.mixtures.copied())


def _over(fit: TopicFit, words: list[str]) -> Float:
    """Return A over more words, (len(words), r)."""
    place = {word: k for k, word in enumerate(words)}
    wide = np.zeros((len(words), fit.A.shape[1]))
    wide[[place[word] for word in fit.words]] = fit.A
    return wide


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """The trials of a calibration, and their cost.

    trials: random forget sets of a size.
    aimed: the most anchors aimed at, those in fewest documents first; None for all, 0 for none.
    probability, utility: the definition's 0.9 and 0.01.
    largest_share: of the documents, the most that is taken out.
    most_updates: ceiling on the updates made, shared by both kinds; sizes that have passed until then stand.

    Cost: at most (trials + anchors aimed at) ceil(log2(sizes + 1)) updates, each with a copy of the model, and sizes
    are 2 log2(largest) at most; a size is given up as soon as it has failed.
    """

    trials: int = 10
    aimed: int | None = None
    probability: float = 0.9
    utility: float = 0.01
    largest_share: float = 0.1
    most_updates: int = 400

    def __post_init__(self) -> None:
        sensible = {
            "trials": self.trials >= 1,
            "aimed": self.aimed is None or self.aimed >= 0,
            "probability": 0 < self.probability <= 1,
            "utility": self.utility > 0,
            "largest_share": 0 < self.largest_share < 1,
            "most_updates": self.most_updates >= 1,
        }
        for name, holds in sensible.items():
            if not holds:
                raise UsageError(f"{name} is {getattr(self, name)}, which is out of its range: see CalibrationPlan")


@dataclass(frozen=True, slots=True)
class Probe:
    """All trials of one kind at one size: `asked` sets were wanted, fewer tried where it had failed by then."""

    size: int
    asked: int
    trials: tuple[Trial, ...]
    probability: float
    utility: float

    @property
    def borne(self) -> int:
        """Sets that left the anchors in place and A within the utility."""
        return sum(trial.moved <= self.utility for trial in self.trials)

    @property
    def passed(self) -> bool:
        """Whether enough of the sets asked for were borne."""
        return self.borne >= self._needed

    @property
    def failed(self) -> bool:
        """Whether too many were not, so that the rest need not be tried."""
        return self.borne + self.asked - len(self.trials) < self._needed

    @property
    def _needed(self) -> float:
        # The product may lie a rounding above a whole number, which that number of sets must reach.
        return self.probability * self.asked - 1e-9

    def mean(self, measure: str) -> float:
        """Mean of a trial's `moved`, `l1` or `overlap` over the sets that kept the anchors; nan where none did."""
        values = [getattr(trial, measure) for trial in self.trials if not trial.reason]
        return float(np.mean(values)) if values else float("nan")


@dataclass(frozen=True, slots=True)
class Calibration:
    """The deletions that a corpus bears.

    random, aimed: probes by ascending size.
    updates: how many were made.
    complete: whether the search came to its end before the plan's ceiling.
    documents, words, topics: m, n, r of the model.
    hard_limit: one fewer than the documents of the rarest anchor.
    """

    random: tuple[Probe, ...]
    aimed: tuple[Probe, ...]
    updates: int
    complete: bool
    documents: int
    words: int
    topics: int
    hard_limit: int

    @property
    def random_limit(self) -> int:
        """Largest size of random sets that passed below the least that failed, in documents."""
        return _largest(self.random)

    @property
    def aimed_limit(self) -> int:
        """The same of sets aimed at anchors; that of random sets where none was aimed."""
        return _largest(self.aimed) if self.aimed else self.random_limit

    @property
    def limit(self) -> int:
        """The capacity: what both kinds bear, never an anchor's last document."""
        return min(self.random_limit, self.aimed_limit, self.hard_limit)

    def capacity(self, epsilon: float, delta: float) -> Capacity:
        """The limit beside theorem 1 at c = 1, so that its `constant` is the implied c of this corpus."""
        formula = base_capacity(1.0, self.documents, self.words, self.topics, epsilon, delta)
        return Capacity(self.limit, "calibrated", formula)


def calibrate(
    source: CountSource,
    documents: DocumentBatch,
    options: LearnerOptions,
    generator: np.random.Generator,
    plan: CalibrationPlan | None = None,
    fit: TopicFit | None = None,
    update: Callable[[int, int], None] = lambda _done, _most: None,
) -> Calibration:
    """Estimate the deletion capacity of the model of `source`.

    documents: the counted documents, or a sample; their words are positions in `source.words`. Aimed sets miss the
        documents that are not in the sample.
    fit: the model, if it is at hand; it stays as it is.
    update: told how many updates were made, of how many at most.
    A function of its arguments and the generator's state. Raises UsageError where the documents are not among the
    counted ones, CannotLearn where these counts make no model.
    """
    plan = plan or CalibrationPlan()
    fit = fit or learn(source, options)
    if fit.options != options or fit.documents != source.documents:
        raise UsageError("the fit is of other counts or options than those given: leave it out, or give its own")
    trials = DeletionTrials(source, documents, fit)
    rarest = trials.anchor_frequency
    hard_limit = most_deletions(rarest)
    most = min(int(plan.largest_share * source.documents), documents.documents, hard_limit)
    search = _Search(trials, plan, most, update)
    aims = np.argsort(rarest, kind="stable")[: plan.aimed]
    # Random sets need their searches' full depth; aimed ones mostly fail early.
    share = max(plan.trials / (plan.trials + len(aims)), 0.5)
    orders = [generator.permutation(documents.documents) for _ in range(plan.trials)]
    random = search.probes(orders, max(int(share * plan.most_updates), 1))
    aimed = search.probes([trials.aimed(int(topic), generator) for topic in aims], plan.most_updates)
    return Calibration(
        random=random,
        aimed=aimed,
        updates=search.updates,
        complete=search.complete,
        documents=source.documents,
        words=len(fit.words),
        topics=options.n_topics,
        hard_limit=hard_limit,
    )


class _Search:
    """Bisection over sizes up to `most`, with a shared ceiling on updates."""

    def __init__(
        self,
        trials: DeletionTrials,
        plan: CalibrationPlan,
        most: int,
        update: Callable[[int, int], None] = lambda _done, _most: None,
    ) -> None:
        # Two sizes an octave: near enough for a figure that is an estimate, and few enough to be tried.
        steps = range(2 * max(most, 1).bit_length())
        octaves = {int(2 ** (k / 2) + 0.5) for k in steps}
        self.sizes = [size for size in sorted(octaves | {most}) if 0 < size <= most]
        self.trials, self.plan, self._update = trials, plan, update
        self.updates, self.complete = 0, True

    def probes(self, orders: Sequence[Positions], ceiling: int) -> tuple[Probe, ...]:
        """Return the probes made for forget sets that are beginnings of these orders, by ascending size.

        ceiling: updates after which it ends, those of earlier searches included.
        """
        made: dict[int, Probe] = {}
        low, high = 0, len(self.sizes)
        while orders and low < high:
            middle = (low + high) // 2
            probe = self._probe(self.sizes[middle], orders, ceiling)
            made[probe.size] = probe
            if probe.passed:
                low = middle + 1
            elif probe.failed:
                high = middle
            else:
                break
        return tuple(made[size] for size in sorted(made))

    def _probe(self, size: int, orders: Sequence[Positions], ceiling: int) -> Probe:
        probe = Probe(size, len(orders), (), self.plan.probability, self.plan.utility)
        for order in orders:
            if probe.failed:
                break
            # Sizes that passed before stand, and the calibration says that it is not complete.
            if self.updates == ceiling:
                self.complete = False
                break
            self.updates += 1
            self._update(self.updates, self.plan.most_updates)
            trials = (*probe.trials, self.trials.forget(order[:size]))
            probe = Probe(size, probe.asked, trials, probe.probability, probe.utility)
        return probe


def _largest(probes: Sequence[Probe]) -> int:
    failed = min((probe.size for probe in probes if probe.failed), default=None)
    return max((probe.size for probe in probes if probe.passed and (failed is None or probe.size < failed)), default=0)
