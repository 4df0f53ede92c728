import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from streamtopic.errors import UsageError
from streamtopic.privacy import Composition, gaussian_delta, gaussian_epsilon, gaussian_scale

epsilons = st.floats(0.01, 20)
deltas = st.floats(1e-12, 0.1)


@pytest.mark.parametrize(
    ("epsilon", "scale"), [(1, 4.224679), (0.5, 8.0576), (5, 0.98005)], ids=["eps 1", "eps 0.5", "eps 5"]
)
def test_published_scales(epsilon, scale):
    """The values of the analytic mechanism at delta 1e-6, all below the classic 5.2988 at epsilon 1."""
    assert gaussian_scale(epsilon, 1e-6) == pytest.approx(scale, rel=1e-5)


@given(epsilons, deltas)
@settings(max_examples=200)
def test_the_scale_is_the_least_that_keeps_the_guarantee(epsilon, delta):
    """At the scale the guarantee holds; a millionth below it does not."""
    scale = gaussian_scale(epsilon, delta)
    assert gaussian_delta(epsilon, scale) <= delta
    assert gaussian_delta(epsilon, scale * (1 - 1e-6)) > delta


@given(st.floats(0.01, 5), st.floats(0.2, 20))
@settings(max_examples=200)
def test_delta_is_the_mechanisms(epsilon, s):
    """Delta equals P - e^eps Q at the likelihood ratio's threshold, computed from the two normals directly."""
    threshold = s * epsilon - 1 / (2 * s)
    expected = norm.sf(threshold) - math.exp(epsilon) * norm.sf(threshold + 1 / s)
    assert gaussian_delta(epsilon, s) == pytest.approx(expected, rel=1e-6, abs=1e-14)


@given(epsilons, deltas)
@settings(max_examples=100)
def test_epsilon_undoes_scale(epsilon, delta):
    """The epsilon of a calibrated scale is the one it was calibrated for."""
    assert gaussian_epsilon(delta, gaussian_scale(epsilon, delta)) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-6), (-1, 1e-6), (math.nan, 1e-6), (1, 0), (1, 1), (1, math.nan)])
def test_senseless_guarantees_are_refused(epsilon, delta):
    """A guarantee outside the mechanism's range is a usage error."""
    with pytest.raises(UsageError):
        gaussian_scale(epsilon, delta)


@pytest.mark.parametrize(("releases", "epsilon"), [(1, 1.0), (16, 4.5924), (256, 24.53)])
def test_published_compositions(releases, epsilon):
    """16 releases of (1, 1e-6) cost 4.5924 at 1e-6, 256 cost 24.53."""
    scale = gaussian_scale(1, 1e-6)
    assert Composition.of([(scale, 0.0)] * releases).epsilon(1e-6) == pytest.approx(epsilon, rel=1e-4)


@given(st.lists(st.tuples(st.floats(0.5, 50), st.floats(0, 1e-9)), max_size=12), st.randoms())
@settings(max_examples=100)
def test_composition_is_order_free_and_never_shrinks(releases, random):
    """Any order costs the same bits, one by one costs the same, and more releases never cost less."""
    whole = Composition.of(releases)
    random.shuffle(releases)
    assert Composition.of(releases) == whole
    spent, running = [0.0], Composition()
    for scale, slack in releases:
        running = running.then(scale, slack)
        spent.append(running.epsilon(1e-6))
    assert spent == sorted(spent)
    assert running.mu == pytest.approx(whole.mu)
    assert running.slack == pytest.approx(whole.slack)


def test_slack_counts_against_delta():
    """Rounding slack is paid for: epsilon rises with it, without bound as it takes all of delta."""
    scale = gaussian_scale(1, 1e-6)
    assert Composition.of([(scale, 1e-7)]).epsilon(1e-6) > 1
    assert Composition.of([(scale, 1e-6)]).epsilon(1e-6) == math.inf
    assert Composition().epsilon(1e-6) == 0
    with pytest.raises(UsageError):
        Composition().then(0)
