"""The loss of privacy by releases: the Gaussian mechanism for one of them, exact composition for several.

One release is the analytic Gaussian mechanism (Balle and Wang, "Improving the Gaussian Mechanism", ICML 2018, theorem
8). Noise of standard deviation sigma on a query of L2 sensitivity Delta enters through s = sigma / Delta alone. It is
(epsilon, delta)-indistinguishable exactly for delta >= Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s).

Several releases compose exactly in Gaussian differential privacy:

Dong, Roth and Su, "Gaussian Differential Privacy" (2022), corollary 3.3: mechanisms of scale s_t are together one of
scale 1 / mu, mu = sqrt(sum 1 / s_t^2), also if each is chosen after seeing those before. A slack is the part of
delta that an artifact takes outside its Gaussian; slacks are added up. The noise of this package has no slack
(docs/decisions/0012).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from scipy.special import log_ndtr

from streamtopic.errors import UsageError

__all__ = ["Composition", "gaussian_delta", "gaussian_epsilon", "gaussian_scale"]

_UNIT = 2.0**-53

MAX_EPSILON = 1e6
"""Searches for epsilon end here: a larger one promises nothing."""


def gaussian_delta(epsilon: float, s: float) -> float:
    """The least delta at which noise is (epsilon, delta)-indistinguishable, rounded up.

    Source: Balle and Wang 2018, theorem 8.

    epsilon: 0 or more.
    s: sigma / Delta, standard deviation of the noise in units of the sensitivity; above 0. The result also holds for an
        s that is up to four roundings off.
    """
    # By logarithms: both terms underflow long before their ratio does.
    inside, inside_error = _log_normal(1 / (2 * s), -epsilon * s)
    outside, outside_error = _log_normal(-1 / (2 * s), -epsilon * s)
    doubt = inside_error + outside_error + 4 * _UNIT * (epsilon + abs(outside))
    log_ratio = min(epsilon + outside - inside, 0.0) - doubt
    bound = math.exp(inside + inside_error) * -math.expm1(log_ratio)
    return min(bound * (1 + 16 * _UNIT), 1.0)


def _log_normal(first: float, second: float) -> tuple[float, float]:
    """Return log Phi(first + second), and a bound on its error if each term is up to six roundings off."""
    x = first + second
    value = float(log_ndtr(x))
    # The slope of log Phi at x is at most 1 + max(-x, 0). The library is within 16 units, of which tests measure 8.
    moved = 8 * _UNIT * (abs(first) + abs(second)) * (1 + max(-x, 0.0))
    return value, moved + 16 * _UNIT * max(abs(value), 1.0)


# A search, and games of an audit ask for the same guarantee thousands of times.
@lru_cache(maxsize=64)
def gaussian_scale(epsilon: float, delta: float) -> float:
    """The least s = sigma / Delta that is (epsilon, delta)-indistinguishable, rounded up so that it holds at s.

    epsilon, delta: of the guarantee.
    Raises UsageError unless epsilon > 0 and 0 < delta < 1.
    """
    if not (0 < epsilon <= MAX_EPSILON and 0 < delta < 1):
        raise UsageError(f"epsilon {epsilon} must be above 0 and delta {delta} between 0 and 1: change the guarantee")
    low, high = 1e-9, 1.0
    while gaussian_delta(epsilon, high) > delta:
        low, high = high, 2 * high
    return _least(lambda s: gaussian_delta(epsilon, s) <= delta, low, high)


def gaussian_epsilon(delta: float, s: float) -> float:
    """The least epsilon >= 0 for noise, rounded up; math.inf if it would exceed 1e6.

    delta: of the guarantee.
    s: sigma / Delta, standard deviation of the noise in units of the sensitivity.
    """
    if gaussian_delta(0.0, s) <= delta:
        return 0.0
    if gaussian_delta(MAX_EPSILON, s) > delta:
        return math.inf
    return _least(lambda epsilon: gaussian_delta(epsilon, s) <= delta, 0.0, MAX_EPSILON)


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the least number for which something holds. It holds at `high`, and not at `low`."""
    # Down to neighbouring doubles, and then the upper one: it must hold at the result, not only near it.
    while (middle := (low + high) / 2) not in {low, high}:
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True, slots=True)
class Composition:
    """The releases since the base model, together.

    mu: sqrt(sum 1 / s_t^2) over the releases' scales s_t; 0 before the first release.
    slack: sum of the releases' slacks, in units of delta.
    """

    mu: float
    slack: float

    @classmethod
    def of(cls, releases: Iterable[tuple[float, float]]) -> "Composition":
        """Compose releases. Their order does not matter, not even to the last bit.

        releases: (scale s, slack) of each.
        Raises UsageError for a scale <= 0 or a negative slack.
        """
        parts = list(releases)
        for scale, slack in parts:
            if not (scale > 0 and slack >= 0):
                raise UsageError(f"a release needs a scale above 0 and a slack of 0 or more, not {scale} and {slack}")
        # fsum rounds once, so the order of releases does not show in the last bit.
        mu = math.sqrt(math.fsum(1 / (scale * scale) for scale, _ in parts))
        return cls(mu, math.fsum(slack for _, slack in parts))

    def epsilon(self, delta: float) -> float:
        """The epsilon spent at `delta`; math.inf once the slacks have used delta up."""
        if self.mu == 0:
            return 0.0
        remaining = delta - self.slack
        if remaining <= 0:
            return math.inf
        return gaussian_epsilon(remaining, 1 / self.mu)
