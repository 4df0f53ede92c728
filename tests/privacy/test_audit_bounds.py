"""Lower bounds from draws: exact intervals, and never above the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from streamtopic.audit.games import judge, least_draws, rate_bounds
from streamtopic.privacy.accounting import gaussian_epsilon


@given(st.integers(1, 400), st.data(), st.floats(1e-4, 0.2))
@settings(max_examples=100)
def test_rates_are_bounded_by_clopper_and_pearson(draws, data, error):
    """Bounds are those of scipy's exact binomial test, none and all hits included."""
    hits = data.draw(st.integers(0, draws))
    low, high = rate_bounds(hits, draws, error)
    expected = binomtest(hits, draws).proportion_ci(1 - 2 * error, method="exact")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def gaussian_scores(generator, mu, draws=800):
    """Scores of two runs: one column with the difference mu, another one without any."""
    first, second = generator.normal(size=(2, draws, 2))
    second[:, 0] += mu
    return first, second


@pytest.mark.parametrize("mu", [0.0, 0.24, 3.0])
def test_no_bound_exceeds_the_truth(mu):
    """Over 40 repetitions with bounds wrong one time in ten at most, at most that share is above what is true."""
    generator = np.random.default_rng(int(100 * mu))
    truth = gaussian_epsilon(1e-6, 1 / mu) if mu else 0.0
    found = [judge(*gaussian_scores(generator, mu), ["a", "b"], 1e-6, 0.1) for _ in range(40)]
    assert sum(one.bound > truth for one in found) <= 4
    if mu >= 1:
        assert np.median([one.gaussian for one in found]) > truth / 2


def test_enough_draws_show_noise_ten_times_too_small():
    """With the least number of draws the fault is found in each of 8 repetitions, for weak and strong claims."""
    for mu in (0.05, 0.24, 1.0):
        generator, draws = np.random.default_rng(3), least_draws(mu, 0.01)
        for _ in range(8):
            found = judge(*gaussian_scores(generator, 10 * mu, draws), ["a", "b"], 1e-6, 0.01)
            assert found.bound > gaussian_epsilon(1e-6, 1 / mu)
    assert least_draws(0.01, 0.01) > least_draws(0.1, 0.01)
