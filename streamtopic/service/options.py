"""What a scheduler is told."""

from dataclasses import dataclass, field

from streamtopic.privacy.capacity import base_capacity
from streamtopic.service.decide import Policy
from streamtopic.service.publishing import Guarded
from streamtopic.service.tasks import TaskOptions
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.options import LearnerOptions

__all__ = ["CapacityRule", "SchedulerOptions"]


@dataclass(frozen=True, slots=True)
class CapacityRule:
    """How many deletions a base model bears: a share of its documents, a number, or the paper's formula with c."""

    rule: str = "share"
    share: float = 0.01
    number: int = 100
    constant: float = 1.0

    def limit(self, fit: TopicFit, epsilon: float, delta: float) -> int:
        """Return the capacity of a base model, at least 1 under `share`."""
        if self.rule == "fixed":
            return self.number
        if self.rule == "theorem":
            n, r = fit.A.shape
            return int(base_capacity(self.constant, fit.documents, n, r, epsilon, delta))
        return max(1, int(self.share * fit.documents))


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """All that a scheduler is told. keep_versions: how many stay in the log, besides those that are withdrawn."""

    model: str
    learner: LearnerOptions = field(default_factory=LearnerOptions)
    policy: Policy = field(default_factory=Policy)
    capacity: CapacityRule = field(default_factory=CapacityRule)
    tasks: TaskOptions = field(default_factory=TaskOptions)
    epsilon: float = 1.0
    delta: float = 1e-6
    keep_versions: int = 100

    @property
    def guarded(self) -> Guarded:
        """What noise is calibrated to."""
        return Guarded(self.epsilon, self.delta, self.learner.tolerance)
