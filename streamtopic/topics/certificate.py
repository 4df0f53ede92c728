"""How far a computed A can be from the exact optimum: a bound from residuals, with no assumption on the corpus.

algorithms.md's section "Certificate": for feasible c with gradient g = G c - b, its mean lam on the support and the
residual of the optimality conditions res, ||c - c*|| <= (||res||_2 + sqrt(r) eta) / sigma_min(X diag(D))^2, by strong
convexity. eta bounds the rounding of g and what B and G carry themselves.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.topics.threads import one_thread

__all__ = ["Certificate", "certify", "row_errors"]

Float = npt.NDArray[np.float64]
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class Certificate:
    """Bound on ||A - A*||_F, and the part of it that errors of B alone would make."""

    bound: float
    from_products: float


def row_errors(C: Float, B: Float, G: Float, B_error: Float, sigma_min: float) -> tuple[Float, Float]:
    """Bound ||c_i - c_i*||_2 for every row; also the part due to errors of B alone. Both (n,).

    C, B: (n, r); G: (r, r); B_error: (n,) bound on the absolute error of any entry of a row of B.
    """
    r = G.shape[0]
    # Counts are not negative, so neither are C, G and B: sizes of products are the products themselves.
    with one_thread():
        product = C @ G
    gradient = product - B
    support = C > 0
    size = np.maximum(support.sum(axis=1), 1)
    level = np.where(support, gradient, 0.0).sum(axis=1) / size
    residual = gradient - level[:, None]
    residual = np.where(support, residual, np.minimum(residual, 0.0))
    magnitude = (np.abs(product) + np.abs(B)).max(axis=1)
    eta = 4 * _UNIT * np.sqrt(r) * magnitude + B_error
    squared = sigma_min**2
    errors = (np.linalg.norm(residual, axis=1) + np.sqrt(r) * eta) / squared
    # Two points of the simplex are never farther apart than sqrt 2.
    return np.minimum(errors, np.sqrt(2.0)), np.minimum(np.sqrt(r) * B_error / squared, np.sqrt(2.0))


def certify(errors: Float, from_products: Float, p: Float, A: Float, z: Float) -> Certificate:
    """Map row bounds on C to a bound on ||A - A*||_F.

    errors, from_products: (n,); p: (n,) word masses; A: (n, r); z: (r,) topic masses. At most sqrt(2 r), the largest
    distance of two matrices with columns on the simplex.
    """
    return Certificate(_mapped(errors, p, A, z), _mapped(from_products, p, A, z))


def _mapped(errors: Float, p: Float, A: Float, z: Float) -> float:
    worst = float(np.sqrt(2.0 * A.shape[1]))
    first = float(p @ errors)
    second = float(np.sqrt((p**2) @ (errors**2)))
    least = float(z.min())
    if not first < least:
        return worst
    largest = float(np.linalg.norm(A, axis=0).max())
    return min((second + largest * first) / (least - first), worst)
