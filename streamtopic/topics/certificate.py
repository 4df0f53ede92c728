"""How far the computed A can be from the exact one: a theorem about rounding, with no assumption on the corpus.

The counts, the weights D^2 and the sets of super-anchors are exact, and so is the model A* that they define. Everything
between those and the array A is covered here. docs/proof.md, "The certificate is a theorem", has the derivation:

    row_bounds       ||c_i - c_i*||_2 for every word, and the topics that provably have no part in a row
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
from streamtopic.counts.arrays import Float, Mask
from streamtopic.topics.reproducible import chunks, each_span, product

__all__ = ["UNIT", "Certificate", "Known", "RowBounds", "certify", "gamma", "outward", "row_bounds", "topic_columns"]

_T = TypeVar("_T", float, Float)

UNIT = 2.0**-53
"""The largest relative error of one operation, u."""

# Rows of one task, whose sums over words are kept apart: the bits of the sums do not depend on the number of threads.
_CHUNK = 1024
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
    """Bounds of rows, and their sums over words.

    errors: (n,) bounds e_i of ||c_i - c_i*||_2.
    from_products: (n,) the part of them that errors of B alone would make.
    first: (r,) sums of p_i e_i over the words that may have a part in a topic.
    second: (r,) sums of (p_i e_i)^2 over the same words.
    """

    errors: Float
    from_products: Float
    first: Float
    second: Float


def row_bounds(C: Float, B: Float, G: Float, known: Known, p: Float) -> RowBounds:
    """Bound every row's distance to its exact optimum.

    C: (n, r) the rows.
    B: (n, r) the linear part of each row's problem, as computed.
    G: (r, r) the quadratic part of all rows' problems, as computed.
    known: bounds on the errors of B and G.
    p: (n,) word masses.

    A row that is not a point of the simplex within a factor of two has the bound sqrt 2. A row with an entry that is
    negative or not a number has the bound infinity.
    Cost: n r times the topics of a support.
    """
    n, r = C.shape
    errors = np.empty(n)
    own = np.empty(n)
    spans = chunks(n, _CHUNK)
    firsts = np.zeros((len(spans), r))
    seconds = np.zeros((len(spans), r))
    given = known.relative, known.absolute, known.scale, known.gram, known.least
    reach = _reach(G, known.gram)
    same = C, B, np.ascontiguousarray(G), *given, reach, p, errors, own
    # Sums of its own for each chunk, so that they do not depend on the threads.
    parts = [(firsts[j], seconds[j], *span, *_memory(r)) for j, span in enumerate(spans)]
    each_span(_row_bounds, same, parts)
    first = outward(_column_sums(firsts), n + 8)
    second = outward(_column_sums(seconds), n + 16)
    return RowBounds(errors, own, first, second)


def _memory(r: int) -> tuple[Float, Float, Float, Float, Mask]:
    """Return what `_row_bounds` writes to on its way: product, gradient, doubt, doubt_B, possible."""
    product, gradient, doubt, doubt_B = np.empty(r), np.empty(r), np.empty(r), np.empty(r)
    possible = np.empty(r, np.bool_)
    return product, gradient, doubt, doubt_B, possible


def _reach(G: Float, relative: float) -> Float:
    """Bound the product of each row of G* with a difference of length 1 between two points of the simplex, (r,).

    relative: bound on the relative error of the entries of G.
    """
    # Entries of such a difference sum to 0, so the row's mean does not count.
    # G is symmetric to the bit, so its columns are its rows.
    means = _column_sums(G) / len(G)
    apart = G - means
    centred = np.sqrt(_column_sums(apart * apart))
    lengths = np.sqrt(_column_sums(G * G))
    lost = (relative + 8 * UNIT) * lengths
    return np.asarray(outward(centred + lost, len(G) + 16))


def _column_sums(values: Float) -> Float:
    """Return the sums of columns (n, k), (k,), in the order of rows."""
    ones = np.ones((1, len(values)))
    return np.asarray(product(ones, np.ascontiguousarray(values))[0])


def _length(values: Float) -> float:
    """Return the Euclidean length of a vector, whose sum of squares is rounded once."""
    return math.sqrt(math.fsum(values * values))


def certify(rows: RowBounds, p: Float, A: Float, z: Float) -> Certificate:
    """Map row bounds on C to a bound on ||A - A*||_F.

    rows: bounds of rows, made with p.
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
    columns_apart = _columns_apart(rows, lengths, masses)
    column_by_column = _length(columns_apart)
    all_at_once = _all_apart(rows.errors, p, lengths, masses)
    own_rounding = gamma(_COLUMN_ROUNDINGS) * _length(lengths)
    # Both are bounds. The first knows which words have a part in a topic, the second does not add up columns.
    apart = min(column_by_column, all_at_once)
    bound = outward(apart + own_rounding, r + 16)
    from_products = _all_apart(rows.from_products, p, lengths, masses)
    return Certificate(min(bound, worst), min(from_products, worst))


def _columns_apart(rows: RowBounds, lengths: Float, masses: Float) -> Float:
    """Bound the distance of each column of A from the exact one, (r,)."""
    left = masses - rows.first
    apart = np.sqrt(rows.second) + lengths * rows.first
    known = left > 0
    # A topic whose mass may be 0 can be anywhere on the simplex.
    bounds = apart / np.where(known, left, 1.0)
    return np.where(known, np.minimum(bounds, _APART), _APART)


def _all_apart(errors: Float, p: Float, lengths: Float, masses: Float) -> float:
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


@kernel
def _row_bounds(  # noqa: C901, PLR0912, PLR0915  one pass over a row; numba inlines no closures
    C: Float, B: Float, G: Float, relative: Float, absolute: Float, scale: Float, gram: float, least: float,
    reach: Float, p: Float, errors: Float, own: Float, first: Float, second: Float, start: int, stop: int,
    product: Float, gradient: Float, doubt: Float, doubt_B: Float, possible: Mask,
) -> None:  # fmt: skip
    """Set errors[i] and own[i] for rows start ... stop - 1, and add to the sums of their chunk.

    docs/proof.md derives each step.
    relative, absolute, scale, gram, least: as in Known.
    reach: (r,) as `_reach` gives it.
    errors, own: (n,) errors and from_products of RowBounds.
    first, second: (r,) sums of this chunk.
    product, gradient, doubt, doubt_B, possible: memory of this chunk, (r,), for what is known of a row's topics.
    """
    unit = 2.0**-53
    r = len(G)
    # Above the rounding of these very lines: no term goes through more than r + 40 operations.
    up = 1.0 + 2.0 * (r + 40.0) * unit
    for i in range(start, stop):
        size = 0
        total = 0.0
        worst = 1.4142135623730951
        for k in range(r):
            product[k] = 0.0
        for j in range(r):
            share = C[i, j]
            if share > 0.0:
                size += 1
                total += share
                for k in range(r):
                    product[k] += share * G[j, k]
            elif share != 0.0:
                worst = np.inf
        if worst == np.inf or not 0.5 <= total <= 2.0:
            # Only its signs are known: zeros and short rows are within sqrt 2 of every point of the simplex.
            errors[i] = worst if total < 0.5 else np.inf
            own[i] = 1.4142135623730951
            for k in range(r):
                first[k] += p[i] * errors[i]
                second[k] += (p[i] * errors[i]) ** 2
            continue
        # The row represents the point of the simplex in its direction, at most `off` away.
        off = (abs(total - 1.0) + size * unit * total) * up
        terms = size + 2.0
        twice = 1.0 + 2.0 * terms * unit + 2.0 * gram
        rounded = terms * unit
        drift = gram + off / total * up
        of_products = rounded / (1.0 - rounded) + drift * twice
        level = 0.0
        for k in range(r):
            slope = product[k] - B[i, k]
            gradient[k] = slope
            of_row = abs(B[i, k]) * relative[i]
            doubt_B[k] = of_row + absolute[i] * scale[k]
            of_product = product[k] * of_products
            doubt[k] = (of_product + doubt_B[k] + unit * abs(slope)) * up
            if C[i, k] > 0.0:
                level += gradient[k]
        level /= size
        residual = 0.0
        for k in range(r):
            above = gradient[k] - level
            # Off the support a gradient above the level is as it should be: only one below it counts.
            around = doubt[k]
            part = around + abs(above) if C[i, k] > 0.0 else max(0.0, around - above)
            residual += part * part
        error = 1.4142135623730951
        if least > 0.0:
            error = min(error, np.sqrt(residual) / least * up)
        # A topic whose gradient stays above that of another one, wherever the optimum is, has no part in it.
        low = 0
        margin = np.inf
        for k in range(r):
            here = (doubt[k] + reach[k] * error) * up
            if gradient[k] + here < margin:
                low = k
                margin = gradient[k] + here
        margin = (doubt[low] + reach[low] * error) * up
        count, a, b = 0, -1, -1
        for k in range(r):
            here = (doubt[k] + reach[k] * error) * up
            lead = gradient[k] - gradient[low]
            enough = (here + margin) * up
            possible[k] = C[i, k] > 0.0 or not lead > enough
            if possible[k]:
                count += 1
                a, b = b, k
        residual_B = 0.0
        for k in range(r):
            if possible[k]:
                residual_B += doubt_B[k] * doubt_B[k]
        mine = 1.4142135623730951
        if least > 0.0:
            mine = min(mine, np.sqrt(residual_B) / least * up)
        if count == 1:
            # The only possible topic is the row's own one: optimum and row are the same vertex.
            error, mine = 0.0, 0.0
        elif count == 2:
            # The optimum lies on one edge: curvature along it is known better than the least of all directions.
            squares = G[a, a] + G[b, b]
            twice_mixed = 2.0 * G[a, b]
            lost = (gram + 8 * unit) * up * (squares + twice_mixed)
            curve = (squares - twice_mixed) - lost
            if curve > 0.0:
                # As the step along the edge, (1, -1) t: its length is t sqrt 2.
                slope = gradient[a] - gradient[b]
                if C[i, a] > 0.0 and C[i, b] > 0.0:
                    slope = abs(slope)
                elif C[i, b] > 0.0:
                    slope = -slope
                of_slope = (doubt[a] + doubt[b]) * up
                slope = max(0.0, slope + of_slope)
                error = min(error, 1.4142135623730951 * slope / curve * up)
                of_edge = doubt_B[a] + doubt_B[b]
                mine = min(mine, 1.4142135623730951 * of_edge / curve * up)
        errors[i] = (error + off) * up
        own[i] = mine
        weighted = p[i] * errors[i]
        for k in range(r):
            if possible[k]:
                first[k] += weighted
                second[k] += weighted * weighted
