"""The certificate against the exact model: never below the true error, on problems that are hard on purpose.

More than 2,000 problems, 200 of each kind, in about two minutes: `ORACLE_SEEDS=200 pytest tests/topics/test_oracle.py`.
"""

import os
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from dense_counts import dense_counts
from exact_model import UNIT, distance, exact_products
from exact_problems import KINDS, problem
from flint import arb, fmpq, fmpq_mat

from streamtopic.errors import CannotLearn
from streamtopic.topics.certificate import gamma, outward
from streamtopic.topics.mixtures import gram, gram_roundings, least_eigenvalue
from streamtopic.topics.products import times
from streamtopic.topics.reproducible import cholesky
from streamtopic.topics.simplex import solve_rows

FEW = 14
SEEDS = int(os.environ.get("ORACLE_SEEDS", str(FEW)))


@cache
def judged(kind):
    """Return for each seed that gives a problem: bound over true error, and whether the bound is one."""
    found = []
    for seed in range(SEEDS):
        fit = problem(kind, seed)
        if fit is None:
            continue
        error = distance(fit)
        assert error.is_finite()
        bound = fit.certificate.bound
        # A few units of A are all that any computation may hope for.
        least = max(float(error.mid()), 4 * UNIT * float(np.linalg.norm(fit.A)))
        found.append((bound / least, bool(arb(bound) >= error)))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_certificate_is_never_below_the_true_error(kind):
    """In exact arithmetic ||A - A*||_F is at most the bound, for each kind of problem."""
    found = judged(kind)
    assert len(found) >= SEEDS // 3
    assert all(holds for _, holds in found)


def test_the_certificate_is_near_the_true_error():
    """A bound that says nothing would pass the test above; half of all bounds are within 1,000 times the true error."""
    assert np.median([ratio for kind in KINDS for ratio, _ in judged(kind)]) <= 1000


def test_a_live_row_of_zeros_is_certified_as_nothing():
    """The bound of a row that no solver has seen is sqrt 2, whatever its gradient."""
    fit = problem("planted", 0)
    last = fit.mixtures
    last.C = last.C.copy()
    last.C[-1] = 0.0
    bounds = last.bounds(fit.mass)
    assert bounds.errors[-1] == bounds.from_products[-1] == np.sqrt(2.0)
    assert bounds.errors[:-1].max() < 1e-6
    assert fit.certificate.bound > 1e-3


@pytest.mark.parametrize("wrong", [-1e-20, np.nan, 3.0])
def test_a_row_that_is_no_distribution_has_no_bound(wrong):
    """A negative entry, one that is not a number, or a sum far from 1 gives an infinite bound, not a small one."""
    fit = problem("planted", 1)
    last = fit.mixtures
    last.C = last.C.copy()
    last.C[2, 0] = wrong
    assert last.bounds(fit.mass).errors[2] == np.inf
    assert fit.certificate.bound == np.inf


@pytest.mark.parametrize("kind", ["learned", "updated", "giant", "masses"])
def test_products_are_within_their_errors(kind):
    """Each entry of W is within relative |W| + error of the exact product, after any number of updates."""
    for seed in range(FEW):
        fit = problem(kind, seed)
        if fit is None:
            continue
        part = fit.mixtures
        for i, row in zip(np.flatnonzero(fit.mass), exact_products(fit, part), strict=True):
            for computed, value in zip(part.product[i].tolist(), row, strict=True):
                bound = Fraction(float(part.relative[i])) * abs(Fraction(computed)) + Fraction(float(part.error[i]))
                assert abs(Fraction(computed) - value) <= bound


def test_the_gram_matrix_is_within_its_roundings():
    """Each entry of G is within gamma(roundings) G of the exact one."""
    rng = np.random.default_rng(0)
    N, squares = rng.integers(0, 2**52, (3, 700)), np.exp2(rng.integers(0, 30, 700) / 4)
    thin = np.ascontiguousarray((N * squares).T)
    G, _ = gram(N, thin)
    mass, relative = [sum(row) for row in N.tolist()], Fraction(float(gamma(gram_roundings(700))))
    weights = [Fraction(float(x)) for x in squares]
    for k in range(3):
        for j in range(3):
            terms = zip(N[k].tolist(), N[j].tolist(), weights, strict=True)
            exact = sum(a * b * w for a, b, w in terms) / mass[k] / mass[j]
            assert abs(Fraction(float(G[k, j])) - exact) <= relative * Fraction(float(G[k, j]))


@pytest.mark.parametrize("seed", range(30))
def test_least_eigenvalues_are_bounded_from_below(seed):
    """The exact matrix less the bound is positive definite: every leading minor is positive, in rationals."""
    rng = np.random.default_rng(seed)
    r = int(rng.integers(1, 7))
    X = rng.random((r, r + 3)) * 10.0 ** rng.uniform(-3, 3, (r, 1))
    if seed % 3 == 0 and r > 1:
        X[1] = X[0] + 10.0 ** rng.uniform(-7, -1) * X[1]
    G = X @ X.T
    G = (G + G.T) / 2
    relative = 10.0 ** rng.uniform(-16, -12)
    bound = least_eigenvalue(G, relative)
    smallest = float(np.linalg.eigvalsh(G)[0])
    assert bound <= smallest + 1e-12 * float(G.max())
    assert bound > 0.9 * smallest or smallest < 1e3 * (r * UNIT + relative) * float(G.sum())
    if bound > 0:
        # The worst change that is allowed takes `relative` times the norm; the bound must hold for any below that.
        off = rng.choice([-1, 1], (r, r)) * relative
        changed = [[_rational(G[max(i, j), min(i, j)], off[max(i, j), min(i, j)]) for j in range(r)] for i in range(r)]
        for i in range(r):
            changed[i][i] -= Fraction(bound)
        for size in range(1, r + 1):
            assert _determinant([row[:size] for row in changed[:size]]) > 0


def _rational(value, relative):
    return Fraction(float(value)) * (1 + Fraction(float(relative)))


def _determinant(rows):
    entries = [fmpq(x.numerator, x.denominator) for row in rows for x in row]
    return fmpq_mat(len(rows), len(rows), entries).det()


def test_dependent_anchors_are_refused():
    """Rows that are multiples of each other, or one the sum of two others, span too few directions."""
    rows = np.random.default_rng(0).integers(1, 1000, (2, 30))
    for N in (np.vstack([rows, 3 * rows[:1]]), np.vstack([rows, rows.sum(axis=0)])):
        with pytest.raises(CannotLearn, match="too much alike"):
            gram(N, np.ascontiguousarray(N.T.astype(float)))


def test_multiplying_and_adding_are_two_roundings():
    """No kernel fuses them: a fused sum would round up here, two operations round down."""
    # 2^54 + 2^28 + 1 loses its 1; with 1.5 it would be past the middle of the next double.
    a = 2**27 + 1
    q = dense_counts(np.array([[1, a], [a, 0]]))
    thin = np.array([[1.5], [float(a)]])
    assert times(q, thin)[0, 0] == 2.0**54 + 2.0**28
    # A pivot that is 0 after rounding the square, and would be above 0 if the square went in exactly.
    edge = 1 + 3 * 2.0**-28
    assert Fraction(edge * edge) > Fraction(edge) ** 2
    assert cholesky(np.array([[1.0, edge], [edge, edge * edge]]))[1] == 1


def test_outward_rounding_is_outward():
    """A sum of many terms stays below its computed value after the factor, and gamma is above k u / (1 - k u)."""
    terms = np.random.default_rng(0).random(1000)
    total = 0.0
    for x in terms:
        total += x
    assert sum(Fraction(float(x)) for x in terms) <= Fraction(outward(total, 1000))
    for k in (1.0, 3.0, 1e4, 1e9):
        u = Fraction(UNIT)
        assert Fraction(k) * u / (1 - Fraction(k) * u) <= Fraction(gamma(k))


def hard_rows(seed):
    """Return a G that is nearly or exactly singular, or scaled over many decades, and rows B near and far."""
    rng = np.random.default_rng(seed)
    r = int(rng.integers(2, 9))
    X = rng.random((r, 12)) * 10.0 ** rng.uniform(-4, 4, (r, 1)) ** (seed % 2)
    way = seed % 4
    if way == 1:
        X[1] = X[0] * (1 + 10.0 ** rng.uniform(-17, -6, 12))
    elif way == 2:
        X[-1] = X[0]
    G = X @ X.T
    targets = rng.dirichlet(np.full(r, 0.3), 60) @ X
    return (G + G.T) / 2, (targets + rng.normal(0, 10.0 ** rng.uniform(-18, 1), targets.shape)) @ X.T


@pytest.mark.parametrize("seed", range(24))
def test_every_row_is_a_point_of_the_simplex(seed):
    """Whatever G and the start are, rows are nonnegative and sum to 1 within a few units."""
    G, B = hard_rows(seed)
    rng = np.random.default_rng(seed)
    starts = [None, np.zeros(B.shape), rng.random(B.shape), np.full(B.shape, 1e-300), np.full(B.shape, 1e300)]
    for start in starts:
        C = solve_rows(G, B, start)
        assert (C >= 0).all()
        assert np.abs(C.sum(axis=1) - 1).max() <= 2 * len(G) * UNIT


@pytest.mark.parametrize("seed", range(8))
def test_rows_do_not_depend_on_their_neighbours(seed):
    """A row's answer is the same bits alone, among others, and in another chunk; nothing is left of the row before."""
    G, B = hard_rows(seed)
    many = np.tile(B, (40, 1))
    whole = solve_rows(G, many)
    alone = np.vstack([solve_rows(G, B[k : k + 1]) for k in range(len(B))])
    assert whole.tobytes() == np.tile(alone, (40, 1)).tobytes()
