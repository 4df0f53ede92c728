import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from streamtopic.errors import UsageError
from streamtopic.privacy import NoiseKey, add_noise, gaussian_scale, plan_noise, project_columns, release_matrix
from streamtopic.privacy.keystream import NoiseSeed, standard_normals

KEY = NoiseKey(bytes(range(32)))
SEED = KEY.seed("news", 1, "digest")
GUARANTEE = {"tolerance": 1e-7, "epsilon": 1.0, "delta": 1e-6}


def simplex(n, r, seed=0):
    """Columns (n, r) on the simplex."""
    return np.random.default_rng(seed).dirichlet(np.full(n, 0.1), r).T


def test_the_same_material_draws_the_same_bytes():
    """Noise is a function of key, model, version, digest and purpose: a retry cannot draw twice."""
    A = simplex(200, 7)
    first = release_matrix(A, seed=KEY.seed("news", 1, "digest"), **GUARANTEE).matrix
    second = release_matrix(A, seed=KEY.seed("news", 1, "digest"), **GUARANTEE).matrix
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    "other",
    [
        KEY.seed("news", 2, "digest"),
        KEY.seed("news", 1, "digesu"),
        KEY.seed("new", 1, "digest"),
        KEY.seed("news1", 1, "digest"),
        KEY.seed("news", 1, "digest", "B"),
        NoiseKey(bytes(32)).seed("news", 1, "digest"),
    ],
)
def test_any_other_material_draws_independently(other):
    """Changing any part of the material gives noise that does not correlate with the former."""
    correlation = np.corrcoef(standard_normals(SEED, 40_000), standard_normals(other, 40_000))[0, 1]
    assert abs(correlation) < 5 / 200


def test_draws_are_standard_normal():
    """400,000 draws have the normal's moments, fit its distribution and do not depend on their neighbours."""
    draws = standard_normals(SEED, 400_000)
    assert kstest(draws, "norm").pvalue > 1e-3
    moments = [np.mean(draws**k) for k in range(1, 5)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.05)
    assert np.mean(draws**2) == pytest.approx(1, abs=5 * np.sqrt(2 / 400_000))
    for lag in (1, 2, 200_000):
        assert abs(np.corrcoef(draws[lag:], draws[:-lag])[0, 1]) < 0.012
    assert np.abs(draws).max() > 4


def test_draws_are_as_exact_as_the_slack_assumes():
    """The mean error against extended precision is below the 4 u that the slack counts with."""
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("this platform has no wider float to compare with")
    wide = np.longdouble
    pairs = 100_000
    bits = np.frombuffer(
        Cipher(algorithms.ChaCha20(SEED.secret, bytes(16)), mode=None).encryptor().update(bytes(16 * pairs)), "<u8"
    )
    radius = np.sqrt(-2 * np.log((bits[:pairs].astype(wide) + wide(0.5)) * wide(2) ** -64))
    angle = bits[pairs:].view("<i8").astype(wide) * (wide("3.14159265358979323846264338327950288") * wide(2) ** -63)
    exact = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    assert np.abs(exact - standard_normals(SEED, 2 * pairs)).mean() < 4 * 2.0**-53


@given(st.integers(0, 9))
@settings(max_examples=10, deadline=None)
def test_an_odd_count_is_a_prefix(count):
    """Any number of draws can be had, 0 too."""
    assert standard_normals(NoiseSeed(bytes(32)), count).shape == (count,)


def test_sigma_is_the_calibrated_one():
    """Noise on A has sigma = s(eps, delta - slack) * 2 * tolerance, measured and stated, whatever A is."""
    n, r = 2_000, 20
    plan = release_matrix(simplex(n, r), seed=SEED, **GUARANTEE).plan
    assert plan.sigma == gaussian_scale(1.0, 1e-6 - plan.slack) * 2e-7
    assert plan.delta_used == 1e-6 - plan.slack
    assert 0 < plan.slack < 5e-8 * (n * r) / 250_000
    assert plan == release_matrix(simplex(n, r, seed=1), seed=SEED, **GUARANTEE).plan
    A = simplex(n, r)
    noise = add_noise(A, plan, SEED) - A
    assert noise.std() == pytest.approx(plan.sigma, rel=0.02)


def test_noised_numbers_lie_on_the_grid():
    """Every noised number is a multiple of the power-of-two grid below sigma / 16, so low bits tell nothing."""
    plan = plan_noise(4_000, 40, 2e-7, 1.0, 1e-6)
    assert np.log2(plan.grid) == np.floor(np.log2(plan.sigma / 16))
    steps = add_noise(simplex(200, 20), plan, SEED) / plan.grid
    assert np.array_equal(steps, np.rint(steps))


def test_zero_and_a_small_value_look_alike():
    """Values far below sigma leave no trace: 0 and 1e-3 sigma give the same bytes for almost all draws."""
    plan = plan_noise(1_000, 40, 2e-7, 1.0, 1e-6)
    small = np.full((1_000, 1), 1e-3 * plan.sigma)
    same = add_noise(np.zeros((1_000, 1)), plan, SEED) == add_noise(small, plan, SEED)
    assert same.mean() > 0.93


def test_too_many_numbers_for_delta_are_refused():
    """Where rounding alone would use up delta the plan says so instead of promising."""
    with pytest.raises(UsageError, match="too small"):
        plan_noise(10_000_000, 100, 2e-7, 1.0, 1e-9)
    with pytest.raises(UsageError, match="sensitivity"):
        plan_noise(10, 1, 0.0, 1.0, 1e-6)
    with pytest.raises(UsageError, match="noise key"):
        NoiseKey(b"short")


def test_secrets_do_not_show():
    """Neither key nor seed appears in a representation, so not in a log."""
    assert KEY.secret.hex() not in repr(KEY)
    assert repr(SEED.secret) not in repr(SEED)


@given(arrays(np.float64, (6, 3), elements=st.floats(-3, 3)))
@settings(max_examples=200, deadline=None)
def test_projection_is_the_nearest_point_of_the_simplex(values):
    """The projection is on the simplex and meets the conditions of optimality (one shift on the support)."""
    projected = project_columns(values)
    assert projected.min() >= 0
    assert projected.sum(axis=0) == pytest.approx(np.ones(3), abs=1e-12)
    for column in range(3):
        shift = (values - projected)[:, column]
        on = projected[:, column] > 0
        assert np.ptp(shift[on]) < 1e-12
        assert np.all(shift[~on] <= shift[on].mean() + 1e-12)


def test_projection_leaves_the_simplex_alone():
    """A column that is on the simplex comes back as it was, to rounding."""
    A = simplex(500, 9)
    assert np.abs(project_columns(A) - A).max() < 1e-15
