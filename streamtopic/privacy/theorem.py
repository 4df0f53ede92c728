"""Theorem mode: Algorithm 1 with the noise of its proof, shown with every number that the proof rests on.

    TheoremOptions      what the operator sets: the guarantee, T, c, and constants where they are known
    plan_theorem        Delta and sigma, a function of those and of sizes, never of the forget set
    theorem_release     Abar and Rbar, noised and projected, with checks and the size of the noise

The sensitivity is proved for an unknown c and under assumptions that real corpora do not meet: at realistic sizes the
noise drowns the model, and `Vacuity` says so. Certified mode needs neither. Checks and distances are computed before
noise: they are for the operator, not for publication.
Source: Wei et al. (2025), algorithm 1 and theorem 1; the sensitivity of R, which the paper leaves out, is derived here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.assumptions import UTILITY_LOSS, Check, Situation, assumption_checks
from streamtopic.privacy.capacity import ModelConstants, estimate_constants, theorem_sensitivity, theorem_sigma
from streamtopic.privacy.gaussian import gaussian_scale
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import NoisePlan, add_noise, plan_noise, project_columns
from streamtopic.topics.algorithm1 import Remaining, project_psd, remaining, retrain_rows, unlearn_base
from streamtopic.topics.anchors import farthest_rows
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.released import topic_correlations

__all__ = [
    "TheoremOptions",
    "TheoremPlan",
    "TheoremRelease",
    "Vacuity",
    "fit_constants",
    "plan_theorem",
    "theorem_release",
]

Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TheoremOptions:
    """What the operator of theorem mode sets.

    deletions: T, the m_U that noise is calibrated to whatever the forget set; length: L, tokens in a document; c: the
    constant hidden in the sensitivity's O(...), not that of the capacity; constants: a, gamma, p, eps0, or None to
    estimate them; q_norm: bound on ||Q||_2, at most 1, or None for the greatest word mass. Raises UsageError for values
    that the proof does not cover.
    """

    deletions: int
    epsilon: float = 0.5
    delta: float = 1e-6
    c: float = 1.0
    length: float = 2.0
    constants: ModelConstants | None = None
    q_norm: float | None = None

    def __post_init__(self) -> None:
        if self.deletions < 1:
            raise UsageError(
                f"a capacity of {self.deletions} documents leaves nothing to unlearn: add documents, raise the "
                "capacity's constant, or use certified mode"
            )
        theorem_sigma(1.0, self.epsilon, 0.5)  # refuses epsilon
        if not 0 < self.delta < 1:
            raise UsageError(f"delta is {self.delta}: use a probability between 0 and 1, far below 1 over documents")
        for name, value in (("c", self.c), ("length", self.length)):
            if not 0 < value < math.inf:
                raise UsageError(f"{name} is {value}: use a number above 0")
        if self.q_norm is not None and not 0 < self.q_norm <= 1:
            raise UsageError(f"q_norm is {self.q_norm}: entries of Q sum to 1, so its norm is above 0, at most 1")


@dataclass(frozen=True, slots=True)
class TheoremPlan:
    """The noise of a release: `topics` for the n r numbers of A, `covariance` for the upper triangle of R.

    c: the sensitivity's constant; formula: Delta as the paper has it; topics.sensitivity is that rounded up to a power
    of sqrt 2.
    """

    constants: ModelConstants
    c: float
    formula: float
    topics: NoisePlan
    covariance: NoisePlan

    @property
    def together(self) -> Composition:
        """What A and R reveal when both are released: each is (epsilon, delta) on its own, the pair a little more."""
        return Composition.of((plan.scale, plan.slack) for plan in (self.topics, self.covariance))


@dataclass(frozen=True, slots=True)
class Vacuity:
    """How large the noise is beside what it is added to.

    noise: E||nu_A||_F to first order, sigma sqrt(n r); model: ||Abar||_F; entry: sigma sqrt(2 ln(n r)), about the
    greatest entry of nu_A, to be held against the utility loss of 0.01.
    """

    noise: float
    model: float
    entry: float

    @property
    def ratio(self) -> float:
        """Noise norm over model norm."""
        return self.noise / self.model

    @property
    def vacuous(self) -> bool:
        """Whether the noise is as large as the model: nothing of it is left to use."""
        return self.ratio >= 1

    def __str__(self) -> str:
        verdict = "vacuous: use certified mode" if self.vacuous else "the model can be seen through the noise"
        useful = "within" if self.entry <= UTILITY_LOSS else "above"
        return (
            f"noise has {self.ratio:.3g} times the norm of the model, its greatest entry is about {self.entry:.3g}, "
            f"{useful} the {UTILITY_LOSS} that utility allows; {verdict}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class TheoremRelease:
    """An unlearned model after noise, over `words`: A (n, r) columns on the simplex, R (r, r) positive semidefinite.

    checks: every condition of the proof, and, where compared, what was measured against a retraining; distance:
    ||Abar - A^F||_F, nan where not compared.
    """

    words: tuple[str, ...]
    A: Float
    R: Float
    plan: TheoremPlan
    checks: tuple[Check, ...]
    vacuity: Vacuity
    distance: float

    @property
    def implied_c(self) -> float:
        """The c at which Delta is just the distance measured here: no bound, but a c below it is surely too small."""
        return self.plan.c * self.distance / self.plan.formula

    @property
    def covered(self) -> bool:
        """Whether everything that the proof needs holds here."""
        return all(check.holds for check in self.checks)


def fit_constants(fit: TopicFit, eps0: float | None = None) -> ModelConstants:
    """Estimate a, p, gamma from a learned model before noise; eps0 is 1/sqrt(n r) unless given."""
    anchors = np.searchsorted(fit.live, fit.choice.rows)
    return estimate_constants(fit.A, topic_correlations(fit, fit.A).R, fit.topic_masses, anchors, eps0)


def plan_theorem(
    m: int, n: int, r: int, constants: ModelConstants, q_norm: float, options: TheoremOptions
) -> TheoremPlan:
    """Calibrate noise for m documents, n words, r topics; m_U is T, so that |S_f| does not show.

    Delta = c sqrt(n r) (a r)^2 T / (m eps0 gamma p); sigma = Delta sqrt(2 ln(1.25 / delta)) / epsilon. Constants
    estimated from S and from S - S_f differ in their last digits, as m does, and equal noise on both sides is what the
    guarantee means: so Delta is rounded up to a power of sqrt 2. Only where one lies between the two does it differ.
    For R: anchors' rows make sigma_min(A) >= p, so by Wedin (1973), ||dA^+||_F <= sqrt 2 ||dA||_F / p^2, and
    ||dR||_F <= 2 sqrt 2 ||Q||_2 Delta / p^3.
    Raises UsageError where gamma or p is 0, or delta too small for so many numbers.
    """
    if not constants.gamma * constants.p_sep > 0:
        raise UsageError(
            f"gamma is {constants.gamma}, p is {constants.p_sep}: the proof needs both above 0, ask fewer topics"
        )
    formula = theorem_sensitivity(options.c, m, n, r, options.deletions, constants)
    delta_A = _rounded_up(formula)
    delta_R = _rounded_up(2 * math.sqrt(2) * q_norm * formula / constants.p_sep**3)
    mass_R = r * q_norm / constants.p_sep**2
    return TheoremPlan(
        constants,
        options.c,
        formula,
        topics=_classic_noise(n * r, 2.0 * r, delta_A, options),
        covariance=_classic_noise(r * (r + 1) // 2, mass_R, delta_R, options),
    )


def theorem_release(
    fit: TopicFit,
    forgotten: CountSource | None,
    options: TheoremOptions,
    seed_for: Callable[[str], NoiseSeed],
    *,
    compare: bool = True,
) -> TheoremRelease:
    """Return U_base(S_f, A(S), T(S)); with forgotten None, U_base of the empty forget set, the reference run.

    fit: A(S), learned with learner "paper"; it stays as it is. seed_for: seed of the noise on "A" and on "R", as
    `NoiseKey.seed` gives for a purpose. compare: also retrain on Q^F and measure what the sensitivity must cover.
    Raises UsageError for more deletions than T, NegativeCounts where the forget set cannot have been learned,
    CannotLearn where the anchors' rows are gone or dependent.
    """
    if forgotten is not None and forgotten.documents > options.deletions:
        raise UsageError(
            f"{forgotten.documents} documents exceed the capacity of {options.deletions} that the noise is for: retrain"
        )
    left = remaining(fit, forgotten)
    found = unlearn_base(left)
    constants = options.constants or fit_constants(fit)
    n, r = len(fit.live), fit.options.n_topics
    q_norm = options.q_norm if options.q_norm is not None else float(fit.p.max())
    plan = plan_theorem(fit.documents, n, r, constants, q_norm, options)
    A = project_columns(add_noise(found.A, plan.topics, seed_for("A")))
    R = _noised_covariance(found.R, plan.covariance, seed_for("R"))
    checks = assumption_checks(
        Situation(
            m=fit.documents,
            n=n,
            r=r,
            length=options.length,
            deletions=options.deletions,
            epsilon=options.epsilon,
            delta=options.delta,
            c=options.c,
            constants=constants,
            rarest=float(fit.p[fit.live].min()),
            sigma_min=left.sigma_min,
        )
    )
    distance = math.nan
    if compare:
        retrained = retrain_rows(left)
        distance = float(np.linalg.norm(found.A - retrained.A))
        checks += _measured(fit, left, distance, float(np.linalg.norm(found.R - retrained.R)), plan)
    return TheoremRelease(found.words, A, R, plan, checks, _vacuity(found.A, plan.topics), distance)


def _rounded_up(value: float) -> float:
    return float(2.0 ** (math.ceil(2 * math.log2(value)) / 2))


def _classic_noise(numbers: int, mass: float, sensitivity: float, options: TheoremOptions) -> NoisePlan:
    """Plan as privacy/noise does, grid and slack included, with the proof's sigma in place of the analytic one."""
    epsilon, delta = options.epsilon, options.delta
    wider = theorem_sigma(sensitivity, epsilon, delta) / gaussian_scale(epsilon, delta)
    plan = plan_noise(numbers, mass, wider, epsilon, delta)
    return replace(plan, sensitivity=sensitivity, scale=theorem_sigma(1.0, epsilon, plan.delta_used))


def _noised_covariance(R: Float, plan: NoisePlan, seed: NoiseSeed) -> Float:
    """Return R with the same noise above and below the diagonal, projected on the positive semidefinite matrices."""
    upper = np.triu_indices(len(R))
    noised = np.zeros_like(R)
    noised[upper] = add_noise(R[upper], plan, seed)
    return project_psd(noised + np.triu(noised, 1).T)


def _measured(fit: TopicFit, left: Remaining, far_A: float, far_R: float, plan: TheoremPlan) -> tuple[Check, ...]:
    """Hold what the proof bounds against a retraining on Q^F."""
    mass = left.q.row_sums()
    candidates = fit.candidates[mass[fit.candidates] > 0]
    try:
        chosen = set(farthest_rows(left.q, candidates, mass, len(left.anchors)).rows.tolist())
    except CannotLearn:
        chosen = set()
    kept = len(chosen & set(fit.choice.rows.tolist()))
    return (
        Check("anchors that a retraining chooses too", kept, ">=", len(left.anchors), "appendix B, anchors unchanged"),
        Check("measured ||Abar - A^F||_F", far_A, "<=", plan.topics.sensitivity, "lemma:base_indistinguishability"),
        Check("measured ||Rbar - R^F||_F", far_R, "<=", plan.covariance.sensitivity, "derived here"),
    )


def _vacuity(A: Float, plan: NoisePlan) -> Vacuity:
    sigma = plan.sigma
    return Vacuity(sigma * math.sqrt(A.size), float(np.linalg.norm(A)), sigma * math.sqrt(2 * math.log(max(A.size, 2))))
