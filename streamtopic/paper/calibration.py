"""Calibrated deletion capacity: how many deletions this corpus bears, found by deleting.

The paper's capacity is m over powers of r and n, times an unknown constant of the corpus. Here the definition
itself is tried out, with the trained model in place of the ground truth. Forget sets are drawn and taken out exactly. A
set counts as borne if the anchors stay and no entry of A, before noise, moves by more than 0.01. The capacity is the
largest k at which at least 90 % of the sets are borne, of the random sets and of the aimed sets alike.

    random      k documents drawn uniformly
    aimed       for each anchor, the k documents that carry most of its weight, so as to push it out

Sets are nested: a trial has one order of documents, of which size k takes the first k. Sizes, two an octave, are
searched by bisection, as if a larger set were never borne more often than a smaller one. Near the limit this is not
quite so; the answer is the largest size that passed below the least that failed. It is an estimate: it bounds nothing
for sets that were not tried.

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
    """The outcome of one forget set taken out.

    moved: the largest change of an entry of A.
    l1: mean over topics of the L1 distance.
    overlap: mean share of the ten words shown before that are shown after as well.
    reason: why topics cannot be compared: they have other anchor words, or the documents that are left make no model.
        The three figures are nan then. "" if topics can be compared.
    """

    moved: float
    l1: float
    overlap: float
    reason: str = ""


class DeletionTrials:
    """A model, its counts, and documents of it that can be taken out for a try; the model stays as it is.

    source: the counts that `fit` was learned from.
    documents: all counted documents or some; their words are positions in `source.words`.
    fit: the model.
    Raises UsageError for documents that cannot be among the counted documents.
    """

    def __init__(self, source: CountSource, documents: DocumentBatch, fit: TopicFit) -> None:
        n = len(source.words)
        if documents.documents > source.documents or int(documents.words.max(initial=-1)) >= n:
            raise UsageError(
                "the documents are not those that were counted: there are too many, or unknown words; give the "
                "documents of these counts"
            )
        once = np.ones(documents.documents, np.int64)
        frequency, _, _ = statistics(documents, n, once)
        # Otherwise a trial would take counts below zero.
        if (frequency > source.frequency).any():
            raise UsageError(
                "the documents are not those that were counted: more of them hold a word than were counted with it; "
                "give the documents of these counts"
            )
        self._source = source
        self._documents = documents
        self._fit = fit
        self._place = {word: k for k, word in enumerate(source.words)}
        anchors = [self._place[word] for word in fit.anchors]
        self._anchors = np.array(anchors, np.intp)
        # Once, since every trial is compared with the same words.
        self._top = self._shown(fit, source.frequency)

    @property
    def anchor_frequency(self) -> Int64:
        """Documents that hold each anchor word, (r,)."""
        return np.asarray(self._source.frequency[self._anchors])

    def aimed(self, topic: int, generator: np.random.Generator) -> Positions:
        """Return all documents, in descending order of their part in a topic's anchor row, ties in random order.

        topic: number of the topic.
        generator: of the random order.
        """
        batch = self._documents
        passages = len(batch.lengths)
        rows = np.repeat(np.arange(passages), np.diff(batch.indptr))
        here = batch.words == self._anchors[topic]
        weighting = self._fit.options.weighting
        held = np.bincount(rows[here], weighting.counted(batch)[here], passages)
        # A passage with l tokens that count and weight w adds w g (l - 1) to the row of a word that counts g times.
        added = held * weighting.of(batch) * (weighting.tokens(batch) - 1.0)
        carried = np.bincount(batch.owners, added, batch.documents)
        ties = generator.permutation(batch.documents)
        return np.lexsort((ties, -carried))

    def forget(self, chosen: Positions) -> Trial:
        """Take documents out of a copy of the model and compare it with the model.

        chosen: distinct positions of documents.
        Cost: one update.
        """
        fit = self._fit
        weighting = fit.options.weighting
        words = self._source.words
        # `take` wants ascending positions.
        gone = self._documents.take(np.sort(chosen))
        part = count(gone, len(words), weighting)
        delta = Counts(words, Cooccurrence.zero(part.n_words) - part)
        passages = SignedPassages.gone(gone, weighting)
        left = CountsWithout(self._source, part)
        # The update works in place, and the model must serve the next trial as well.
        outcome = update(fit.copied(), left, delta, passages)
        if isinstance(outcome, NeedsRetrain):
            return Trial(np.nan, np.nan, np.nan, outcome.reason)
        if outcome.new_anchors:
            changed = changed_anchors(fit.anchors, outcome.fit.anchors)
            return Trial(np.nan, np.nan, np.nan, changed)
        return self._compared(outcome.fit, left.frequency)

    def _compared(self, after: TopicFit, frequency: Int64) -> Trial:
        """Return the trial of a model with the same anchors; frequency: documents left of each word of the source."""
        # Words may enter or leave the vocabulary: over the words of both, an entry without a word is 0.
        words = sorted({*self._fit.words, *after.words})
        change = np.abs(_over(self._fit, words) - _over(after, words))
        kept = []
        for before, now in zip(self._top, self._shown(after, frequency), strict=True):
            common = set(before) & set(now)
            kept.append(len(common) / len(before))
        l1 = change.sum(axis=0).mean()
        return Trial(float(change.max()), float(l1), float(np.mean(kept)))

    def _shown(self, fit: TopicFit, frequency: Int64) -> tuple[tuple[str, ...], ...]:
        """Return the words that a page shows of a model; frequency: documents of each word of the source."""
        places = [self._place[word] for word in fit.words]
        evidence = WordEvidence.of(fit, frequency[places])
        return named(top_words(fit.A, evidence, _TOP), fit.words)


def _over(fit: TopicFit, words: list[str]) -> Float:
    """Return A over more words, (len(words), r)."""
    place = {word: k for k, word in enumerate(words)}
    wide = np.zeros((len(words), fit.A.shape[1]))
    rows = [place[word] for word in fit.words]
    wide[rows] = fit.A
    return wide


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """The trials of a calibration, and their cost.

    trials: random forget sets of a size.
    aimed: the most anchors to aim at, the anchors in fewest documents first; None for all, 0 to aim at no anchor.
    probability, utility: the definition's 0.9 and 0.01.
    largest_share: greatest share of the documents that a set takes out.
    most_updates: ceiling on the updates of both kinds together; sizes that have passed by then stand.

    Cost: at most (trials + anchors aimed at) ceil(log2(sizes + 1)) updates, each with a copy of the model; sizes are
    2 log2(largest) at most. A size is given up as soon as it has failed. Raises UsageError for values out of range.
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
                raise UsageError(f"{name} is {getattr(self, name)}, out of its range: CalibrationPlan describes it")


@dataclass(frozen=True, slots=True)
class Probe:
    """All trials of one kind at one size.

    size: documents of a set.
    asked: sets to try; fewer are tried once the size has failed.
    trials: outcomes of the tried sets.
    probability, utility: of the plan.
    """

    size: int
    asked: int
    trials: tuple[Trial, ...]
    probability: float
    utility: float

    @property
    def borne(self) -> int:
        """Number of sets that left the anchors in place and A within the utility."""
        return sum(trial.moved <= self.utility for trial in self.trials)

    @property
    def passed(self) -> bool:
        """Whether enough sets were borne."""
        return self.borne >= self._needed

    @property
    def failed(self) -> bool:
        """Whether too few sets can still be borne, so that the rest need not be tried."""
        untried = self.asked - len(self.trials)
        return self.borne + untried < self._needed

    @property
    def _needed(self) -> float:
        # The product may lie a rounding above a whole number, and that number of sets must be enough.
        return self.probability * self.asked - 1e-9

    def mean(self, measure: str) -> float:
        """Return the mean of a figure over the sets that kept the anchors; nan without such a set.

        measure: `moved`, `l1` or `overlap`.
        """
        values = [getattr(trial, measure) for trial in self.trials if not trial.reason]
        # numpy warns over the mean of an empty list.
        if not values:
            return float("nan")
        return float(np.mean(values))


@dataclass(frozen=True, slots=True)
class Calibration:
    """The deletions that a corpus bears.

    random, aimed: probes by ascending size.
    updates: number of updates made.
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
        """Largest such size of sets aimed at anchors; the limit of random sets if the plan aims at no anchor."""
        return _largest(self.aimed) if self.aimed else self.random_limit

    @property
    def limit(self) -> int:
        """The capacity: deletions that both kinds bear and that leave every anchor a document."""
        return min(self.random_limit, self.aimed_limit, self.hard_limit)

    def capacity(self, epsilon: float, delta: float) -> Capacity:
        """Return the limit as theorem 1 would with c = 1, so that its `constant` is the implied c of this corpus."""
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
    """Estimate the deletion capacity of the model of `source`: a function of its arguments and the generator's state.

    source: counts of documents.
    documents: the counted documents, or a sample; their words are positions in `source.words`. Aimed sets miss the
        documents that are not in the sample.
    options: of the model.
    generator: of the random sets.
    plan: None for `CalibrationPlan()`.
    fit: the model, learned here if it is None; it stays as it is.
    update: called with the number of updates made, and with the most that there can be.
    Raises UsageError if the documents or the fit do not belong to these counts, CannotLearn if the counts make no
    model.
    """
    plan = plan or CalibrationPlan()
    fit = fit or learn(source, options)
    if fit.options != options or fit.documents != source.documents:
        raise UsageError(
            "the fit was learned from other counts or options: leave it out, or give its own counts and options"
        )
    trials = DeletionTrials(source, documents, fit)
    rarest = trials.anchor_frequency
    hard_limit = most_deletions(rarest)
    largest = int(plan.largest_share * source.documents)
    most = min(largest, documents.documents, hard_limit)
    search = _Search(trials, plan, most, update)
    aims = np.argsort(rarest, kind="stable")[: plan.aimed]
    # Random sets need their search's full depth, while aimed sets mostly fail early; so they get half at the least.
    share = max(plan.trials / (plan.trials + len(aims)), 0.5)
    random_ceiling = max(int(share * plan.most_updates), 1)
    orders = [generator.permutation(documents.documents) for _ in range(plan.trials)]
    random = search.probes(orders, random_ceiling)
    aimed_orders = [trials.aimed(int(topic), generator) for topic in aims]
    aimed = search.probes(aimed_orders, plan.most_updates)
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
    """Bisection over sizes up to `most` documents; updates of all searches are counted together."""

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
        sizes = sorted(octaves | {most})
        self.sizes = [size for size in sizes if 0 < size <= most]
        self.trials = trials
        self.plan = plan
        self.updates = 0
        self.complete = True
        self._update = update

    def probes(self, orders: Sequence[Positions], ceiling: int) -> tuple[Probe, ...]:
        """Try sizes of forget sets and return the probes, by ascending size.

        orders: of documents; a set of size k is the first k of an order.
        ceiling: number of updates after which the search ends, updates of earlier searches included.
        """
        made: dict[int, Probe] = {}
        low = 0
        high = len(self.sizes)
        while orders and low < high:
            middle = (low + high) // 2
            probe = self._probe(self.sizes[middle], orders, ceiling)
            made[probe.size] = probe
            if probe.passed:
                low = middle + 1
            elif probe.failed:
                high = middle
            else:
                # The ceiling cut this size off before it passed or failed.
                break
        return tuple(made[size] for size in sorted(made))

    def _probe(self, size: int, orders: Sequence[Positions], ceiling: int) -> Probe:
        """Try one size, until it has failed or the ceiling is reached."""
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
            trial = self.trials.forget(order[:size])
            probe = replace(probe, trials=(*probe.trials, trial))
        return probe


def _largest(probes: Sequence[Probe]) -> int:
    """Return the largest size that passed below the least that failed, 0 without one."""
    largest = 0
    for probe in probes:
        # Probes ascend by size. A pass above a failure was luck.
        if probe.failed:
            break
        if probe.passed:
            largest = probe.size
    return largest
