"""Products with Q: their rounding is bounded, and rows do not depend on each other."""

from fractions import Fraction

import numpy as np
import pytest

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import pack
from streamtopic.topics.certificate import gamma
from streamtopic.topics.products import BLOCK, product_roundings, times
from streamtopic.topics.update_rows import ThinShift, dearer_than_whole, product_shift

N = 3 * BLOCK + 40
R = 5


def symmetric(seed, density, high):
    """Return a random symmetric integer matrix, dense and as counts."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.integers(1, high, (N, N)) * (rng.random((N, N)) < density))
    whole = upper + np.triu(upper, 1).T
    rows, columns = np.nonzero(whole)
    indptr = np.searchsorted(rows, np.arange(N + 1)).astype(np.int64)
    return whole, SymmetricCounts(N, pack(N, indptr, columns.astype(np.int32), whole[rows, columns]))


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


def test_words_without_entries_leave_no_trace(thin):
    """Words whose entries are gone shift the others' places, not the bits of their products."""
    _, q = symmetric(7, 0.3, 1000)
    n = N + 300
    places = np.sort(np.random.default_rng(8).choice(n, N, replace=False))
    wide = np.zeros((n, R))
    wide[places] = thin
    spread = q.spread(places.astype(np.int64), n)
    assert times(spread, wide, live=places)[places].tobytes() == times(q, thin).tobytes()
    assert times(spread, wide)[places].tobytes() != times(q, thin).tobytes()


def test_a_shift_is_the_difference_of_products(thin):
    """W + shift is the product after the change, within the bound that an update adds up."""
    whole, _ = symmetric(3, 0.3, 1000)
    change = np.zeros((N, N), np.int64)
    change[5, 7] = change[7, 5] = 3
    change[9, 9] = 4
    after = whole + change
    rows, columns = np.nonzero(after)
    indptr = np.searchsorted(rows, np.arange(N + 1)).astype(np.int64)
    now = SymmetricCounts(N, pack(N, indptr, columns.astype(np.int32), after[rows, columns]))
    rows, columns = np.nonzero(change)
    indptr = np.searchsorted(rows, np.arange(N + 1)).astype(np.int64)
    delta = SymmetricCounts(N, pack(N, indptr, columns.astype(np.int32), change[rows, columns]))
    moved = np.zeros((2, R))
    moved[0, 1], moved[1, 4] = 0.5, 2.0
    step = ThinShift(np.array([7, 300]), moved)
    dV = np.zeros((N, R))
    dV[[7, 300]] += moved
    shift, sizes = product_shift(now, delta, thin, step)
    expected = after @ (thin + dV) - whole @ thin
    scale = np.abs(after @ (thin + dV)).max(axis=1, keepdims=True)
    assert (np.abs(shift - expected) <= 1e-12 * scale).all()
    assert (np.abs(shift) <= sizes[:, None] * (1 + 1e-12)).all()


def test_a_large_change_is_taken_from_counts():
    """Where most rows of V move, the whole product is cheaper; where few do, it is not."""
    _, q = symmetric(5, 0.3, 10)
    _, nothing = symmetric(6, 0.0, 2)
    few = ThinShift(np.array([1, 2]), np.ones((2, R)))
    all_rows = ThinShift(np.arange(N), np.ones((N, R)))
    assert not dearer_than_whole(q, nothing, few)
    assert dearer_than_whole(q, nothing, all_rows)
