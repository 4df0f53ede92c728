"""The noise of theorem mode: what the operator sets, Delta and sigma of the paper's proof, and how much is left to see.

    TheoremOptions      the guarantee, T, c, and constants where they are known
    plan_theorem        Delta and sigma, a function of those and of sizes, never of the forget set
    Vacuity             the noise beside what it is added to

Source: Wei et al. (2025), algorithm 1 and theorem 1; the sensitivity of R, which the paper leaves out, is derived here.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.assumptions import UTILITY_LOSS
from streamtopic.privacy.capacity import ModelConstants, theorem_sensitivity, theorem_sigma
from streamtopic.privacy.gaussian import gaussian_scale
from streamtopic.privacy.noise import NoisePlan, plan_noise
from streamtopic.topics.options import LEAST_TOLERANCE

__all__ = ["TheoremOptions", "TheoremPlan", "Vacuity", "plan_theorem"]

_MOST_SIGMA = 1e35
"""A release holds R in 32 bits, up to 3e38; this leaves room for r sums of draws."""


@dataclass(frozen=True, slots=True)
class TheoremOptions:
    """What the operator of theorem mode sets.

    deletions: T, the m_U that noise is calibrated to whatever the forget set; length: L, tokens in a document; c: the
    constant hidden in the sensitivity's O(...), not that of the capacity; constants: a, gamma, p, eps0, or None to
    estimate them but for those in `known`, by their field of ModelConstants; q_norm: bound on ||Q||_2, at most 1, or
    None for the greatest word mass. Raises UsageError for values that the proof does not cover.
    """

    deletions: int
    epsilon: float = 0.5
    delta: float = 1e-6
    c: float = 1.0
    length: float = 2.0
    constants: ModelConstants | None = None
    q_norm: float | None = None
    known: Mapping[str, float] = field(default_factory=dict)

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
        for name, value in self.known.items():
            if name not in ModelConstants.__dataclass_fields__ or not 0 < value < math.inf:
                raise UsageError(f"the constant {name} is {value}: give a, p_sep, gamma or eps0, above 0")

    def settled(self, estimated: ModelConstants) -> ModelConstants:
        """Return the constants to use where these were estimated."""
        return self.constants or replace(estimated, **self.known)


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


def plan_theorem(
    m: int, n: int, r: int, constants: ModelConstants, q_norm: float, options: TheoremOptions
) -> TheoremPlan:
    """Calibrate noise for m documents, n words, r topics; m_U is T, so that |S_f| does not show.

    Delta = c sqrt(n r) (a r)^2 T / (m eps0 gamma p); sigma = Delta sqrt(2 ln(1.25 / delta)) / epsilon. Constants
    estimated from S and from S - S_f differ in their last digits, as m does, and equal noise on both sides is what the
    guarantee means: so Delta is rounded up to a power of sqrt 2. Only where one lies between the two does it differ.
    For R: anchors' rows make sigma_min(A) >= p, so by Wedin (1973), ||dA^+||_F <= sqrt 2 ||dA||_F / p^2, and
    ||dR||_F <= 2 sqrt 2 ||Q||_2 Delta / p^3.
    Raises UsageError where gamma or p is 0, where Delta is no larger than rounding, or sigma past what a release holds.
    """
    if not constants.gamma * constants.p_sep > 0:
        raise UsageError(
            f"gamma is {constants.gamma}, p is {constants.p_sep}: the proof needs both above 0, ask fewer topics"
        )
    formula = theorem_sensitivity(options.c, m, n, r, options.deletions, constants)
    if not formula >= LEAST_TOLERANCE:
        raise UsageError(f"Delta is {formula:.1e}, too near to what rounding alone may change: raise the constant c")
    most = math.sqrt(2) * max(1.0, 2 * math.sqrt(2) * q_norm / constants.p_sep**3) * formula
    if not theorem_sigma(most, options.epsilon, options.delta) < _MOST_SIGMA:
        raise UsageError(
            f"the proof asks for noise of {theorem_sigma(most, options.epsilon, options.delta):.1e}, which no release "
            "can hold: use certified mode"
        )
    delta_A = _rounded_up(formula)
    delta_R = _rounded_up(2 * math.sqrt(2) * q_norm * formula / constants.p_sep**3)
    return TheoremPlan(
        constants,
        options.c,
        formula,
        topics=_classic_noise(delta_A, options),
        covariance=_classic_noise(delta_R, options),
    )


def _rounded_up(value: float) -> float:
    return float(2.0 ** (math.ceil(2 * math.log2(value)) / 2))


def _classic_noise(sensitivity: float, options: TheoremOptions) -> NoisePlan:
    """Plan as privacy/noise does, grid included, with the proof's sigma in place of the analytic one."""
    epsilon, delta = options.epsilon, options.delta
    wider = theorem_sigma(sensitivity, epsilon, delta) / gaussian_scale(epsilon, delta)
    plan = plan_noise(wider, epsilon, delta)
    return replace(plan, sensitivity=sensitivity, scale=theorem_sigma(1.0, epsilon, delta))
