"""How many deletions a task's head bears, by the paper's theorem 3, beside what the base model bears.

A task that rests on some topics only can bear more: q, the least mass of its topics, takes the place of 1/(a r), the
least that any topic can have, in the first of the two terms. The second does not know the task.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.privacy.capacity import UTILITY, ModelConstants

__all__ = ["HeadCapacity", "general_head_terms", "head_capacity_terms", "task_mass", "theorem_head_sensitivity"]

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HeadCapacity:
    """Both terms of the formula, in documents.

    noise: c' m q epsilon / (r sqrt(n r ln(1/delta))); utility: c' 0.001 m / r^2; q: least mass of the task's topics;
    imbalance: a = max z / min z; topics: r.
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

    Raises UsageError for a position that is no topic.
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
    moved = constants.a * r * deletions / (m * constants.eps0 * constants.gamma * constants.p_sep)
    D = constants.a * r * moved
    inexact = math.sqrt(r * tau) + math.sqrt(r) * tau
    terms = math.sqrt(r) * D + weights * math.sqrt(n * r) * moved / q + math.sqrt(n * r) * D**2 + inexact
    return c * terms / constants.p_sep
