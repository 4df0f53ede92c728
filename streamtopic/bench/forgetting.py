"""What an update costs, draw by draw: the library on counts in memory, and a retrain of the same counts."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from streamtopic.bench.material import Material
    from streamtopic.counts import CountSource
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions
    from streamtopic.topics.update import NeedsRetrain, Updated

__all__ = ["Cost", "Point", "clocked", "forget_sets", "forgotten", "learned", "power", "tried"]

T = TypeVar("T")
RETRAINS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor and wall seconds of a piece of work that was done once."""

    cpu: float
    wall: float


@dataclass(slots=True)
class Point:
    """Updates of one size: the costs of verified and of refused updates, and the reasons of refusals.

    pairs: distinct pairs of words that changed, of each update.
    retrain: the cost of learning from the same counts.
    """

    retrain: Cost
    entries: int
    verified: list[Cost] = field(default_factory=list)
    refused: list[Cost] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    pairs: list[int] = field(default_factory=list)
    certificate: float = 0.0

    @property
    def draws(self) -> int:
        """Number of updates that were tried."""
        return len(self.verified) + len(self.refused)

    @property
    def update(self) -> Cost:
        """The median of verified updates, nan if there is none."""
        return _median(self.verified)

    @property
    def served(self) -> float:
        """Processor seconds of a deletion on average, with a retrain if one is needed."""
        spent = sum(cost.cpu for cost in (*self.verified, *self.refused))
        return (spent + len(self.refused) * self.retrain.cpu) / max(self.draws, 1)

    def figures(self, name: str) -> list[Figure]:
        """Return the figures of this point, under a name."""
        found = [
            Figure(f"{name}: entries of Q", self.entries, "entries"),
            Figure(f"{name}: pairs forgotten", float(np.median(self.pairs)), "pairs"),
            Figure(f"{name}: retrain", self.retrain.cpu, "CPU s"),
            Figure(f"{name}: retrains needed", len(self.refused), f"of {self.draws}"),
            *(Figure(f"{name}: needed, {why}", times, f"of {self.draws}") for why, times in self.reasons.items()),
            Figure(f"{name}: a deletion served, retrains included", self.served, "CPU s"),
        ]
        if self.verified:
            found += [
                Figure(f"{name}: update", self.update.cpu, "CPU s"),
                Figure(f"{name}: update, wall", self.update.wall, "s"),
                Figure(f"{name}: retrain over update", self.retrain.cpu / self.update.cpu, "x"),
                Figure(f"{name}: largest certificate", self.certificate, "||A - A*||"),
            ]
        return found


def forgotten(
    material: Material,
    size: int,
    gone: Sequence[npt.NDArray[np.intp]],
    options: LearnerOptions,
) -> list[Point]:
    """Forget sets of documents, each out of the first `size` of them; sets of one size make one point, in order."""
    from streamtopic.counts import Cooccurrence, Counts, count
    from streamtopic.topics.update import update

    everything = material.counts(size, options.weighting)
    fit, retrain = learned(everything, options)
    points: dict[int, Point] = {}
    nothing = Cooccurrence.zero(material.words)
    for documents in gone:
        out = material.taken(documents)
        part = count(out, material.words, options.weighting)
        now, delta = Counts(material.names, everything.cooccurrence - part), Counts(material.names, nothing - part)
        point = points.setdefault(len(documents), Point(retrain, fit.q.entries))
        point.pairs.append(len(part.values))
        tried(point, partial(update, fit, now, delta))
    return list(points.values())


def tried(point: Point, work: Callable[[], Updated | NeedsRetrain]) -> None:
    """Do an update; note its cost, the certificate included, and its outcome."""
    from streamtopic.topics.update import NeedsRetrain

    cost, (outcome, bound) = clocked(lambda: _certified(work()))
    if isinstance(outcome, NeedsRetrain):
        # Later clauses of a reason name words, which differ each time, or explain them.
        reason = re.split("[:,]", outcome.reason)[0]
    elif bound > outcome.fit.options.tolerance:
        reason = "the certificate does not reach the tolerance"
    else:
        point.verified.append(cost)
        point.certificate = max(point.certificate, bound)
        return
    point.refused.append(cost)
    point.reasons[reason] += 1


def _certified(outcome: Updated | NeedsRetrain) -> tuple[Updated | NeedsRetrain, float]:
    from streamtopic.topics.update import NeedsRetrain

    return outcome, float("inf") if isinstance(outcome, NeedsRetrain) else outcome.fit.certificate.bound


def learned(source: CountSource, options: LearnerOptions) -> tuple[TopicFit, Cost]:
    """Learn from counts, a few times; the median counts, certificate included."""
    from streamtopic.topics.learner import learn

    costs: list[Cost] = []
    for _ in range(RETRAINS):
        cost, fit = clocked(lambda: _with_certificate(learn(source, options)))
        costs.append(cost)
    return fit, _median(costs)


def _with_certificate(fit: TopicFit) -> TopicFit:
    assert fit.certificate.bound >= 0  # noqa: S101  computed on first use, which is part of the cost
    return fit


def forget_sets(within: int, sizes: Iterable[int], draws: int, seed: int) -> list[npt.NDArray[np.intp]]:
    """Draw sets of each size out of the first documents, `draws` of each."""
    rng = np.random.default_rng(seed + 1)
    return [np.sort(rng.choice(within, size, replace=False)) for size in sizes for _ in range(draws)]


def clocked(work: Callable[[], T]) -> tuple[Cost, T]:
    """Run once; return the cost and the result."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall), result


def power(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of log y over log x: the power of x that y grows with. nan of fewer than two points."""
    known = [(x, y) for x, y in points if x > 0 and y > 0]
    if len(known) < 2:
        return float("nan")
    x, y = np.log(np.array(known)).T
    return float(np.polyfit(x, y, 1)[0])


def _median(costs: Sequence[Cost]) -> Cost:
    if not costs:
        return Cost(float("nan"), float("nan"))
    return Cost(float(np.median([c.cpu for c in costs])), float(np.median([c.wall for c in costs])))
