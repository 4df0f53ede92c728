"""Noise for a series of versions: correlated, so that all of them together cost less than with independent noise.

Version t publishes M_t + sum over j <= t of b_(t-j) sigma Z_j, in which Z_1, Z_2, ... are independent standard normals
and b_i are the coefficients of (1 - x)^(-2/5). M_t are the counts as of version t.

One document's content changes M_t by y_t with ||y_t|| <= 1. All versions together are the Gaussian mechanism of
B^-1 y, whose rows are independent; B is the lower triangular matrix of b_(t-j). Rounding is post-processing. So its
sensitivity is the greatest ||B^-1 y|| (`sensitivity`). docs/proof.md, "Private mode", has the proof.

Source: Henzinger, Upadhyay and Upadhyay, "Almost tight error bounds on differentially private continual counting"
(SODA 2023), for prefix sums, with power 1/2 in place of 2/5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import toeplitz

from streamtopic.counts.arrays import Float
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import add_draws, grid_of

__all__ = ["CONTENTS", "SeriesNoise", "factors", "sensitivity"]

CONTENTS = 2
"""The contents of one document that a guarantee covers: it comes, is replaced once, and goes."""

# Of 1/4, 1/3, 2/5 and 1/2, this power gives a document of two contents the least noise in the last of 64 versions.
_POWER = 0.4
# The inverse of B is computed in floats, whose errors are far below this.
_MARGIN = 1 + 1e-9


def factors(versions: int, power: float = _POWER) -> Float:
    """Return b_0, b_1, ..., the coefficients of (1 - x)^-power, (versions,)."""
    steps = np.arange(1, versions)
    return np.concatenate([[1.0], np.cumprod((steps - 1 + power) / steps)])


# Asked for with each property of a noise.
@lru_cache(maxsize=64)
def sensitivity(versions: int, contents: int = CONTENTS) -> float:
    """Return the greatest ||B^-1 y|| over the lives of one document, rounded up.

    versions: of the series.
    contents: number of contents that the document has one after the other; between two it may be gone.

    For one content from version s to before t, the norm is that of the sum of columns s ... t - 1 of B^-1. For several,
    squares are added: the inner product of two contents' matrices is not negative, and that of two such sums is not
    positive.
    """
    inverse = toeplitz(factors(versions, -_POWER), np.zeros(versions))
    sums = np.cumsum(np.column_stack([np.zeros(versions), inverse]), axis=1)
    gram = sums.T @ sums
    own = np.diagonal(gram)
    # [s, t]: the square for one content from s to before t.
    squares = np.triu(own[:, None] + own - 2 * gram)
    best = np.zeros(versions + 1)
    for _ in range(contents):
        best = np.maximum.accumulate((best[:, None] + squares).max(axis=0))
    return float(np.sqrt(best[-1])) * _MARGIN


@dataclass(frozen=True, slots=True)
class SeriesNoise:
    """How much noise each version of a series gets.

    versions: the most versions of the series.
    scale: s = sigma / sensitivity of all of them together.
    """

    versions: int
    scale: float

    @property
    def sigma(self) -> float:
        """Standard deviation of each Z_j's part in its own version."""
        return self.scale * sensitivity(self.versions)

    @property
    def grid(self) -> float:
        """Step of the noised numbers, a power of two, at most a sixteenth of sigma."""
        return grid_of(self.sigma)

    def deviation(self, number: int) -> float:
        """Return the standard deviation of the noise in a version. number: of the version in its series, from 1."""
        return float(self.sigma * np.linalg.norm(factors(number)))

    def add(self, values: Float, spread: Float, seeds: Sequence[NoiseSeed]) -> Float:
        """Return values with the noise of a version, each rounded to the nearest multiple of the grid.

        values: (k,) finite numbers.
        spread: (k,) the part of sigma that each value gets, above 0.
        seeds: of this version and of those before it in its series, the oldest first.

        Cost: one draw of k numbers for each seed.
        """
        weights = factors(len(seeds))[::-1].tolist()
        return add_draws(values, spread * self.sigma, self.grid, [*zip(weights, seeds, strict=True)])
