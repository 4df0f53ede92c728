"""How far the computed A can be from the exact one: a theorem about rounding, with no assumption on the corpus.

The counts, the weights D^2 and the sets of super-anchors are exact, and so is the model A* that they define. Everything
between those and the array A is covered here. docs/proof.md, "The certificate is a theorem", has the derivation:

    row_bounds       ||c_i - c_i*||_2 for every word
    certify          the same for A: errors of rows, weighted by masses, over the masses of topics
    topic_columns    A itself, with sums that lose two units whatever the number of words

The bounds do not ask how C was found: they cover any nonnegative row, also one that is not the optimum.

All bounds rest on IEEE 754 double precision, round to nearest. One operation gives the exact result times 1 + delta,
|delta| <= u = 2^-53. After k operations on the way of a term its factor is 1 + theta, |theta| <= gamma(k) =
k u / (1 - k u), whatever the order of a sum (Higham 2002, lemma 3.1). A fused multiply-add only leaves one of them out.

The bound decides whether a model may be published, so it has the same bits on every machine: sums are made in the order
of the program text or rounded once (math.fsum), never by a library for linear algebra.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from streamtopic.compiled import kernel
from streamtopic.counts.arrays import Float
from streamtopic.topics.reproducible import product

__all__ = ["UNIT", "Certificate", "Known", "RowBounds", "certify", "gamma", "outward", "row_bounds", "topic_columns"]

_T = TypeVar("_T", float, Float)

UNIT = 2.0**-53
"""The largest relative error of one operation, u."""

# Two points of the simplex are never farther apart; the double is above the exact root.
_APART = float(np.sqrt(2.0))

# Roundings of p: two integers become doubles, one division.
_MASS_ROUNDINGS = 3
# Roundings of an entry of A: p, its product with C, the sum of those products over words (three units), one division.
_COLUMN_ROUNDINGS = 12
# Roundings of a topic's mass.
_SUM_ROUNDINGS = _MASS_ROUNDINGS + 4


def gamma(roundings: _T) -> _T:
    """Return an upper bound of k u / (1 - k u). roundings: k below 2^40, or an array of such numbers."""
    share = roundings * UNIT
    # This line rounds three times itself, which the last factor covers.
    return share / (1.0 - share) * (1.0 + 8 * UNIT)


def outward(computed: _T, roundings: _T | float) -> _T:
    """Return an upper bound of the exact value of a number that was computed without subtraction.

    computed: the number, or an array of them.
    roundings: k below 2^40: the most operations on the way of a term.
    """
    # Every factor was at least 1 - u, so the exact value is at most (1 - u)^-k times the computed one.
    return computed * (1.0 + 2.0 * (roundings + 2.0) * UNIT)


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far A can be from the exact one.

    bound: of ||A - A*||_F.
    from_products: the part of it that errors of the products Q D^2 N^T alone would make.
    """

    bound: float
    from_products: float


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Bounds on the exact B* and G*, given the computed B (n, r) and G (r, r). No number of B, G, B*, G* is negative.

    relative: (n,) the error of a row of B that is proportional to its entries.
    absolute: (n,) the other error of a row, in units of `scale`.
    scale: (r,) the unit of each column: |B - B*|_ik <= relative_i |B_ik| + absolute_i scale_k.
    gram: |G - G*| <= gram G, entry by entry.
    least: lower bound of the least eigenvalue of G*, 0 if no better bound is known.
    """

    relative: Float
    absolute: Float
    scale: Float
    gram: float
    least: float


@dataclass(frozen=True, slots=True, eq=False)
class RowBounds:
    """Bounds of rows.

    errors: (n,) bounds e_i of ||c_i - c_i*||_2.
    from_products: (n,) the part of them that errors of B alone would make.
    """

    errors: Float
    from_products: Float


@np.errstate(all="ignore")
def row_bounds(C: Float, B: Float, G: Float, known: Known) -> RowBounds:
    """Bound every row's distance to its exact optimum. docs/proof.md derives each step.

    C: (n, r) the rows.
    B: (n, r) the linear part of each row's problem, as computed.
    G: (r, r) the quadratic part of all rows' problems, as computed.
    known: bounds on the errors of B and G.

    A row of sum below 1/2 has the bound sqrt 2. One of sum above 2, or with an entry that is negative or not a number,
    has the bound infinity.
    Cost: n r^2.
    """
    # Above the rounding of these very lines: no term goes through more than r + 40 operations.
    up = 1.0 + 2.0 * (len(G) + 40.0) * UNIT
    held = C > 0.0
    size = np.count_nonzero(held, axis=1)
    total = _row_sums(C)
    # The row represents the point of the simplex in its direction, at most `off` away.
    off = (np.abs(total - 1.0) + size * UNIT * total) * up
    rounded = (size + 2.0) * UNIT
    drift = known.gram + off / total * up
    of_products = rounded / (1.0 - rounded) + drift * (1.0 + 2.0 * rounded + 2.0 * known.gram)
    met = product(C, np.ascontiguousarray(G))
    gradient = met - B
    doubt_B = np.abs(B) * known.relative[:, None] + known.absolute[:, None] * known.scale
    doubt = (met * of_products[:, None] + doubt_B + UNIT * np.abs(gradient)) * up
    level = _row_sums(np.where(held, gradient, 0.0)) / size
    above = gradient - level[:, None]
    # Off the support a gradient above the level is as it should be: only one below it counts.
    residual = np.where(held, doubt + np.abs(above), np.maximum(0.0, doubt - above))
    errors = (_distances(residual, known.least, up) + off) * up
    from_products = _distances(doubt_B, known.least, up)
    # Only the signs of other rows are known: those that are short are within sqrt 2 of every point of the simplex.
    positive = (C >= 0.0).all(axis=1)
    otherwise = np.where(positive & (total < 0.5), _APART, np.inf)
    is_row = positive & (total >= 0.5) & (total <= 2.0)
    return RowBounds(np.where(is_row, errors, otherwise), np.where(is_row, from_products, _APART))


def _distances(residual: Float, least: float, up: float) -> Float:
    """Return how far rows with these residuals (n, r) can be from their optima, (n,). least: as in Known."""
    if not least > 0.0:
        return np.full(len(residual), _APART)
    lengths = np.sqrt(_row_sums(residual * residual))
    return np.minimum(lengths / least * up, _APART)


def _row_sums(values: Float) -> Float:
    """Return the sums of rows (n, k), (n,), in the order of columns."""
    return np.asarray(product(values, np.ones((values.shape[1], 1)))[:, 0])


def _column_sums(values: Float) -> Float:
    """Return the sums of columns (n, k), (k,), in the order of rows."""
    ones = np.ones((1, len(values)))
    return np.asarray(product(ones, np.ascontiguousarray(values))[0])


def _length(values: Float) -> float:
    """Return the Euclidean length of a vector, whose sum of squares is rounded once."""
    return math.sqrt(math.fsum(values * values))


def certify(rows: RowBounds, p: Float, A: Float, z: Float) -> Certificate:
    """Map row bounds on C to a bound on ||A - A*||_F.

    rows: bounds of rows.
    p: (n,) word masses.
    A: (n, r) columns, as `topic_columns` returns them.
    z: (r,) topic masses, as `topic_columns` returns them.

    The bound is infinite if an entry of A or the bound of a row is not finite.
    """
    n, r = A.shape
    if not np.isfinite(A).all() or not np.isfinite(rows.errors).all():
        return Certificate(float("inf"), float("inf"))
    # Two matrices with columns on the simplex are never farther apart than sqrt(2 r).
    worst = outward(math.sqrt(2.0 * r), n + 8)
    lengths = outward(np.sqrt(_column_sums(A * A)), n + _COLUMN_ROUNDINGS)
    masses = z * (1.0 - 2 * _SUM_ROUNDINGS * UNIT)
    apart = _distance(rows.errors, p, lengths, masses)
    own_rounding = gamma(_COLUMN_ROUNDINGS) * _length(lengths)
    bound = outward(apart + own_rounding, r + 16)
    from_products = _distance(rows.from_products, p, lengths, masses)
    return Certificate(min(bound, worst), min(from_products, worst))


def _distance(errors: Float, p: Float, lengths: Float, masses: Float) -> float:
    """Bound ||A - A*||_F from bounds of rows: infinite if a topic may have lost all its mass."""
    weighted = p * errors
    first = outward(math.fsum(weighted), 8)
    second = outward(_length(weighted), 16)
    left = float(masses.min()) - first
    # Also if it is not a number.
    if not left > 0:
        return float("inf")
    apart = second + float(lengths.max()) * first
    return apart / left * (1.0 + 16 * UNIT)


def topic_columns(C: Float, p: Float) -> tuple[Float, Float]:
    """Return A = diag(p) C diag(z)^-1 (n, r) and z = C^T p (r,), in the order of words.

    Sums carry their rounding along (Ogita, Rump and Oishi 2005, Sum2), so that no entry of z or A is more than a few
    units off, and the bits do not depend on a library.
    """
    A = np.empty(C.shape)
    z = np.zeros(C.shape[1])
    _joint(C, p, A, z, np.zeros(len(z)))
    A /= z
    return A, z


@kernel
def _joint(C: Float, p: Float, out: Float, z: Float, lost: Float) -> None:
    """Write diag(p) C to `out` (n, r), and its column sums to `z` (r,). lost: (r,) zeros."""
    for i in range(len(p)):
        for k in range(len(z)):
            value = C[i, k] * p[i]
            out[i, k] = value
            total = z[k] + value
            part = total - z[k]
            # The exact rounding error of that addition (TwoSum). A compiler that reorders it would make it 0.
            lost[k] += (z[k] - (total - part)) + (value - part)
            z[k] = total
    for k in range(len(z)):
        z[k] += lost[k]
