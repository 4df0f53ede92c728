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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, DocumentBatch
from streamtopic.errors import UsageError
from streamtopic.privacy.capacity import Capacity, base_capacity, most_deletions
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.trials import DeletionTrials, Trial

__all__ = ["Calibration", "CalibrationPlan", "Probe", "calibrate"]

Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """What is tried, and what it may cost.

    trials: random forget sets of a size. aimed: most anchors aimed at, those in fewest documents first; None for all,
    0 for none. probability, utility: the definition's 0.9 and 0.01. largest_share: of the documents, the most that is
    taken out. most_updates: ceiling on the updates made, shared by both kinds; what has passed until then stands.

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
        return self.probability * self.asked - 1e-9

    def mean(self, measure: str) -> float:
        """Mean of a trial's `moved`, `l1` or `overlap` over the sets that needed no retrain; nan where all did."""
        values = [getattr(trial, measure) for trial in self.trials if not trial.reason]
        return float(np.mean(values)) if values else float("nan")


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a corpus bears.

    random, aimed: probes by ascending size. updates: how many were made; complete: whether the search was not ended by
    the plan's ceiling. documents, words, topics: m, n, r of the model. hard_limit: one fewer than the documents of the
    rarest anchor.
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

    documents: the counted documents, or a sample, in which aimed sets miss what lies outside; their words are positions
    in `source.words`. fit: the model, if it is at hand; it stays as it is. update: told how many updates were made, of
    how many at most. A function of its arguments and the generator's state. Raises UsageError where the documents are
    not among the counted ones, CannotLearn where these counts make no model.
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
        self.sizes = sorted({*(int(2 ** (k / 2) + 0.5) for k in range(2 * max(most, 1).bit_length())), most} - {0})
        self.sizes = [size for size in self.sizes if size <= most]
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
