"""Deletion capacity: how many of the base model's documents may be unlearned before a retrain is due.

Formulas are those of Wei et al. (2025): theorem 1 (base), theorem 3 (head of a task), and the precondition and
sensitivity of the utility proof. The paper does not give the constants c; `implied_constant` says which c a measured
capacity stands for.

A task that rests on some topics only can bear more deletions: q, the least mass of its topics, takes the place of
1/(a r), the least that any topic can have, in the first of the two terms. The second term does not know the task.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.topics.fit import TopicFit

__all__ = [
    "Capacity",
    "HeadCapacity",
    "ModelConstants",
    "anchored_constants",
    "base_capacity",
    "estimate_constants",
    "fit_constants",
    "general_head_terms",
    "head_capacity",
    "head_capacity_terms",
    "implied_constant",
    "most_deletions",
    "precondition",
    "task_mass",
    "theorem_head_sensitivity",
    "theorem_sensitivity",
    "theorem_sigma",
]

Float64 = npt.NDArray[np.float64]
Rule = Literal["share", "fixed", "calibrated", "theorem"]

# The factor of m / r^2 in the paper's second term; its size is the paper's, not derived here.
UTILITY = 0.001


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many deletions a base model bears.

    limit: in documents.
    rule: by which the limit was set.
    formula: the theorem's value at c = 1, for comparison.
    """

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

    a: imbalance, max z / min z over the topics' shares z.
    p_sep: separability, the least mass of an anchor in its topic.
    gamma: condition of the topic covariance.
    eps0: accuracy of the base model.
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
    # A formula of 0 gives 0 at any c.
    return limit / formula if formula > 0 else math.nan


def most_deletions(anchor_frequency: npt.NDArray[np.int64]) -> int:
    """Deletions that surely leave every anchor a document: one fewer than the rarest anchor (r,) has."""
    return max(int(anchor_frequency.min()) - 1, 0)


def estimate_constants(
    A: Float64, R: Float64, shares: Float64, anchors: npt.NDArray[np.intp], eps0: float | None = None
) -> ModelConstants:
    """Return the constants of a model.

    A: (n, r), topics.
    R: (r, r), covariance of topics.
    shares: z, (r,).
    anchors: (r,), rows of A.
    eps0: 1/sqrt(n r) unless given, the most that the proof allows.
    gamma is the least singular value of diag(z)^-1 R.
    """
    # A topic may have lost its last document: its constants are then infinite or 0, and formulas give 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = R / shares[:, None]
        a = float(shares.max() / shares.min())
    gamma = float(np.linalg.svd(rows, compute_uv=False)[-1]) if np.isfinite(rows).all() else 0.0
    p_sep = float(A[anchors, np.arange(len(anchors))].min())
    return ModelConstants(a, p_sep, gamma, eps0 or 1 / math.sqrt(A.size))


def fit_constants(fit: TopicFit, eps0: float | None = None) -> ModelConstants:
    """Return the constants of a model before noise, without a pass over Q: from its r anchor rows."""
    # An anchor's row of Qbar is R_k A^T / z_k where the topics are separable, so diag(z)^-1 R = X A^+^T for the anchor
    # rows X (r, n), or those of the super-anchors of the default learner.
    last, live = fit.mixtures, fit.live
    X = last.anchor_counts[:, live] / last.anchor_mass[:, None]
    return anchored_constants(X, fit.A, fit.topic_masses, np.searchsorted(live, fit.choice.rows), eps0)


def anchored_constants(
    X: Float64, A: Float64, z: Float64, anchors: npt.NDArray[np.intp], eps0: float | None = None
) -> ModelConstants:
    """Return the same of any model: X (r, n) anchor rows of Qbar, A (n, r), shares z (r,), anchors (r,) rows of A."""
    R = z[:, None] * (X @ A @ np.linalg.pinv(A.T @ A, hermitian=True))
    return estimate_constants(A, R, z, anchors, eps0)


def precondition(m: int, r: int, constants: ModelConstants) -> float:
    """Return the most deletions that the utility proof covers: 0.001 m eps0 (gamma p)^3 / (a^2 r^2).

    It is 0 where a topic has no share, since a is infinite then.
    """
    margin = (constants.gamma * constants.p_sep) ** 3
    return UTILITY * m * constants.eps0 * margin / (constants.a**2 * r**2)


def theorem_sensitivity(c: float, m: int, n: int, r: int, deletions: float, constants: ModelConstants) -> float:
    """Delta = c sqrt(n r) (a r)^2 m_U / (m eps0 gamma p), with m_U = `deletions`."""
    spread = math.sqrt(n * r) * (constants.a * r) ** 2 * deletions
    return c * spread / (m * constants.eps0 * constants.gamma * constants.p_sep)


def theorem_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Sigma = Delta sqrt(2 ln(1.25 / delta)) / epsilon, Algorithm 1's own. Raises UsageError for epsilon >= 1."""
    # The classic Gaussian mechanism is proved for epsilon below 1 only.
    if not 0 < epsilon < 1:
        raise UsageError(f"theorem mode is proved for epsilon below 1, not {epsilon}: lower it, or use certified mode")
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


@dataclass(frozen=True, slots=True)
class HeadCapacity:
    """Both terms of the formula, in documents.

    noise: c' m q epsilon / (r sqrt(n r ln(1/delta))).
    utility: c' 0.001 m / r^2.
    q: the least mass of the task's topics.
    imbalance: a = max z / min z.
    topics: r.
    """

    noise: float
    utility: float
    q: float
    imbalance: float
    topics: int

    @property
    def formula(self) -> float:
        """The capacity: the smaller term."""
        return min(self.noise, self.utility)

    @property
    def binds(self) -> Literal["noise", "utility"]:
        """Which term is the smaller."""
        return "noise" if self.noise < self.utility else "utility"

    @property
    def worst_q(self) -> float:
        """1/(a r): no topic of this model can have less mass, and a task on every topic is allowed no more."""
        return 1 / (self.imbalance * self.topics)

    @property
    def ratio(self) -> float:
        """Q against 1/(a r), at least 1: what declaring topics wins in the noise term."""
        return self.q / self.worst_q

    @property
    def every_topic(self) -> float:
        """The capacity of a task that rests on every topic, q = 1/(a r), with the same c'."""
        return min(self.noise / self.ratio, self.utility)

    @property
    def gain(self) -> float:
        """Capacity over that of a task on every topic: the ratio, until the utility term ends it."""
        return self.formula / self.every_topic


def task_mass(shares: Float64, topics: Sequence[int] | npt.NDArray[np.intp] = ()) -> float:
    """Q: the least share among the task's topics, all where none is named. shares: z (r,), sum 1.

    Raises UsageError for a position that is not a topic.
    """
    if not all(0 <= k < len(shares) for k in topics):
        raise UsageError(f"the task names topics {list(topics)}, the model has 0 to {len(shares) - 1}")
    return float(shares[list(topics)].min() if len(topics) else shares.min())


def head_capacity_terms(
    c: float,
    m: int,
    n: int,
    epsilon: float,
    delta: float,
    shares: Float64,
    topics: Sequence[int] | npt.NDArray[np.intp] = (),
) -> HeadCapacity:
    """Theorem 3's formal version for a task on `topics` of a model with topic shares z (r,), n words and m documents.

    Raises UsageError for a guarantee that makes no sense or shares that are not positive.
    """
    if not (epsilon > 0 and 0 < delta < 1 and c > 0):
        raise UsageError(f"epsilon {epsilon} and c {c} must be above 0, delta {delta} between 0 and 1")
    if not (shares > 0).all():
        raise UsageError("a topic has no share, so its capacity is not defined: retrain with fewer topics")
    r, q = len(shares), task_mass(shares, topics)
    # As theorem 1, with q in place of 1/(a r): a task feels only the topics that it rests on.
    noise = c * m * q * epsilon / (r * math.sqrt(n * r * math.log(1 / delta)))
    return HeadCapacity(noise, c * UTILITY * m / r**2, q, float(shares.max() / shares.min()), r)


def general_head_terms(c: float, m: int, n: int, r: int, constants: ModelConstants, q: float) -> dict[str, float]:
    """The proof's own bound on m_U for general q: each of the three terms of its minimum, in documents.

    m_U <= c m eps0 gamma p / (a r)^2 min{1/sqrt(r), 1/(n r)^(1/4), a r q / sqrt(n r)}; the paper takes n >= r^3, where
    the last is the least and alone knows the task. Source: the end of the section "Proof for general q".
    """
    unit = c * m * constants.eps0 * constants.gamma * constants.p_sep / (constants.a * r) ** 2
    return {
        "1/sqrt(r)": unit / math.sqrt(r),
        "1/(nr)^(1/4)": unit / (n * r) ** 0.25,
        "arq/sqrt(nr)": unit * constants.a * r * q / math.sqrt(n * r) if unit else 0.0,
    }


def theorem_head_sensitivity(
    c: float,
    m: int,
    n: int,
    r: int,
    deletions: float,
    constants: ModelConstants,
    q: float,
    weights: float,
    tau: float = 0.0,
) -> float:
    """The paper's sensitivity of v = (A^S)^+ A w, weights the bound B on ||w||, with m_U = `deletions`.

    (c / p) (sqrt(r) D + B sqrt(n r) a r m_U / (q m eps0 gamma p) + sqrt(n r) D^2 + sqrt(r tau) + sqrt(r) tau) with
    D = (a r)^2 m_U / (m eps0 gamma p). Source: the proposition for general q, with the tau terms of "Downstream tasks
    with inexact minimizers". Raises UsageError for tau < 0 or above 1/r, which the paper excludes, or q outside (0, 1].
    """
    if not 0 <= tau <= 1 / r:
        raise UsageError(f"tau {tau} is outside 0 to 1/r = {1 / r:.3g}, which the proof assumes: fit heads better")
    if not 0 < q <= 1:
        raise UsageError(f"q is a topic's share, not {q}")
    # One power of a r less than D: q takes its place in the term of the head's own topics.
    moved = constants.a * r * deletions / (m * constants.eps0 * constants.gamma * constants.p_sep)
    D = constants.a * r * moved
    inexact = math.sqrt(r * tau) + math.sqrt(r) * tau
    terms = math.sqrt(r) * D + weights * math.sqrt(n * r) * moved / q + math.sqrt(n * r) * D**2 + inexact
    return c * terms / constants.p_sep
