"""How far a computed A can be from the exact optimum: a bound from residuals, with no assumption on the corpus.

algorithms.md's section "Certificate": for feasible c with gradient g = G c - b, its mean lam on the support and the
residual of the optimality conditions res, ||c - c*|| <= (||res||_2 + sqrt(r) eta) / sigma_min(X diag(D))^2, by strong
convexity. eta bounds the rounding of g and what B and G carry themselves.
"""

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.topics.threads import each

__all__ = ["Certificate", "certify", "row_errors"]

Float = npt.NDArray[np.float64]
_UNIT = 2.0**-53
_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Certificate:
    """Bound on ||A - A*||_F, and the part of it that errors of B alone would make."""

    bound: float
    from_products: float


def row_errors(C: Float, B: Float, G: Float, B_error: Float, sigma_min: float) -> tuple[Float, Float]:
    """Bound ||c_i - c_i*||_2 for every row; also the part due to errors of B alone. Both (n,).

    C, B: (n, r); G: (r, r); B_error: (n,) bound on the absolute error of any entry of a row of B.
    Cost: n r times the words of a support.
    """
    r, squared = G.shape[0], sigma_min**2
    residual, magnitude = np.empty(len(C)), np.empty(len(C))
    edges = range(0, len(C), _CHUNK)
    each(_residuals, [(C, B, G, residual, magnitude, k, min(k + _CHUNK, len(C))) for k in edges])
    eta = 4 * _UNIT * np.sqrt(r) * magnitude + B_error
    errors = (residual + np.sqrt(r) * eta) / squared
    # Two points of the simplex are never farther apart than sqrt 2.
    return np.minimum(errors, np.sqrt(2.0)), np.minimum(np.sqrt(r) * B_error / squared, np.sqrt(2.0))


@numba.njit(cache=True, nogil=True)
def _residuals(C: Float, B: Float, G: Float, residual: Float, magnitude: Float, start: int, stop: int) -> None:
    """For rows start ... stop - 1: the norm of the projected gradient, and the largest |c G| + |b|.

    Counts are not negative, so neither are C, G and B: sizes of products are the products themselves.
    """
    r = len(G)
    product = np.empty(r)
    for i in range(start, stop):
        product[:] = 0.0
        size = 0
        for j in range(r):
            if C[i, j] > 0.0:
                size += 1
                for k in range(r):
                    product[k] += C[i, j] * G[j, k]
        level, largest = 0.0, 0.0
        for k in range(r):
            if C[i, k] > 0.0:
                level += product[k] - B[i, k]
            largest = max(largest, abs(product[k]) + abs(B[i, k]))
        level /= max(size, 1)
        total = 0.0
        for k in range(r):
            part = product[k] - B[i, k] - level
            if C[i, k] > 0.0 or part < 0.0:
                total += part * part
        residual[i] = np.sqrt(total)
        magnitude[i] = largest


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
