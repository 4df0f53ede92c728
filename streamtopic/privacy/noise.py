"""Gaussian noise that floating point does not give away.

A released number is the real number value + sigma N, rounded to the nearest multiple of a power of two: exactly that,
as if it had been computed with all its digits. Floats decide almost every rounding with certainty, since the sum
carries a bound of its error; the few that lie too near to the middle between two multiples are decided with 100 digits.
So the rounded numbers are post-processing of the exact Gaussian mechanism, nothing of delta goes to floating point, and
the bytes are the same on every machine. Naive addition of floats is attackable (Mironov, CCS 2012).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.privacy.keystream import Draws, NoiseSeed, draw_normals, exact_normal, nearest_step

__all__ = ["NoisePlan", "NoisedMatrix", "add_noise", "plan_noise", "project_columns", "release_matrix"]

Float64 = npt.NDArray[np.float64]

# A bound on the error of nearly every draw: the others are looked at one by one.
_USUAL_ERROR = 2.0**-40
_SUM_ERROR = 2 * float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """How much noise a matrix gets; a function of the settings only, never of its content.

    sensitivity: greatest L2 distance of the two matrices that noise has to hide.
    epsilon, delta: the guarantee.
    scale: s = sigma / sensitivity.
    grid: every noised number is a multiple of it.
    """

    sensitivity: float
    epsilon: float
    delta: float
    scale: float
    grid: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the units of the matrix."""
        return self.scale * self.sensitivity

    @property
    def slack(self) -> float:
        """The part of delta that rounding takes: nothing, because sums are rounded exactly."""
        return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class NoisedMatrix:
    """A matrix after noise, float64.

    matrix: the released numbers, columns on the simplex if they come from `release_matrix`.
    noised: the multiples of the grid that they were made of. Both are guarded alike.
    """

    matrix: Float64
    noised: Float64
    plan: NoisePlan


def plan_noise(sensitivity: float, epsilon: float, delta: float) -> NoisePlan:
    """Calibrate noise.

    sensitivity: greatest L2 distance between the two matrices that must be told apart no better than (epsilon, delta).
    Raises UsageError for a sensitivity that is not above 0 or a guarantee that makes no sense.
    """
    if not 0 < sensitivity < math.inf:
        raise UsageError(f"the sensitivity must be above 0, not {sensitivity}: set a tolerance")
    scale = _scale(epsilon, delta)
    return NoisePlan(sensitivity, epsilon, delta, scale, _grid(scale * sensitivity))


def add_noise(values: Float64, plan: NoisePlan, seed: NoiseSeed) -> Float64:
    """`values` plus N(0, sigma^2) each, rounded to the nearest multiple of the plan's grid; the same shape, float64.

    Raises UsageError for values that are not finite: they would be released as they are.
    """
    if not np.isfinite(values).all():
        raise UsageError("numbers that are not finite cannot be noised: fit the model again")
    drawn, sigma = draw_normals(seed, values.size), plan.sigma
    # Of 64 bits where the machine has them, so that few sums are in doubt; the bound follows the machine's own epsilon.
    noised = values.astype(np.longdouble)
    noised += drawn.values.reshape(values.shape).astype(np.longdouble) * np.longdouble(sigma)
    noised /= np.longdouble(plan.grid)
    steps = np.rint(noised)
    for place in _in_doubt(values.ravel(), drawn, np.abs(noised - steps).ravel(), plan):
        draw = exact_normal(seed, values.size, int(place))
        steps.flat[place] = nearest_step(float(values.flat[place]), draw, sigma, plan.grid)
    # Adding 0 turns -0 into 0: the sign of a zero would tell on which side of it the sum lay.
    result: Float64 = (steps * np.longdouble(plan.grid)).astype(np.float64) + 0.0
    return result


def release_matrix(A: Float64, *, tolerance: float, epsilon: float, delta: float, seed: NoiseSeed) -> NoisedMatrix:
    """Noise for A (n, r) whose columns are on the simplex: certified to lie within `tolerance` of the exact one.

    So two runs differ by 2 tolerance at most, sigma = s(epsilon, delta) * 2 * tolerance; columns are put back on the
    simplex afterwards. A function of A, the settings and the seed.
    """
    plan = plan_noise(2 * tolerance, epsilon, delta)
    noised = add_noise(A, plan, seed)
    return NoisedMatrix(project_columns(noised), noised, plan)


def project_columns(values: Float64) -> Float64:
    """The nearest matrix (n, r) whose columns are non-negative and sum to 1, by sorting (Held et al. 1974)."""
    ranked = -np.sort(-values, axis=0)
    excess = np.cumsum(ranked, axis=0) - 1.0
    places = np.arange(1, len(values) + 1)[:, None]
    support = np.count_nonzero(ranked * places > excess, axis=0)
    shift = excess[support - 1, np.arange(values.shape[1])] / support
    projected: Float64 = np.maximum(values - shift, 0.0)
    return projected


def _in_doubt(values: Float64, drawn: Draws, off: npt.NDArray[np.longdouble], plan: NoisePlan) -> npt.NDArray[np.intp]:
    """Return the places whose rounding may be wrong; off: how far from the step each sum was found, in steps."""
    sigma = plan.sigma
    # One bound for all but some draws first: numbers in doubt are rare, and so is looking closer.
    wide = sigma * _USUAL_ERROR + _SUM_ERROR * (float(np.abs(values).max(initial=0.0)) + 10 * sigma)
    near = np.flatnonzero(~((0.5 - off > wide / plan.grid) & (drawn.errors < _USUAL_ERROR)))
    size = np.abs(values[near]) + sigma * np.abs(drawn.values[near])
    doubt = sigma * drawn.errors[near] + _SUM_ERROR * size
    # Not "at most", so that a bound that is not a number counts as doubt.
    return np.asarray(near[~(0.5 - off[near] > doubt / plan.grid)])


@lru_cache(maxsize=64)
def _scale(epsilon: float, delta: float) -> float:
    return gaussian_scale(epsilon, delta)


def _grid(sigma: float) -> float:
    # A sixteenth of sigma at most: fine enough to lose nothing, and a power of two, so that multiples are exact.
    return 2.0 ** math.floor(math.log2(sigma / 16))
