"""What several releases together reveal: exact composition in Gaussian differential privacy.

Dong, Roth and Su, "Gaussian Differential Privacy" (2022), corollary 3.3: mechanisms of scale s_t are together one of
scale 1 / mu, mu = sqrt(sum 1 / s_t^2), also where each is chosen after seeing those before. A slack is what an artifact
takes of delta outside its Gaussian; slacks are added up. The noise of this package has none (docs/decisions/0018).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from streamtopic.errors import UsageError
from streamtopic.privacy.gaussian import gaussian_epsilon

__all__ = ["Composition"]


@dataclass(frozen=True, slots=True)
class Composition:
    """Releases since the base model, as mu (0: none) and the sum of their slacks."""

    mu: float = 0.0
    slack: float = 0.0

    @classmethod
    def of(cls, releases: Iterable[tuple[float, float]]) -> "Composition":
        """Compose releases of (scale s, slack); the order does not matter, also not to the last bit.

        Raises UsageError for a scale <= 0 or a negative slack.
        """
        parts = list(releases)
        for scale, slack in parts:
            _require(scale, slack)
        mu = math.sqrt(math.fsum(1 / (scale * scale) for scale, _ in parts))
        return cls(mu, math.fsum(slack for _, slack in parts))

    def then(self, scale: float, slack: float = 0.0) -> "Composition":
        """This and one more release, sigma = scale times its sensitivity. Raises UsageError for a scale <= 0."""
        _require(scale, slack)
        return Composition(math.hypot(self.mu, 1 / scale), self.slack + slack)

    def epsilon(self, delta: float) -> float:
        """The epsilon spent at `delta`; math.inf once the slacks have used delta up."""
        if self.mu == 0:
            return 0.0
        return math.inf if delta <= self.slack else gaussian_epsilon(delta - self.slack, 1 / self.mu)


def _require(scale: float, slack: float) -> None:
    if not (scale > 0 and slack >= 0):
        raise UsageError(f"a release needs a scale above 0 and a slack of 0 or more, not {scale} and {slack}")
