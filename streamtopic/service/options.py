"""What a scheduler is told."""

from dataclasses import dataclass, field
from typing import Literal

from streamtopic.privacy.gaussian import gaussian_scale
from streamtopic.service.capacity import CapacityRule
from streamtopic.service.decide import Policy
from streamtopic.service.publishing import Guarded
from streamtopic.service.tasks import TaskOptions
from streamtopic.service.theorem_base import TheoremRule
from streamtopic.topics.options import LearnerOptions

__all__ = ["CapacityRule", "SchedulerOptions"]


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """All that a scheduler is told.

    keep_versions: how many stay in the log, besides those that are withdrawn. theorem: what theorem mode is told, None
    in certified mode.
    """

    model: str
    learner: LearnerOptions = field(default_factory=LearnerOptions)
    policy: Policy = field(default_factory=Policy)
    capacity: CapacityRule = field(default_factory=CapacityRule)
    tasks: TaskOptions = field(default_factory=TaskOptions)
    epsilon: float = 1.0
    delta: float = 1e-6
    keep_versions: int = 100
    theorem: TheoremRule | None = None

    @property
    def guarantee(self) -> Literal["certified", "theorem"]:
        """What a version promises."""
        return "certified" if self.theorem is None else "theorem"

    @property
    def scale(self) -> float:
        """What one more version composes with."""
        return gaussian_scale(self.epsilon, self.delta) if self.theorem is None else self.theorem.scale

    @property
    def guarded(self) -> Guarded:
        """What noise is calibrated to."""
        return Guarded(self.epsilon, self.delta, self.learner.tolerance)
