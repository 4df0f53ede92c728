"""One round of recovery: every word as a mixture of the anchor rows."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.certificate import row_errors
from streamtopic.topics.products import BLOCK, times
from streamtopic.topics.simplex import solve_rows
from streamtopic.topics.threads import one_thread

__all__ = ["Round"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
_UNIT = 2.0**-53


@dataclass(slots=True, eq=False)
class Round:
    """C = argmin over the simplex of ||(Qbar_i - c^T X) diag(D)||, and what is needed to change it cheaply.

    anchor_counts: N (r, n) integers, X = N / anchor_mass; anchor_mass: (r,) integers; thin: V = D^2 N^T (n, r);
    product: W = Q V (n, r), so B = W / (row mass * anchor mass); error: (n,) bound on the absolute error of W's rows;
    G (r, r); C (n, r), zero for words without mass; sigma_min: least singular value of X diag(D).
    """

    anchor_counts: Int64
    anchor_mass: Int64
    thin: Float
    product: Float
    error: Float
    G: Float
    C: Float
    sigma_min: float

    @classmethod
    def cold(
        cls, q: SymmetricCounts, mass: Int64, squares: Float, anchor_counts: Int64, start: Float | None
    ) -> "Round":
        """Solve from counts. mass: (n,) row sums; squares: (n,) D^2; anchor_counts: (r, n)."""
        thin = np.ascontiguousarray((anchor_counts * squares).T)
        product = times(q, thin)
        error = product_error(np.diff(q.indptr), product, q.n)
        G, sigma = gram(anchor_counts, thin, squares)
        made = cls(anchor_counts, anchor_counts.sum(axis=1), thin, product, error, G, product, sigma)
        made.solve(mass, start)
        return made

    def copied(self) -> "Round":
        """Return the round with copies of the arrays that an update changes in place."""
        return replace(self, anchor_counts=self.anchor_counts.copy(), thin=self.thin.copy())

    def solve(self, mass: Int64, start: Float | None) -> None:
        """Set C from the products, trying the supports of `start` first."""
        live = mass > 0
        if live.all():
            self.C = solve_rows(self.G, self.B(mass), start)
            return
        rows = np.flatnonzero(live)
        C = np.zeros_like(self.product)
        C[rows] = solve_rows(self.G, self.B(mass, rows), None if start is None else np.ascontiguousarray(start[rows]))
        self.C = C

    def B(self, mass: Int64, rows: npt.NDArray[np.intp] | None = None) -> Float:
        """Return B = Qbar D^2 X^T, (n, r), or only some rows of it."""
        product = self.product if rows is None else self.product[rows]
        own = np.maximum(mass if rows is None else mass[rows], 1)[:, None]
        return np.asarray(product / own / self.anchor_mass)

    def errors(self, mass: Int64, rows: npt.NDArray[np.intp] | None = None) -> tuple[Float, Float]:
        """Bound each row's distance to its optimum, (n,), and the part of it due to the products; or some rows'."""
        chosen = slice(None) if rows is None else rows
        own_mass = mass[chosen]
        scale = 1.0 / np.maximum(own_mass, 1) / float(self.anchor_mass.min())
        error = self.error[chosen] * scale
        total, own = row_errors(self.C[chosen], self.B(mass, rows), self.G, error, self.sigma_min)
        live = own_mass > 0
        return np.where(live, total, 0.0), np.where(live, own, 0.0)


def gram(anchor_counts: Int64, thin: Float, squares: Float) -> tuple[Float, float]:
    """Return G = X D^2 X^T (r, r), symmetric to the bit, and the least singular value of X diag(D)."""
    mass = anchor_counts.sum(axis=1)
    if not mass.all():
        raise CannotLearn("anchor mass", "an anchor word has no co-occurrence left: retrain from counts")
    with one_thread():
        G = (anchor_counts.astype(float) @ thin) / mass[:, None] / mass
        G = (G + G.T) / 2
        sigma = _least_singular_value(G, anchor_counts, mass, squares)
    if not sigma > 1e-12 * float(np.sqrt(G.diagonal().max())):
        raise CannotLearn("rank", "the anchor rows depend on each other: ask fewer topics")
    return G, sigma


def _least_singular_value(G: Float, anchor_counts: Int64, mass: Int64, squares: Float) -> float:
    """Return a lower bound of the least singular value of X diag(D), within a thousandth where that can be had.

    From the least eigenvalue of G less all rounding that G may carry; only where that takes a noticeable part of it,
    from X itself.
    """
    least = float(np.linalg.eigvalsh(G)[0])
    slack = (anchor_counts.shape[1] + 10 * len(G)) * _UNIT * float(np.trace(G))
    if least > 1000 * slack:
        return float(np.sqrt(least - slack))
    X = (anchor_counts * np.sqrt(squares)) / mass[:, None]
    return float(np.linalg.svd(np.linalg.qr(X.T, mode="r"), compute_uv=False)[-1])


def product_error(terms: Int64, product: Float, n: int) -> Float:
    """Bound the rounding of rows of W = Q V, (rows,), from their numbers of terms and the n words that these are among.

    Terms are not negative, so the error is at most the roundings of one sum, times u, of the largest entry.
    """
    roundings = np.minimum(terms, BLOCK) + np.minimum(terms, n / BLOCK + 1) + 4
    return np.asarray(roundings * _UNIT * np.abs(product).max(axis=1))
