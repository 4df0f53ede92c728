"""Two runs that a guarantee says cannot be told apart, their noise, and what a distinguisher looks at.

A game has the numbers of two runs before noise, one list of arrays each (an array an artifact), and a mechanism that
noises them under a fresh key each time. What is scored is what all that is published is computed from: the noised
numbers on their grid.

    likelihood ratio    along the known difference of the two runs, all artifacts together: the best there is
    between versions    the difference of two artifacts along that of their differences: noise used twice cancels
    low bits            numbers too fine to be a sum of floats with what the other run has there
    size                squared length of the noise
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.audit_bounds import Finding, judge
from streamtopic.privacy.gaussian import gaussian_scale
from streamtopic.privacy.keystream import NoiseKey, NoiseSeed, standard_normals
from streamtopic.privacy.noise import plan_noise, release_matrix

__all__ = ["DISTINGUISHERS", "Game", "Guarantee", "broken", "certified", "edges", "play"]

Float64 = npt.NDArray[np.float64]
Mechanism = Callable[[Float64, NoiseSeed], Float64]

DISTINGUISHERS = ("likelihood ratio", "between versions", "low bits", "size")
_COORDINATES = 8
_WORDS, _TOPICS = 128, 4


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What is claimed of one artifact: (epsilon, delta) for runs that are `tolerance` from the exact one each."""

    epsilon: float
    delta: float
    tolerance: float


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """Two runs before noise, and what is claimed of telling them apart.

    first, second: arrays of the artifacts of each run; mechanisms: what noises each artifact; epsilon, delta: the claim
    for all of them together. one_seed: the fault of noise that is used for every artifact.
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
        return float(np.sqrt(sum(float(((b - a) ** 2).sum()) for a, b in zip(self.first, self.second, strict=True))))


def certified(guarantee: Guarantee) -> Mechanism:
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


def edges(A: Float64, guarantee: Guarantee, generator: np.random.Generator) -> tuple[Game, Game, Game]:
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


def broken(games: tuple[Game, Game, Game], guarantee: Guarantee) -> tuple[Game, ...]:
    """Return the games with a fault each that an audit must find, or it is none."""
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
) -> Finding:
    """Draw `draws` releases of either run and tell them apart as well as may be. error: of the bounds, see `judge`.

    Every draw has a noise key of its own, so this is a function of the generator's state. step: called for each draw.
    """
    look = _Look(game)

    def release(run: tuple[Float64, ...]) -> Float64:
        key = NoiseKey(generator.bytes(32))
        seeds = [key.seed("audit", 1 if game.one_seed else version + 1, "digest") for version in range(len(run))]
        step()
        parts = zip(game.mechanisms, run, seeds, strict=True)
        return look.at([make(values, seed) for make, values, seed in parts])

    first, second = (np.array([release(run) for _ in range(draws)]) for run in (game.first, game.second))
    return judge(first, second, DISTINGUISHERS, game.delta, error)


class _Look:
    """Scores of what one run released, (width,): the distinguishers', then some numbers themselves."""

    def __init__(self, game: Game) -> None:
        pairs = list(zip(game.first, game.second, strict=True))
        self._middles = [(a + b) / 2 for a, b in pairs]
        # Noise is in proportion to what it hides, so the likelihood ratio weighs an artifact by its own distance.
        lengths = [float(np.linalg.norm(b - a)) or 1.0 for a, b in pairs]
        self._weights = [1 / length for length in lengths]
        self._along = [(b - a) / length / length for (a, b), length in zip(pairs, lengths, strict=True)]
        self._alike = len(pairs) == 2 and pairs[0][0].shape == pairs[1][0].shape
        self._spots = [np.argsort(-np.abs(d), axis=None, kind="stable")[:_COORDINATES] for d in self._along]
        self._zeros = [np.flatnonzero(((a == 0) | (b == 0)) & (a != b)) for a, b in pairs]
        self._other = [np.maximum(np.abs(a), np.abs(b)).flat[at] for (a, b), at in zip(pairs, self._zeros, strict=True)]
        self.width = len(DISTINGUISHERS) + sum(map(len, self._spots))

    def at(self, released: Sequence[Float64]) -> Float64:
        off = [x - middle for x, middle in zip(released, self._middles, strict=True)]
        scores = [
            sum(float(np.vdot(x, d)) for x, d in zip(off, self._along, strict=True)),
            float(np.vdot(off[1] - off[0], self._along[1] - self._along[0])) if self._alike else 0.0,
            float(
                sum(
                    _too_fine(x.flat[at], other)
                    for x, at, other in zip(released, self._zeros, self._other, strict=True)
                )
            ),
            sum(float(np.vdot(w * x, w * x)) for x, w in zip(off, self._weights, strict=True)),
        ]
        return np.concatenate([scores, *(x.flat[at] for x, at in zip(off, self._spots, strict=True))])


def _too_fine(numbers: Float64, other: Float64) -> int:
    """Count numbers well below the other run's there, and finer than its last place: no sum of floats with it is."""
    last = np.spacing(other) / 4
    return int(((np.abs(numbers) < other / 4) & (numbers != np.rint(numbers / last) * last)).sum())


def _cut(A: Float64) -> Float64:
    """Cut out the most frequent words of a few topics and set the smaller half of their numbers to 0."""
    rows = np.sort(np.argsort(-A.sum(axis=1), kind="stable")[:_WORDS])
    part = A[rows][:, :_TOPICS]
    small = np.zeros((_WORDS, _TOPICS))
    small[: part.shape[0], : part.shape[1]] = part
    small[small <= np.median(small, axis=0)] = 0.0
    total = small.sum(axis=0)
    return np.asarray(small / np.where(total > 0, total, 1.0))
