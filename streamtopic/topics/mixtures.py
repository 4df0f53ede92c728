"""Every word as a mixture of the rows that represent topics."""

import math
from dataclasses import dataclass

import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int64
from streamtopic.errors import CannotLearn, CountsOverflow
from streamtopic.topics.certificate import UNIT, Certificate, Known, RowBounds, certify, gamma, outward, row_bounds
from streamtopic.topics.learner_options import too_much_alike
from streamtopic.topics.products import product_roundings, times
from streamtopic.topics.reproducible import cholesky, chunks, product
from streamtopic.topics.simplex import solve_rows

__all__ = [
    "Mixtures",
    "carried_errors",
    "gram",
    "gram_roundings",
    "independent",
    "inner_products",
    "least_eigenvalue",
]

# Words whose terms are summed by themselves, so that rounding grows with 128 + n / 128 and not with n.
_BLOCK = 128
# A matrix nearer to singular than 2^-60 of its diagonal cannot be told from a singular one in doubles.
_HALVINGS = 60
# This comes within a two-thousandth of the best bound. One step more costs a factorisation.
_BISECTIONS = 11
# Roundings between a product W and B: two integers become doubles, and there are two divisions.
_B_ROUNDINGS = 4


@dataclass(slots=True, eq=False)
class Mixtures:
    """C = argmin over the simplex of ||(Qbar_i - c^T X) diag(D)||, and the products from which it is changed cheaply.

    anchor_counts: N (r, n) integers, X = N / anchor_mass.
    anchor_mass: (r,) integers, the row sums of N.
    thin: V = D^2 N^T (n, r).
    product: W = Q V (n, r), so B = W / (row mass * anchor mass).
    relative, error: (n,) bounds: the exact product of the exact V is within relative_i |W_ik| + error_i of W_ik.
    G: X D^2 X^T (r, r).
    C: (n, r).
    sigma_min: lower bound of the least singular value of X diag(D), 0 if no better bound can be proven.
    """

    anchor_counts: Int64
    anchor_mass: Int64
    thin: Float
    product: Float
    relative: Float
    error: Float
    G: Float
    C: Float
    sigma_min: float

    @classmethod
    def cold(
        cls, q: SymmetricCounts, mass: Int64, squares: Float, anchor_counts: Int64, start: Float | None
    ) -> "Mixtures":
        """Solve from counts.

        q: Q.
        mass: (n,) row sums of Q.
        squares: (n,) D^2.
        anchor_counts: (r, n) sums of the rows that represent each topic.
        start: (n, r) rows whose supports are tried first; None for none.
        Raises CannotLearn if an anchor has no mass or the anchors' rows depend on each other, CountsOverflow if
        sums leave 62 bits.
        """
        thin = np.ascontiguousarray((anchor_counts * squares).T)
        product = times(q, thin)
        terms = product_roundings(q.lengths, q.n)
        relative = gamma(terms)
        G, sigma = gram(anchor_counts, thin)
        made = cls(
            anchor_counts=anchor_counts,
            anchor_mass=anchor_counts.sum(axis=1),
            thin=thin,
            product=product,
            relative=relative,
            error=np.zeros(q.n),
            G=G,
            # Replaced by the solution in the next line.
            C=product,
            sigma_min=sigma,
        )
        made.solve(mass, start)
        return made

    def solve(self, mass: Int64, start: Float | None) -> None:
        """Set C from the products, trying the supports of `start` first."""
        self.C = solve_rows(self.G, self.B(mass), start)

    def B(self, mass: Int64) -> Float:
        """Return B = Qbar D^2 X^T, (n, r)."""
        return np.asarray(self.product / mass[:, None] / self.anchor_mass)

    def certificate(self, mass: Int64, p: Float, A: Float, z: Float) -> Certificate:
        """Bound the distance of A to the exact one.

        mass: (n,) row sums of Q.
        p: (n,) masses of words, sum 1.
        A: (n, r) columns, as `topic_columns` makes them of p and C.
        z: (r,) topic masses, from the same call.
        """
        return certify(self.bounds(mass), p, A, z)

    def bounds(self, mass: Int64) -> RowBounds:
        """Bound the rows of C, by bounds of the errors of B and G."""
        # The computed |B| is within its roundings of W over the masses, so one takes the place of the other.
        relative = self.relative + gamma(_B_ROUNDINGS)
        absolute = self.error / mass.astype(float)
        scale = 1.0 / self.anchor_mass.astype(float)
        # Below the square of the bound, whatever its own roundings.
        least = self.sigma_min**2 * (1.0 - 4 * UNIT)
        own_relative = outward(relative, 2 * _B_ROUNDINGS + 2)
        of_gram = gamma(gram_roundings(len(mass)))
        known = Known(
            relative=own_relative,
            absolute=outward(absolute, 4),
            scale=outward(scale, 4),
            gram=of_gram,
            least=least,
        )
        return row_bounds(self.C, self.B(mass), self.G, known)


def carried_errors(relative: Float, error: Float, roundings: Float, sizes: Float) -> tuple[Float, Float]:
    """Return `relative` and `error`, (n,) each, of W' = W + S, S = dQ V + Q' (V' - V) as `product_shift` sums it.

    relative, error: (n,) those of W.
    roundings: (n,) as `shift_roundings` gives them.
    sizes: (n,) for each row the sum of the sizes of its terms.
    """
    # W passes its relative error on to W' and, of the size of the change, to `error`. Adding S rounds once, at the size
    # of W'. V' and V are rounded twice each before they are compared, which Q' makes into at most 2 gamma(2) W' and
    # three times as much of the sizes.
    passed = outward(relative + 6 * UNIT, 4)
    added = (relative + gamma(roundings + 6.0)) * sizes
    return passed, outward(error + added, roundings + 16.0)


def gram(anchor_counts: Int64, thin: Float) -> tuple[Float, float]:
    """Return G = X D^2 X^T (r, r), symmetric to the bit, and a lower bound of the least singular value of X diag(D).

    anchor_counts: N (r, n).
    thin: V = D^2 N^T (n, r).
    Every entry of G is within `gamma(gram_roundings(n))` times itself of the exact one.
    Raises CannotLearn if an anchor has no mass, or if rows depend on each other as far as the sums can tell,
    CountsOverflow if a sum of N leaves 62 bits.
    """
    G = inner_products(anchor_counts, thin)
    if not independent(G):
        raise too_much_alike(len(G))
    least = least_eigenvalue(G, gamma(gram_roundings(len(thin))))
    return G, float(np.sqrt(least) * (1.0 - 4 * UNIT))


def inner_products(anchor_counts: Int64, thin: Float) -> Float:
    """Return G = X D^2 X^T (r, r) as `gram` does, of rows that may depend on each other."""
    mass = _masses(anchor_counts)
    if not mass.all():
        raise CannotLearn("anchor mass", "an anchor word has no co-occurrence left: retrain from counts")
    # Sums go in the order of the words that N has entries for, so the bits are a function of these alone, and a library
    # has no part in them.
    used = np.flatnonzero(anchor_counts.any(axis=0))
    whole = np.zeros((len(mass), len(mass)))
    for first, last in chunks(len(used), _BLOCK):
        block = used[first:last]
        whole += product(anchor_counts[:, block].astype(float), thin[block])
    lower = np.tril(whole / mass[:, None] / mass)
    # Of numbers that differ by rounding both triangles get the same one.
    return lower + np.tril(lower, -1).T


def independent(G: Float) -> bool:
    """Return whether rows with the inner products G (r, r) are independent as far as sums in doubles can tell."""
    r = len(G)
    _, pivots = cholesky(np.ascontiguousarray(G), least=4.0 * r * UNIT)
    return pivots == r


def _masses(anchor_counts: Int64) -> Int64:
    """Return exact row sums, (r,). Raises CountsOverflow if one leaves 62 bits."""
    mass = anchor_counts.sum(axis=1)
    # Entries are at most a word's mass, below 2^62, so a sum that wraps shows in its rounded value.
    rounded = anchor_counts @ np.ones(anchor_counts.shape[1])
    if rounded.max(initial=0.0) >= 2.0**62:
        raise CountsOverflow("an anchor's counts exceed 64 bits: too many documents for one model, split the corpus")
    return np.asarray(mass)


def gram_roundings(n: int) -> float:
    """Bound the roundings on the way of a term of G over n words.

    N becomes a double, V was rounded twice, their product once; sums of a block, then of blocks; two masses become
    doubles, two divisions.
    """
    blocks = -(-n // _BLOCK)
    return float(4 + min(n, _BLOCK) + blocks + 4)


def least_eigenvalue(G: Float, relative: float) -> float:
    """Return a lower bound of the least eigenvalue of every symmetric G* with |G* - G| <= relative G; 0 without one.

    G: (r, r) symmetric, entries not negative.
    Source: Higham 2002, theorem 10.3; Rump 2006. If a Cholesky factorisation of G - s I runs to its end in floating
    point, then the least eigenvalue of G is at least s less gamma(r + 1) / (1 - gamma(r + 1)) times the trace, for any
    s. The largest such s is searched for on a fixed grid by a fixed sequence of operations.
    """
    r = len(G)
    diagonal = G.diagonal()
    factor = gamma(r + 1.0)
    share = factor / (1.0 - factor)
    trace = math.fsum(diagonal)
    largest = float(diagonal.max())
    lost = share * trace + UNIT * largest
    # G is not negative, so |G* - G| has at most `relative` times its norm, which its row sums bound.
    norm = max(math.fsum(row) for row in G)
    slack = outward(lost + relative * norm, 2 * r + 16)
    high = float(diagonal.min())
    low = high / 2
    for _ in range(_HALVINGS):
        if low <= slack:
            return 0.0
        if cholesky(G, low)[1] == r:
            break
        high = low
        low = low / 2
    else:
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if cholesky(G, middle)[1] == r:
            low = middle
        else:
            high = middle
    return max(0.0, (low - slack) * (1.0 - 4 * UNIT))
