"""Adds Gaussian noise to a model, rounded exactly, so that the last digits of floats reveal nothing.

A released number is the real number value + sigma N, rounded to the nearest multiple of a power of two, as if it had
been computed with all its digits. Floats decide almost every rounding with certainty, since the sum carries a bound of
its error. A few sums lie too near to the middle between two multiples; these are decided with 100 digits.
So the rounded numbers are post-processing of the exact Gaussian mechanism. Floating point takes no part of delta, and
the bytes are the same on every machine. Naive addition of floats can be attacked (Mironov, CCS 2012).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.privacy.keystream import Draws, NoiseSeed, draw_normals, exact_normal, nearest_step

__all__ = ["NoisePlan", "NoisedMatrix", "add_noise", "plan_noise", "project_columns", "release_matrix"]

Float64 = npt.NDArray[np.float64]

# A bound on the error of nearly every draw. The others are looked at one by one.
_USUAL_ERROR = 2.0**-40
# Room for the roundings of the product and of the sum; the grid is a power of two, so dividing by it is exact.
_SUM_ERROR = 2 * float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """How much noise a matrix gets; a function of the settings only, never of its content.

    sensitivity: greatest L2 distance between two matrices that noise has to make look alike.
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
        """The part of delta that rounding takes: 0, because sums are rounded exactly."""
        return 0.0


@dataclass(frozen=True, slots=True, eq=False)
class NoisedMatrix:
    """A matrix after noise, float64.

    matrix: the released numbers; columns on the simplex if they come from `release_matrix`.
    noised: the multiples of the grid that `matrix` was made of; noise guards both alike.
    plan: of the noise.
    """

    matrix: Float64
    noised: Float64
    plan: NoisePlan


def plan_noise(sensitivity: float, epsilon: float, delta: float) -> NoisePlan:
    """Calibrate noise.

    sensitivity: greatest L2 distance between two matrices that must be (epsilon, delta)-indistinguishable.
    epsilon, delta: of the guarantee.
    Raises UsageError for a sensitivity that is not above 0 or a guarantee that makes no sense.
    """
    if not 0 < sensitivity < math.inf:
        raise UsageError(f"the sensitivity must be above 0, not {sensitivity}: set a tolerance")
    scale = gaussian_scale(epsilon, delta)
    return NoisePlan(sensitivity, epsilon, delta, scale, _grid(scale * sensitivity))


def add_noise(values: Float64, plan: NoisePlan, seed: NoiseSeed) -> Float64:
    """Add N(0, sigma^2) to each value and round to the nearest multiple of the plan's grid.

    values: of any shape, float64, finite.
    seed: of this draw alone; the same seed gives the same noise.
    Returns the same shape, float64. Raises UsageError for values that are not finite.
    """
    # Noise leaves nan and infinity as they are, so they would be released without protection.
    if not np.isfinite(values).all():
        raise UsageError("noise cannot protect numbers that are not finite: fit the model again")
    drawn = draw_normals(seed, values.size)
    sigma = plan.sigma
    # Of 64 bits if the machine has them, so that few sums are in doubt; the bound follows the machine's own epsilon.
    noise = drawn.values.reshape(values.shape).astype(np.longdouble)
    noised = values.astype(np.longdouble)
    noised += noise * np.longdouble(sigma)
    noised /= np.longdouble(plan.grid)
    steps = np.rint(noised)
    off = np.abs(noised - steps).ravel()
    for place in _in_doubt(values.ravel(), drawn, off, plan):
        draw = exact_normal(seed, values.size, int(place))
        value = float(values.flat[place])
        steps.flat[place] = nearest_step(value, draw, sigma, plan.grid)
    # Adding 0 turns -0 into 0: the sign of a zero would tell on which side of it the sum lay.
    multiples = steps * np.longdouble(plan.grid)
    result: Float64 = multiples.astype(np.float64) + 0.0
    return result


def release_matrix(A: Float64, *, tolerance: float, epsilon: float, delta: float, seed: NoiseSeed) -> NoisedMatrix:
    """Add noise to the topics and put their columns back on the simplex. A function of A, the settings and the seed.

    A: (n, r), columns on the simplex.
    tolerance: certified bound on ||A - A*||_F, A* the exact matrix; so sigma = s(epsilon, delta) * 2 * tolerance.
    epsilon, delta: of the guarantee.
    seed: of this version's A.
    Raises UsageError as `plan_noise` and `add_noise` do.
    """
    # Two runs lie within the tolerance of the exact matrix each, so they differ by twice that.
    plan = plan_noise(2 * tolerance, epsilon, delta)
    noised = add_noise(A, plan, seed)
    return NoisedMatrix(project_columns(noised), noised, plan)


def project_columns(values: Float64) -> Float64:
    """The nearest matrix (n, r) whose columns are non-negative and sum to 1, by sorting (Held et al. 1974)."""
    # Negated twice, since numpy sorts in ascending order only.
    ranked = -np.sort(-values, axis=0)
    excess = np.cumsum(ranked, axis=0) - 1.0
    places = np.arange(1, len(values) + 1)[:, None]
    support = np.count_nonzero(ranked * places > excess, axis=0)
    columns = np.arange(values.shape[1])
    shift = excess[support - 1, columns] / support
    projected: Float64 = np.maximum(values - shift, 0.0)
    return projected


def _in_doubt(values: Float64, drawn: Draws, off: npt.NDArray[np.longdouble], plan: NoisePlan) -> npt.NDArray[np.intp]:
    """Return the places whose rounding may be wrong.

    values: (count,), before noise.
    drawn: the noise, in units of sigma.
    off: (count,), distance of each sum from the step that it was rounded to, in steps.
    """
    sigma = plan.sigma
    greatest = float(np.abs(values).max(initial=0.0))
    # One bound for all but some draws first: numbers in doubt are rare, so a closer look is rare too.
    wide = sigma * _USUAL_ERROR + _SUM_ERROR * (greatest + 10 * sigma)
    surely_right = (0.5 - off > wide / plan.grid) & (drawn.errors < _USUAL_ERROR)
    near = np.flatnonzero(~surely_right)
    size = np.abs(values[near]) + sigma * np.abs(drawn.values[near])
    doubt = sigma * drawn.errors[near] + _SUM_ERROR * size
    # The negation of ">" instead of "<=": a bound that is nan must count as doubt.
    right = 0.5 - off[near] > doubt / plan.grid
    return np.asarray(near[~right])


def _grid(sigma: float) -> float:
    """Return the step of released numbers."""
    # A sixteenth of sigma at most: fine enough to lose nothing, and a power of two, so that multiples are exact.
    return 2.0 ** math.floor(math.log2(sigma / 16))
