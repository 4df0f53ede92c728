"""How well two runs were told apart, as lower bounds that hold with stated confidence.

A distinguisher gives each draw a score. On draws of its own it is chosen, with a threshold; on draws that took no part
in the choice it is judged: with true positive rate t and false positive rate f, any (epsilon, delta) guarantee has
epsilon >= ln((t - delta) / f), and noise of scale s has 1/s >= Phi^-1(t) - Phi^-1(f). Rates are bounded by Clopper and
Pearson's exact intervals, so both bounds are exact whatever the scores are.
Source: Kairouz, Oh and Viswanath 2015 (the region); Nasr et al. 2023 (auditing by the curve of Gaussian noise).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, log_ndtr, ndtri

from streamtopic.privacy.gaussian import gaussian_epsilon

__all__ = ["Finding", "Rates", "judge", "least_draws", "rate_bounds"]

Float64 = npt.NDArray[np.float64]

_THRESHOLDS = 48
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class Rates:
    """Hits of a test: `true` of `draws` where it should hit, `false` of as many where it should not."""

    true: int
    false: int
    draws: int

    def epsilon(self, delta: float, error: float) -> float:
        """Lower bound on epsilon at delta, wrong with probability 2 `error` at most; 0 where nothing is shown."""
        low, high = rate_bounds(self.true, self.draws, error)[0], rate_bounds(self.false, self.draws, error)[1]
        return max(math.log((low - delta) / high), 0.0) if low > delta else 0.0

    def mu(self, error: float) -> float:
        """Lower bound on mu = 1/s of the Gaussian noise that could hide this as well; wrong as `epsilon`."""
        low, high = rate_bounds(self.true, self.draws, error)[0], rate_bounds(self.false, self.draws, error)[1]
        return max(float(ndtri(low) - ndtri(high)), 0.0) if low > 0 and high < 1 else 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What the draws show. epsilon: by the rates alone; gaussian: by the curve of Gaussian noise, sharper.

    distinguisher, rates: those of the larger bound; draws: of each kind, half to choose by and half to judge by.
    """

    epsilon: float
    gaussian: float
    distinguisher: str
    rates: Rates
    draws: int

    @property
    def bound(self) -> float:
        """The larger lower bound on epsilon."""
        return max(self.epsilon, self.gaussian)


@dataclass(frozen=True, slots=True)
class _Test:
    """Hit where sign (score - threshold) > 0; swapped: what it looks for is the first run, not the second."""

    column: int
    sign: float
    threshold: float
    swapped: bool

    def rates(self, first: Float64, second: Float64) -> Rates:
        hits = [int((self.sign * (part[:, self.column] - self.threshold) > 0).sum()) for part in (first, second)]
        false, true = hits[::-1] if self.swapped else hits
        return Rates(true, false, len(first))


def rate_bounds(hits: int, draws: int, error: float) -> tuple[float, float]:
    """Lower and upper bound on a rate, each wrong with probability `error` at most (Clopper and Pearson)."""
    low = 0.0 if hits == 0 else float(betaincinv(hits, draws - hits + 1, error))
    high = 1.0 if hits == draws else float(betaincinv(hits + 1, draws - hits, 1 - error))
    return low, high


def judge(first: Float64, second: Float64, names: Sequence[str], delta: float, error: float) -> Finding:
    """Tell two runs apart by their scores, (draws, k) each, of which the first len(names) are distinguishers.

    All k columns are features of one more, "learned": a linear classifier fitted on the first quarter of the draws.
    Distinguisher and threshold are chosen on the second quarter and judged on the second half. error: probability
    that either bound is wrong.
    """
    draws = len(first)
    learned = _classifier(first[: draws // 4], second[: draws // 4])
    first, second = (np.column_stack([part[:, : len(names)], learned(part)]) for part in (first, second))
    chosen, judged = slice(draws // 4, draws // 2), slice(draws // 2, None)
    share = error / 4
    tests = [test for column in range(first.shape[1]) for test in _tests(first[chosen], second[chosen], column)]
    tried = [test.rates(first[chosen], second[chosen]) for test in tests]
    by_rates = tests[int(np.argmax([rates.epsilon(delta, share) for rates in tried]))]
    by_curve = tests[int(np.argmax([rates.mu(share) for rates in tried]))]
    rates, curve = (test.rates(first[judged], second[judged]) for test in (by_rates, by_curve))
    epsilon, mu = rates.epsilon(delta, share), curve.mu(share)
    gaussian = gaussian_epsilon(delta, 1 / mu) if mu > 0 else 0.0
    shown, kept = (by_rates, rates) if epsilon >= gaussian and epsilon > 0 else (by_curve, curve)
    return Finding(epsilon, gaussian, [*names, "learned"][shown.column], kept, draws)


def least_draws(mu: float, error: float) -> int:
    """Draws of each kind from which faults can be seen at a claim of 1/s = mu.

    Noise ten times too small must be told from mu with near certainty, whatever is drawn, and two versions that never
    overlap must show more than sqrt(2) mu.
    """
    z = -float(ndtri(error / 4))
    close = (2 * (z + 3) * math.sqrt(math.pi / 2) / (8 * mu)) ** 2
    far = math.log(error / 4) / float(log_ndtr(0.65 * math.sqrt(2) * mu))
    return 2 * math.ceil(max(close, far))


def _tests(first: Float64, second: Float64, column: int) -> list[_Test]:
    """Return tests at thresholds between the scores seen, in both directions, for either run."""
    values = np.unique(np.concatenate([first[:, column], second[:, column]]))
    if len(values) < 2:
        return [_Test(column, 1.0, float(values[0]), swapped=False)]
    between = values[:-1] + np.diff(values) / 2
    thresholds = set(between[np.linspace(0, len(between) - 1, _THRESHOLDS).astype(int)].tolist())
    for edge in (first[:, column].min(), first[:, column].max(), second[:, column].min(), second[:, column].max()):
        place = int(np.searchsorted(values, edge))
        thresholds |= set(between[max(place - 1, 0) : place + 1].tolist())
    return [
        _Test(column, sign, t, swapped) for t in sorted(thresholds) for sign in (1.0, -1.0) for swapped in (False, True)
    ]


def _classifier(first: Float64, second: Float64) -> Callable[[Float64], Float64]:
    """Fit a linear discriminant on standardised features, (draws, k) to (draws,)."""
    both = np.concatenate([first, second])
    centre, spread = both.mean(axis=0), both.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scaled = (both - centre) / spread
    within = np.cov(
        np.concatenate([part - part.mean(axis=0) for part in (scaled[: len(first)], scaled[len(first) :])]).T
    )
    gap = scaled[len(first) :].mean(axis=0) - scaled[: len(first)].mean(axis=0)
    weights = np.linalg.solve(np.atleast_2d(within) + _RIDGE * np.eye(len(gap)), gap)
    return lambda scores: np.asarray((scores - centre) / spread @ weights)
