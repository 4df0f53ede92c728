"""Games of the audit: which of two runs was published? The answers to many draws bound epsilon from below.

By the claim both runs look alike. A game has the numbers of two runs before noise, one tuple of arrays each (an array
is an artifact), and a mechanism that adds noise under a fresh key each time. Scores look at the noised numbers on their
grid, since all published numbers are computed from these.

    likelihood ratio    along the known difference of the two runs, all artifacts together: the strongest test
    between versions    the difference of two artifacts along the difference of their differences: noise that is used
                        twice cancels
    low bits            numbers too fine to be a sum of floats with the other run's number at that place
    size                squared length of the noise

A distinguisher gives each draw a score. A distinguisher and a threshold are chosen on some draws and judged on draws
that took no part in the choice. With true positive rate t and false positive rate f, any (epsilon, delta) guarantee has
epsilon >= ln((t - delta) / f), and noise of scale s has 1/s >= Phi^-1(t) - Phi^-1(f). Rates are bounded by Clopper and
Pearson's exact intervals, so both bounds are exact for any scores.
Source: Kairouz, Oh and Viswanath 2015 (the region); Nasr et al. 2023 (auditing by the curve of Gaussian noise).
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv, log_ndtr, ndtri

from streamtopic.paper.capacity_formulas import ModelConstants
from streamtopic.paper.theorem import TheoremOptions, plan_theorem
from streamtopic.privacy.accounting import Composition, gaussian_epsilon, gaussian_scale
from streamtopic.privacy.head_noise import HeadConstants, head_sensitivity, release_task_weights
from streamtopic.privacy.keystream import NoiseKey, NoiseSeed, draw_normals
from streamtopic.privacy.noise import CalibratedGuarantee, NoisePlan, add_noise, plan_noise, release_matrix
from streamtopic.privacy.private_counts import SeriesNoise
from streamtopic.topics.heads import HeadTask

__all__ = [
    "DISTINGUISHERS",
    "Game",
    "GameFinding",
    "Rates",
    "broken",
    "certified",
    "edges",
    "heads_game",
    "judge",
    "least_draws",
    "play",
    "private_game",
    "rate_bounds",
    "theorem_game",
]

Float64 = npt.NDArray[np.float64]
Mechanism = Callable[[Float64, NoiseSeed], Float64]

DISTINGUISHERS = ("likelihood ratio", "between versions", "low bits", "size")
# A small matrix: a game is drawn thousands of times, and noise treats all numbers alike.
_WORDS, _TOPICS = 128, 4
# Versions of a period in private mode.
_PERIOD = 6
# Shape of the matrices of heads and of theorem mode, small for the same reason.
_SIZE = (64, 2)
# Any constants will do: they scale sensitivity and noise alike.
_CONSTANTS = ModelConstants(a=4.0, p_sep=0.1, gamma=0.1, eps0=0.01)

# Thresholds to try for each score; more of them cost time, since each is tried in four ways.
_THRESHOLDS = 49


@dataclass(frozen=True, slots=True)
class Rates:
    """Hits of a test.

    true: hits among draws of the run that the test should hit.
    false: hits among draws of the other run.
    draws: of each run.
    """

    true: int
    false: int
    draws: int

    def epsilon(self, delta: float, error: float) -> float:
        """Return a lower bound on epsilon at delta; 0 if the rates show no difference.

        error: half the probability that the bound is wrong.
        """
        low, high = self._bounds(error)
        if low <= delta:
            return 0.0
        return max(math.log((low - delta) / high), 0.0)

    def mu(self, error: float) -> float:
        """Return a lower bound on mu = 1/s of Gaussian noise that allows these rates; error: as in `epsilon`."""
        low, high = self._bounds(error)
        # Phi^-1 is infinite at 0 and 1.
        if low <= 0 or high >= 1:
            return 0.0
        return max(float(ndtri(low) - ndtri(high)), 0.0)

    def _bounds(self, error: float) -> tuple[float, float]:
        """Return a lower bound on the true rate and an upper bound on the false rate."""
        low, _ = rate_bounds(self.true, self.draws, error)
        _, high = rate_bounds(self.false, self.draws, error)
        return low, high


@dataclass(frozen=True, slots=True)
class GameFinding:
    """Lower bounds on epsilon that the draws of a game show.

    epsilon: by the rates alone.
    gaussian: by the curve of Gaussian noise, which is sharper.
    distinguisher, rates: of the larger bound.
    draws: of each run; half of them choose the test and half judge it.
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


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """Two runs before noise, and the claim on telling them apart.

    first, second: arrays of the artifacts of each run.
    mechanisms: the noise of each artifact.
    epsilon, delta: the claim for all artifacts together.
    one_seed: whether all artifacts get the same noise, a fault for the controls.
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
        pairs = zip(self.first, self.second, strict=True)
        changes = (b - a for a, b in pairs)
        squares = [float((change**2).sum()) for change in changes]
        return float(np.sqrt(sum(squares)))


def certified(guarantee: CalibratedGuarantee) -> Mechanism:
    """Return the noise of published topics by the function that publishing calls, before columns are projected."""

    def noised(values: Float64, seed: NoiseSeed) -> Float64:
        return release_matrix(values, guarantee, seed).noised

    return noised


def edges(A: Float64, guarantee: CalibratedGuarantee, generator: np.random.Generator) -> tuple[Game, Game, Game]:
    """Return games at the edge of the certificate: two runs that are 2 tolerance apart, the greatest distance.

    A: (n, r), a model; a small one is cut out of it, 128 words and 4 topics, at least half of its numbers 0.
    guarantee: the claim.
    generator: of the directions in which the runs differ.

    The runs differ in two numbers; in all numbers, some of which are 0 in one run; in two versions, where the
    difference changes its sign.
    """
    small = _cut(A)
    far = 2 * guarantee.tolerance
    epsilon = guarantee.epsilon
    delta = guarantee.delta
    order = np.argsort(small, axis=None, kind="stable")
    largest = order[[-1, -2]]
    two = np.zeros_like(small)
    two.flat[largest] = 1, -1
    two = _scaled(two, far)
    signs = np.where(small == 0, 1.0, -1.0)
    spread = _scaled(signs, far)
    direction = generator.normal(size=small.shape)
    mixed = small + _scaled(direction, far)
    noise = certified(guarantee)
    scale = gaussian_scale(epsilon, delta)
    twice = Composition.of([(scale, 0.0), (scale, 0.0)]).epsilon(delta)
    before = small, mixed
    after = mixed, small
    in_two = Game("edge, in two numbers", (small,), (small + two,), (noise,), epsilon, delta)
    in_all = Game("edge, in numbers that are 0", (small,), (small + spread,), (noise,), epsilon, delta)
    versions = Game("edge, two versions", before, after, (noise, noise), twice, delta)
    return in_two, in_all, versions


def _scaled(direction: Float64, length: float) -> Float64:
    """Return an array of this length in a direction."""
    return np.asarray(length * direction / np.linalg.norm(direction))


def broken(games: tuple[Game, Game, Game], guarantee: CalibratedGuarantee) -> tuple[Game, ...]:
    """Return the games with a fault each; an audit that misses one of them shows nothing."""
    two, spread, versions = games
    tenth = replace(guarantee, tolerance=guarantee.tolerance / 10)
    small = certified(tenth)
    plan = plan_noise(2 * guarantee.tolerance, guarantee.epsilon, guarantee.delta)

    def naive(values: Float64, seed: NoiseSeed) -> Float64:
        draws, _ = draw_normals(seed, values.size)
        return values + plan.sigma * draws.reshape(values.shape)

    def bare(values: Float64, seed: NoiseSeed) -> Float64:
        del seed
        return values

    none = replace(two, name="no noise", mechanisms=(bare,))
    too_small = replace(two, name="noise ten times too small", mechanisms=(small,))
    plain = replace(spread, name="naive addition of floats", mechanisms=(naive,))
    twice = replace(versions, name="the same noise twice", one_seed=True)
    return none, too_small, plain, twice


def play(game: Game, draws: int, error: float, generator: np.random.Generator) -> GameFinding:
    """Draw releases of both runs and tell the runs apart as well as possible: a function of the generator's state.

    draws: releases of each run.
    error: of the bounds, as in `judge`.
    generator: of the noise keys, one for each draw.
    """
    look = _Look(game)

    def release(run: tuple[Float64, ...]) -> Float64:
        key = NoiseKey(generator.bytes(32))
        released = []
        for version, (make, values) in enumerate(zip(game.mechanisms, run, strict=True), 1):
            number = 1 if game.one_seed else version
            seed = key.of("audit", number).seed("digest")
            released.append(make(values, seed))
        return look.at(released)

    first = np.array([release(game.first) for _ in range(draws)])
    second = np.array([release(game.second) for _ in range(draws)])
    return judge(first, second, DISTINGUISHERS, game.delta, error)


class _Look:
    """Scores of a release, one of each distinguisher."""

    def __init__(self, game: Game) -> None:
        runs = zip(game.first, game.second, strict=True)
        self._artifacts = [_Artifact(a, b) for a, b in runs]
        shapes = {artifact.along.shape for artifact in self._artifacts}
        # Noise can cancel only between two artifacts that it may have been used for alike.
        self._versions = len(self._artifacts) == 2 and len(shapes) == 1

    def at(self, released: Sequence[Float64]) -> Float64:
        """Score a release, given as one array an artifact."""
        pairs = list(zip(self._artifacts, released, strict=True))
        off = [values - one.middle for one, values in pairs]
        ratio = sum(float(np.vdot(away, one.along)) for away, one in zip(off, self._artifacts, strict=True))
        size = sum(float(np.square(one.weight * away).sum()) for away, one in zip(off, self._artifacts, strict=True))
        fine = sum(_too_fine(values.flat[one.zeros], one.other) for one, values in pairs)
        between = 0.0
        if self._versions:
            one, other = self._artifacts
            change = off[1] - off[0]
            direction = other.along - one.along
            between = float(np.vdot(change, direction))
        # In the order of DISTINGUISHERS.
        return np.array([ratio, between, fine, size])


class _Artifact:
    """An artifact of two runs before noise, `a` and `b`, prepared for scores.

    middle: (a + b) / 2.
    weight: 1 over the distance of the runs.
    along: the direction from a to b, times the weight.
    zeros: positions at which one run alone has a 0.
    other: the number of the other run at these.
    """

    def __init__(self, a: Float64, b: Float64) -> None:
        self.middle = (a + b) / 2
        # Two equal runs have no direction, and any length will do.
        length = float(np.linalg.norm(b - a)) or 1.0
        # Noise is in proportion to the distance that it hides, so the likelihood ratio weighs an artifact by its own
        # distance.
        self.weight = 1 / length
        self.along = (b - a) / length / length
        one_is_zero = ((a == 0) | (b == 0)) & (a != b)
        self.zeros = np.flatnonzero(one_is_zero)
        larger = np.maximum(np.abs(a), np.abs(b))
        self.other = larger.flat[self.zeros]


def _too_fine(numbers: Float64, other: Float64) -> int:
    """Count numbers well below the other run's number there, and finer than a sum of floats with that number can be."""
    last_place = np.spacing(other) / 4
    coarse = np.rint(numbers / last_place) * last_place
    below = np.abs(numbers) < other / 4
    too_fine = below & (numbers != coarse)
    return int(too_fine.sum())


def _cut(A: Float64) -> Float64:
    """Cut out the most frequent words of a few topics and set the smaller half of their numbers to 0."""
    masses = A.sum(axis=1)
    frequent = np.argsort(-masses, kind="stable")[:_WORDS]
    part = A[np.sort(frequent)][:, :_TOPICS]
    words, topics = part.shape
    small = np.zeros((_WORDS, _TOPICS))
    small[:words, :topics] = part
    # Sums of floats give themselves away at numbers that are 0 in one run.
    small[small <= np.median(small, axis=0)] = 0.0
    total = small.sum(axis=0)
    # A topic without any of these words, or one that the model lacks, stays at 0.
    return np.asarray(small / np.where(total > 0, total, 1.0))


def heads_game(guarantee: CalibratedGuarantee, generator: np.random.Generator) -> Game:
    """Return a game of two heads released together, each as far apart in the two runs as its sensitivity allows."""
    task = HeadTask(ridge=1e-3, tolerance=1e-6)
    # Any constants will do: they scale sensitivity and noise alike.
    constants = HeadConstants(
        ridge=task.ridge,
        classes=_SIZE[1],
        topics=20,
        entries=200,
        base_error=guarantee.tolerance,
        spectral=0.5,
        mean_x=0.2,
        mean_phi=0.05,
        mean_x_phi=0.01,
        mean_phi_cubed=1e-3,
    )

    def noised(B: Float64, seed: NoiseSeed) -> Float64:
        return release_task_weights(B, constants, task, guarantee, seed, together=2).noised

    far = head_sensitivity(constants, task)
    first = tuple(generator.normal(size=_SIZE) for _ in range(2))
    second = tuple(B + _scaled(generator.normal(size=B.shape), far) for B in first)
    return Game("two heads of withheld topics", first, second, (noised, noised), guarantee.epsilon, guarantee.delta)


def theorem_game(guarantee: CalibratedGuarantee, generator: np.random.Generator) -> Game:
    """Return a game of A and R released in theorem mode, as far apart as the two sensitivities allow."""
    # The proof needs an epsilon below 1. Together A and R spend more than one of them.
    epsilon = min(guarantee.epsilon, 0.5)
    options = TheoremOptions(deletions=1, epsilon=epsilon, delta=guarantee.delta)
    plan = plan_theorem(100_000, 1_000, 10, _CONSTANTS, 0.01, options)
    words, topics = _SIZE
    A = generator.dirichlet(np.full(words, 0.1), topics).T
    # The upper triangle of R for 10 topics.
    R = generator.uniform(0, 0.01, 55)
    other_A = A + _scaled(generator.normal(size=A.shape), plan.topics.sensitivity)
    other_R = R + _scaled(generator.normal(size=R.shape), plan.covariance.sensitivity)
    mechanisms = (_planned(plan.topics), _planned(plan.covariance))
    spent = plan.together.epsilon(guarantee.delta)
    name = "topics and covariance of theorem mode"
    return Game(name, (A, R), (other_A, other_R), mechanisms, spent, guarantee.delta)


def private_game(guarantee: CalibratedGuarantee) -> Game:
    """Return a game of the versions of a period in private mode: a document with two contents, or none of it."""
    epsilon = max(guarantee.epsilon, 1.0)
    noise = SeriesNoise(_PERIOD, gaussian_scale(epsilon, guarantee.delta))
    # Both contents have a norm of 1, and share no word; the second replaces the first at once, which is the most.
    life = np.zeros((_PERIOD, 2))
    life[0, 0] = 1.0
    life[1:, 1] = 1.0

    def noised(values: Float64, seed: NoiseSeed) -> Float64:
        seeds = [NoiseSeed(hashlib.sha256(seed.secret + bytes([version])).digest()) for version in range(_PERIOD)]
        spread = np.ones(2)
        versions = [noise.add(row, spread, seeds[:number]) for number, row in enumerate(values, 1)]
        return np.array(versions)

    return Game("versions of private mode", (np.zeros_like(life),), (life,), (noised,), epsilon, guarantee.delta)


def _planned(plan: NoisePlan) -> Mechanism:
    """Return the noise of a plan."""
    return lambda values, seed: add_noise(values, plan, seed)


@dataclass(frozen=True, slots=True)
class _Test:
    """A test that hits if sign (score - threshold) > 0.

    column: of the score.
    swapped: whether a hit means the first run; else it means the second.
    """

    column: int
    sign: float
    threshold: float
    swapped: bool

    def rates(self, first: Float64, second: Float64) -> Rates:
        """Return the hits on the scores of both runs, (draws, k) each."""
        in_first = self._hits(first)
        in_second = self._hits(second)
        if self.swapped:
            return Rates(true=in_first, false=in_second, draws=len(first))
        return Rates(true=in_second, false=in_first, draws=len(first))

    def _hits(self, scores: Float64) -> int:
        over = scores[:, self.column] - self.threshold
        above = self.sign * over > 0
        return int(above.sum())


def rate_bounds(hits: int, draws: int, error: float) -> tuple[float, float]:
    """Return a lower and an upper bound on a rate, by Clopper and Pearson's exact intervals (1934).

    hits: of `draws`.
    error: greatest probability that a bound is wrong, for each of the two.
    """
    low = 0.0
    high = 1.0
    if hits > 0:
        low = float(betaincinv(hits, draws - hits + 1, error))
    if hits < draws:
        high = float(betaincinv(hits + 1, draws - hits, 1 - error))
    return low, high


def judge(first: Float64, second: Float64, names: Sequence[str], delta: float, error: float) -> GameFinding:
    """Tell two runs apart by their scores.

    first, second: (draws, k), the scores of each run's draws.
    names: (k,) of the distinguishers.
    delta: of the claim.
    error: probability that either bound is wrong.

    Distinguisher and threshold are chosen on the first half of the draws and judged on the second half.
    """
    half = len(first) // 2
    # Two bounds, each from the bounds on two rates.
    share = error / 4
    tests: list[_Test] = []
    for column in range(first.shape[1]):
        tests += _tests(first[:half], second[:half], column)
    tried = [test.rates(first[:half], second[:half]) for test in tests]

    def best(bound: Callable[[Rates], float]) -> tuple[str, Rates]:
        values = [bound(rates) for rates in tried]
        test = tests[int(np.argmax(values))]
        # On draws that took part in the choice the best of many tests looks better than it is.
        return names[test.column], test.rates(first[half:], second[half:])

    by_rates = best(lambda rates: rates.epsilon(delta, share))
    by_curve = best(lambda rates: rates.mu(share))
    epsilon, mu = by_rates[1].epsilon(delta, share), by_curve[1].mu(share)
    gaussian = gaussian_epsilon(delta, 1 / mu) if mu > 0 else 0.0
    name, rates = by_rates if epsilon > 0 and epsilon >= gaussian else by_curve
    return GameFinding(epsilon, gaussian, name, rates, len(first))


def least_draws(mu: float, error: float) -> int:
    """Return the draws of each run that show the faults of the controls.

    mu: 1/s of the claim.
    error: of the bounds, as in `judge`.
    """
    z = -float(ndtri(error / 4))
    # Noise ten times too small must be told from mu with near certainty, on nearly all draws.
    root = math.sqrt(math.pi / 2)
    close = (2 * (z + 3) * root / (8 * mu)) ** 2
    # Two versions that never overlap must show more than sqrt(2) mu.
    tail = float(log_ndtr(0.65 * math.sqrt(2) * mu))
    far = math.log(error / 4) / tail
    # Half of the draws judge.
    return 2 * math.ceil(max(close, far))


def _tests(first: Float64, second: Float64, column: int) -> list[_Test]:
    """Return tests at thresholds among the scores seen, in both directions, for either run."""
    both = np.concatenate([first[:, column], second[:, column]])
    # An odd number: the middle one lies half way between two runs that do not overlap.
    thresholds = np.quantile(both, np.linspace(0, 1, _THRESHOLDS)).tolist()
    ways = product(thresholds, (1.0, -1.0), (False, True))
    return [_Test(column, sign, threshold, swapped) for threshold, sign, swapped in ways]
