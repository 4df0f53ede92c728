"""What releases reveal: the Gaussian mechanism for one of them, exact composition for several.

One release is the analytic Gaussian mechanism (Balle and Wang, "Improving the Gaussian Mechanism", ICML 2018, theorem
8). Noise of standard deviation sigma on a query of L2 sensitivity Delta enters through s = sigma / Delta alone. It is
(epsilon, delta)-indistinguishable exactly for delta >= Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s).

Several releases compose exactly in Gaussian differential privacy:

Dong, Roth and Su, "Gaussian Differential Privacy" (2022), corollary 3.3: mechanisms of scale s_t are together one of
scale 1 / mu, mu = sqrt(sum 1 / s_t^2), also where each is chosen after seeing those before. A slack is the part of
delta that an artifact takes outside its Gaussian; slacks are added up. The noise of this package has no slack
(docs/decisions/0018).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import log_ndtr

from streamtopic.errors import UsageError

__all__ = ["Composition", "gaussian_delta", "gaussian_epsilon", "gaussian_scale"]

MAX_EPSILON = 1e6
"""A larger epsilon promises nothing: searches end there."""


def gaussian_delta(epsilon: float, s: float) -> float:
    """The least delta at `epsilon` for noise of scale `s` (> 0), both in units of the sensitivity."""
    # By logarithms: both terms underflow long before their ratio does.
    inside = float(log_ndtr(1 / (2 * s) - epsilon * s))
    outside = epsilon + float(log_ndtr(-1 / (2 * s) - epsilon * s))
    return math.exp(inside) * -math.expm1(min(outside - inside, 0.0))


def gaussian_scale(epsilon: float, delta: float) -> float:
    """The least s = sigma / Delta that is (epsilon, delta)-indistinguishable, rounded up: the guarantee holds at it.

    Raises UsageError unless epsilon > 0 and 0 < delta < 1.
    """
    if not (0 < epsilon <= MAX_EPSILON and 0 < delta < 1):
        raise UsageError(f"epsilon {epsilon} must be above 0 and delta {delta} between 0 and 1: change the guarantee")
    low, high = 1e-9, 1.0
    while gaussian_delta(epsilon, high) > delta:
        low, high = high, 2 * high
    # To neighbouring doubles, and then the upper one: the guarantee holds at the result, not only near it.
    while (middle := (low + high) / 2) not in {low, high}:
        if gaussian_delta(epsilon, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def gaussian_epsilon(delta: float, s: float) -> float:
    """The least epsilon >= 0 at `delta` for noise of scale `s`, rounded up; math.inf where it would pass 1e6."""
    if gaussian_delta(0.0, s) <= delta:
        return 0.0
    if gaussian_delta(MAX_EPSILON, s) > delta:
        return math.inf
    low, high = 0.0, MAX_EPSILON
    while (middle := (low + high) / 2) not in {low, high}:
        if gaussian_delta(middle, s) > delta:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True, slots=True)
class Composition:
    """Releases since the base model, as mu (0 before the first) and the sum of their slacks."""

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
        # fsum rounds once, so the order of releases does not show in the last bit.
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
