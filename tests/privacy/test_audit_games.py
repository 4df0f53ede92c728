"""Games: pairs as far apart as is certified, and distinguishers that find what they are made for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streamtopic.audit.games import NoiseClaim, broken, certified, edges, heads_game, play, private_game, theorem_game
from streamtopic.privacy.accounting import Composition, gaussian_scale
from streamtopic.privacy.keystream import NoiseKey, standard_normals
from streamtopic.privacy.noise import add_noise, plan_noise, release_matrix

GUARANTEE = NoiseClaim(1.0, 1e-6, 1e-7)
A = np.random.default_rng(1).dirichlet(np.full(300, 0.1), 5).T
DRAWS, ERROR = 400, 0.01


def small_games(guarantee=GUARANTEE):
    """The three games at the edge."""
    return edges(A, guarantee, np.random.default_rng(2))


def playing(game, draws=DRAWS, seed=3):
    """What a game shows."""
    return play(game, draws, ERROR, np.random.default_rng(seed))


def test_edges_are_as_far_apart_as_two_certified_runs_may_be():
    """Each artifact differs by 2 tolerance, the model's columns are on the simplex, and two versions compose."""
    two, spread, versions = small_games()
    for game in (two, spread, versions):
        for first, second in zip(game.first, game.second, strict=True):
            assert np.linalg.norm(second - first) == pytest.approx(2e-7, rel=1e-6)
    assert two.first[0].sum(axis=0) == pytest.approx(np.ones(4))
    assert (spread.first[0] == 0).sum() == (spread.second[0] > spread.first[0]).sum() == 256
    scale = gaussian_scale(1.0, 1e-6)
    assert versions.epsilon == Composition.of([(scale, 0.0)] * 2).epsilon(1e-6)
    assert versions.distance == pytest.approx(math.sqrt(2) * 2e-7, rel=1e-6)


def test_the_noise_audited_is_the_noise_published():
    """A draw of a game is what release_matrix makes of the same numbers and seed."""
    seed = NoiseKey(bytes(32)).seed("audit", 1, "digest")
    expected = release_matrix(A, tolerance=1e-7, epsilon=1.0, delta=1e-6, seed=seed).noised
    assert np.array_equal(certified(GUARANTEE)(A, seed), expected)


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_real_noise_keeps_what_it_claims(epsilon):
    """No game of real noise, of heads and of theorem mode included, shows more than its claim."""
    guarantee = NoiseClaim(epsilon, 1e-6, 1e-7)
    generator = np.random.default_rng(4)
    games = [*small_games(guarantee), theorem_game(guarantee, generator)]
    # These two take the most time, and their noise is scaled as that of the others.
    games += [private_game(guarantee)] if epsilon < 1 else [heads_game(guarantee, generator)]
    for game in games:
        assert playing(game).bound <= game.epsilon


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_every_fault_is_found(epsilon):
    """No noise, little noise, naive addition and noise used twice each show more than the claim."""
    guarantee = NoiseClaim(epsilon, 1e-6, 1e-7)
    found = {game.name: playing(game, 1_000) for game in broken(small_games(guarantee), guarantee)}
    assert {name: one.bound > epsilon for name, one in found.items()} == dict.fromkeys(found, True)


def smaller(values, plan, seed):
    """Noise of a third of its size."""
    return values + (add_noise(values, plan, seed) - values) / 3


def unrounded(values, plan, seed):
    """Noise as floats add it."""
    return values + plan.sigma * standard_normals(seed, values.size).reshape(values.shape)


def nothing(values, plan, seed):
    """No noise."""
    return values.copy()


@pytest.mark.parametrize(("fault", "place"), [(smaller, 0), (unrounded, 1), (nothing, 0)])
def test_a_fault_in_the_noise_of_releases_is_found(fault, place, monkeypatch):
    """Where the function that publishing calls is broken, the game of the real noise shows it."""
    monkeypatch.setattr("streamtopic.privacy.noise.add_noise", fault)
    assert playing(small_games()[place], 1_000).bound > 1


def test_a_key_that_ignores_the_version_is_found(monkeypatch):
    """Seeds that are the same for two versions show in the game of two versions, and in no other."""
    real = NoiseKey.seed
    monkeypatch.setattr(NoiseKey, "seed", lambda key, model, _, *rest: real(key, model, 1, *rest))
    two, _, versions = small_games()
    assert playing(versions).bound > versions.epsilon
    assert playing(two).bound <= two.epsilon


def test_heads_with_too_little_noise_are_found(monkeypatch):
    """Heads whose noise is an eighth of what their sensitivity asks for show more than the claim."""

    def little(sensitivity, *guarantee):
        plan = plan_noise(sensitivity, *guarantee)
        return replace(plan, scale=plan.scale / 8)

    monkeypatch.setattr("streamtopic.privacy.head_noise.plan_noise", little)
    game = heads_game(GUARANTEE, np.random.default_rng(5))
    assert playing(game, 1_000).bound > game.epsilon
