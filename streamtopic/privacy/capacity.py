"""Deletion capacity: how many of the base model's documents may be unlearned before a retrain is due.

Formulas are those of Wei et al. (2025): theorem 1 (base), theorem 2 (head), and the precondition and sensitivity of the
utility proof. Constants c are not given there; `implied_constant` says which c a measured capacity stands for.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.topics.fit import TopicFit

__all__ = [
    "Capacity",
    "ModelConstants",
    "anchored_constants",
    "base_capacity",
    "estimate_constants",
    "fit_constants",
    "head_capacity",
    "implied_constant",
    "most_deletions",
    "precondition",
    "theorem_sensitivity",
    "theorem_sigma",
]

Float64 = npt.NDArray[np.float64]
Rule = Literal["share", "fixed", "calibrated", "theorem"]

UTILITY = 0.001


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many deletions a base model bears. formula: the theorem's value at c = 1, for comparison."""

    limit: int
    rule: Rule
    formula: float

    @classmethod
    def fixed(cls, limit: int, formula: float = math.nan) -> "Capacity":
        """A number that the operator set. Raises UsageError below 0."""
        if limit < 0:
            raise UsageError(f"a capacity of {limit} documents makes no sense: set 0 or more")
        return cls(limit, "fixed", formula)

    @property
    def constant(self) -> float:
        """The c for which the formula gives this limit."""
        return implied_constant(self.limit, self.formula)

    def used(self, forgotten: int) -> float:
        """Share of the capacity that `forgotten` deletions use: 1 at the limit, math.inf where none was allowed."""
        if self.limit:
            return forgotten / self.limit
        return math.inf if forgotten else 0.0

    def left(self, forgotten: int) -> int:
        """Deletions that are still free, at least 0."""
        return max(self.limit - forgotten, 0)


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """Quantities of a model that the theory's constants depend on.

    a = max z / min z, p_sep: separability, the least mass of an anchor in its topic, gamma: condition of the topic
    covariance, eps0: accuracy of the base model.
    """

    a: float
    p_sep: float
    gamma: float
    eps0: float


def base_capacity(c: float, m: int, n: int, r: int, epsilon: float, delta: float) -> float:
    """T = c min(m epsilon / (r^2 sqrt(r n ln(1/delta))), 0.001 m / r^2)."""
    noise = m * epsilon / (r**2 * math.sqrt(r * n * math.log(1 / delta)))
    return c * min(noise, UTILITY * m / r**2)


def head_capacity(c: float, m: int, n: int, r: int, epsilon: float, delta: float, q: float) -> float:
    """T = c min(m q epsilon / (r sqrt(n r ln(1/delta))), 0.001 m / r^2), q the least mass of the task's topics."""
    noise = m * q * epsilon / (r * math.sqrt(n * r * math.log(1 / delta)))
    return c * min(noise, UTILITY * m / r**2)


def implied_constant(limit: float, formula: float) -> float:
    """The c at which a formula that gives `formula` at c = 1 gives `limit`."""
    return limit / formula if formula > 0 else math.nan


def most_deletions(anchor_frequency: npt.NDArray[np.int64]) -> int:
    """Deletions that surely leave every anchor a document: one fewer than the rarest anchor (r,) has."""
    return max(int(anchor_frequency.min()) - 1, 0)


def estimate_constants(
    A: Float64, R: Float64, shares: Float64, anchors: npt.NDArray[np.intp], eps0: float | None = None
) -> ModelConstants:
    """Constants of a model: A (n, r), R (r, r), shares z (r,), anchors (r,) rows of A; eps0 1/sqrt(n r) unless given.

    gamma is the least singular value of diag(z)^-1 R.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = R / shares[:, None]
        a = float(shares.max() / shares.min())
    gamma = float(np.linalg.svd(rows, compute_uv=False)[-1]) if np.isfinite(rows).all() else 0.0
    p_sep = float(A[anchors, np.arange(len(anchors))].min())
    return ModelConstants(a, p_sep, gamma, eps0 or 1 / math.sqrt(A.size))


def fit_constants(fit: TopicFit, eps0: float | None = None) -> ModelConstants:
    """Constants of a model before noise, without a pass over Q: from its r anchor rows.

    An anchor's row of Qbar is R_k A^T / z_k where the topics are separable, so diag(z)^-1 R = X A^+^T for the anchor
    rows X (r, n), or the super-anchors' of the default learner; a and p as in `estimate_constants`.
    """
    last, live = fit.rounds[-1], fit.live
    X = last.anchor_counts[:, live] / last.anchor_mass[:, None]
    return anchored_constants(X, fit.A, fit.topic_masses, np.searchsorted(live, fit.choice.rows), eps0)


def anchored_constants(
    X: Float64, A: Float64, z: Float64, anchors: npt.NDArray[np.intp], eps0: float | None = None
) -> ModelConstants:
    """Return the same of any model: X (r, n) anchor rows of Qbar, A (n, r), shares z (r,), anchors (r,) rows of A."""
    R = z[:, None] * (X @ A @ np.linalg.pinv(A.T @ A, hermitian=True))
    return estimate_constants(A, R, z, anchors, eps0)


def precondition(m: int, r: int, constants: ModelConstants) -> float:
    """Greatest number of deletions that the utility proof covers: 0.001 m eps0 (gamma p)^3 / (a^2 r^2).

    0 where a topic has no share, since a is infinite then.
    """
    margin = (constants.gamma * constants.p_sep) ** 3
    return UTILITY * m * constants.eps0 * margin / (constants.a**2 * r**2)


def theorem_sensitivity(c: float, m: int, n: int, r: int, deletions: float, constants: ModelConstants) -> float:
    """Delta = c sqrt(n r) (a r)^2 m_U / (m eps0 gamma p), with m_U = `deletions`."""
    spread = math.sqrt(n * r) * (constants.a * r) ** 2 * deletions
    return c * spread / (m * constants.eps0 * constants.gamma * constants.p_sep)


def theorem_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Sigma = Delta sqrt(2 ln(1.25 / delta)) / epsilon, Algorithm 1's own. Raises UsageError for epsilon >= 1."""
    if not 0 < epsilon < 1:
        raise UsageError(f"theorem mode is proved for epsilon below 1, not {epsilon}: lower it, or use certified mode")
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
