import math

import numpy as np
import pytest

from streamtopic.bench.synthetic import counted, planted
from streamtopic.errors import UsageError
from streamtopic.paper.capacity_formulas import (
    ModelConstants,
    base_capacity,
    estimate_constants,
    fit_constants,
    precondition,
    task_capacity,
    theorem_sensitivity,
    theorem_sigma,
)
from streamtopic.topics.display import topic_correlations
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions


@pytest.mark.parametrize(("m", "r", "documents"), [(10**6, 20, 2), (10**8, 20, 212), (10**6, 50, 0), (10**8, 50, 21)])
def test_published_capacities(m, r, documents):
    """The formula at c = 1, epsilon 1, delta 1e-6, 5,000 words gives the known numbers of documents."""
    assert int(base_capacity(1, m, 5_000, r, 1, 1e-6)) == documents


def test_a_task_on_common_topics_bears_more():
    """Theorem 3 worked out by hand: the least mass of its own topics takes the place of the least that any has."""
    z = np.array([0.1, 0.2, 0.7])
    every, some = (task_capacity(2.0, 10**6, 1_000, 0.5, 1e-6, z, which) for which in ([0, 1, 2], [2]))
    # c min(m q epsilon / (r sqrt(n r ln(1/delta))), 0.001 m / r^2)
    assert (every, some) == (pytest.approx(163.7324, rel=1e-6), pytest.approx(222.2222, rel=1e-6))
    assert task_capacity(1.0, 10**6, 1_000, 0.5, 1e-6, z, [1]) == pytest.approx(111.1111, rel=1e-6)


def test_constants_are_read_off_the_model():
    """z, separability and conditioning are those of the arrays."""
    A = np.array([[0.5, 0.0], [0.0, 0.25], [0.5, 0.75]])
    constants = estimate_constants(A, np.diag([0.6, 0.3]), np.array([0.6, 0.4]), np.array([0, 1]))
    assert constants == ModelConstants(pytest.approx(1.5), 0.25, pytest.approx(0.75), 1 / math.sqrt(6))
    assert precondition(10**6, 2, constants) == pytest.approx(1e3 / math.sqrt(6) * (0.75 * 0.25) ** 3 / (1.5**2 * 4))
    sensitivity = theorem_sensitivity(1, 10**6, 3, 2, 10, constants)
    assert sensitivity == pytest.approx(math.sqrt(6) * 9 * 10 * math.sqrt(6) / (1e6 * 0.75 * 0.25))
    assert theorem_sigma(sensitivity, 0.5, 1e-6) == pytest.approx(2 * 5.298803 * sensitivity)
    with pytest.raises(UsageError, match="below 1"):
        theorem_sigma(sensitivity, 1.0, 1e-6)
    # A topic without a share bears no deletion at all, and no division warns.
    bare = estimate_constants(A, np.diag([1.0, 0.0]), np.array([1.0, 0.0]), np.array([0, 1]))
    assert (bare.a, bare.gamma, precondition(10**6, 2, bare)) == (math.inf, 0.0, 0)


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_constants_from_anchor_rows_are_those_of_the_correlations(learner):
    """Without a pass over Q they come within a fifth of what R = A^+ Q A^+^T gives, on documents of such topics."""
    options = LearnerOptions(n_topics=4, max_df=1.0, min_df=3, learner=learner)
    fit = learn(counted(planted(3000, 150, 4, 60, seed=3), 150, options.weighting), options)
    correlations = topic_correlations(fit, fit.A)
    rows = np.searchsorted(fit.live, fit.choice)
    exact = estimate_constants(fit.A, correlations.R, correlations.shares, rows)
    quick = fit_constants(fit)
    assert (quick.p_sep, quick.eps0) == (exact.p_sep, exact.eps0)
    assert quick.a == pytest.approx(exact.a, rel=0.2)
    assert quick.gamma == pytest.approx(exact.gamma, rel=0.2)
