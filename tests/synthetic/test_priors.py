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


def test_two_logistic_normal_topics_against_an_integral():
    """With two topics R is one integral over the difference of the exponents; the lattice finds it to its error."""
    prior = LogisticNormal.with_shares(np.array([0.3, 0.7]), 1.0, 0.5)
    mean = prior.mu[0] - prior.mu[1]
    covariance = prior.factor @ prior.factor.T
    deviation = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    first = 1 / (1 + np.exp(-(mean + deviation * nodes)))
    exact = (weights * first**2).sum() / weights.sum()
    moments = prior.moments()
    assert abs(moments.R[0, 0] - exact) <= moments.error
    assert covariance[0, 1] == pytest.approx(0.5)
