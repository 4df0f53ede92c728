"""Topics of new documents, from a model alone. numpy only: subscribers load this.

theta maximises f = sum_w x_w log (A theta)_w + alpha sum_k log theta_k over the simplex: concave, one optimum. There
the multiplier of sum(theta) = 1 is lambda = L + r alpha, so the constraint needs no care: grad f - lambda vanishes.

A few steps of EM, then Newton's method with conjugate gradients for its steps, on many documents at once: two products
with A a step, 30 to 40 in all. A step that does not raise f is taken back for one of EM, which always does. Documents
that are left after many steps (more topics than words, a tiny alpha) are finished by damped Newton steps, which always
arrive.

How far is it to the optimum? With s = min(1, alpha, least count) f / s is self-concordant, and its Hessian is at least
(alpha / s) diag(theta)^-2, so with N = ||theta (grad f - lambda)||_2 / sqrt(s alpha) < 1

    sqrt(sum_k ((theta*_k - theta_k) / theta_k)^2) <= sqrt(s / alpha) N / (1 - N).

Source: Nesterov, "Lectures on Convex Optimization" (2018), section 5.2.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import numpy.typing as npt

__all__ = ["fold_in"]

Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

# Numbers of A that a block of documents gathers: 2 MB, which second-level caches hold.
_ENTRIES = 1 << 19
_WARM, _STEPS, _INNER, _DAMPED = 24, 40, 25, 1000
_FORCING = 0.03
# A proportion grows by at most this factor, less one, in a step.
_GROWTH = 2.0
_ROUNDING = 1e-13


def fold_in(
    A: npt.ArrayLike,
    indptr: npt.NDArray[np.int64],
    words: npt.NDArray[np.integer],
    counts: npt.ArrayLike,
    *,
    alpha: float = 0.1,
    tolerance: float = 1e-3,
) -> Float:
    """Return topic proportions, (documents, r), rows summing to 1.

    A: (n, r) columns on the simplex. Documents as CSR rows: indptr (documents + 1,), words (nnz,) positions in A,
    counts (nnz,). tolerance: bound on the relative error of each proportion, sqrt(sum of its squares) even. A document
    without a word that the model knows gets equal proportions: the prior's mode. A row does not depend on the others.
    """
    table = np.asarray(A, np.float64)
    documents, r = len(indptr) - 1, table.shape[1]
    amounts = np.asarray(counts, np.float64)
    known = (table.max(axis=1) > 0)[words] & (amounts > 0)
    words, amounts = words[known], amounts[known]
    starts = np.searchsorted(np.repeat(np.arange(documents), np.diff(indptr))[known], np.arange(documents + 1))
    sizes = np.diff(starts)
    theta = np.full((documents, r), 1.0 / r)
    order = np.argsort(sizes, kind="stable")
    at = int(np.searchsorted(sizes[order], 1))
    while at < documents:
        stop = _block_end(sizes[order], at, r)
        chosen = order[at:stop]
        column = np.arange(sizes[chosen[-1]])
        held = column < sizes[chosen, None]
        place = np.where(held, starts[chosen, None] + column, starts[chosen, None])
        theta[chosen] = _solved(table[words[place]], np.where(held, amounts[place], 0.0), alpha, tolerance)
        at = stop
    return theta


def _block_end(sizes: npt.NDArray[np.intp], at: int, r: int) -> int:
    """Return where a block ends that starts at `at`: documents of about the same size, few enough for the cache."""
    alike = sizes[at : int(np.searchsorted(sizes, 1.15 * sizes[at] + 2, side="right"))]
    fitting = np.arange(1, len(alike) + 1) * alike * r <= _ENTRIES
    return at + max(1, int(np.count_nonzero(fitting)))


@dataclass(slots=True, eq=False)
class _Block:
    """Documents that are not done.

    ids: (b,) their positions.
    F: (b, d, r) rows of A.
    x: (b, d) counts.
    lam: (b, 1) the multiplier lambda.
    goal: (b,) norm of the residual to reach.
    theta: (b, r) proportions.
    q: (b, d) F theta.
    safe: (b, r) an EM step from the last theta.
    best: (b,) the last f.
    trust: (b,) share of a step that is taken.
    """

    ids: Positions
    F: Float
    x: Float
    lam: Float
    goal: Float
    theta: Float
    q: Float
    safe: Float
    best: Float
    trust: Float

    @classmethod
    def started(cls, F: Float, x: Float, alpha: float, tolerance: float) -> Self:
        b, _, r = F.shape
        lam = (x.sum(axis=1) + r * alpha)[:, None]
        s = np.minimum(min(1.0, alpha), np.where(x > 0, x, np.inf).min(axis=1))
        ratio = tolerance * np.sqrt(alpha / s)
        theta = np.full((b, r), 1.0 / r)
        for _ in range(_WARM):
            theta *= _back(F, x / _ahead(F, theta))
            theta += alpha
            theta /= lam
        goal = np.sqrt(s * alpha) * ratio / (1 + ratio)
        return cls(np.arange(b), F, x, lam, goal, theta, _ahead(F, theta), theta, np.full(b, -np.inf), np.ones(b))

    def only(self, chosen: npt.NDArray[np.bool_]) -> Self:
        return replace(self, **{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def take_back(self, alpha: float) -> None:
        """Replace steps that did not raise f."""
        value = self._value(slice(None), alpha)
        worse = ~(value >= self.best - _ROUNDING * np.abs(self.best))
        self.trust = np.minimum(1.0, 2 * self.trust)
        if worse.any():
            self.theta[worse] = self.safe[worse]
            self.q[worse] = _ahead(self.F[worse], self.theta[worse])
            self.trust[worse] /= 8
            value[worse] = self._value(worse, alpha)
        self.best = value

    def _value(self, of: slice | npt.NDArray[np.bool_], alpha: float) -> Float:
        likelihood = np.einsum("ij,ij->i", self.x[of], np.log(self.q[of]))
        return np.asarray(likelihood + alpha * np.log(self.theta[of]).sum(axis=1))


def _solved(F: Float, x: Float, alpha: float, tolerance: float) -> Float:
    """Return theta (b, r) for F (b, d, r) and x (b, d), padded by zeros in x."""
    block = _Block.started(F, x, alpha, tolerance)
    out = np.empty((len(F), F.shape[2]))
    for _ in range(_STEPS):
        block.take_back(alpha)
        weight = block.x / block.q
        pull = _back(block.F, weight)
        residual = block.theta * (pull - block.lam) + alpha
        size = np.einsum("ij,ij->i", residual, residual)
        moving = size > block.goal**2
        if np.count_nonzero(moving) <= 0.7 * len(moving):
            out[block.ids[~moving]] = block.theta[~moving]
            if not moving.any():
                return out
            block, weight, pull, residual, size = (
                block.only(moving),
                *(part[moving] for part in (weight, pull, residual, size)),
            )
            moving = moving[moving]
        block.safe = (block.theta * pull + alpha) / block.lam
        step = _direction(block, weight / block.q, residual, size, alpha)
        block.theta = _moved(block.theta, step * (block.trust * moving)[:, None])
        block.q = _ahead(block.F, block.theta)
    block.take_back(alpha)
    for k, document in enumerate(block.ids):
        out[document] = _damped(block.F[k], block.x[k], block.theta[k], float(block.goal[k]), alpha)
    return out


def _direction(block: _Block, curvature: Float, residual: Float, size: Float, alpha: float) -> Float:
    """Return u (b, r), the relative Newton step: (alpha I + Theta F^T diag(curvature) F Theta) u = residual, nearly.

    residual: theta (grad f - lambda), (b, r); size (b,) its squared norm. Documents that are near enough stand still.
    """
    F, theta = block.F, block.theta
    u, along, residual = np.zeros_like(theta), residual.copy(), residual.copy()
    enough = np.maximum(_FORCING**2 * size, (0.3 * block.goal) ** 2)
    for _ in range(_INNER):
        # In place: these arrays are small, and new ones would cost as much as the products.
        ahead = _ahead(F, theta * along)
        ahead *= curvature
        product = _back(F, ahead)
        product *= theta
        product += alpha * along
        bend = np.einsum("ij,ij->i", along, product)
        length = np.where(size > enough, size / np.maximum(bend, 1e-300), 0.0)[:, None]
        u += length * along
        product *= length
        residual -= product
        left = np.einsum("ij,ij->i", residual, residual)
        if (left <= enough).all():
            break
        along *= (left / np.maximum(size, 1e-300))[:, None]
        along += residual
        size = left
    return u


def _moved(theta: Float, u: Float) -> Float:
    """Return theta after relative steps u, positive, rows summing to 1.

    Downwards by theta / (1 - u): where only the prior holds a proportion up, that is Newton's step on 1 / theta, which
    arrives at once.
    """
    up = 1 + np.clip(u, 0.0, _GROWTH)
    down = 1 - np.clip(u, -1e6, 0.0)
    moved = theta * up / down
    return np.asarray(moved / moved.sum(axis=1, keepdims=True))


def _damped(F: Float, x: Float, theta: Float, goal: float, alpha: float) -> Float:
    """Return theta (r,) by exact Newton steps, cut to 1 / (1 + N) while the decrement N is large."""
    lam = float(x.sum()) + len(theta) * alpha
    s = min(1.0, alpha, float(x[x > 0].min()))
    for _ in range(_DAMPED):
        q = F @ theta
        residual = theta * (F.T @ (x / q) - lam) + alpha
        # A tenth, so that bringing the sum to 1 does not take it over the goal again.
        if residual @ residual <= (0.1 * goal) ** 2:
            break
        rows = (np.sqrt(x) / q)[:, None] * F * theta
        u = np.linalg.solve(rows.T @ rows + alpha * np.eye(len(theta)), residual)
        decrement = math.sqrt(max(float(u @ residual), 0.0) / s)
        theta = theta * (1 + (u / (1 + decrement) if decrement > 0.25 else u))
    return np.asarray(theta / theta.sum())


def _ahead(F: Float, theta: Float) -> Float:
    """F theta: (b, d, r) and (b, r) to (b, d)."""
    return np.asarray(np.matmul(F, theta[:, :, None])[:, :, 0])


def _back(F: Float, weight: Float) -> Float:
    """F^T weight: (b, d, r) and (b, d) to (b, r)."""
    return np.asarray(np.matmul(weight[:, None, :], F)[:, 0, :])
