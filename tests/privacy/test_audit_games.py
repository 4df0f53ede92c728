"""Games: pairs as far apart as is certified, and distinguishers that find what they are made for."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streamtopic.audit.games import broken, certified, edges, heads_game, play, private_game, theorem_game
from streamtopic.privacy.accounting import Composition, gaussian_scale
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import CalibratedGuarantee, plan_noise, release_matrix

GUARANTEE = CalibratedGuarantee(1.0, 1e-6, 1e-7)
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
    seed = NoiseKey(bytes(32)).of("audit", 1).seed("digest")
    expected = release_matrix(A, GUARANTEE, seed).noised
    assert np.array_equal(certified(GUARANTEE)(A, seed), expected)


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_real_noise_keeps_what_it_claims(epsilon):
    """No game of real noise, of heads and of theorem mode included, shows more than its claim."""
    guarantee = CalibratedGuarantee(epsilon, 1e-6, 1e-7)
    generator = np.random.default_rng(4)
    games = [*small_games(guarantee), theorem_game(guarantee, generator)]
    # These two take the most time, and their noise is scaled as that of the others.
    games += [private_game(guarantee)] if epsilon < 1 else [heads_game(guarantee, generator)]
    for game in games:
        assert playing(game).bound <= game.epsilon


@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_every_fault_is_found(epsilon):
    """No noise, little noise, naive addition and noise used twice each show more than the claim."""
    guarantee = CalibratedGuarantee(epsilon, 1e-6, 1e-7)
    found = {game.name: playing(game, 1_000) for game in broken(small_games(guarantee), guarantee)}
    assert {name: one.bound > epsilon for name, one in found.items()} == dict.fromkeys(found, True)


def test_heads_with_too_little_noise_are_found(monkeypatch):
    """Heads whose noise is an eighth of what their sensitivity asks for show more than the claim."""

    def little(sensitivity, *guarantee):
        plan = plan_noise(sensitivity, *guarantee)
        return replace(plan, scale=plan.scale / 8)

    monkeypatch.setattr("streamtopic.privacy.head_noise.plan_noise", little)
    game = heads_game(GUARANTEE, np.random.default_rng(5))
    assert playing(game, 1_000).bound > game.epsilon
