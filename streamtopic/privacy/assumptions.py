"""What the paper's proof asks of a corpus and a deletion, each as a comparison of two numbers.

The proof of theorem 1 holds only where all of these do. Constants hidden in O(...) are taken as 1, since the paper
gives none; so a check that fails by orders of magnitude fails, and one that passes narrowly says little.
Source: Wei et al. (2025), sections 2 to 4 and appendix B; labels are those of its LaTeX source.
"""

import math
from dataclasses import dataclass
from typing import Literal

from streamtopic.errors import UsageError
from streamtopic.privacy.capacity import ModelConstants, base_capacity, precondition

__all__ = ["UTILITY_LOSS", "Check", "Situation", "assumption_checks", "guaranteed_error", "sample_size"]

UTILITY_LOSS = 0.01
"""Loss of utility that a deletion capacity allows: the greatest entry of A - A* (definition def:unlearning)."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the proof needs: `value relation limit`, and where the paper says so."""

    name: str
    value: float
    relation: Literal["<", "<=", ">", ">="]
    limit: float
    paper: str

    @property
    def holds(self) -> bool:
        """Whether the comparison is true; never where a number is missing (nan)."""
        match self.relation:
            case "<":
                return self.value < self.limit
            case "<=":
                return self.value <= self.limit
            case ">":
                return self.value > self.limit
            case ">=":
                return self.value >= self.limit

    def __str__(self) -> str:
        outcome = "holds" if self.holds else "FAILS"
        return f"{outcome}: {self.name}: {self.value:.3g} {self.relation} {self.limit:.3g} ({self.paper})"


@dataclass(frozen=True, slots=True)
class Situation:
    """A corpus, a model of it and a deletion, in the numbers that the proof compares.

    m documents of `length` tokens (L), n words, r topics, m_U = `deletions`; c: constant of the sensitivity; rarest:
    least probability of a word; sigma_min: least singular value of Qbar_P^F. Raises UsageError for a delta that is no
    probability.
    """

    m: int
    n: int
    r: int
    length: float
    deletions: int
    epsilon: float
    delta: float
    c: float
    constants: ModelConstants
    rarest: float
    sigma_min: float

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise UsageError(f"delta is {self.delta}: use a probability between 0 and 1")

    @property
    def delta_2(self) -> float:
        """Error of a row of Qbar^S: sqrt(4 a r / (m eps0))."""
        return math.sqrt(self._moved_by(1))

    @property
    def moved(self) -> float:
        """What deleting m_U documents can move a row of Qbar by: 4 a r m_U / (m eps0)."""
        return self._moved_by(self.deletions)

    @property
    def robustness(self) -> float:
        """Distance of an anchor's row from the hull of the others': gamma p."""
        return self.constants.gamma * self.constants.p_sep

    @property
    def entry_error(self) -> float:
        """(a r)^2 m_U / (m eps0 gamma p), which bounds entries of Abar - A^F and of Abar - A* up to c."""
        ar = self.constants.a * self.r
        return ar * ar * self.deletions / (self.m * self.constants.eps0 * self.robustness)

    def _moved_by(self, documents: int) -> float:
        return 4 * self.constants.a * self.r * documents / (self.m * self.constants.eps0)


def sample_size(n: int, r: int, length: float, constants: ModelConstants) -> float:
    """Documents from which on the learner is within eps0 of the truth: the Learning Guarantee, constants 1.

    max{a r^3 log n / (L (gamma p)^6 eps0), a^3 r^3 log n / (L eps0^3 (gamma p)^4), r^2 log r / (L eps0^2)}.
    """
    a, eps0, gp = constants.a, constants.eps0, constants.gamma * constants.p_sep
    return max(
        a * r**3 * math.log(n) / (length * gp**6 * eps0),
        a**3 * r**3 * math.log(n) / (length * eps0**3 * gp**4),
        r**2 * math.log(r) / (length * eps0**2),
    )


def guaranteed_error(m: int, n: int, r: int, length: float, constants: ModelConstants) -> float:
    """The eps0 that m documents guarantee: the inverse of `sample_size`; constants.eps0 is not used.

    Raises UsageError for no documents.
    """
    if m < 1:
        raise UsageError("no documents guarantee no error: use 1 or more")
    a, gp, tokens = constants.a, constants.gamma * constants.p_sep, m * length
    return max(
        a * r**3 * math.log(n) / (tokens * gp**6),
        math.cbrt(a**3 * r**3 * math.log(n) / (tokens * gp**4)),
        math.sqrt(r**2 * math.log(r) / tokens),
    )


def assumption_checks(s: Situation) -> tuple[Check, ...]:
    """Return every comparison of the proof, in its order."""
    return (*_setting(s), *_rows(s), *_deletions(s))


def _setting(s: Situation) -> tuple[Check, ...]:
    """What is assumed of the mechanism, the corpus and the learner."""
    a, eps0 = s.constants.a, s.constants.eps0
    least = eps0 / (4 * a * s.r)
    return (
        Check("epsilon below 1", s.epsilon, "<", 1.0, "lemma: gaussian mechanism"),
        Check("p-separable", s.constants.p_sep, ">", 0.0, "assume:p_sep"),
        Check(
            "documents of the learner",
            s.m,
            ">=",
            sample_size(s.n, s.r, s.length, s.constants),
            "theorem Learning Guarantee",
        ),
        Check("accuracy eps0", eps0, "<=", 1 / math.sqrt(s.n * s.r), "appendix B, assumption eps0 <= O(1/sqrt(nr))"),
        Check("rarest word's probability", s.rarest, ">=", least, "appendix B, assumption on rare words"),
    )


def _rows(s: Situation) -> tuple[Check, ...]:
    """What errors of rows of Qbar must stay below."""
    gp, r = s.robustness, s.r
    far = s.delta_2 + s.moved
    return (
        Check("20 r delta_2 / (gamma p)^2", 20 * r * s.delta_2 / gp**2, "<", gp, "appendix B, lemma on Qbar^S"),
        Check("10 sqrt(r) delta_2", 10 * math.sqrt(r) * s.delta_2, "<", gp, "appendix B, gamma p / 2 robustness"),
        Check("20 r delta_2' / (gamma p)^2", 20 * r * far / gp**2, "<", gp, "appendix B, lemma on Qbar^F"),
        Check(
            "20 r (4 a r m_U / m eps0) / (gamma p / 2)^2",
            20 * r * s.moved / (gp / 2) ** 2,
            "<",
            gp / 2,
            "appendix B, lemma on C^F - C^S",
        ),
        Check("sigma_min of Qbar_P^F", s.sigma_min, ">=", gp / 2, "appendix B, lemma on the Hessian"),
    )


def _deletions(s: Situation) -> tuple[Check, ...]:
    """What the number of deletions must lie between, and the utility that is left."""
    c, m_U = s.c, s.deletions
    enough = math.sqrt(s.m * s.constants.eps0 / (4 * s.constants.a * s.r))
    noise = math.sqrt(s.n * s.r * math.log(s.n * s.r) * math.log(1 / s.delta)) / s.epsilon
    return (
        Check(
            "m_U within the utility proof", m_U, "<=", precondition(s.m, s.r, s.constants), "section 4, proof sketch"
        ),
        Check(
            "m_U enough for delta_2' = O(a r m_U / m eps0)", m_U, ">=", enough, "appendix B, proposition on delta_2'"
        ),
        Check(
            "m_U within the deletion capacity at c = 1",
            m_U,
            "<=",
            base_capacity(1.0, s.m, s.n, s.r, s.epsilon, s.delta),
            "thm: topic model deletion capacity, formal statement",
        ),
        Check(
            "bound on E max |Atilde - A*|",
            c * s.entry_error * (noise + 1),
            "<=",
            UTILITY_LOSS,
            "lemma:base_utility, def:unlearning",
        ),
    )
