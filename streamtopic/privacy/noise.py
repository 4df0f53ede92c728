"""Adds Gaussian noise to a model, rounded exactly, so that the last digits of floats reveal nothing.

A released number is the real number value + sigma N, rounded to the nearest multiple of a power of two, as if it had
been computed with all its digits. Floats decide almost every rounding with certainty, since the sum carries a bound of
its error. A few sums lie too near to the middle between two multiples; these are decided with 100 digits.
So the rounded numbers are post-processing of the exact Gaussian mechanism. Floating point takes no part of delta, and
the bytes are the same on every machine. Naive addition of floats can be attacked (Mironov, CCS 2012).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.privacy.keystream import NoiseSeed, draw_normals, exact_normal, nearest_step

__all__ = [
    "CalibratedGuarantee",
    "NoisePlan",
    "NoisedMatrix",
    "add_draws",
    "add_noise",
    "grid_of",
    "plan_noise",
    "project_columns",
    "release_matrix",
]

Float64 = npt.NDArray[np.float64]

# No draw is larger: sqrt(-2 log 2^-65).
_LARGEST = 9.5
# Room for the roundings of the product and of the sum; the grid is a power of two, so dividing by it is exact.
_SUM_ERROR = 2 * float(np.finfo(np.longdouble).eps)


@dataclass(frozen=True, slots=True)
class CalibratedGuarantee:
    """The guarantee that the noise of a version is calibrated to.

    epsilon, delta: a version and a retraining on the same documents are (epsilon, delta)-indistinguishable.
    tolerance: the greatest distance of either model from the exact one, before noise (Frobenius norm).
    """

    epsilon: float
    delta: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """How much noise a matrix gets; a function of the settings only, never of its content.

    sensitivity: greatest L2 distance between two matrices that noise has to make look alike.
    epsilon, delta: the guarantee.
    scale: s = sigma / sensitivity.
    """

    sensitivity: float
    epsilon: float
    delta: float
    scale: float

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise, in the units of the matrix."""
        return self.scale * self.sensitivity

    @property
    def grid(self) -> float:
        """Every noised number is a multiple of it."""
        return grid_of(self.sigma)


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
    return NoisePlan(sensitivity, epsilon, delta, gaussian_scale(epsilon, delta))


def add_noise(values: Float64, plan: NoisePlan, seed: NoiseSeed) -> Float64:
    """Add N(0, sigma^2) to each value and round to the nearest multiple of the plan's grid.

    values: of any shape, float64, finite.
    seed: of this draw alone; the same seed gives the same noise.
    Returns the same shape, float64. Raises UsageError for values that are not finite.
    """
    return add_draws(values.ravel(), plan.sigma, plan.grid, [(1.0, seed)]).reshape(values.shape)


def add_draws(
    values: Float64, sigmas: Float64 | float, grid: float, draws: Sequence[tuple[float, NoiseSeed]]
) -> Float64:
    """Add a weighted sum of draws to each value, and round to the nearest multiple of the grid.

    values: (k,) finite.
    sigmas: (k,) the standard deviation of a draw of weight 1, or one for all.
    grid: a power of two.
    draws: weight, above 0, and seed of each.
    Returns (k,) float64. Raises UsageError for values that are not finite.
    """
    # Noise leaves nan and infinity as they are, so they would be released without protection.
    if not np.isfinite(values).all():
        raise UsageError("noise cannot protect numbers that are not finite: fit the model again")
    size = values.size
    # Of 64 bits if the machine has them, so that few sums are in doubt; the bound follows the machine's own epsilon.
    noise = np.zeros(size, np.longdouble)
    errors = np.zeros(size)
    for weight, seed in draws:
        drawn, off = draw_normals(seed, size)
        noise += drawn.astype(np.longdouble) * np.longdouble(weight)
        errors += off * weight
    spread = np.broadcast_to(np.asarray(sigmas, np.float64), values.shape)
    noised = (values.astype(np.longdouble) + noise * spread) / np.longdouble(grid)
    steps = np.rint(noised)
    # A bound on the error of each sum, in steps: of the draws, and of a few roundings for each of them.
    total = _LARGEST * sum(weight for weight, _ in draws)
    roundings = (len(draws) + 4) * _SUM_ERROR
    doubt = (spread * errors * (1 + 2.0**-40) + roundings * (np.abs(values) + spread * total)) / grid
    # The negation of ">" instead of "<=": a bound that is nan must count as doubt.
    right = 0.5 - np.abs(noised - steps).astype(np.float64) > doubt
    for place in np.flatnonzero(~right).tolist():
        exact = [(weight, exact_normal(seed, size, place)) for weight, seed in draws]
        steps[place] = nearest_step(float(values[place]), exact, float(spread[place]), grid)
    # Adding 0 turns -0 into 0: the sign of a zero would tell on which side of it the sum lay.
    multiples = steps * np.longdouble(grid)
    result: Float64 = multiples.astype(np.float64) + 0.0
    return result


def release_matrix(A: Float64, guarded: CalibratedGuarantee, seed: NoiseSeed) -> NoisedMatrix:
    """Add noise to the topics and put their columns back on the simplex. A function of A, the settings and the seed.

    A: (n, r), columns on the simplex.
    guarded: its tolerance is a certified bound on ||A - A*||_F, A* the exact matrix; so sigma = s(epsilon, delta) * 2 *
        tolerance.
    seed: of this version's A.
    Raises UsageError as `plan_noise` and `add_noise` do.
    """
    # Two runs lie within the tolerance of the exact matrix each, so they differ by twice that.
    plan = plan_noise(2 * guarded.tolerance, guarded.epsilon, guarded.delta)
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


def grid_of(sigma: float) -> float:
    """Return the step of released numbers."""
    # A sixteenth of sigma at most: fine enough to lose nothing, and a power of two, so that multiples are exact.
    return 2.0 ** math.floor(math.log2(sigma / 16))
