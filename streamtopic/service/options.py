"""What a scheduler is told."""

from dataclasses import dataclass, field

from streamtopic.service.capacity import CapacityRule
from streamtopic.service.decide import Policy
from streamtopic.service.publishing import Guarded
from streamtopic.service.tasks import TaskOptions
from streamtopic.topics.options import LearnerOptions

__all__ = ["CapacityRule", "SchedulerOptions"]


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
