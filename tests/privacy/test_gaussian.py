import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import Composition, gaussian_delta, gaussian_scale


@pytest.mark.parametrize(
    ("epsilon", "scale"), [(1, 4.224679), (0.5, 8.0576), (5, 0.98005)], ids=["eps 1", "eps 0.5", "eps 5"]
)
def test_published_scales(epsilon, scale):
    """The values of the analytic mechanism at delta 1e-6, all below the classic 5.2988 at epsilon 1."""
    assert gaussian_scale(epsilon, 1e-6) == pytest.approx(scale, rel=1e-5)


@given(st.floats(0.01, 5), st.floats(0.2, 20))
@settings(max_examples=200)
def test_delta_is_the_mechanisms(epsilon, s):
    """Delta equals P - e^eps Q at the likelihood ratio's threshold, computed from the two normals directly."""
    threshold = s * epsilon - 1 / (2 * s)
    expected = norm.sf(threshold) - math.exp(epsilon) * norm.sf(threshold + 1 / s)
    assert gaussian_delta(epsilon, s) == pytest.approx(expected, rel=1e-6, abs=1e-14)


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
