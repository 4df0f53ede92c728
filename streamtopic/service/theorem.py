"""Theorem mode in the service: Algorithm 1 on the base model's own documents, with noise and conditions of its proof.

    Run               the algorithm up to its noise
    TheoremModeller   a base model, or the counts that are left of its documents, to Abar and Rbar
    theorem_payload   their noise, once; the rest of the payload from what was noised

An update covers the documents of the base model only; m_U is its capacity whatever the forget set; what was measured
before noise goes into the release record, for the operator alone. Source: Wei et al. (2025), algorithm 1.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamtopic.counts import CountSource, WordSets
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.privacy.assumptions import Check
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.theorem import Examined, TheoremRelease, draw, examine
from streamtopic.release import Payload
from streamtopic.service.modelling import Modelled, NotVerified
from streamtopic.service.publishing import PayloadPlan, ReleaseNoise, displayed, frequencies, head_facts
from streamtopic.service.tasks import TaskData, published_heads
from streamtopic.service.theorem_base import TheoremBase, TheoremRule
from streamtopic.state import Snapshot
from streamtopic.topics.algorithm1 import BaseModel, Remaining, remaining, remaining_counts
from streamtopic.topics.anchors import changed_anchors
from streamtopic.topics.fingerprint import fingerprint
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.released import topic_shares

__all__ = ["Run", "TheoremModeller", "Unlearned", "theorem_payload"]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Algorithm 1 up to its noise: secret. left: what remains of the documents of `base`."""

    left: Remaining
    base: TheoremBase
    rule: TheoremRule
    learner: LearnerOptions
    examined: Examined

    @classmethod
    def of(cls, left: Remaining, base: TheoremBase, rule: TheoremRule, learner: LearnerOptions) -> Self:
        """Run it. Raises UsageError where the proof gives no noise or T is exceeded, CannotLearn."""
        return cls(left, base, rule, learner, examine(left, base.facts, base.options(rule)))

    @property
    def told_apart(self) -> str | None:
        """Say why a retraining on these counts could be told apart for certain, None where it cannot."""
        compared, anchors = self.examined.compared, self.base.statistics.anchors
        if compared is None or compared.anchors != anchors:
            return changed_anchors(anchors, () if compared is None else compared.anchors)
        if math.isnan(compared.ratio):
            return "the proof gives no noise for a retraining: gamma or p would be 0"
        if not compared.ratio <= 1:
            return (
                f"a retraining would draw noise of another size, {compared.ratio:.3g} times as large or small: "
                "set `imbalance`, `conditioning` and `separability`, which are estimated, to keep it"
            )
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Unlearned:
    """Abar and Rbar of the documents that a snapshot counts, with the facts of a version that `Modelled` has too.

    cut: partition to the offset up to which records are reflected; seconds: what it took. Nothing is carried over from
    the last version, and nothing is certified.
    """

    run: Run
    snapshot: Snapshot
    cut: Mapping[int, int]
    seconds: float
    warm: bool = False
    certificate: float = math.inf

    @property
    def documents(self) -> int:
        """Documents that it is of."""
        return self.run.left.documents

    @property
    def words(self) -> tuple[str, ...]:
        """Its words, ascending."""
        return self.run.left.words

    @property
    def anchors(self) -> tuple[str, ...]:
        """The anchor word of each topic."""
        return self.run.base.statistics.anchors

    @property
    def margin(self) -> float:
        """The least lead of an anchor in a retraining."""
        compared = self.run.examined.compared
        return compared.margin if compared else math.nan

    @property
    def tolerance(self) -> float:
        """What the proof promises of ||Abar - A^F||_F: Delta."""
        return self.run.examined.plan.topics.sensitivity


class TheoremModeller:
    """Makes models of base documents; keeps the last for comparison. clock: seconds, for durations."""

    def __init__(
        self, options: LearnerOptions, rule: TheoremRule, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.options = options
        self.rule = rule
        self.last: BaseModel | None = None
        self._clock = clock

    def first(self, modelled: Modelled, capacity: int) -> Unlearned:
        """Run Algorithm 1 with an empty forget set on a model just learned: the reference run of the definition.

        Raises CannotLearn where the proof gives no noise for it.
        """
        start = self._clock() - modelled.seconds
        snapshot = modelled.snapshot
        base = TheoremBase.of(modelled.fit, snapshot, capacity)
        try:
            run = Run.of(remaining(modelled.fit), base, self.rule, self.options)
        except UsageError as error:
            raise CannotLearn("noise", str(error)) from error
        return self._made(run, snapshot, modelled.cut, start)

    def unlearn(self, snapshot: Snapshot, base: TheoremBase) -> Unlearned | NotVerified:
        """Run Algorithm 1 from the kept C^S. snapshot: of the base's documents that are left.

        Where a retraining on them would have other anchors, or noise of another size, nothing may be released: the two
        could be told apart for certain.
        """
        start = self._clock()
        try:
            left = remaining_counts(base.statistics, snapshot, self.options)
            run = Run.of(left, base, self.rule, self.options)
        except (CannotLearn, UsageError) as error:
            return NotVerified(str(error))
        reason = run.told_apart
        return self._made(run, snapshot, snapshot.offsets, start) if reason is None else NotVerified(reason)

    def _made(self, run: Run, snapshot: Snapshot, cut: Mapping[int, int], start: float) -> Unlearned:
        self.last = run.examined.found
        return Unlearned(run, snapshot, cut, self._clock() - start)


def theorem_payload(
    run: Run,
    source: CountSource,
    sample: WordSets | None,
    key: NoiseKey,
    model: str,
    version: int,
    data: TaskData | None = None,
) -> PayloadPlan:
    """Return the payload of a version in theorem mode; source, sample, data: as in `make_payload`.

    Noise is drawn for the retained counts and the settings, so a retraining on the same documents draws the same.
    """
    data, left = data or TaskData(), run.left
    frequency = frequencies(left.words, source)
    digest = fingerprint(left, frequency.tolist(), ["theorem", repr(run.learner), repr(run.rule)])
    release = draw(run.examined, lambda purpose: key.seed(model, version, digest, purpose))
    # From here on only the published numbers and the retained documents are used.
    A = release.A.astype(np.float32)
    heads, unfitted = published_heads(A, left.words, run.base.statistics.anchors, data)
    best, quality = displayed(A, left.words, frequency, left.documents, sample)
    payload = Payload(
        words=left.words,
        A=A,
        R=release.R.astype(np.float32),
        shares=topic_shares(release.R),
        top_words=best,
        quality=quality,
        heads=heads,
    )
    facts = {**head_facts(heads, data), **_facts(run.base, release)}
    return PayloadPlan(payload, _noise(release, run.rule), digest, unfitted, covered=release.covered, facts=facts)


def _noise(release: TheoremRelease, rule: TheoremRule) -> ReleaseNoise:
    """Describe both draws together; sigma, grid and ratio are those of A, the norm taken after noise."""
    plan, together = release.plan.topics, release.plan.together
    ratio = plan.sigma * math.sqrt(release.A.size) / float(np.linalg.norm(release.A))
    epsilon = together.epsilon(rule.delta)
    return ReleaseNoise(epsilon, rule.delta, plan.sigma, 1 / together.mu, together.slack, plan.grid, ratio)


def _facts(base: TheoremBase, release: TheoremRelease) -> dict[str, Any]:
    """Return what the release record keeps for the operator: measured before noise, so never for subscribers."""
    plan, facts = release.plan, base.facts
    constants = {
        "a": plan.constants.a,
        "p": plan.constants.p_sep,
        "gamma": plan.constants.gamma,
        "eps0": plan.constants.eps0,
        "c": plan.c,
        "implied_c": release.implied_c,
        "m": facts.documents,
        "m_U": max(base.capacity, 1),
        "length": base.length,
        "q_norm": facts.q_norm,
        "rarest": facts.rarest,
        "delta_formula": plan.formula,
        "delta_A": plan.topics.sensitivity,
        "delta_R": plan.covariance.sensitivity,
        "sigma_A": plan.topics.sigma,
        "sigma_R": plan.covariance.sigma,
        "epsilon_each": plan.topics.epsilon,
    }
    return {
        "checks": [_check(check) for check in release.checks],
        "constants": {name: _plain(value) for name, value in constants.items()},
        "vacuity": str(release.vacuity),
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "value": _plain(check.value),
        "relation": check.relation,
        "bound": _plain(check.limit),
        "source": check.paper,
        "holds": bool(check.holds),
    }


def _plain(value: float) -> float | int | None:
    """Return a number as msgpack and JSON have it, None for what is none."""
    return value if isinstance(value, int) else float(value) if math.isfinite(value) else None
