"""Games: two runs that a claim says cannot be told apart, their noise, and how well they were told apart.

A game has the numbers of two runs before noise, one list of arrays each (an array an artifact), and a mechanism that
noises them under a fresh key each time. Scores look at the noised numbers on their grid, since everything that is
published is computed from these.

    likelihood ratio    along the known difference of the two runs, all artifacts together: the best there is
    between versions    the difference of two artifacts along that of their differences: noise used twice cancels
    low bits            numbers too fine to be a sum of floats with the other run's number there
    size                squared length of the noise

A distinguisher gives each draw a score. On draws of its own it is chosen, with a threshold; on draws that took no part
in the choice it is judged: with true positive rate t and false positive rate f, any (epsilon, delta) guarantee has
epsilon >= ln((t - delta) / f), and noise of scale s has 1/s >= Phi^-1(t) - Phi^-1(f). Rates are bounded by Clopper and
Pearson's exact intervals, so both bounds are exact for any scores.
Source: Kairouz, Oh and Viswanath 2015 (the region); Nasr et al. 2023 (auditing by the curve of Gaussian noise).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, log_ndtr, ndtri

from streamtopic.paper.capacity_formulas import ModelConstants
from streamtopic.paper.theorem import TheoremOptions, plan_theorem
from streamtopic.privacy.accounting import Composition, gaussian_epsilon, gaussian_scale
from streamtopic.privacy.head_noise import HeadConstants, head_sensitivity, release_task_weights
from streamtopic.privacy.keystream import NoiseKey, NoiseSeed, standard_normals
from streamtopic.privacy.noise import NoisePlan, add_noise, plan_noise, release_matrix
from streamtopic.topics.tasks import HeadTask

__all__ = [
    "DISTINGUISHERS",
    "Game",
    "GameFinding",
    "NoiseClaim",
    "Rates",
    "broken",
    "certified",
    "edges",
    "heads_game",
    "judge",
    "least_draws",
    "play",
    "rate_bounds",
    "theorem_game",
]

Float64 = npt.NDArray[np.float64]
Mechanism = Callable[[Float64, NoiseSeed], Float64]

DISTINGUISHERS = ("likelihood ratio", "between versions", "low bits", "size")
# Numbers at which the runs differ most: features of the classifier.
_COORDINATES = 8
# A small matrix: a game is drawn thousands of times, and noise treats all numbers alike.
_WORDS, _TOPICS = 128, 4

_SIZE = (64, 2)
# Any constants will do: they scale sensitivity and noise alike.
_CONSTANTS = ModelConstants(a=4.0, p_sep=0.1, gamma=0.1, eps0=0.01)

_THRESHOLDS = 48
# Keeps the classifier's covariance invertible where columns depend on each other.
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
class GameFinding:
    """Lower bounds on epsilon that the draws of a game show.

    epsilon: by the rates alone.
    gaussian: by the curve of Gaussian noise, sharper.
    distinguisher, rates: those of the larger bound.
    draws: of each kind, half to choose by and half to judge by.
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
class NoiseClaim:
    """The claim for one artifact: (epsilon, delta) for runs that are `tolerance` from the exact one each."""

    epsilon: float
    delta: float
    tolerance: float


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """Two runs before noise, and the claim on telling them apart.

    first, second: arrays of the artifacts of each run.
    mechanisms: the noise of each artifact.
    epsilon, delta: the claim for all of them together.
    one_seed: the fault of noise that is used for every artifact.
    """

    name: str
    first: tuple[Float64, ...]
    second: tuple[Float64, ...]
    mechanisms: tuple[Mechanism, ...]
    epsilon: float
    delta: float
    one_seed: bool = False

    @property
    def distance(self) -> float:
        """L2 distance of the two runs before noise, over all artifacts."""
        squares = [float(((b - a) ** 2).sum()) for a, b in zip(self.first, self.second, strict=True)]
        return float(np.sqrt(sum(squares)))


def certified(guarantee: NoiseClaim) -> Mechanism:
    """Return the noise of published topics: the function that publishing calls, before columns are projected."""

    def noised(values: Float64, seed: NoiseSeed) -> Float64:
        return release_matrix(
            values,
            tolerance=guarantee.tolerance,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            seed=seed,
        ).noised

    return noised


def edges(A: Float64, guarantee: NoiseClaim, generator: np.random.Generator) -> tuple[Game, Game, Game]:
    """Return games at the edge of the certificate: runs that are 2 tolerance apart, as far as two may be.

    A (n, r): a model of which a small one is cut, 128 words and 4 topics, of whose numbers at least half are 0. They
    differ in two numbers; in all, some of which are 0 in one run; in two versions, where the difference changes sign.
    """
    small = _cut(A)
    far = 2 * guarantee.tolerance
    two, spread = np.zeros_like(small), np.where(small == 0, 1.0, -1.0)
    order = np.argsort(small, axis=None, kind="stable")
    two.flat[order[[-1, -2]]] = 1, -1
    mixed = generator.normal(size=small.shape)
    two, spread, mixed = (far * part / np.linalg.norm(part) for part in (two, spread, mixed))
    noise, claim = certified(guarantee), (guarantee.epsilon, guarantee.delta)
    twice = Composition.of([(gaussian_scale(*claim), 0.0)] * 2).epsilon(guarantee.delta)
    return (
        Game("edge, in two numbers", (small,), (small + two,), (noise,), *claim),
        Game("edge, in numbers that are 0", (small,), (small + spread,), (noise,), *claim),
        Game(
            "edge, two versions", (small, small + mixed), (small + mixed, small), (noise, noise), twice, guarantee.delta
        ),
    )


def broken(games: tuple[Game, Game, Game], guarantee: NoiseClaim) -> tuple[Game, ...]:
    """Return the games with a fault each; an audit that misses one of them shows nothing."""
    two, spread, versions = games
    small = certified(replace(guarantee, tolerance=guarantee.tolerance / 10))
    sigma = plan_noise(2 * guarantee.tolerance, guarantee.epsilon, guarantee.delta).sigma

    def naive(values: Float64, seed: NoiseSeed) -> Float64:
        return values + sigma * standard_normals(seed, values.size).reshape(values.shape)

    def bare(values: Float64, seed: NoiseSeed) -> Float64:
        del seed
        return values

    return (
        replace(two, name="no noise", mechanisms=(bare,)),
        replace(two, name="noise ten times too small", mechanisms=(small,)),
        replace(spread, name="naive addition of floats", mechanisms=(naive,)),
        replace(versions, name="the same noise twice", one_seed=True),
    )


def play(
    game: Game, draws: int, error: float, generator: np.random.Generator, step: Callable[[], None] = lambda: None
) -> GameFinding:
    """Draw `draws` releases of each run and tell them apart as well as possible. error: of the bounds, see `judge`.

    Every draw has a noise key of its own, so this is a function of the generator's state. step: called for each draw.
    """
    look = _Look(game)

    def release(run: tuple[Float64, ...]) -> Float64:
        key = NoiseKey(generator.bytes(32))
        versions = [1 if game.one_seed else version + 1 for version in range(len(run))]
        seeds = [key.seed("audit", version, "digest") for version in versions]
        step()
        parts = zip(game.mechanisms, run, seeds, strict=True)
        return look.at([make(values, seed) for make, values, seed in parts])

    first = np.array([release(game.first) for _ in range(draws)])
    second = np.array([release(game.second) for _ in range(draws)])
    return judge(first, second, DISTINGUISHERS, game.delta, error)


class _Look:
    """Scores of a release, (width,): those of the distinguishers, then some of its numbers themselves."""

    def __init__(self, game: Game) -> None:
        pairs = list(zip(game.first, game.second, strict=True))
        self._middles = [(a + b) / 2 for a, b in pairs]
        # Noise is in proportion to the distance that it hides, so the likelihood ratio weighs an artifact by its own
        # distance.
        # Two equal runs have no direction, and any length will do.
        lengths = [float(np.linalg.norm(b - a)) or 1.0 for a, b in pairs]
        self._weights = [1 / length for length in lengths]
        self._along = [(b - a) / length / length for (a, b), length in zip(pairs, lengths, strict=True)]
        self._alike = len(pairs) == 2 and pairs[0][0].shape == pairs[1][0].shape
        self._spots = [np.argsort(-np.abs(d), axis=None, kind="stable")[:_COORDINATES] for d in self._along]
        self._zeros = [np.flatnonzero(((a == 0) | (b == 0)) & (a != b)) for a, b in pairs]
        self._other = [np.maximum(np.abs(a), np.abs(b)).flat[at] for (a, b), at in zip(pairs, self._zeros, strict=True)]
        self.width = len(DISTINGUISHERS) + sum(map(len, self._spots))

    def at(self, released: Sequence[Float64]) -> Float64:
        """Score what was released, one array an artifact."""
        off = [x - middle for x, middle in zip(released, self._middles, strict=True)]
        ratio = sum(float(np.vdot(x, d)) for x, d in zip(off, self._along, strict=True))
        between = float(np.vdot(off[1] - off[0], self._along[1] - self._along[0])) if self._alike else 0.0
        at_zeros = zip(released, self._zeros, self._other, strict=True)
        fine = float(sum(_too_fine(x.flat[at], other) for x, at, other in at_zeros))
        weighted = [w * x for x, w in zip(off, self._weights, strict=True)]
        size = sum(float(np.vdot(x, x)) for x in weighted)
        # In the order of DISTINGUISHERS, and behind them the numbers at which the runs differ most.
        spots = [x.flat[at] for x, at in zip(off, self._spots, strict=True)]
        return np.concatenate([[ratio, between, fine, size], *spots])


def _too_fine(numbers: Float64, other: Float64) -> int:
    """Count numbers well below the other run's there, and finer than its last place: no sum of floats with it is."""
    last = np.spacing(other) / 4
    return int(((np.abs(numbers) < other / 4) & (numbers != np.rint(numbers / last) * last)).sum())


def _cut(A: Float64) -> Float64:
    """Cut out the most frequent words of a few topics and set the smaller half of their numbers to 0."""
    # Numbers that are 0 in one run are where sums of floats give themselves away.
    rows = np.sort(np.argsort(-A.sum(axis=1), kind="stable")[:_WORDS])
    part = A[rows][:, :_TOPICS]
    small = np.zeros((_WORDS, _TOPICS))
    small[: part.shape[0], : part.shape[1]] = part
    small[small <= np.median(small, axis=0)] = 0.0
    total = small.sum(axis=0)
    return np.asarray(small / np.where(total > 0, total, 1.0))


def heads_game(guarantee: NoiseClaim, generator: np.random.Generator) -> Game:
    """Return a game of two heads released together, each as far apart in the two runs as its sensitivity allows."""
    task = HeadTask(ridge=1e-3, tolerance=1e-6)
    constants = HeadConstants(
        ridge=task.ridge,
        classes=_SIZE[1],
        topics=20,
        documents=1_000,
        base_error=guarantee.tolerance,
        spectral=0.5,
        mean_x=0.2,
        mean_phi=0.05,
        mean_x_phi=0.01,
        mean_phi_cubed=1e-3,
        settled=True,
    )

    def noised(B: Float64, seed: NoiseSeed) -> Float64:
        return release_task_weights(
            B, constants, task, epsilon=guarantee.epsilon, delta=guarantee.delta, seed=seed, together=2
        ).noised

    far = head_sensitivity(constants, task)
    first = tuple(generator.normal(size=_SIZE) for _ in range(2))
    second = tuple(B + _step(generator, B.shape, far) for B in first)
    return Game("two heads of withheld topics", first, second, (noised, noised), guarantee.epsilon, guarantee.delta)


def theorem_game(guarantee: NoiseClaim, generator: np.random.Generator) -> Game:
    """Return a game of A and R released in theorem mode, as far apart as the two sensitivities allow.

    Epsilon of each is at most 0.5, since the proof needs it below 1; together they spend more. The constants of the
    proof are made up: they scale sensitivity and noise alike.
    """
    options = TheoremOptions(deletions=1, epsilon=min(guarantee.epsilon, 0.5), delta=guarantee.delta)
    plan = plan_theorem(100_000, 1_000, 10, _CONSTANTS, 0.01, options)
    A, R = generator.dirichlet(np.full(_SIZE[0], 0.1), _SIZE[1]).T, generator.uniform(0, 0.01, 55)
    second = (
        A + _step(generator, A.shape, plan.topics.sensitivity),
        R + _step(generator, R.shape, plan.covariance.sensitivity),
    )
    mechanisms = _planned(plan.topics), _planned(plan.covariance)
    spent = plan.together.epsilon(guarantee.delta)
    return Game("topics and covariance of theorem mode", (A, R), second, mechanisms, spent, guarantee.delta)


def _planned(plan: NoisePlan) -> Mechanism:
    return lambda values, seed: add_noise(values, plan, seed)


def _step(generator: np.random.Generator, shape: tuple[int, ...], length: float) -> Float64:
    """Return an array of this length in a direction that any entry may have a part in."""
    direction = generator.normal(size=shape)
    return np.asarray(length * direction / math.sqrt(float((direction**2).sum())))


@dataclass(frozen=True, slots=True)
class _Test:
    """Hit where sign (score - threshold) > 0; swapped: a hit means the first run, not the second."""

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


def judge(first: Float64, second: Float64, names: Sequence[str], delta: float, error: float) -> GameFinding:
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
    tests: list[_Test] = []
    for column in range(first.shape[1]):
        tests += _tests(first[chosen], second[chosen], column)
    tried = [test.rates(first[chosen], second[chosen]) for test in tests]
    best_by_rates = np.argmax([rates.epsilon(delta, share) for rates in tried])
    best_by_curve = np.argmax([rates.mu(share) for rates in tried])
    by_rates, by_curve = tests[int(best_by_rates)], tests[int(best_by_curve)]
    # Draws that took no part in the choice: on the others the best of many tests looks better than it is.
    rates = by_rates.rates(first[judged], second[judged])
    curve = by_curve.rates(first[judged], second[judged])
    epsilon, mu = rates.epsilon(delta, share), curve.mu(share)
    gaussian = gaussian_epsilon(delta, 1 / mu) if mu > 0 else 0.0
    shown, kept = (by_rates, rates) if epsilon >= gaussian and epsilon > 0 else (by_curve, curve)
    return GameFinding(epsilon, gaussian, [*names, "learned"][shown.column], kept, draws)


def least_draws(mu: float, error: float) -> int:
    """Draws of each kind from which faults can be seen at a claim of 1/s = mu.

    Noise ten times too small must be told from mu with near certainty on nearly all draws, and two versions that never
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
    one, other = scaled[: len(first)], scaled[len(first) :]
    centred = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    within = np.cov(centred.T)
    gap = other.mean(axis=0) - one.mean(axis=0)
    weights = np.linalg.solve(np.atleast_2d(within) + _RIDGE * np.eye(len(gap)), gap)
    return lambda scores: np.asarray((scores - centre) / spread @ weights)
