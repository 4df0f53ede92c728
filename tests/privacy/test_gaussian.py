import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import gaussian_delta, gaussian_scale


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
