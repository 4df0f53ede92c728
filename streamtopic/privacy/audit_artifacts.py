"""Games of what else is released with noise: heads of withheld topics, and theorem mode's A and R."""

import math

import numpy as np
import numpy.typing as npt

from streamtopic.privacy.audit_games import Game, Guarantee, Mechanism
from streamtopic.privacy.capacity import ModelConstants
from streamtopic.privacy.heads import HeadConstants, head_sensitivity, release_task_weights
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import NoisePlan, add_noise
from streamtopic.privacy.theorem_noise import TheoremOptions, plan_theorem
from streamtopic.topics.tasks import HeadTask

__all__ = ["heads_game", "theorem_game"]

Float64 = npt.NDArray[np.float64]

_SIZE = (64, 2)
_CONSTANTS = ModelConstants(a=4.0, p_sep=0.1, gamma=0.1, eps0=0.01)


def heads_game(guarantee: Guarantee, generator: np.random.Generator) -> Game:
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


def theorem_game(guarantee: Guarantee, generator: np.random.Generator) -> Game:
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
