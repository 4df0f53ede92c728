"""Accounting held against dp-accounting (privacy loss distributions) and against mpmath."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import toeplitz
from scipy.special import log_ndtr

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import Composition, _log_normal, gaussian_epsilon, gaussian_scale
from streamtopic.privacy.private_noise import SeriesNoise, factors

DELTA = 1e-6


def accountant(scales, delta=DELTA, step=1e-3):
    """Epsilon at delta of Gaussian mechanisms by dp-accounting: an upper bound, by about a step a mechanism."""
    composed = None
    for scale in scales:
        one = from_gaussian_mechanism(scale, value_discretization_interval=step, log_mass_truncation_bound=-60)
        composed = one if composed is None else composed.compose(one)
    return composed.get_epsilon_for_delta(delta)


def exact_delta(epsilon, s):
    """Delta of theorem 8 with 60 digits."""
    with mpmath.workdps(60):
        s, epsilon = mpmath.mpf(s), mpmath.mpf(epsilon)
        inside, outside = (mpmath.ncdf(side / (2 * s) - epsilon * s) for side in (1, -1))
        return inside - mpmath.exp(epsilon) * outside


@pytest.mark.parametrize("delta", [1e-30, 1e-15, 1e-12, 1e-9, 1e-6, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("epsilon", [1e-3, 0.01, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 15.0, 40.0])
def test_delta_at_the_scale_is_never_above_the_one_asked_for(epsilon, delta):
    """With 60 digits noise keeps its delta, also if the scale is four roundings too small; it wastes 1e-7 at most."""
    scale = gaussian_scale(epsilon, delta)
    assert delta * (1 - 1e-7) < exact_delta(epsilon, scale) <= delta
    assert exact_delta(epsilon, scale * (1 - 4 * 2.0**-53)) <= delta


def test_the_library_is_within_its_units():
    """Log Phi of scipy is at most 8 units off, of itself or of 1; the bound on delta allows 16."""
    worst = 0.0
    with mpmath.workdps(60):
        for k in range(-2000, 200):
            x = math.copysign(abs(k / 50) ** 1.5, k)
            exact = mpmath.log(mpmath.ncdf(x))
            worst = max(worst, float(abs(float(log_ndtr(x)) - exact) / max(abs(exact), 1)))
    assert worst <= 8 * 2.0**-53


@pytest.mark.parametrize(("first", "second"), [(1.7, -3.1), (25.0, -55.0), (0.3, -40.0), (2.0, 1.0)])
def test_log_phi_is_within_its_bound(first, second):
    """Also if each of the two terms is six units off, and far in the tail."""
    value, error = _log_normal(first, second)
    with mpmath.workdps(60):
        for units in (-6, 0, 6):
            off = units * mpmath.mpf(2) ** -53
            exact = mpmath.log(mpmath.ncdf(first * (1 + off) + second * (1 - off)))
            assert abs(exact - value) <= error


@pytest.mark.parametrize(
    "scales",
    [(4.2, 8.1), (0.98, 4.22, 8.06), (2.0, 2.0, 3.0, 50.0), (10.6, 10.6, 4.22)],
    ids=["two", "three epsilons", "a weak one", "theorem mode's A and R beside a certified one"],
)
def test_unequal_releases_compose_as_the_accountant_says(scales):
    """Releases of different scales, as after a change of settings, cost what dp-accounting says."""
    ours = Composition.of([(scale, 0.0) for scale in scales]).epsilon(DELTA)
    assert accountant(scales, step=1e-4) == pytest.approx(ours, rel=1e-3)


@given(st.lists(st.floats(0.3, 50), min_size=1, max_size=20), st.floats(1e-12, 1e-2))
@settings(max_examples=100)
def test_the_epsilon_spent_is_the_least_that_holds(scales, delta):
    """With 60 digits, delta holds at the epsilon that is said to be spent, and fails a millionth below."""
    spent = Composition.of([(scale, 0.0) for scale in scales]).epsilon(delta)
    with mpmath.workdps(60):
        together = 1 / mpmath.sqrt(mpmath.fsum(1 / mpmath.mpf(scale) ** 2 for scale in scales))
        assert exact_delta(spent, together) <= delta
        if spent > 1e-6:
            assert exact_delta(spent * (1 - 1e-6), together) > delta


def test_a_person_spends_over_all_bases():
    """Documents that leave under two bases of epsilon 8 each spend 12.1 together, by the root of the sum of mu^2."""
    one = 1 / gaussian_scale(8.0, DELTA)
    together = Composition.of([(1 / one, 0.0), (1 / one, 0.0)])
    assert together.mu == pytest.approx(math.sqrt(one**2 + one**2))
    assert together.epsilon(DELTA) == pytest.approx(12.1, abs=0.05)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (math.nan, 1e-6), (1, 0), (1, 1), (1, math.nan)])
def test_senseless_guarantees_are_refused(epsilon, delta):
    """A guarantee outside the mechanism's range is a usage error."""
    with pytest.raises(UsageError):
        gaussian_scale(epsilon, delta)


@pytest.mark.parametrize(("scale", "slack"), [(0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (1.0, -1e-9)])
def test_what_is_no_release_cannot_be_composed(scale, slack):
    """A scale that is not above 0, or a negative slack, is refused."""
    with pytest.raises(UsageError, match="scale above 0"):
        Composition.of([(scale, slack)])


def test_epsilon_is_infinite_where_nothing_is_left_of_delta():
    """Noise far too small for any epsilon, and slack that takes all of delta, say so in place of a number."""
    assert gaussian_epsilon(1e-6, 1e-9) == math.inf
    assert Composition.of([(1.0, 2e-6)]).epsilon(1e-6) == math.inf


@pytest.mark.parametrize("versions", [4, 16])
def test_a_period_of_private_versions_spends_no_more_than_it_says(versions):
    """By dp-accounting: independent rows of noise, each hit by its part of a document's life, compose to epsilon 3."""
    noise = SeriesNoise(versions, gaussian_scale(3.0, DELTA))
    life = np.zeros((versions, 2))
    life[: versions - 1, 0] = 1.0
    life[versions - 1 :, 1] = 1.0
    for contents in (life, np.fliplr(life[::-1])):
        rows = np.linalg.norm(np.linalg.solve(toeplitz(factors(versions), np.zeros(versions)), contents), axis=1)
        spent = accountant([noise.sigma / row for row in rows.tolist() if row > 1e-6], step=1e-4)
        assert 1.0 < spent <= 3.0 + 1e-2
