"""Theorem mode: Algorithm 1 with the noise of its proof, shown with every number that the proof rests on.

    TheoremOptions      what the operator sets: the guarantee, T, c, and constants where they are known
    plan_theorem        Delta and sigma, a function of those and of sizes, never of the forget set
    BaseFacts           what noise and conditions take from the base model: sizes and constants, small enough to keep
    theorem_release     Abar and Rbar, noised and projected, with checks and the size of the noise
    examine, draw       its two halves: all that is measured, then the noise
    release_remaining   the same from kept statistics and exact counts (topics/remaining.py)

The sensitivity is proved for an unknown c and under assumptions that real corpora do not meet: at realistic sizes the
noise drowns the model, and `Vacuity` says so. Certified mode needs neither. Checks and distances are computed before
noise: they are for the operator, not for publication.
Source: Wei et al. (2025), algorithm 1 and theorem 1; the sensitivity of R, which the paper leaves out, is derived here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.privacy.assumptions import Check, Situation, assumption_checks
from streamtopic.privacy.capacity import ModelConstants, anchored_constants, fit_constants
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import NoisePlan, add_noise, project_columns
from streamtopic.privacy.theorem_noise import TheoremOptions, TheoremPlan, Vacuity, plan_theorem
from streamtopic.topics.algorithm1 import (
    BaseModel,
    Remaining,
    chosen_again,
    project_psd,
    remaining,
    retrain_rows,
    unlearn_base,
)
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.products import dense_rows

__all__ = [
    "BaseFacts",
    "Compared",
    "Examined",
    "TheoremOptions",
    "TheoremPlan",
    "TheoremRelease",
    "Vacuity",
    "draw",
    "examine",
    "fit_constants",
    "plan_theorem",
    "release_remaining",
    "theorem_release",
]

Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BaseFacts:
    """What the noise and the conditions take from A(S), so that S itself is not needed again.

    documents: m = |S|; constants: estimated; q_norm: the greatest word mass, at least ||Q||_2; rarest: the least.
    """

    documents: int
    constants: ModelConstants
    q_norm: float
    rarest: float

    @classmethod
    def of(cls, fit: TopicFit) -> Self:
        """Take them from A(S)."""
        return cls(fit.documents, fit_constants(fit), float(fit.p.max()), float(fit.p[fit.live].min()))


@dataclass(frozen=True, slots=True)
class Compared:
    """An unlearned model before noise beside a retraining on Q^F, and the noise that each would get.

    anchors: words that the retraining chooses, by topic, none where it finds too few; margin: their least lead;
    topics_apart, covariance_apart: ||Abar - A^F||_F, ||Rbar - R^F||_F; ratio: the greater Delta over the smaller, 1
    where both are noised alike, nan where the retraining has none.
    """

    anchors: tuple[str, ...]
    margin: float
    topics_apart: float
    covariance_apart: float
    ratio: float


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """Abar and Rbar, `found`, with the noise that they get, all before a number is drawn: secret."""

    found: BaseModel
    plan: TheoremPlan
    checks: tuple[Check, ...]
    vacuity: Vacuity
    compared: Compared | None


@dataclass(frozen=True, slots=True, eq=False)
class TheoremRelease:
    """An unlearned model after noise, over `words`: A (n, r) columns on the simplex, R (r, r) positive semidefinite.

    checks: every condition of the proof, and, where compared, what was measured against a retraining.
    """

    words: tuple[str, ...]
    A: Float
    R: Float
    plan: TheoremPlan
    checks: tuple[Check, ...]
    vacuity: Vacuity
    compared: Compared | None

    @property
    def distance(self) -> float:
        """||Abar - A^F||_F, nan where not compared."""
        return self.compared.topics_apart if self.compared else math.nan

    @property
    def implied_c(self) -> float:
        """The c at which Delta is just the distance measured here: no bound, but a c below it is surely too small."""
        return self.plan.c * self.distance / self.plan.formula

    @property
    def covered(self) -> bool:
        """Whether everything that the proof needs holds here."""
        return all(check.holds for check in self.checks)


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
    return release_remaining(remaining(fit, forgotten), BaseFacts.of(fit), options, seed_for, compare=compare)


def release_remaining(
    left: Remaining,
    base: BaseFacts,
    options: TheoremOptions,
    seed_for: Callable[[str], NoiseSeed],
    *,
    compare: bool = True,
) -> TheoremRelease:
    """Return U_base(S_f, A(S), T(S)) from what remains, as `theorem_release` does. Raises UsageError, CannotLearn."""
    return draw(examine(left, base, options, compare=compare), seed_for)


def examine(left: Remaining, base: BaseFacts, options: TheoremOptions, *, compare: bool = True) -> Examined:
    """Do all but draw: run Algorithm 1 up to its noise, and hold the proof against what is there.

    Raises UsageError for more deletions than T and where the proof gives no noise, CannotLearn where rows depend.
    """
    forgotten = base.documents - left.documents
    if forgotten > options.deletions:
        raise UsageError(
            f"{forgotten} documents exceed the capacity of {options.deletions} that the noise is for: retrain"
        )
    found = unlearn_base(left)
    constants = options.settled(base.constants)
    n, r = found.A.shape
    q_norm = options.q_norm if options.q_norm is not None else base.q_norm
    plan = plan_theorem(base.documents, n, r, constants, q_norm, options)
    checks = assumption_checks(
        Situation(
            m=base.documents,
            n=n,
            r=r,
            length=options.length,
            deletions=options.deletions,
            epsilon=options.epsilon,
            delta=options.delta,
            c=options.c,
            constants=constants,
            rarest=base.rarest,
            sigma_min=left.sigma_min,
        )
    )
    checks += _as_set(options.known, base.constants)
    compared = _compare(left, found, plan, options) if compare else None
    if compared is not None:
        checks += _held(left, compared, plan)
    return Examined(found, plan, checks, _vacuity(found.A, plan.topics), compared)


def draw(examined: Examined, seed_for: Callable[[str], NoiseSeed]) -> TheoremRelease:
    """Add nu_A and nu_R and project; seed_for: as in `theorem_release`."""
    found, plan = examined.found, examined.plan
    noised = add_noise(found.A, plan.topics, seed_for("A"))
    # A projection on the simplex does not see a shift, and next to 0 no sigma is too large for it.
    A = project_columns(noised - noised.max(axis=0))
    R = _noised_covariance(found.R, plan.covariance, seed_for("R"))
    return TheoremRelease(found.words, A, R, plan, examined.checks, examined.vacuity, examined.compared)


def _noised_covariance(R: Float, plan: NoisePlan, seed: NoiseSeed) -> Float:
    """Return R with the same noise above and below the diagonal, projected on the positive semidefinite matrices."""
    upper = np.triu_indices(len(R))
    noised = np.zeros_like(R)
    noised[upper] = add_noise(R[upper], plan, seed)
    return project_psd(noised + np.triu(noised, 1).T)


def _compare(left: Remaining, found: BaseModel, plan: TheoremPlan, options: TheoremOptions) -> Compared:
    """Retrain on Q^F and see what it would choose, find and draw."""
    retrained = retrain_rows(left)
    try:
        choice = chosen_again(left)
        anchors, margin = tuple(left.names[k] for k in choice.rows), choice.margin
    except CannotLearn:
        anchors, margin = (), math.nan
    rows = dense_rows(left.q, left.live[left.anchors])[:, left.live]
    X = rows / rows.sum(axis=1, keepdims=True)
    estimated = anchored_constants(X, retrained.A, retrained.C.T @ left.p, left.anchors)
    n, r = found.A.shape
    q_norm = options.q_norm if options.q_norm is not None else float(left.p.max())
    try:
        other = plan_theorem(left.documents, n, r, options.settled(estimated), q_norm, options)
        ratios = [
            one.sensitivity / two.sensitivity
            for one, two in ((plan.topics, other.topics), (plan.covariance, other.covariance))
        ]
    except UsageError:
        ratios = [math.nan]
    return Compared(
        anchors,
        margin,
        topics_apart=float(np.linalg.norm(found.A - retrained.A)),
        covariance_apart=float(np.linalg.norm(found.R - retrained.R)),
        ratio=max(max(ratio, 1 / ratio) for ratio in ratios),
    )


def _as_set(known: Mapping[str, float], estimated: ModelConstants) -> tuple[Check, ...]:
    """Hold constants that were set against their estimates: the proof bears a too large a, a too small p or gamma."""
    said = {
        "a": Check("a as it is set", known.get("a", math.nan), ">=", estimated.a, "theorem Learning Guarantee"),
        "p_sep": Check("p as it is set", known.get("p_sep", math.nan), "<=", estimated.p_sep, "assume:p_sep"),
        "gamma": Check(
            "gamma as it is set", known.get("gamma", math.nan), "<=", estimated.gamma, "theorem Learning Guarantee"
        ),
    }
    return tuple(check for name, check in said.items() if name in known)


def _held(left: Remaining, compared: Compared, plan: TheoremPlan) -> tuple[Check, ...]:
    """Hold what the proof bounds, or takes as unchanged, against a retraining on Q^F."""
    kept = len({*compared.anchors} & {left.words[k] for k in left.anchors})
    words = (
        ()
        if left.changed is None
        else (
            Check(
                "words that entered or left the vocabulary", left.changed, "<=", 0, "section 2, the vocabulary is given"
            ),
        )
    )
    return (
        *words,
        Check("Delta of a retraining beside this one", compared.ratio, "<=", 1, "def:unlearning, equal noise"),
        Check("anchors that a retraining chooses too", kept, ">=", len(left.anchors), "appendix B, anchors unchanged"),
        Check(
            "measured ||Abar - A^F||_F",
            compared.topics_apart,
            "<=",
            plan.topics.sensitivity,
            "lemma:base_indistinguishability",
        ),
        Check(
            "measured ||Rbar - R^F||_F", compared.covariance_apart, "<=", plan.covariance.sensitivity, "derived here"
        ),
    )


def _vacuity(A: Float, plan: NoisePlan) -> Vacuity:
    sigma = plan.sigma
    return Vacuity(sigma * math.sqrt(A.size), float(np.linalg.norm(A)), sigma * math.sqrt(2 * math.log(max(A.size, 2))))
