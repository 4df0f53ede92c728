from decimal import Decimal

import mpmath
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare, norm

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.privacy.keystream import NoiseKey, box_muller, draw_normals, exact_normal
from streamtopic.privacy.noise import (
    CalibratedGuarantee,
    add_noise,
    grid_of,
    plan_noise,
    project_columns,
    release_matrix,
)

KEY = NoiseKey(bytes(range(32)))
SEED = KEY.of("news", 1).seed("digest")
GUARANTEE = CalibratedGuarantee(1.0, 1e-6, 1e-7)


def simplex(n, r, seed=0):
    """Columns (n, r) on the simplex."""
    return np.random.default_rng(seed).dirichlet(np.full(n, 0.1), r).T


@pytest.mark.parametrize(
    "other",
    [
        KEY.of("news", 2).seed("digest"),
        KEY.of("news", 1).seed("digesu"),
        KEY.of("new", 1).seed("digest"),
        KEY.of("news1", 1).seed("digest"),
        KEY.of("news", 1).seed("digest", "B"),
        NoiseKey(bytes(32)).of("news", 1).seed("digest"),
    ],
)
def test_any_other_material_draws_independently(other):
    """Changing any part of the material gives noise that does not correlate with the former."""
    correlation = np.corrcoef(draw_normals(SEED, 40_000)[0], draw_normals(other, 40_000)[0])[0, 1]
    assert abs(correlation) < 5 / 200


def test_a_draw_lies_within_its_error_bound():
    """Against extended precision no draw of 200,000 is off by half of its bound, nor is the bound far too wide."""
    if np.finfo(np.longdouble).nmant < 60:
        pytest.skip("this platform has no wider float to compare with")
    (drawn, errors), wide, pairs = draw_normals(SEED, 200_000), np.longdouble, 100_000
    bits = np.frombuffer(
        Cipher(algorithms.ChaCha20(SEED.secret, bytes(16)), mode=None).encryptor().update(bytes(16 * pairs)), "<u8"
    )
    radius = np.sqrt(-2 * np.log((bits[:pairs].astype(wide) + wide(0.5)) * wide(2) ** -64))
    angle = bits[pairs:].view("<i8").astype(wide) * (wide("3.14159265358979323846264338327950288") * wide(2) ** -63)
    exact = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    off = np.abs(exact - drawn).astype(float)
    assert (off / errors).max() < 0.5
    assert errors.mean() < 100 * 2.0**-53


@pytest.mark.parametrize("turn", [-(2**63), -(2**62) - 1, -1, 0, 12345678901234567, 2**62, 2**63 - 1])
@pytest.mark.parametrize("uniform", [0, 1, 2**40, 2**63, 2**64 - 1])
def test_the_digits_are_those_of_an_independent_library(uniform, turn):
    """Box and Muller's two draws agree with mpmath to 60 digits, in the tail and next to zero too."""
    with mpmath.workdps(80):
        radius = mpmath.sqrt(-2 * mpmath.log((uniform + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 64))
        angle = mpmath.pi * (turn + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 63
        expected = radius * mpmath.cos(angle), radius * mpmath.sin(angle)
        found = [mpmath.mpf(str(value)) for value in box_muller(uniform, turn, 64)]
        assert all(mpmath.almosteq(a, b, 1e-60, 1e-60) for a, b in zip(found, expected, strict=True))


def middle_of_two_steps(plan, k, count, side):
    """Return a value whose noised sum lies next to the middle between two steps, nearer than floats can tell.

    side -1 or 1: below or above it, as far as the last place of the value allows.
    """
    noise = Decimal(plan.sigma) * exact_normal(SEED, count, k)
    steps = (noise / Decimal(plan.grid)).to_integral_value()
    target = Decimal(plan.grid) * (steps + Decimal("0.5")) - noise
    value = float(target)
    while (Decimal(value) - target) * side < 0:
        value = np.nextafter(value, side * np.inf)
    return value, int(steps) + (side > 0)


@pytest.mark.parametrize("side", [-1, 1])
def test_sums_that_floats_cannot_round_are_rounded_exactly(side, monkeypatch):
    """Next to the middle between two multiples the right one is taken; floats alone take the wrong one at times."""
    plan, count = plan_noise(2e-7, 1.0, 1e-6), 40
    made = [middle_of_two_steps(plan, k, count, side) for k in range(count)]
    values, expected = np.array([value for value, _ in made]), np.array([steps for _, steps in made])
    assert np.array_equal(add_noise(values, plan, SEED) / plan.grid, expected)
    monkeypatch.setattr("streamtopic.privacy.noise.exact_normal", lambda *_: pytest.fail("no doubt was left"))
    with pytest.raises(pytest.fail.Exception):
        add_noise(values, plan, SEED)


def test_doubt_does_not_change_what_floats_are_sure_of(monkeypatch):
    """Deciding every number with 100 digits gives the same bytes as floats where those are certain."""
    plan, A = plan_noise(2e-7, 1.0, 1e-6), simplex(40, 5)
    expected = add_noise(A, plan, SEED)
    drawn, _ = draw_normals(SEED, A.size)
    monkeypatch.setattr("streamtopic.privacy.noise.draw_normals", lambda *_: (drawn, np.full(A.size, np.nan)))
    assert add_noise(A, plan, SEED).tobytes() == expected.tobytes()


def test_sigma_is_the_calibrated_one():
    """Noise on A has sigma = s(eps, delta) * 2 * tolerance, measured and stated, whatever A is and however large."""
    A = simplex(2_000, 20)
    released = release_matrix(A, GUARANTEE, SEED)
    plan = released.plan
    assert plan.sigma == gaussian_scale(1.0, 1e-6) * 2e-7
    assert plan == release_matrix(simplex(30, 2, seed=1), GUARANTEE, SEED).plan
    assert (released.noised - A).std() == pytest.approx(plan.sigma, rel=0.02)
    assert np.array_equal(released.noised, add_noise(A, plan, SEED))
    assert np.array_equal(released.matrix, project_columns(released.noised))


def steps_of_noise(purpose, count=200_000):
    """Return noise on zeros, in steps of the grid, for a purpose, and the plan."""
    plan = plan_noise(2e-7, 1.0, 1e-6)
    return add_noise(np.zeros(count), plan, KEY.of("news", 1).seed("digest", purpose)) / plan.grid, plan


@pytest.mark.parametrize("purpose", ["A", "R", "heads"])
def test_noise_on_the_grid_has_the_rounded_normal_distribution(purpose):
    """200,000 noised zeros fit the normal's mass in each step of the grid by chi-square, sign and variance too."""
    steps, plan = steps_of_noise(purpose)
    sigma = plan.sigma / plan.grid
    reach = int(3.5 * sigma)
    edges = np.arange(-reach, reach + 2) - 0.5
    mass = np.diff(norm.cdf(edges, scale=sigma))
    seen = np.histogram(steps, edges)[0]
    rest, tail = len(steps) - seen.sum(), 1 - mass.sum()
    assert chisquare([*seen, rest], len(steps) * np.array([*mass, tail])).pvalue > 1e-4
    # Rounding to whole steps adds a twelfth to the variance.
    variance = sigma**2 + 1 / 12
    assert np.mean(steps**2) == pytest.approx(variance, rel=4 * np.sqrt(2 / len(steps)))
    assert abs(np.mean(steps)) < 4 * sigma / np.sqrt(len(steps))


def test_noised_numbers_lie_on_the_grid():
    """Every noised number is a multiple of the power-of-two grid below sigma / 16, so low bits tell nothing."""
    plan = plan_noise(2e-7, 1.0, 1e-6)
    assert np.log2(plan.grid) == np.floor(np.log2(plan.sigma / 16))
    assert (grid_of(16.0), grid_of(15.9)) == (1.0, 0.5)
    steps = add_noise(simplex(200, 20), plan, SEED) / plan.grid
    assert np.array_equal(steps, np.rint(steps))
    assert not np.signbit(steps[steps == 0]).any()


@pytest.mark.parametrize("apart", [1 / 10, 1 / 100, 1 / 1_000])
def test_two_models_are_published_alike_but_for_their_distance_over_the_grid(apart):
    """Of d numbers that lie e apart, d e / g differ once both are noised alike and rounded to the grid g."""
    plan = plan_noise(2e-7, 1.0, 1e-6)
    one = np.random.default_rng(4).uniform(0, 1e-3, 400_000)
    differ = np.count_nonzero(add_noise(one, plan, SEED) != add_noise(one + apart * plan.grid, plan, SEED))
    expected = apart * one.size
    assert abs(differ - expected) < 5 * np.sqrt(expected)


def granular(numbers, value):
    """Which numbers are small beside `value` and finer than its last place: no sum with `value` of floats can be."""
    last = np.spacing(value) / 4
    return (np.abs(numbers) < value / 4) & (numbers != np.rint(numbers / last) * last)


def test_low_bits_give_a_naive_sum_away_and_ours_not():
    """Of 2,000 zeros and as many small values, naive noise leaves marks on the zeros alone; ours leaves none at all."""
    plan = plan_noise(2e-7, 1.0, 1e-6)
    value = plan.sensitivity / 2
    zeros, small = np.zeros(2_000), np.full(2_000, value)
    naive = [where + plan.sigma * draw_normals(SEED, 2_000)[0] for where in (zeros, small)]
    assert [int(granular(numbers, value).sum()) > 0 for numbers in naive] == [True, False]
    ours = [add_noise(where, plan, SEED) for where in (zeros, small)]
    assert [int(granular(numbers, value).sum()) for numbers in ours] == [0, 0]


@pytest.mark.parametrize("sensitivity", [0.0, -1.0, np.nan, np.inf])
def test_a_senseless_sensitivity_is_refused(sensitivity):
    """Noise is calibrated to a length above 0 only, and a key is no short word."""
    with pytest.raises(UsageError, match="sensitivity"):
        plan_noise(sensitivity, 1.0, 1e-6)
    with pytest.raises(UsageError, match="noise key"):
        NoiseKey(b"short")


def test_secrets_do_not_show():
    """Neither key nor seed appears in a representation, so not in a log."""
    assert KEY.secret.hex() not in repr(KEY)
    assert repr(SEED.secret) not in repr(SEED)


@given(arrays(np.float64, (6, 3), elements=st.floats(-3, 3)))
@settings(max_examples=200)
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


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_never_released(bad):
    """A matrix with a number that is not finite is refused before noise."""
    A = simplex(20, 3)
    A[3, 1] = bad
    with pytest.raises(UsageError, match="not finite"):
        release_matrix(A, GUARANTEE, SEED)
