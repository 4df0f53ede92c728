"""Theorem mode in the service: Algorithm 1 on the base model's own documents, with noise and conditions of its proof.

    TheoremBase       the part of a base model that is kept for this mode
    Run               the algorithm up to its noise
    TheoremModeller   the Modeller of this mode: from counts and a base model to Abar and Rbar
    theorem_payload   draws their noise once, and derives the rest of the payload from the noised numbers

An update covers the documents of the base model only, and m_U is the capacity of the base model, whatever the size of
the forget set. Numbers measured before noise go into the release record, for the operator alone. Source: Wei et al.
(2025), algorithm 1.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamtopic.errors import CannotLearn, StateCorrupt, UsageError
from streamtopic.paper.algorithm1 import Remaining, Statistics, remaining, remaining_counts
from streamtopic.paper.capacity_formulas import ModelConstants, theorem_sigma
from streamtopic.paper.theorem import BaseFacts, Condition, Examined, TheoremOptions, TheoremRelease, draw, examine
from streamtopic.privacy.accounting import Composition
from streamtopic.service.schedule.modeller import Made, MeasureCapacity, Modeller, NotVerified, kept_of, learn_cold
from streamtopic.service.schedule.payload import (
    TOP_WORDS,
    PayloadPlan,
    TaskData,
    frequencies,
    head_facts,
    no_sample,
    norm_ratio,
    topics_payload,
)
from streamtopic.tensors import parts, unpacked
from streamtopic.topics.anchors import changed_anchors
from streamtopic.topics.display import WordEvidence, top_words, topic_shares
from streamtopic.topics.fit import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.counts import CountSource
    from streamtopic.privacy.keystream import NoiseKey
    from streamtopic.service.schedule.modeller import Base, FromLog
    from streamtopic.service.schedule.payload import Sample
    from streamtopic.state import DocumentCounts, StoredBase
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["Run", "TheoremBase", "TheoremModeller", "pair_scale", "theorem_payload"]


def pair_scale(rule: TheoremOptions) -> float:
    """Return the scale by which one version composes with others: that of its draws on A and R together."""
    # sigma = scale * Delta for each of the two.
    one = theorem_sigma(1.0, rule.epsilon, rule.delta)
    return 1 / Composition.of([(one, 0.0), (one, 0.0)]).mu


@dataclass(frozen=True, slots=True, eq=False)
class TheoremBase:
    """A base model as theorem mode keeps it: T(S) without its counts, and the numbers that decide its noise.

    statistics: C^S (r, n) with its words and anchors.
    facts: sizes and constants of the proof.
    length: mean number of tokens of the vocabulary in a document.
    capacity: number of deletions that it bears.
    """

    statistics: Statistics
    facts: BaseFacts
    length: float
    capacity: int

    @classmethod
    def of(cls, fit: TopicFit, source: CountSource, capacity: int) -> Self:
        """Return the part to keep of a base model that was just learned.

        fit: A(S).
        source: the counts that it was learned from.
        capacity: number of deletions that it bears.
        """
        place = {word: k for k, word in enumerate(source.words)}
        kept = [place[word] for word in fit.words]
        tokens = int(source.tokens[kept].sum())
        length = tokens / fit.documents
        return cls(Statistics.of(fit), BaseFacts.of(fit), length, capacity)

    @classmethod
    def parse(cls, stored: StoredBase) -> Self:
        """Read the kept base model. Raises StateCorrupt if it is damaged or was kept in another mode."""
        kept = kept_of(stored, "theorem")
        try:
            arrays, texts = unpacked(kept)
        except ValueError as error:
            raise StateCorrupt(
                f"the kept base model is damaged ({error}): run `streamtopic unlearn --retrain`"
            ) from error
        fields = json.loads(texts["facts"])
        documents = stored.start.documents
        statistics = Statistics(
            tuple(fields["words"]), np.array(arrays["C"]), tuple(stored.fields["anchors"]), documents
        )
        kept_facts = fields["facts"]
        facts = BaseFacts(**{**kept_facts, "constants": ModelConstants(**kept_facts["constants"])})
        return cls(statistics, facts, fields["length"], stored.fields["capacity"])

    def pack(self) -> bytes:
        """Return the bytes that `parse` reads."""
        fields = {"words": self.statistics.words, "length": self.length, "facts": asdict(self.facts)}
        return b"".join(parts({"C": self.statistics.C}, {"facts": json.dumps(fields)}))

    def options(self, rule: TheoremOptions) -> TheoremOptions:
        """Return the options that noise is calibrated to, with m_U = T."""
        # At least 1: for no deletion at all the proof gives no noise.
        return replace(rule, deletions=max(self.capacity, 1), length=self.length)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Algorithm 1 up to its noise: secret.

    left: the counts of the documents of `base` that remain.
    base: the base model that it starts from.
    rule, learner: the settings.
    examined: Abar, Rbar, their noise, and the conditions of the proof.
    """

    left: Remaining
    base: TheoremBase
    rule: TheoremOptions
    learner: LearnerOptions
    examined: Examined

    @classmethod
    def of(cls, left: Remaining, base: TheoremBase, rule: TheoremOptions, learner: LearnerOptions) -> Self:
        """Run the algorithm. Raises UsageError if the proof gives no noise or T is exceeded, CannotLearn."""
        examined = examine(left, base.facts, base.options(rule))
        return cls(left, base, rule, learner, examined)

    @property
    def told_apart(self) -> str | None:
        """Say why a retraining on these counts could be told apart for certain; None if it could not."""
        compared = self.examined.compared
        anchors = self.base.statistics.anchors
        # The proof takes the anchors as unchanged. Other columns of A would show which of the two it is.
        if compared is None:
            return changed_anchors(anchors, ())
        if compared.anchors != anchors:
            return changed_anchors(anchors, compared.anchors)
        if math.isnan(compared.ratio):
            return "the proof gives no noise for a retraining: gamma or p would be 0"
        # The size of the noise is published, so two sizes tell the two apart without any draw.
        if not compared.ratio <= 1:
            return (
                f"a retraining would draw noise of another size, {compared.ratio:.3g} times as large or small: "
                "set `topic_imbalance`, `topic_condition` and `separability` of `[theorem]`, which are estimates now"
            )
        return None


class TheoremModeller(Modeller):
    """Makes models of the documents of a base model, and keeps the last one for comparison.

    options: of the learner.
    rule: the settings of this mode, with neither capacity nor length of documents: those are of a base model.
    stored: reads the kept base model with its numbers; it returns None before the first.
    """

    guarantee = "theorem"
    base_only = True

    def __init__(
        self,
        options: LearnerOptions,
        rule: TheoremOptions,
        stored: Callable[[], StoredBase | None],
    ) -> None:
        super().__init__(options)
        self.rule = rule
        self._stored = stored

    @property
    def scale(self) -> float:
        """The scale by which one more version composes with others."""
        return pair_scale(self.rule)

    def retrain(self, counts: DocumentCounts, capacity: MeasureCapacity) -> tuple[Made, int]:
        """Learn a base model, and run Algorithm 1 on it with an empty forget set: the definition's reference run.

        Raises CannotLearn, also if the proof gives no noise for the model.
        """
        fit = learn_cold(counts, self.options)
        base = TheoremBase.of(fit, counts, capacity(fit))
        try:
            run = Run.of(remaining(fit), base, self.rule, self.options)
        except UsageError as error:
            raise CannotLearn("noise", str(error)) from error
        return replace(self._made(run, counts), fit=fit), base.capacity

    def unlearn(self, counts: DocumentCounts, base: Base) -> Made | NotVerified:
        """Run Algorithm 1 from the kept C^S.

        counts: of the base model's documents that are left. If a retraining on them would have other anchors, or
            noise of another size, the answer is NotVerified: the two could be told apart for certain.
        base: the base model.

        Raises StateCorrupt if the kept base model is damaged.
        """
        stored = self._stored()
        if stored is None or stored.version != base.version:
            return NotVerified("the base model was replaced meanwhile")
        kept = TheoremBase.parse(stored)
        try:
            left = remaining_counts(kept.statistics, counts, self.options)
            run = Run.of(left, kept, self.rule, self.options)
        except (CannotLearn, UsageError) as error:
            return NotVerified(str(error))
        if (reason := run.told_apart) is not None:
            return NotVerified(reason)
        return self._made(run, counts)

    def again(self, found: FromLog, stored: StoredBase | None, key: NoiseKey) -> PayloadPlan:
        """Run Algorithm 1 from the kept C^S on the counts of the log.

        Raises CannotLearn, StateCorrupt, and UsageError if settings have changed since it was made.
        """
        if stored is None:
            raise CannotLearn("base", "its base model is not kept any more")
        # Abar is the same from any start, so a wrong C^S could not hide; a wrong constant would show as other noise.
        base = TheoremBase.parse(stored)
        left = remaining_counts(base.statistics, found.counts, self.options)
        run = Run.of(left, base, self.rule, self.options)
        envelope = found.envelope
        plan = theorem_payload(run, found.counts, no_sample, key, envelope.model, envelope.version)
        other = _other_constants(found.record.get("constants", {}), plan.facts["constants"])
        if other is not None:
            raise UsageError(other)
        return plan

    def _made(self, run: Run, counts: DocumentCounts) -> Made:
        """Return the model of a run."""
        examined = run.examined
        self.last = examined.found
        return Made(
            counts,
            documents=run.left.documents,
            words=run.left.words,
            anchors=run.base.statistics.anchors,
            tolerance=examined.plan.topics.sensitivity,
            # The promise rests on the proof and its Delta; nothing is certified.
            certificate=math.inf,
            draw=partial(theorem_payload, run, counts),
        )


def theorem_payload(
    run: Run,
    source: CountSource,
    sample: Sample,
    key: NoiseKey,
    model: str,
    version: int,
    data: TaskData | None = None,
) -> PayloadPlan:
    """Return the payload of a version in theorem mode.

    run: Algorithm 1 up to its noise.
    source, sample, key, model, version, data: as in `make_payload`.
    """
    data = data or TaskData()
    left = run.left
    frequency = frequencies(left.words, source)
    settings = ["theorem", repr(run.learner), repr(run.rule)]
    digest = fingerprint(left, frequency.tolist(), settings, key.counts_key)
    # Noise is keyed by the retained counts and the settings, so a retraining on the same documents draws the same.
    release = draw(run.examined, lambda purpose: key.seed(model, version, digest, purpose))
    # From here on only the published numbers and the retained documents are used: that is post-processing.
    A = release.A.astype(np.float32)
    order = top_words(A.astype(np.float64), WordEvidence.of(left, frequency), TOP_WORDS)
    names, shares = run.base.statistics.anchors, topic_shares(release.R)
    payload, unfitted = topics_payload(left.words, names, A, release.R, shares, order, sample, data)
    facts = {**head_facts(payload.heads, data), **_facts(run.base, release)}
    plan, together = release.plan.topics, release.plan.together
    # Of both draws together; sigma, grid and ratio are those of A.
    shown = {
        "epsilon": together.epsilon(run.rule.delta),
        "delta": run.rule.delta,
        "sigma": plan.sigma,
        "scale": 1 / together.mu,
        "slack": together.slack,
        # The norm is taken after noise: before noise it is secret.
        "ratio": norm_ratio(plan.sigma, release.A),
        "covered": release.covered,
    }
    grid, kept = release.plan.covariance.grid, run.base.pack()
    return PayloadPlan(payload, shown, digest, plan.grid, grid, unfitted, facts, kept)


def _facts(base: TheoremBase, release: TheoremRelease) -> dict[str, Any]:
    """Return the facts that the release record keeps for the operator.

    They were measured before noise, so subscribers never get them.
    """
    plan = release.plan
    facts = base.facts
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


def _check(check: Condition) -> dict[str, Any]:
    """Return a condition of the proof in types of msgpack and JSON."""
    return {
        "name": check.name,
        "value": _plain(check.value),
        "relation": check.relation,
        "bound": _plain(check.limit),
        "source": check.paper,
        "holds": bool(check.holds),
    }


def _plain(value: float) -> float | int | None:
    """Return a number in a type of msgpack and JSON, None for an infinity or nan."""
    if isinstance(value, int):
        return value
    return float(value) if math.isfinite(value) else None


_CLOSE = 1e-6
# Name of a constant in the release record to the setting that decides it.
_SETTINGS = {
    "c": "theorem.constant",
    "epsilon_each": "epsilon",
    "eps0": "theorem.base_error",
    "a": "theorem.topic_imbalance",
    "gamma": "theorem.topic_condition",
    "p": "theorem.separability",
}


def _other_constants(made: Mapping[str, float], again: Mapping[str, float]) -> str | None:
    """Say which setting has changed since a version was made, None if none has."""
    for name, setting in _SETTINGS.items():
        # A version that was read back from the ledger has no record of its constants.
        if name in made and not math.isclose(made[name], again[name], rel_tol=_CLOSE):
            said = f"{made[name]:.6g}, settings and base model give {again[name]:.6g}"
            return f"it was made with {name} = {said}: verify with --set {setting}={made[name]:.6g}"
    return None
