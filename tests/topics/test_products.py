"""Products with Q: their rounding is bounded, and rows do not depend on each other."""

from fractions import Fraction

import numpy as np
import pytest
from dense_counts import dense_counts

from streamtopic.topics.certificate import gamma
from streamtopic.topics.products import BLOCK, product_roundings, times

N = 3 * BLOCK + 40
R = 5


def symmetric(seed, density, high):
    """Return a random symmetric integer matrix, dense and as counts."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.integers(1, high, (N, N)) * (rng.random((N, N)) < density))
    whole = upper + np.triu(upper, 1).T
    return whole, dense_counts(whole)


@pytest.fixture(scope="module")
def thin():
    """Weights of very different sizes, none negative."""
    return np.exp(np.random.default_rng(1).normal(0, 6, (N, R)))


def test_rounding_stays_within_its_bound(thin):
    """Every entry of Q V is as near to the exact sum as `product_roundings` says, and not trivially so."""
    whole, q = symmetric(0, 0.4, 1 << 40)
    product = times(q, thin)
    bound = gamma(product_roundings(np.diff(q.indptr), q.n))[:, None] * product
    for i in range(0, N, 97):
        for t in range(R):
            exact = sum(Fraction(int(v)) * Fraction(float(x)) for v, x in zip(whole[i], thin[:, t], strict=True))
            assert abs(Fraction(float(product[i, t])) - exact) <= Fraction(float(bound[i, t]))
    assert (bound <= 1e-12 * product).all()


def test_some_rows_are_the_bits_of_all_rows(thin):
    """A row of a product is the same bits whichever rows are asked for with it."""
    _, q = symmetric(2, 0.3, 1000)
    rows = np.array([3, BLOCK, N - 1])
    assert times(q, thin, rows).tobytes() == times(q, thin)[rows].tobytes()


@pytest.mark.parametrize("columns", [1, 4, 7])
def test_few_columns_have_the_bits_that_they_have_among_many(columns):
    """A product with few columns, which are summed by another loop, is the same bits as with all of them."""
    wide = np.exp(np.random.default_rng(3).normal(0, 6, (N, 9)))
    _, q = symmetric(4, 0.3, 1 << 40)
    few = np.ascontiguousarray(wide[:, :columns])
    assert times(q, few).tobytes() == times(q, wide)[:, :columns].tobytes()
