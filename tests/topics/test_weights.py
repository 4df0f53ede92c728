"""Column weights: decided in integers, exactly at their boundaries too."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from streamtopic.topics.learner import _ROOTS, column_squares
from streamtopic.topics.learner_options import LearnerOptions

OPTIONS = LearnerOptions(n_topics=2)


def nearest(mass, total):
    """Return k of the power 2^(k/2) that mass / total is nearest to in logarithms, by exact comparison; ties go down.

    2^((k - 1/2) / 2) < p <= 2^((k + 1/2) / 2) is 2^(2 k - 1) < p^4 <= 2^(2 k + 1).
    """
    power = Fraction(mass, total) ** 4
    k = 0
    while power > Fraction(2) ** (2 * k + 1):
        k += 1
    while power <= Fraction(2) ** (2 * k - 1):
        k -= 1
    return k


def expected(mass, total):
    """Return the double that is the weight of a mass by definition."""
    whole, quarter = divmod(-nearest(mass, total), 4)
    return float(_ROOTS[quarter]) * 2.0**whole


@pytest.mark.parametrize("near", range(-3, 4))
def test_weights_are_decided_exactly_at_their_boundaries(near):
    """Masses just below, at and just above each boundary between two powers get the weight of exact arithmetic."""
    total = 1 << 60
    for step in range(1, 40):
        # The boundary is at p = 2^(-(2 step - 1) / 4), which no integer meets, but its neighbours come close.
        boundary = isqrt(isqrt(2 ** (240 - 2 * step + 1)))
        mass = np.array([boundary + near, total - boundary - near], np.int64)
        found = column_squares(mass, OPTIONS)
        assert found.tolist() == [expected(int(m), total) for m in mass]
    both = {nearest(boundary, total), nearest(boundary + 1, total)}
    assert len(both) == 2


def test_weights_are_those_of_exact_arithmetic_everywhere():
    """Random masses of all sizes, and a total beyond 62 bits."""
    rng = np.random.default_rng(0)
    for bits in (4, 20, 40, 60):
        mass = np.maximum((2 ** rng.uniform(0, bits, 200)).astype(np.int64), 1)
        total = sum(mass.tolist())
        assert column_squares(mass, OPTIONS).tolist() == [expected(m, total) for m in mass.tolist()]
    large = np.full(9, 1 << 61, np.int64)
    assert column_squares(large, OPTIONS).tolist() == [expected(1 << 61, 9 << 61)] * 9
