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


def test_the_dirichlet_is_exact_and_the_other_says_how_far_off_it_is():
    """R of two equal topics under Dirichlet(1, 1) is known; a numerical R states an error above 0, below 1e-3."""
    known = Dirichlet(np.ones(2)).moments()
    assert np.abs(known.R - np.array([[1 / 3, 1 / 6], [1 / 6, 1 / 3]])).max() < 1e-15
    assert known.error == 0
    assert 0 < PRIORS[1].moments().error < 1e-3


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


def test_neighbouring_topics_correlate_as_asked():
    """A correlation above 0 brings neighbours together more often than topics further apart, below 0 less often."""
    z = np.full(5, 0.2)
    for sign in (1, -1):
        R = LogisticNormal.with_shares(z, 1.0, sign * 0.7).moments().R
        assert sign * (R[1, 2] - R[1, 4]) > 0
