"""Theorem mode: Algorithm 1 with the noise of its proof, and every number that the proof rests on.

    TheoremOptions      the operator's choices: the guarantee, T, c, and constants if they are known
    assumption_checks   the conditions of the proof on a ProofSetting, one Condition each
    plan_theorem        Delta and sigma, a function of options and sizes, never of the forget set
    examine             Abar and Rbar, their noise, and all measurements
    draw                adds the noise and projects

The sensitivity is proved for an unknown c and under assumptions that real corpora do not meet. At realistic sizes the
noise drowns the model, and `examine` says so. Certified mode needs neither c nor the assumptions. Checks and distances
are computed before noise: they are for the operator, not for publication. Constants hidden in O(...) are taken as 1,
since the paper does not give them. So a check that fails by orders of magnitude fails, and a check that passes narrowly
says little.
Source: Wei et al. (2025), sections 2 to 4, algorithm 1, theorem 1 and appendix B; labels are those of its LaTeX source.
The paper leaves the sensitivity of R out; it is derived here.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamtopic.errors import CannotLearn, UsageError
from streamtopic.paper.algorithm1 import (
    BaseModel,
    BaseStatistics,
    Remaining,
    chosen_again,
    project_psd,
    retrain_rows,
    unlearn_base,
)
from streamtopic.paper.capacity_formulas import (
    ModelConstants,
    anchored_constants,
    base_capacity,
    precondition,
    theorem_sensitivity,
    theorem_sigma,
)
from streamtopic.privacy.accounting import Composition, gaussian_scale
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import NoisePlan, add_noise, plan_noise, project_columns
from streamtopic.topics.learner_options import LEAST_TOLERANCE
from streamtopic.topics.products import dense_rows

__all__ = [
    "UTILITY_LOSS",
    "Compared",
    "Condition",
    "Examined",
    "ProofSetting",
    "TheoremOptions",
    "TheoremPlan",
    "assumption_checks",
    "draw",
    "examine",
    "guaranteed_error",
    "plan_theorem",
    "sample_size",
]

UTILITY_LOSS = 0.01
"""Loss of utility that a deletion capacity allows: the greatest entry of A - A* (definition def:unlearning)."""


# The negation of an opposite would be true for nan.
_RELATIONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of the proof, `value relation bound`.

    name: the condition in words, with its symbols in the paper.
    source: where the paper states it.
    """

    name: str
    value: float
    relation: Literal["<", "<=", ">", ">="]
    bound: float
    source: str

    @property
    def holds(self) -> bool:
        """Whether the comparison is true; false if a number is missing (nan)."""
        return bool(_RELATIONS[self.relation](self.value, self.bound))


@dataclass(frozen=True, slots=True)
class ProofSetting:
    """A corpus, a model of it and a deletion, as the numbers that the proof compares.

    m, n, r: documents, words, topics.
    length: L, tokens of a document.
    deletions: m_U, in documents.
    epsilon, delta: of the guarantee.
    c: constant of the sensitivity.
    constants: a, p, gamma, eps0.
    rarest: the least probability of a word.
    sigma_min: the least singular value of Qbar_P^F.
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

    @property
    def delta_2(self) -> float:
        """Error of a row of Qbar^S: sqrt(4 a r / (m eps0))."""
        return math.sqrt(self._moved_by(1))

    @property
    def moved(self) -> float:
        """Bound on the change of a row of Qbar by m_U deletions: 4 a r m_U / (m eps0)."""
        return self._moved_by(self.deletions)

    @property
    def robustness(self) -> float:
        """Distance of an anchor's row from the hull of the other anchors' rows: gamma p."""
        return self.constants.gamma * self.constants.p_sep

    @property
    def entry_error(self) -> float:
        """(a r)^2 m_U / (m eps0 gamma p); c times this bounds entries of Abar - A^F and of Abar - A*."""
        ar = self.constants.a * self.r
        certainty = self.m * self.constants.eps0 * self.robustness
        return ar * ar * self.deletions / certainty

    def _moved_by(self, documents: int) -> float:
        certainty = self.m * self.constants.eps0
        return 4 * self.constants.a * self.r * documents / certainty


def _guarantee(n: int, r: int, constants: ModelConstants) -> tuple[float, float, float]:
    """Return the terms of theorem "Learning Guarantee" with constants 1, without their powers of eps0: tokens needed.

    a r^3 log n / (gamma p)^6 for the anchors, a^3 r^3 log n / (gamma p)^4 for the topics, r^2 log r for their shares.
    """
    a, gp = constants.a, constants.gamma * constants.p_sep
    return a * r**3 * math.log(n) / gp**6, a**3 * r**3 * math.log(n) / gp**4, r**2 * math.log(r)


def sample_size(n: int, r: int, length: float, constants: ModelConstants) -> float:
    """Return how many documents bring the learner within eps0 of the truth.

    n, r: words, topics.
    length: L, tokens of a document.
    constants: of the model.
    """
    for_anchors, for_topics, for_shares = _guarantee(n, r, constants)
    eps0 = constants.eps0
    return max(for_anchors / eps0, for_topics / eps0**3, for_shares / eps0**2) / length


def guaranteed_error(m: int, n: int, r: int, length: float, constants: ModelConstants) -> float:
    """Return the eps0 that m documents guarantee: the inverse of `sample_size`.

    constants: of the model; its eps0 is not used.
    Raises UsageError for m below 1.
    """
    if m < 1:
        raise UsageError(f"{m} documents cannot guarantee an error: use 1 or more")
    for_anchors, for_topics, for_shares = (term / (m * length) for term in _guarantee(n, r, constants))
    return max(for_anchors, math.cbrt(for_topics), math.sqrt(for_shares))


def assumption_checks(s: ProofSetting) -> tuple[Condition, ...]:
    """Return every comparison of the proof, in its order."""
    return (*_setting(s), *_rows(s), *_deletions(s))


def _setting(s: ProofSetting) -> tuple[Condition, ...]:
    """Return the assumptions on the mechanism, the corpus and the learner."""
    a = s.constants.a
    eps0 = s.constants.eps0
    needed = sample_size(s.n, s.r, s.length, s.constants)
    greatest_error = 1 / math.sqrt(s.n * s.r)
    least_probability = eps0 / (4 * a * s.r)
    accurate = "appendix B, assumption eps0 <= O(1/sqrt(nr))"
    frequent = "appendix B, assumption on rare words"
    return (
        Condition("epsilon below 1", s.epsilon, "<", 1.0, "lemma: gaussian mechanism"),
        Condition("p-separable", s.constants.p_sep, ">", 0.0, "assume:p_sep"),
        Condition("documents of the learner", s.m, ">=", needed, "theorem Learning Guarantee"),
        Condition("accuracy eps0", eps0, "<=", greatest_error, accurate),
        Condition("rarest word's probability", s.rarest, ">=", least_probability, frequent),
    )


def _rows(s: ProofSetting) -> tuple[Condition, ...]:
    """Return the limits that errors of rows of Qbar must stay below."""
    gp = s.robustness
    before = 20 * s.r * s.delta_2 / gp**2
    after = 20 * s.r * (s.delta_2 + s.moved) / gp**2
    difference = 20 * s.r * s.moved / (gp / 2) ** 2
    anchors = 10 * math.sqrt(s.r) * s.delta_2
    name = "20 r (4 a r m_U / m eps0) / (gamma p / 2)^2"
    return (
        Condition("20 r delta_2 / (gamma p)^2", before, "<", gp, "appendix B, lemma on Qbar^S"),
        Condition("10 sqrt(r) delta_2", anchors, "<", gp, "appendix B, gamma p / 2 robustness"),
        Condition("20 r delta_2' / (gamma p)^2", after, "<", gp, "appendix B, lemma on Qbar^F"),
        Condition(name, difference, "<", gp / 2, "appendix B, lemma on C^F - C^S"),
        Condition("sigma_min of Qbar_P^F", s.sigma_min, ">=", gp / 2, "appendix B, lemma on the Hessian"),
    )


def _deletions(s: ProofSetting) -> tuple[Condition, ...]:
    """Return the limits that the number of deletions must lie between, and the limit on the loss of utility."""
    m_U = s.deletions
    most = precondition(s.m, s.r, s.constants)
    # The proof neglects delta_2 against the other part of delta_2', which only many deletions allow.
    scale = 4 * s.constants.a * s.r
    enough = math.sqrt(s.m * s.constants.eps0 / scale)
    capacity = base_capacity(1.0, s.m, s.n, s.r, s.epsilon, s.delta)
    numbers = s.n * s.r
    noise = math.sqrt(numbers * math.log(numbers) * math.log(1 / s.delta)) / s.epsilon
    loss = s.c * s.entry_error * (noise + 1)
    many = "m_U enough for delta_2' = O(a r m_U / m eps0)"
    formal = "thm: topic model deletion capacity, formal statement"
    return (
        Condition("m_U within the utility proof", m_U, "<=", most, "section 4, proof sketch"),
        Condition(many, m_U, ">=", enough, "appendix B, proposition on delta_2'"),
        Condition("m_U within the deletion capacity at c = 1", m_U, "<=", capacity, formal),
        Condition("bound on E max |Atilde - A*|", loss, "<=", UTILITY_LOSS, "lemma:base_utility, def:unlearning"),
    )


# A release holds R in 32 bits, up to 3e38; this leaves room for r sums of draws.
_MOST_SIGMA = 1e35


@dataclass(frozen=True, slots=True)
class TheoremOptions:
    """The operator's choices for theorem mode.

    deletions: T, in documents; noise is calibrated to m_U = T for every forget set.
    epsilon, delta: of each of the two draws.
    c: the constant hidden in the sensitivity's O(...), not the capacity's constant.
    known: constants to use instead of estimates, by their names in ModelConstants.
    Raises UsageError for values that the proof does not cover.
    """

    deletions: int
    epsilon: float = 0.5
    delta: float = 1e-6
    c: float = 1.0
    known: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.deletions < 1:
            raise UsageError(
                f"with a deletion capacity of {self.deletions} documents theorem mode cannot unlearn: add documents, "
                "raise the capacity, or use certified mode"
            )
        # Called for its check of epsilon alone.
        theorem_sigma(1.0, self.epsilon, 0.5)
        if not 0 < self.delta < 1:
            raise UsageError(f"delta is {self.delta}: use a probability between 0 and 1, far below 1 over documents")
        if not 0 < self.c < math.inf:
            raise UsageError(f"c is {self.c}: use a finite number above 0")
        for name, value in self.known.items():
            if name not in ModelConstants.__dataclass_fields__ or not 0 < value < math.inf:
                raise UsageError(f"the constant {name} is {value}: give a, p_sep, gamma or eps0, above 0")

    def settled(self, estimated: ModelConstants) -> ModelConstants:
        """Return the constants to use: given ones, and estimates for the others."""
        return replace(estimated, **self.known)


@dataclass(frozen=True, slots=True)
class TheoremPlan:
    """The noise of a release.

    constants: of the model.
    c: the sensitivity's constant.
    formula: Delta as the paper has it; topics.sensitivity is Delta rounded up to a power of sqrt 2.
    topics: noise of the n r numbers of A.
    covariance: noise of the upper triangle of R.
    """

    constants: ModelConstants
    c: float
    formula: float
    topics: NoisePlan
    covariance: NoisePlan

    @property
    def together(self) -> Composition:
        """The composition of A and R: each is (epsilon, delta) on its own, and the pair reveals a little more."""
        plans = (self.topics, self.covariance)
        return Composition.of((plan.scale, 0.0) for plan in plans)


def plan_theorem(
    m: int, n: int, r: int, constants: ModelConstants, q_norm: float, options: TheoremOptions
) -> TheoremPlan:
    """Calibrate noise by Delta = c sqrt(n r) (a r)^2 T / (m eps0 gamma p).

    sigma = Delta sqrt(2 ln(1.25 / delta)) / epsilon.

    m, n, r: documents, words, topics.
    constants: of the model.
    q_norm: bound on ||Q||_2.
    options: of the operator; m_U is its T, so that |S_f| does not show.
    Raises UsageError if gamma or p is 0, if Delta is as small as rounding, or sigma too large for a release.
    """
    if not constants.gamma * constants.p_sep > 0:
        raise UsageError(
            f"gamma is {constants.gamma} and p is {constants.p_sep}, but the proof needs both above 0: ask for fewer "
            "topics"
        )
    formula = theorem_sensitivity(options.c, m, n, r, options.deletions, constants)
    if not formula >= LEAST_TOLERANCE:
        raise UsageError(f"Delta is {formula:.1e}, as small as rounding errors: raise the constant c")
    # Of both draws, with the factor that rounding Delta up may add.
    most = math.sqrt(2) * max(1.0, 2 * math.sqrt(2) * q_norm / constants.p_sep**3) * formula
    greatest_sigma = theorem_sigma(most, options.epsilon, options.delta)
    if not greatest_sigma < _MOST_SIGMA:
        raise UsageError(
            f"the proof asks for noise of {greatest_sigma:.1e}, too large for a release to hold: use certified mode"
        )
    # Constants estimated from S and from S - S_f differ in their last digits, as m does, and the guarantee means equal
    # noise on both sides. So Delta is rounded up to a power of sqrt 2, and noise differs only if a power of sqrt 2
    # lies between the two.
    delta_A = _rounded_up(formula)
    # The rows of anchors make sigma_min(A) >= p, so by Wedin (1973) ||dA^+||_F <= sqrt 2 ||dA||_F / p^2, and
    # ||dR||_F <= 2 sqrt 2 ||Q||_2 Delta / p^3.
    delta_R = _rounded_up(2 * math.sqrt(2) * q_norm * formula / constants.p_sep**3)
    return TheoremPlan(
        constants,
        options.c,
        formula,
        topics=_classic_noise(delta_A, options),
        covariance=_classic_noise(delta_R, options),
    )


def _rounded_up(value: float) -> float:
    """Return the next power of sqrt 2 at or above a value above 0."""
    half_octaves = math.ceil(2 * math.log2(value))
    return float(2.0 ** (half_octaves / 2))


def _classic_noise(sensitivity: float, options: TheoremOptions) -> NoisePlan:
    """Plan as `plan_noise` does, grid included, with the proof's sigma in place of the analytic one."""
    epsilon = options.epsilon
    delta = options.delta
    # The analytic mechanism needs less noise, so a larger sensitivity makes it draw the proof's sigma.
    wider = theorem_sigma(sensitivity, epsilon, delta) / gaussian_scale(epsilon, delta)
    plan = plan_noise(wider, epsilon, delta)
    return replace(plan, sensitivity=sensitivity, scale=theorem_sigma(1.0, epsilon, delta))


Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Compared:
    """An unlearned model before noise, a retraining on Q^F, and the noise that each would get.

    anchors: words that the retraining chooses, by topic; empty if it finds too few.
    topics_apart, covariance_apart: ||Abar - A^F||_F, ||Rbar - R^F||_F.
    ratio: the greater Delta over the smaller: 1 if both have equal noise, nan if the proof gives the retraining
        no noise.
    """

    anchors: tuple[str, ...]
    topics_apart: float
    covariance_apart: float
    ratio: float


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """Algorithm 1 up to its noise: secret.

    left: the input that it was run on.
    base: T(S), from which it starts.
    options: of the operator.
    found: Abar and Rbar.
    plan: of their noise.
    checks: conditions of the proof, with the measurements of `compared`.
    vacuity: the size of the noise compared with the model, in words.
    compared: the comparison with a retraining.
    """

    left: Remaining
    base: BaseStatistics
    options: TheoremOptions
    found: BaseModel
    plan: TheoremPlan
    checks: tuple[Condition, ...]
    vacuity: str
    compared: Compared

    @property
    def implied_c(self) -> float:
        """The c at which Delta equals the measured distance. It is not a bound; a smaller c is surely too small."""
        return self.plan.c * self.compared.topics_apart / self.plan.formula

    @property
    def covered(self) -> bool:
        """Whether all conditions of the proof hold here."""
        return all(check.holds for check in self.checks)


def examine(left: Remaining, base: BaseStatistics, options: TheoremOptions) -> Examined:
    """Run Algorithm 1 up to its noise, retrain on Q^F as well, and compare the conditions of the proof with the corpus.

    Raises UsageError for more deletions than T and if the proof gives no noise, CannotLearn if rows depend on
    each other.
    """
    # Noise for T deletions does not cover more of them.
    forgotten = base.documents - left.documents
    if forgotten > options.deletions:
        raise UsageError(
            f"{forgotten} documents exceed the capacity of {options.deletions} that the noise is for: retrain"
        )
    found = unlearn_base(left)
    constants = options.settled(base.constants)
    n, r = found.A.shape
    plan = plan_theorem(base.documents, n, r, constants, base.q_norm, options)
    setting = ProofSetting(
        m=base.documents,
        n=n,
        r=r,
        length=base.length,
        deletions=options.deletions,
        epsilon=options.epsilon,
        delta=options.delta,
        c=options.c,
        constants=constants,
        rarest=base.rarest,
        sigma_min=left.sigma_min,
    )
    compared = _compare(left, found, plan, options)
    checks = assumption_checks(setting) + _as_set(options.known, base.constants) + _held(left, base, compared, plan)
    return Examined(left, base, options, found, plan, checks, _vacuity(found.A, plan.topics), compared)


def draw(examined: Examined, seed_for: Callable[[str], NoiseSeed]) -> tuple[Float, Float]:
    """Return A (n, r) with nu_A, its columns on the simplex, and R (r, r) with nu_R, positive semidefinite.

    seed_for: seed of the noise on "A" and on "R", as `VersionNoise.seed` gives for a purpose.
    """
    found = examined.found
    plan = examined.plan
    noised = add_noise(found.A, plan.topics, seed_for("A"))
    # A shift of a column does not change its projection on the simplex. With its greatest number at 0, rounding cannot
    # lose the 1 of the simplex against a large sigma.
    A = project_columns(noised - noised.max(axis=0))
    # Under a seed of its own: the same noise on A and R could be cancelled out.
    return A, _noised_covariance(found.R, plan.covariance, seed_for("R"))


def _noised_covariance(R: Float, plan: NoisePlan, seed: NoiseSeed) -> Float:
    """Return R with the same noise above and below the diagonal, projected on the positive semidefinite matrices."""
    # Noise for the upper triangle alone: the plan is for its numbers, and those below are the same numbers again.
    upper = np.triu_indices(len(R))
    noised = np.zeros_like(R)
    noised[upper] = add_noise(R[upper], plan, seed)
    symmetric = noised + np.triu(noised, 1).T
    return project_psd(symmetric)


def _compare(left: Remaining, found: BaseModel, plan: TheoremPlan, options: TheoremOptions) -> Compared:
    """Retrain on Q^F, and compare the anchors it would choose, its topics and its noise with the unlearned ones."""
    retrained = retrain_rows(left)
    # Too few anchors are a finding, not an error: the caller learns that a retraining would differ.
    try:
        anchors = tuple(left.words[k] for k in chosen_again(left))
    except CannotLearn:
        anchors = ()
    return Compared(
        anchors,
        topics_apart=float(np.linalg.norm(found.A - retrained.A)),
        covariance_apart=float(np.linalg.norm(found.R - retrained.R)),
        ratio=_noise_ratio(left, retrained, plan, options),
    )


def _noise_ratio(left: Remaining, retrained: BaseModel, plan: TheoremPlan, options: TheoremOptions) -> float:
    """Return the greater Delta over the smaller, of A or of R; nan if the retraining has no noise."""
    # A retraining estimates the constants from Q^F, which is all that it has.
    rows = dense_rows(left.q, left.anchors)
    X = rows / rows.sum(axis=1, keepdims=True)
    shares = retrained.C.T @ left.p
    constants = options.settled(anchored_constants(X, retrained.A, shares, left.anchors))
    n, r = retrained.A.shape
    try:
        other = plan_theorem(left.documents, n, r, constants, float(left.p.max()), options)
    except UsageError:
        return math.nan
    of_topics = plan.topics.sensitivity / other.topics.sensitivity
    of_covariance = plan.covariance.sensitivity / other.covariance.sensitivity
    return max(of_topics, 1 / of_topics, of_covariance, 1 / of_covariance)


def _as_set(known: Mapping[str, float], estimated: ModelConstants) -> tuple[Condition, ...]:
    """Hold constants that were set against their estimates: the proof bears a too large a, a too small p or gamma."""
    checks = []
    learning = "theorem Learning Guarantee"
    if "a" in known:
        checks.append(Condition("a as it is set", known["a"], ">=", estimated.a, learning))
    if "p_sep" in known:
        checks.append(Condition("p as it is set", known["p_sep"], "<=", estimated.p_sep, "assume:p_sep"))
    if "gamma" in known:
        checks.append(Condition("gamma as it is set", known["gamma"], "<=", estimated.gamma, learning))
    return tuple(checks)


def _held(left: Remaining, base: BaseStatistics, compared: Compared, plan: TheoremPlan) -> tuple[Condition, ...]:
    """Hold what the proof takes as unchanged, and the distances that it bounds, against a retraining on Q^F."""
    changed = len(set(left.words) ^ set(base.words))
    kept = len(set(base.anchors) & set(compared.anchors))
    of_topics, of_covariance = compared.topics_apart, compared.covariance_apart
    words = "words that entered or left the vocabulary"
    delta = "Delta of a retraining beside this one"
    anchors = "anchors that a retraining chooses too"
    bounded = "lemma:base_indistinguishability"
    return (
        Condition(words, changed, "<=", 0, "section 2, the vocabulary is given"),
        Condition(delta, compared.ratio, "<=", 1, "def:unlearning, equal noise"),
        Condition(anchors, kept, ">=", len(base.anchors), "appendix B, anchors unchanged"),
        Condition("measured ||Abar - A^F||_F", of_topics, "<=", plan.topics.sensitivity, bounded),
        Condition("measured ||Rbar - R^F||_F", of_covariance, "<=", plan.covariance.sensitivity, "derived here"),
    )


def _vacuity(A: Float, plan: NoisePlan) -> str:
    """Compare the noise of a plan with A (n, r): E||nu_A||_F to first order, and about its greatest entry."""
    ratio = plan.sigma * math.sqrt(A.size) / float(np.linalg.norm(A))
    # The logarithm of 1 would make the noise of a single number 0.
    entry = plan.sigma * math.sqrt(2 * math.log(max(A.size, 2)))
    useful = "within" if entry <= UTILITY_LOSS else "above"
    verdict = "vacuous: use certified mode" if ratio >= 1 else "the model can be seen through the noise"
    return (
        f"noise has {ratio:.3g} times the norm of the model, its greatest entry is about {entry:.3g}, "
        f"{useful} the {UTILITY_LOSS} that utility allows; {verdict}"
    )
