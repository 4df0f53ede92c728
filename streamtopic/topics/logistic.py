"""Ridge-regularised logistic regression by Newton's method, to a bound on the distance to its optimum.

f = mean log(1 + exp(-s phi w)) + lambda/2 ||w||^2, s = 1 or -1 as the document is of the class or not. The loss is
lambda-strongly convex, so ||w - w*|| <= ||grad f|| / lambda: the certificate needs no constant of the data.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

__all__ = ["Solved", "gradient", "hessian", "loss", "minimise", "rounding", "rounding_bound"]

Float = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

_UNIT = 2.0**-53
_MOST_STEPS = 200
_LEAST_STEP = 2.0**-40
_BLOCK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """w (k,), the bound on ||grad|| with its rounding, and how many Newton steps it took."""

    w: Float
    gradient: float
    steps: int


def loss(phi: Float, member: Bool, ridge: float, w: Float) -> float:
    """Return f(w). phi (m, k), member (m,), w (k,)."""
    margin = np.where(member, 1.0, -1.0) * (phi @ w)
    costs = np.maximum(-margin, 0.0) + np.log1p(np.exp(-np.abs(margin)))
    return float(costs.mean() + ridge / 2 * (w @ w))


def gradient(phi: Float, member: Bool, ridge: float, w: Float) -> Float:
    """Return grad f(w), (k,): mean (sigma(phi w) - y) phi + lambda w."""
    residual = expit(phi @ w) - member
    # Summed in blocks, so that rounding grows with the size and the number of blocks and not with their product.
    total = np.zeros(phi.shape[1])
    for start in range(0, len(phi), _BLOCK):
        total += residual[start : start + _BLOCK] @ phi[start : start + _BLOCK]
    return np.asarray(total / len(phi) + ridge * w)


def hessian(phi: Float, ridge: float, w: Float) -> Float:
    """Return the second derivative of f at w, (k, k): mean sigma (1 - sigma) phi phi^T + lambda I. No labels in it."""
    share = expit(phi @ w)
    curvature = phi.T @ (phi * (share * (1 - share))[:, None]) / len(phi)
    return np.asarray(curvature + ridge * np.eye(phi.shape[1]))


def rounding(phi: Float, ridge: float, w: Float) -> float:
    """Bound the rounding of a computed gradient, phi itself taken as exact: at most u times terms times sizes."""
    m, k = phi.shape
    mean = float(np.linalg.norm(np.abs(phi).mean(axis=0)))
    return rounding_bound(m, k, mean, float(np.square(phi).sum()) / m, ridge, float(np.linalg.norm(w)))


def rounding_bound(m: int, k: int, mean: float, square: float, ridge: float, weights: float) -> float:
    """Bound the same from sizes: mean >= ||mean |phi|||, square >= mean ||phi||^2, weights >= ||w||."""
    terms = min(m, _BLOCK) + -(-m // _BLOCK) + 8
    return _UNIT * (terms * mean + (k + 8) * weights * square / 4 + 4 * ridge * weights)


def minimise(phi: Float, member: Bool, ridge: float, start: Float, goal: float) -> Solved:
    """Take Newton steps from `start` until the gradient's norm, with its rounding, is at most `goal`.

    A step is halved until it lowers the gradient's norm enough. That norm has no stationary point but the optimum, so
    this arrives from anywhere; the loss itself is too flat near the optimum to compare. Where rounding ends the
    descent above `goal`, the norm that was reached is returned.
    """
    w, steps = start.copy(), 0
    g = gradient(phi, member, ridge, w)
    while steps < _MOST_STEPS and float(np.linalg.norm(g)) + rounding(phi, ridge, w) > goal:
        try:
            direction = cho_solve(cho_factor(hessian(phi, ridge, w)), g)
        except LinAlgError:
            # A ridge that is lost in the rounding of phi^T phi leaves directions without curvature.
            break
        moved = _descended(phi, member, ridge, w, g, direction)
        if moved is None:
            break
        w, g = moved
        steps += 1
    return Solved(w, float(np.linalg.norm(g)) + rounding(phi, ridge, w), steps)


def _descended(
    phi: Float, member: Bool, ridge: float, w: Float, g: Float, direction: Float
) -> tuple[Float, Float] | None:
    norm, step = float(np.linalg.norm(g)), 1.0
    while step >= _LEAST_STEP:
        trial = w - step * direction
        there = gradient(phi, member, ridge, trial)
        if float(np.linalg.norm(there)) <= (1 - step / 4) * norm:
            return trial, there
        step /= 2
    return None
