"""Distributions of topic proportions: draws, and moments that say how exact they are."""

import numpy as np
import pytest

from streamtopic.synthetic import Dirichlet, LogisticNormal

PRIORS = [
    Dirichlet(np.array([0.2, 0.5, 0.05, 1.0])),
    LogisticNormal.with_shares(np.array([0.1, 0.4, 0.2, 0.3]), 1.5, 0.6),
]


@pytest.mark.parametrize("prior", PRIORS, ids=["dirichlet", "logistic normal"])
def test_moments_are_those_of_the_draws(prior):
    """Moments z and R are those of 200,000 draws, to five standard errors, whatever the prior."""
    X = prior.sample(np.random.default_rng(1), 200_000)
    assert X.shape == (200_000, 4)
    assert X.min() >= 0
    assert np.abs(X.sum(axis=1) - 1).max() < 1e-12
    moments = prior.moments()
    assert np.abs(X.mean(axis=0) - moments.z).max() < 5 * 0.5 / np.sqrt(len(X)) + moments.error
    assert np.abs(X.T @ X / len(X) - moments.R).max() < 5 * 0.5 / np.sqrt(len(X)) + moments.error
    assert moments.R.sum(axis=1) == pytest.approx(moments.z)
    assert np.linalg.eigvalsh(moments.R)[0] > 0
