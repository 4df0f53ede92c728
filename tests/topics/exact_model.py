"""The exact model of given counts, in rational arithmetic: what a certificate is held against.

Inputs are integers and the doubles D^2, which are exact by definition. With x = m c / s, for m the mass of a word and s
those of the anchors' rows, each row's problem has integer coefficients only: minimise x^T H x / 2 - w^T x over x >= 0
with s^T x = m, where H = N D^2 N^T and w is the word's row of Q D^2 N^T. A support is right if its equations have a
solution that is not negative and no other topic has a negative multiplier: that is checked in rationals, so where a
support comes from does not matter. Then A*_ik = x_ik / sum of x_ik over words.
"""

from fractions import Fraction
from itertools import combinations

import numpy as np
from flint import arb, ctx, fmpq, fmpz_mat

from packed import dense_of

__all__ = ["UNIT", "distance", "exact_products", "exact_rows"]

_BITS = 512
UNIT = 2.0**-53


def exact_rows(fit):
    """Return x* of each live word of a fit as lists of r rationals, from its counts, D^2 and summed anchors' rows."""
    last = fit.mixtures
    weights = _integers(fit.squares)
    N = [[int(v) for v in row] for row in last.anchor_counts]
    s = [sum(row) for row in N]
    thin = [[row[j] * weights[j] for row in N] for j in range(fit.q.n)]
    # Only columns with entries matter, and most tests have few words.
    H = fmpz_mat(N) * fmpz_mat(thin)
    assert H.det() != 0, "the exact anchors' rows depend on each other"
    supports = {}
    rows = []
    for i, row in enumerate(dense_of(fit.q).tolist()):
        w = [0] * len(N)
        for j, value in enumerate(row):
            if value:
                w = [total + value * factor for total, factor in zip(w, thin[j], strict=True)]
        first = tuple(np.flatnonzero(last.C[i] > 0).tolist())
        rows.append(_optimum(H, w, s, int(fit.mass[i]), first, supports))
    return rows


def distance(fit):
    """Return ||A - A*||_F of a fit as a ball that holds it."""
    ctx.prec = _BITS
    rows = exact_rows(fit)
    total = arb(0)
    for k in range(fit.A.shape[1]):
        column = [arb(row[k]) for row in rows]
        whole = sum(column, arb(0))
        for value, computed in zip(column, fit.A[:, k].tolist(), strict=True):
            difference = value / whole - arb(computed)
            # Not ** 2: a power of a ball that holds zero is not a number.
            total += difference * difference
    # Where A is exact, the ball around zero reaches below it, and its root would be no number.
    return total.nonnegative_part().sqrt()


def _integers(squares):
    """Return the doubles D^2 as integers in one unit."""
    ratios = [Fraction(float(x)) for x in squares]
    unit = max(x.denominator for x in ratios)
    return [int(x * unit) for x in ratios]


def _optimum(H, w, s, m, first, supports):
    """Return the exact minimiser of one row, trying the support `first` before all others."""
    r = len(s)
    if first and (found := _solved(H, w, s, m, first, supports)):
        return found
    for size in range(1, r + 1):
        for support in combinations(range(r), size):
            if found := _solved(H, w, s, m, support, supports):
                return found
    raise AssertionError("no support meets the conditions of optimality")


def _solved(H, w, s, m, support, supports):
    """Return x where the support is right, None where it is not. Both sides of the conditions are exact."""
    size = len(support)
    if support not in supports:
        border = [[int(H[j, k]) for k in support] + [-s[j]] for j in support]
        supports[support] = fmpz_mat([*border, [s[k] for k in support] + [0]])
    solution = supports[support].solve(fmpz_mat([[w[k]] for k in support] + [[m]]))
    x = [fmpq(0)] * len(s)
    for at, k in enumerate(support):
        x[k] = solution[at, 0]
    level = solution[size, 0]
    if any(value < 0 for value in x):
        return None
    for k in range(len(s)):
        if k not in support and sum((H[k, j] * x[j] for j in support), fmpq(0)) - w[k] < level * s[k]:
            return None
    return x


def exact_products(fit, part):
    """Return Q D^2 N^T of a round for the live words, rows of r fractions."""
    weights = [Fraction(float(x)) for x in fit.squares]
    made = []
    for row in dense_of(fit.q).tolist():
        terms = [(value * weights[j], j) for j, value in enumerate(row) if value]
        made.append(
            [sum((term * int(of_topic[j]) for term, j in terms), Fraction(0)) for of_topic in part.anchor_counts]
        )
    return made
