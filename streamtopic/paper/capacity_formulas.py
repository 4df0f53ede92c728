"""Deletion capacity: how many of the base model's documents may be unlearned before a retrain is due.

Formulas are from Wei et al. (2025): theorem 1 (base), theorem 3 (head of a task), and the precondition and sensitivity
of the utility proof. The paper does not give the constants c.

Sizes have the paper's names in all of them: m documents, n words, r topics.

A task that rests on some topics only can bear more deletions: q, the least mass of its topics, takes the place of
1/(a r), the least that any topic can have, in the first of the two terms. The second term does not know the task.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.topics.fit import TopicFit

__all__ = [
    "ModelConstants",
    "anchored_constants",
    "base_capacity",
    "estimate_constants",
    "fit_constants",
    "precondition",
    "task_capacity",
    "theorem_sensitivity",
    "theorem_sigma",
]

Float64 = npt.NDArray[np.float64]

# The factor of m / r^2 in the paper's second term; its size is the paper's, not derived here.
UTILITY = 0.001


@dataclass(frozen=True, slots=True)
class ModelConstants:
    """Properties of a model that the theory's bounds depend on.

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
    """Return T = c min(m epsilon / (r^2 sqrt(r n ln(1/delta))), 0.001 m / r^2), in documents: theorem 1.

    c: the theorem's unknown constant.
    epsilon, delta: of the guarantee.
    """
    spread = math.sqrt(r * n * math.log(1 / delta))
    noise = m * epsilon / (r**2 * spread)
    utility = UTILITY * m / r**2
    return c * min(noise, utility)


def estimate_constants(A: Float64, R: Float64, shares: Float64, anchors: npt.NDArray[np.intp]) -> ModelConstants:
    """Return the constants of a model.

    gamma is the least singular value of diag(z)^-1 R, and eps0 is 1/sqrt(n r), the most that the proof allows.

    A: (n, r), topics.
    R: (r, r), covariance of topics.
    shares: z, (r,).
    anchors: (r,), rows of A.
    """
    # A topic may have lost its last document: its constants are then infinite or 0, and formulas give 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = R / shares[:, None]
        a = float(shares.max() / shares.min())
    gamma = 0.0
    if np.isfinite(rows).all():
        singular_values = np.linalg.svd(rows, compute_uv=False)
        gamma = float(singular_values[-1])
    own = A[anchors, np.arange(len(anchors))]
    return ModelConstants(a, float(own.min()), gamma, 1 / math.sqrt(A.size))


def fit_constants(fit: TopicFit) -> ModelConstants:
    """Return the constants of a model before noise, from its r anchor rows without a pass over Q.

    fit: of either learner; the default learner's super-anchors take the place of anchors.
    """
    live = fit.live
    counts = fit.mixtures.anchor_counts[:, live]
    X = counts / fit.mixtures.anchor_mass[:, None]
    anchors = np.searchsorted(live, fit.choice)
    return anchored_constants(X, fit.A, fit.topic_masses, anchors)


def anchored_constants(X: Float64, A: Float64, z: Float64, anchors: npt.NDArray[np.intp]) -> ModelConstants:
    """Return the constants of a model from its anchor rows.

    X: (r, n), rows of Qbar.
    A: (n, r), topics.
    z: (r,), shares of topics.
    anchors: (r,), rows of A.
    """
    # An anchor's row of Qbar is R_k A^T / z_k if the topics are separable, so diag(z)^-1 R = X A^+^T.
    inverse = np.linalg.pinv(A.T @ A, hermitian=True)
    R = z[:, None] * (X @ A @ inverse)
    return estimate_constants(A, R, z, anchors)


def precondition(m: int, r: int, constants: ModelConstants) -> float:
    """Return the most deletions that the utility proof covers: 0.001 m eps0 (gamma p)^3 / (a^2 r^2).

    It is 0 if a topic has a share of 0, since a is infinite then.
    """
    margin = (constants.gamma * constants.p_sep) ** 3
    divisor = constants.a**2 * r**2
    return UTILITY * m * constants.eps0 * margin / divisor


def theorem_sensitivity(c: float, m: int, n: int, r: int, deletions: float, constants: ModelConstants) -> float:
    """Return Delta = c sqrt(n r) (a r)^2 m_U / (m eps0 gamma p), the sensitivity of A in Frobenius norm.

    c: the theorem's unknown constant.
    deletions: m_U.
    """
    spread = math.sqrt(n * r) * (constants.a * r) ** 2 * deletions
    certainty = m * constants.eps0 * constants.gamma * constants.p_sep
    return c * spread / certainty


def theorem_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return sigma = Delta sqrt(2 ln(1.25 / delta)) / epsilon, as Algorithm 1 has it.

    Raises UsageError unless 0 < epsilon < 1.
    """
    # The classic Gaussian mechanism is proved for epsilon below 1 only.
    if not 0 < epsilon < 1:
        raise UsageError(f"theorem mode is proved for epsilon below 1, not {epsilon}: lower it, or use certified mode")
    noise_factor = math.sqrt(2 * math.log(1.25 / delta))
    return sensitivity * noise_factor / epsilon


def task_capacity(
    c: float,
    m: int,
    n: int,
    epsilon: float,
    delta: float,
    shares: Float64,
    topics: Sequence[int] | npt.NDArray[np.intp],
) -> float:
    """Return c' min(m q epsilon / (r sqrt(n r ln(1/delta))), 0.001 m / r^2), in documents: theorem 3's formal version.

    c: the theorem's unknown constant.
    epsilon, delta: of the guarantee.
    shares: z, (r,), shares of the model's topics, sum 1.
    topics: positions of the task's topics, of which q is the least share.
    Raises UsageError for a guarantee that makes no sense, shares that are not positive, or a position without a topic.
    """
    is_guarantee = epsilon > 0 and 0 < delta < 1
    if not (is_guarantee and c > 0):
        raise UsageError(
            f"epsilon is {epsilon}, c {c}, delta {delta}: use epsilon and c above 0, delta between 0 and 1"
        )
    if not (shares > 0).all():
        raise UsageError("a topic has no share, so its capacity is not defined: retrain with fewer topics")
    r = len(shares)
    # numpy would take a negative position from the end.
    if not len(topics) or not all(0 <= k < r for k in topics):
        raise UsageError(
            f"the task names topics {list(topics)}, but the model has 0 to {r - 1}: name topics of the model"
        )
    q = float(shares[list(topics)].min())
    spread = math.sqrt(n * r * math.log(1 / delta))
    # As theorem 1, with q in place of 1/(a r): deletions reach a task only through the topics that it rests on.
    noise = c * m * q * epsilon / (r * spread)
    utility = c * UTILITY * m / r**2
    return min(noise, utility)
