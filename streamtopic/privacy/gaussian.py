"""The analytic Gaussian mechanism (Balle and Wang, "Improving the Gaussian Mechanism", ICML 2018, theorem 8).

Noise of standard deviation sigma on a query of L2 sensitivity Delta enters through s = sigma / Delta alone. It is
(epsilon, delta)-indistinguishable exactly for delta >= Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s).
"""

import math

from scipy.special import log_ndtr

from streamtopic.errors import UsageError

__all__ = ["gaussian_delta", "gaussian_epsilon", "gaussian_scale"]

MAX_EPSILON = 1e6


def gaussian_delta(epsilon: float, s: float) -> float:
    """The least delta at `epsilon` for noise of scale `s` (> 0), both in units of the sensitivity."""
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
