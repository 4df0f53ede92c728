"""Gaussian noise that floating point does not give away.

Noise is added in the widest float there is and the sum is rounded to a coarse power-of-two grid, so that the low bits
of the result say nothing about the value beneath (Mironov, CCS 2012, on what happens otherwise). What rounding errors
before the grid can still show has a probability, the slack, that is taken from delta before sigma is calibrated.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.privacy.gaussian import gaussian_scale
from streamtopic.privacy.keystream import NoiseSeed, standard_normals

__all__ = ["NoisePlan", "NoisedMatrix", "add_noise", "plan_noise", "project_columns", "release_matrix"]

Float64 = npt.NDArray[np.float64]

DRAW_ERROR = 4 * 2.0**-53
SUM_ERROR = float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """How much noise a matrix gets; a function of the settings and its shape only, never of its content.

    scale: s = sigma / sensitivity. grid: every noised number is a multiple of it. slack: what rounding takes of delta.
    """

    sensitivity: float
    epsilon: float
    delta: float
    scale: float
    slack: float
    grid: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the units of the matrix."""
        return self.scale * self.sensitivity

    @property
    def delta_used(self) -> float:
        """The delta that sigma was calibrated for: delta less the slack."""
        return self.delta - self.slack


@dataclass(frozen=True, slots=True, eq=False)
class NoisedMatrix:
    """A matrix after noise; `matrix` float64, columns on the simplex if it came from `release_matrix`."""

    matrix: Float64
    plan: NoisePlan


def plan_noise(numbers: int, mass: float, sensitivity: float, epsilon: float, delta: float) -> NoisePlan:
    """Calibrate noise for `numbers` numbers whose absolute values sum to at most `mass`.

    sensitivity: greatest L2 distance between the two matrices that must be told apart no better than (epsilon, delta).
    The slack is 2 E|err| / g a number, E|err| <= 4 u sigma of the draw and u' |number| of the sum.
    Raises UsageError where the slack would take more than half of delta.
    """
    if not sensitivity > 0:
        raise UsageError(f"the sensitivity must be above 0, not {sensitivity}: set a tolerance")
    # Taking the slack from delta only makes sigma and grid larger, so the slack at this sigma is enough.
    scale = gaussian_scale(epsilon, delta)
    slack = _slack(numbers, mass, scale * sensitivity, _grid(scale * sensitivity))
    if slack > delta / 2:
        raise UsageError(
            f"delta {delta} is too small for {numbers} numbers: rounding alone needs {slack:.1e}; raise delta, or use "
            "fewer words or topics"
        )
    scale = gaussian_scale(epsilon, delta - slack)
    return NoisePlan(sensitivity, epsilon, delta, scale, slack, _grid(scale * sensitivity))


def add_noise(values: Float64, plan: NoisePlan, seed: NoiseSeed) -> Float64:
    """`values` plus N(0, sigma^2) each, rounded to multiples of the plan's grid; the same shape, float64."""
    draws = standard_normals(seed, values.size).reshape(values.shape).astype(np.longdouble)
    noised = values.astype(np.longdouble) + draws * np.longdouble(plan.sigma)
    steps = np.rint(noised / np.longdouble(plan.grid))
    result: Float64 = (steps * np.longdouble(plan.grid)).astype(np.float64)
    return result


def release_matrix(A: Float64, *, tolerance: float, epsilon: float, delta: float, seed: NoiseSeed) -> NoisedMatrix:
    """Noise for A (n, r) whose columns are on the simplex: certified to lie within `tolerance` of the exact one.

    So two runs differ by 2 tolerance at most, sigma = s(epsilon, delta - slack) * 2 * tolerance; columns are put back
    on the simplex afterwards. A function of A, the settings and the seed.
    """
    plan = plan_noise(A.size, 2.0 * A.shape[1], 2 * tolerance, epsilon, delta)
    return NoisedMatrix(project_columns(add_noise(A, plan, seed)), plan)


def project_columns(values: Float64) -> Float64:
    """The nearest matrix (n, r) whose columns are non-negative and sum to 1, by sorting (Held et al. 1974)."""
    ranked = -np.sort(-values, axis=0)
    excess = np.cumsum(ranked, axis=0) - 1.0
    places = np.arange(1, len(values) + 1)[:, None]
    support = np.count_nonzero(ranked * places > excess, axis=0)
    shift = excess[support - 1, np.arange(values.shape[1])] / support
    projected: Float64 = np.maximum(values - shift, 0.0)
    return projected


def _grid(sigma: float) -> float:
    return 2.0 ** math.floor(math.log2(sigma / 16))


def _slack(numbers: int, mass: float, sigma: float, grid: float) -> float:
    return 2 * (numbers * DRAW_ERROR * sigma + SUM_ERROR * (mass + numbers * sigma)) / grid
