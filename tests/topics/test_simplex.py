"""The exact solver and its certificate."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from streamtopic.topics.certificate import Known, row_bounds
from streamtopic.topics.simplex import project_rows, solve_rows


def problem(seed, r=6, n=40, width=30):
    """Return G, B and the least singular value of random anchor rows and targets near their hull."""
    rng = np.random.default_rng(seed)
    X = rng.dirichlet(np.full(width, 0.3), r)
    targets = rng.dirichlet(np.full(r, 0.4), n) @ X + rng.normal(0, 0.02, (n, width))
    G = X @ X.T
    return (G + G.T) / 2, targets @ X.T, float(np.linalg.svd(X, compute_uv=False)[-1])


def known(B, G, sigma):
    """Return what is known where B and G are exact."""
    return Known(np.zeros(len(B)), np.zeros(len(B)), np.ones(len(G)), 0.0, sigma**2)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_solution_meets_the_conditions_of_optimality(seed, r):
    """Rows lie on the simplex, the gradient is level on the support and nowhere lower off it."""
    G, B, _ = problem(seed, r)
    C = solve_rows(G, B)
    assert np.all(C >= 0)
    assert np.allclose(C.sum(axis=1), 1, atol=1e-12)
    gradient = C @ G - B
    for c, g in zip(C, gradient, strict=True):
        level = g[c > 0].mean()
        assert np.abs(g[c > 0] - level).max() < 1e-12
        assert (g - level).min() > -1e-12


def test_solution_equals_a_general_solver():
    """An independent constrained optimiser does not find a better point."""
    G, B, _ = problem(3)
    C = solve_rows(G, B)
    for c, b in zip(C[:8], B[:8], strict=True):

        def loss(v, b=b):
            return 0.5 * v @ G @ v - b @ v

        found = minimize(
            loss,
            np.full(6, 1 / 6),
            bounds=[(0, 1)] * 6,
            constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
            options={"ftol": 1e-15},
        )
        assert loss(c) <= found.fun + 1e-12
        assert np.abs(found.x - c).max() < 1e-3


def test_dependent_anchor_rows_end_with_a_feasible_point():
    """A singular G neither loops nor leaves the simplex."""
    G, B, _ = problem(5)
    G = np.vstack([G, G[0]])
    G = np.hstack([G, G[:, :1]])
    C = solve_rows(G, np.hstack([B, B[:, :1]]))
    assert np.all(C >= 0)
    assert np.allclose(C.sum(axis=1), 1)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(1e-9, 0.3))
def test_certificate_bounds_the_distance_of_any_feasible_point(seed, push):
    """The row bound holds for points that are moved away from the optimum on purpose."""
    G, B, sigma = problem(seed)
    best = solve_rows(G, B)
    rng = np.random.default_rng(seed)
    moved = (1 - push) * best + push * rng.dirichlet(np.ones(6), len(B))
    bound = row_bounds(moved, B, G, known(B, G, sigma), np.zeros(len(B))).errors
    assert np.all(np.linalg.norm(moved - best, axis=1) <= bound + 1e-12)


def test_projection_is_the_nearest_point():
    """Projecting rows satisfies the variational inequality against random points of the simplex."""
    rng = np.random.default_rng(2)
    V = rng.normal(0, 1, (50, 5))
    P = project_rows(V)
    assert np.allclose(P.sum(axis=1), 1)
    assert P.min() >= 0
    for other in rng.dirichlet(np.ones(5), 200):
        assert np.einsum("ij,ij->i", V - P, other - P).max() < 1e-12
