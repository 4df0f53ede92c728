"""Leading eigenpairs: the dense solver's, by whatever method."""

import numpy as np
import pytest

from streamtopic.topics import spectrum
from streamtopic.topics.spectrum import leading_eigenpairs


def gram(c, r, gap=1.0, seed=0):
    """Return a matrix with r leading eigenvalues above the others, and all its eigenvalues."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((c, c)))
    values = np.concatenate([np.linspace(10, 5, r) + gap, np.linspace(4, 0, c - r)])
    matrix = (basis * values) @ basis.T
    return (matrix + matrix.T) / 2, values


@pytest.mark.parametrize(("c", "r"), [(30, 4), (1_100, 5), (1_100, 60), (4, 6)])
def test_values_and_span(c, r):
    """Values equal the planted ones, residuals vanish, whether Lanczos or the dense solver found them."""
    matrix, values = gram(c, min(r, c))
    found, vectors = leading_eigenpairs(matrix, r)
    assert len(found) == min(r + 1, c)
    assert np.allclose(found, np.sort(values)[::-1][: len(found)], atol=1e-10)
    assert np.abs(matrix @ vectors - vectors * found).max() < 1e-10


def test_missed_eigenvalue_is_noticed(monkeypatch):
    """A method that misses the largest pair is caught by the factorisation and the dense solver takes over."""
    matrix, values = gram(1_100, 5)
    dense, basis = np.linalg.eigh(matrix)

    def misses(product, k, **_):
        chosen = np.arange(len(basis) - k - 1, len(basis) - 1)
        assert np.allclose(product @ basis[:, 0], matrix @ basis[:, 0])
        return dense[chosen], basis[:, chosen]

    monkeypatch.setattr(spectrum, "eigsh", misses)
    found, _ = leading_eigenpairs(matrix, 5)
    assert found[0] == pytest.approx(values.max())


def test_same_matrix_same_bits():
    """The fixed start makes Lanczos deterministic."""
    matrix, _ = gram(1_100, 5)
    one, other = leading_eigenpairs(matrix, 5), leading_eigenpairs(matrix.copy(), 5)
    assert np.array_equal(one[0], other[0])
    assert np.array_equal(one[1], other[1])
