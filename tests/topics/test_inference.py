"""Topics of new documents."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamtopic.topics.inference import fold_in


def corpus(n, r, documents, seed, most=60):
    """Return a topic matrix (n, r) and documents as CSR counts."""
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.full(n, 0.1), r).T + 1e-9
    A /= A.sum(axis=0)
    x = rng.multinomial(most, np.full(n, 1 / n), documents) * (rng.random((documents, n)) < 0.5)
    return A, csr_array(x)


def fold(A, x, **options):
    """Call with a CSR matrix."""
    return fold_in(A, x.indptr.astype(np.int64), x.indices, x.data, **options)


@pytest.mark.parametrize(("n", "r", "alpha"), [(300, 20, 0.1), (5, 50, 0.01), (40, 3, 5.0), (8, 120, 0.002)])
def test_proportions_are_within_the_tolerance(n, r, alpha):
    """The optimum, known from a far smaller tolerance and its own conditions, is as near as was promised."""
    A, x = corpus(n, r, 30, seed=r, most=400)
    exact = fold(A, x, alpha=alpha, tolerance=1e-9)
    pull = (x / np.where(x.toarray() > 0, exact @ A.T, 1)) @ A
    length = np.asarray(x.sum(axis=1)).ravel()[:, None]
    assert np.allclose(exact * (length + r * alpha - np.asarray(pull)), alpha, rtol=1e-6)
    rough = fold(A, x, alpha=alpha, tolerance=0.01)
    assert np.sqrt((((exact - rough) / rough) ** 2).sum(axis=1)).max() <= 0.01
    assert np.allclose(rough.sum(axis=1), 1)


@pytest.mark.parametrize("seed", range(8))
def test_steps_that_lead_away_are_taken_back(seed):
    """Long documents whose words differ in number a millionfold, with a small alpha, meet the conditions, too."""
    rng = np.random.default_rng(seed)
    r, n, alpha = int(rng.integers(20, 100)), int(rng.integers(20, 50)), 0.001
    A = rng.dirichlet(np.full(n, 0.1), r).T
    counts = (10 ** rng.uniform(0, 6, (4, n))).astype(np.int64)
    theta = fold(A, csr_array(counts), alpha=alpha, tolerance=1e-3)
    pull = (counts / (theta @ A.T)) @ A
    residual = theta * (pull - counts.sum(axis=1, keepdims=True) - r * alpha) + alpha
    assert np.linalg.norm(residual, axis=1).max() <= 1e-3 * alpha


def test_documents_without_known_words_get_the_prior():
    """Neither an empty document nor one of unknown words is an error or a NaN."""
    A = np.array([[0.5, 0.2], [0.5, 0.8], [0.0, 0.0]])
    x = csr_array(np.array([[0, 0, 0], [0, 0, 9], [1, 0, 9]]))
    theta = fold(A, x)
    assert np.allclose(theta[:2], 0.5)
    assert theta[2, 0] > 0.5
    assert fold(A, x[:0]).shape == (0, 2)


@pytest.mark.parametrize("scale", [2.0**34, 1e18, 1e300])
def test_counts_of_any_size_give_proportions(scale):
    """One far longer than 2^32 words has the proportions of one of 2^32, a far shorter one those of the prior."""
    A, x = corpus(30, 4, 20, seed=3)
    totals = np.asarray(x.sum(axis=1))
    longest = x.multiply(2.0**32 / totals[:, None]).tocsr()
    assert np.allclose(fold(A, x * scale), fold(A, longest), rtol=2e-3)
    assert np.allclose(fold(A, x * 5e-324), 1 / 4)
