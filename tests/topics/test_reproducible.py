"""Linear algebra in a fixed order: right, the same everywhere, and refused where the machine computes otherwise."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

from streamtopic.errors import UnreliableArithmetic
from streamtopic.topics import reproducible
from streamtopic.topics.reproducible import (
    check_arithmetic,
    cholesky,
    known_answers,
    leading_pairs,
    product,
)

STEPS = 1000


def rounded(value):
    """Return the double nearest to a fraction: Python divides integers with one rounding."""
    return value.numerator / value.denominator


def add(a, b):
    """Return the double nearest to a sum."""
    return rounded(Fraction(a) + Fraction(b))


def multiply(a, b):
    """Return the double nearest to a product."""
    return rounded(Fraction(a) * Fraction(b))


def root(a):
    """Return the double nearest to a square root, from 200 binary digits and a mark where more follow."""
    shifted, left = divmod(Fraction(a).numerator << 400, Fraction(a).denominator)
    whole = isqrt(shifted)
    return rounded(Fraction(2 * whole + (left > 0 or whole * whole != shifted), 2 << 200))


def by_fractions():
    """Return what `known_answers` is to return, every operation done exactly and rounded once."""
    values, x = [], 0.1
    for _ in range(STEPS):
        u = multiply(multiply(3.9375, x), add(1.0, -x))
        x = multiply(root(u), rounded(Fraction(u) / Fraction(root(u))))
        values.append(x)
    total, lanes, beside = 0.0, [0.0] * 16, 0.0
    for k in range(STEPS):
        total = add(total, multiply(values[k], values[STEPS - 1 - k]))
    for k in range(STEPS - 16):
        lanes = [add(lane, multiply(values[k], values[k + t])) for t, lane in enumerate(lanes)]
    for t, lane in enumerate(lanes):
        beside = add(beside, rounded(Fraction(lane) / (t + 1)))
    below = multiply(2.0**-520, multiply(2.0**-520, 1 + 2.0**-30))
    return [x, total, beside, 0.0, below, 2.0**53 + 4]


def test_the_answers_are_those_of_ieee_arithmetic():
    """Fractions rounded after each operation give the same bits as the compiled kernel, and so does the table."""
    expected = tuple(value.hex() for value in by_fractions())
    assert expected == reproducible._ANSWERS
    assert expected == tuple(float(value).hex() for value in known_answers(STEPS))
    check_arithmetic()


@pytest.mark.parametrize("place", range(6))
def test_one_answer_with_another_bit_is_an_error(monkeypatch, place):
    """Whichever answer differs, nothing is decided, and the error says what to do."""
    answers = known_answers(STEPS)
    answers[place] = np.nextafter(answers[place], np.inf)
    monkeypatch.setattr(reproducible, "known_answers", lambda _: answers)
    with pytest.raises(UnreliableArithmetic, match=r"1 of 6 answers.*run "):
        check_arithmetic()


def test_sums_run_in_order():
    """An entry is the sum of its terms from the first to the last, bit for bit."""
    rng = np.random.default_rng(1)
    E = rng.random((3, 999))
    total = 0.0
    for a, b in zip(E[1].tolist(), E[2].tolist(), strict=True):
        total += a * b
    assert product(E, np.ascontiguousarray(E.T))[1, 2] == total


def planted(values, seed=0):
    """Return a symmetric matrix with these eigenvalues."""
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    H = (basis * np.asarray(values, float)) @ basis.T
    return (H + H.T) / 2


def drawn_matrix(kind, seed):
    """Return a symmetric matrix of some kind that is hard for an eigensolver."""
    rng = np.random.default_rng([seed, *kind.encode()])
    k = int(rng.integers(1, 40))
    if kind == "random":
        H = rng.standard_normal((k, k))
        return H + H.T
    if kind == "equal values":
        return planted(rng.integers(-2, 3, k), seed)
    if kind == "low rank":
        rows = rng.standard_normal((k, max(1, k // 4)))
        return rows @ rows.T
    if kind == "blocks":
        H = np.zeros((k, k))
        H[: k // 2, : k // 2] = planted(rng.random(k // 2), seed)
        H[k // 2 :, k // 2 :] = planted(rng.random(k - k // 2), seed + 1)
        return H
    if kind == "all sizes":
        return planted(2.0 ** rng.integers(-60, 20, k), seed)
    return np.diag(rng.standard_normal(k)) if kind == "diagonal" else np.zeros((k, k))


KINDS = ["random", "equal values", "low rank", "blocks", "diagonal", "all sizes", "zero"]


@pytest.mark.parametrize("kind", KINDS)
def test_leading_pairs_are_eigenpairs(kind):
    """Values are numpy's, descending; vectors are orthonormal and solve the equation, to rounding of the largest."""
    for seed in range(40):
        H = drawn_matrix(kind, seed)
        k = len(H)
        wanted = int(np.random.default_rng(seed).integers(1, k + 1))
        before = H.copy()
        values, vectors = leading_pairs(H, wanted)
        expected = np.linalg.eigvalsh(H)[::-1]
        near = 1e-13 * max(k, 10) * max(np.abs(expected).max(), 1e-300)
        assert (values.shape, vectors.shape) == ((wanted,), (k, wanted))
        assert np.array_equal(H, before)
        assert (np.diff(values) <= 0).all()
        assert np.abs(values - expected[:wanted]).max() <= near
        assert np.abs(H @ vectors - vectors * values).max() <= near
        assert np.abs(vectors.T @ vectors - np.eye(wanted)).max() <= 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_leading_pairs_have_the_bits_of_the_operations_as_written(kind):
    """The compiled kernel gives the bits of the same operations done one by one by the interpreter."""
    matrices = [drawn_matrix(kind, seed)[:12, :12] for seed in range(3)]
    compiled = [leading_pairs(H, len(H)) for H in matrices]
    for H, (values, vectors) in zip(matrices, compiled, strict=True):
        reduced, rows = H.copy(), np.eye(len(H))
        found, beside = reproducible._tridiagonal(reduced, rows)
        reproducible._tridiagonal_values.py_func(found, beside, rows)
        order = np.argsort(-found, kind="stable")
        assert found[order].tobytes() == values.tobytes()
        assert np.ascontiguousarray(rows[order].T).tobytes() == vectors.tobytes()


@pytest.mark.parametrize(("matrix", "pivots"), [([[0.0]], 0), ([[1.0, 1.0], [1.0, 1.0]], 1), ([[np.nan]], 0)])
def test_a_matrix_that_is_not_positive_definite_says_where(matrix, pivots):
    """The number of positive pivots is that of the rows that were factored; the others are 0."""
    L, found = cholesky(np.array(matrix))
    assert found == pivots
    assert not L[found:].any()
