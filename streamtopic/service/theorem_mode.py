"""Theorem mode in the service: Algorithm 1 on the base model's own documents, with noise and conditions of its proof.

    TheoremModeller   the Modeller of this mode: from counts and a base model to Abar and Rbar
    theorem_payload   draws their noise once, and derives the rest of the payload from the noised numbers
    packed, unpacked  the T(S) of a base model as the bytes that this mode keeps, and back

An update covers the documents of the base model only, and m_U is the capacity of the base model, whatever the size of
the forget set. Numbers measured before noise go into the release record, for the operator alone. Source: Wei et al.
(2025), algorithm 1.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import CannotLearn, StateCorrupt, UsageError
from streamtopic.paper.algorithm1 import BaseStatistics, Remaining, remaining, remaining_counts
from streamtopic.paper.capacity_formulas import ModelConstants, theorem_sigma
from streamtopic.paper.theorem import Examined, TheoremOptions, draw, examine
from streamtopic.privacy.accounting import Composition
from streamtopic.service.schedule.modeller import ModelBeforeNoise, Modeller, NotVerified, learn_cold
from streamtopic.service.schedule.payload import (
    TOP_WORDS,
    PayloadPlan,
    frequencies,
    head_facts,
    norm_ratio,
    topics_payload,
)
from streamtopic.tensors import parts
from streamtopic.tensors import unpacked as tensors
from streamtopic.topics.anchors import changed_anchors
from streamtopic.topics.display import WordEvidence, top_words, topic_shares
from streamtopic.topics.fit import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.counts import CountSource
    from streamtopic.service.schedule.payload import Ingredients
    from streamtopic.signed import Envelope
    from streamtopic.state import Base, DocumentCounts
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["TheoremModeller", "packed", "unpacked"]


def packed(base: BaseStatistics) -> bytes:
    """Return the bytes that theorem mode keeps of a base model."""
    fields = asdict(base)
    return b"".join(parts({"C": fields.pop("C")}, {"facts": json.dumps(fields)}))


def unpacked(kept: bytes) -> BaseStatistics:
    """Undo `packed`. Raises StateCorrupt if the bytes are damaged."""
    try:
        arrays, texts = tensors(kept)
        fields = json.loads(texts["facts"])
        for name in ("words", "anchors"):
            fields[name] = tuple(fields[name])
        return BaseStatistics(
            **{**fields, "C": np.array(arrays["C"]), "constants": ModelConstants(**fields["constants"])}
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorrupt(f"the kept base model is damaged ({error}): run `streamtopic unlearn --retrain`") from error


class TheoremModeller(Modeller):
    """Makes models of the documents of a base model, and keeps the last one for comparison.

    options: of the learner.
    rule: the settings of this mode, without a capacity: that is of a base model.
    stored: reads the base model in Redis.
    """

    guarantee = "theorem"
    base_only = True

    def __init__(self, options: LearnerOptions, rule: TheoremOptions, stored: Callable[[], Base | None]) -> None:
        super().__init__(options, stored)
        self.rule = rule

    @property
    def scale(self) -> float:
        """The scale by which one version composes with others: that of its draws on A and R together."""
        # sigma = scale * Delta for each of the two.
        one = theorem_sigma(1.0, self.rule.epsilon, self.rule.delta)
        return 1 / Composition.of([(one, 0.0), (one, 0.0)]).mu

    def retrain(self, counts: DocumentCounts, capacity: int) -> ModelBeforeNoise:
        """Learn a base model, and run Algorithm 1 on it with an empty forget set: the definition's reference run.

        Raises CannotLearn, also if the proof gives no noise for the model.
        """
        fit = learn_cold(counts, self.options)
        try:
            run = self._run(remaining(fit), BaseStatistics.of(fit, counts), capacity)
        except UsageError as error:
            raise CannotLearn("noise", str(error)) from error
        return self._made(run, counts)

    def unlearn(self, counts: DocumentCounts, base: Base) -> ModelBeforeNoise | NotVerified:
        """Run Algorithm 1 from the kept C^S.

        counts: of the base model's documents that are left. If a retraining on them would have other anchors, or
            noise of another size, the answer is NotVerified: the two could be told apart for certain.
        base: the base model.

        Raises StateCorrupt if the kept base model is damaged.
        """
        try:
            run = self._from_base(counts, base.version)
        except (CannotLearn, UsageError) as error:
            return NotVerified(str(error))
        reason = _told_apart(run)
        return self._made(run, counts) if reason is None else NotVerified(reason)

    def again(self, counts: CountSource, envelope: Envelope, ingredients: Ingredients) -> PayloadPlan:
        """Run Algorithm 1 from the kept C^S on the counts of the log.

        Raises CannotLearn, StateCorrupt, and UsageError if settings have changed since it was made.
        """
        # Abar is the same from any start, so a wrong C^S could not hide; a wrong constant would show as other noise.
        return theorem_payload(self._from_base(counts, envelope.base), self._rules, counts, ingredients)

    @property
    def _rules(self) -> tuple[str, ...]:
        """The settings that noise is keyed by."""
        return "theorem", repr(self.options), repr(self.rule)

    def _from_base(self, counts: CountSource, version: int) -> Examined:
        """Run the algorithm on counts. version: of the base model.

        Raises UsageError if the proof gives no noise or T is exceeded, CannotLearn, StateCorrupt.
        """
        base, kept = self.kept(version)
        statistics = unpacked(kept)
        return self._run(remaining_counts(statistics, counts, self.options), statistics, base.capacity)

    def _run(self, left: Remaining, base: BaseStatistics, capacity: int) -> Examined:
        # At least 1: for no deletion at all the proof gives no noise.
        return examine(left, base, replace(self.rule, deletions=max(capacity, 1)))

    def _made(self, run: Examined, counts: DocumentCounts) -> ModelBeforeNoise:
        """Return the model of a run."""
        self.last = run.found
        return ModelBeforeNoise(
            counts,
            words=run.left.words,
            anchors=run.base.anchors,
            tolerance=run.plan.topics.sensitivity,
            # The promise rests on the proof and its Delta; nothing is certified.
            certificate=math.inf,
            draw=partial(theorem_payload, run, self._rules, counts),
        )


def _told_apart(run: Examined) -> str | None:
    """Say why a retraining on the counts of a run could be told apart for certain; None if it could not."""
    anchors, compared = run.base.anchors, run.compared
    # The proof takes the anchors as unchanged. Other columns of A would show which of the two it is.
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


def theorem_payload(
    run: Examined, rules: tuple[str, ...], source: CountSource, ingredients: Ingredients
) -> PayloadPlan:
    """Return the payload of a version in theorem mode.

    run: Algorithm 1 up to its noise.
    rules: the settings that noise is keyed by.
    source: the counts that it was run on.
    """
    left, names, delta = run.left, run.base.anchors, run.options.delta
    frequency = frequencies(left.words, source)
    # Noise is keyed by the retained counts and the settings, so a retraining on the same documents draws the same.
    digest = fingerprint(left, frequency.tolist(), rules, ingredients.noise.counts_key)
    noised, R = draw(run, lambda purpose: ingredients.noise.seed(digest, purpose))
    # From here on only the published numbers and the retained documents are used: that is post-processing.
    A = noised.astype(np.float32)
    order = top_words(A.astype(np.float64), WordEvidence.of(left, frequency), TOP_WORDS)
    payload, unfitted = topics_payload(left.words, names, A, R, topic_shares(R), order, ingredients)
    facts = {**head_facts(payload.heads, unfitted, ingredients.tasks), **_facts(run)}
    plan, together = run.plan.topics, run.plan.together
    # Of both draws together; sigma, grid and ratio are those of A.
    shown = {
        "epsilon": together.epsilon(delta),
        "delta": delta,
        "sigma": plan.sigma,
        "scale": 1 / together.mu,
        "slack": together.slack,
        # The norm is taken after noise: before noise it is secret.
        "ratio": norm_ratio(plan.sigma, noised),
        "covered": run.covered,
    }
    grid = run.plan.covariance.grid
    return PayloadPlan(payload, shown, digest, plan.grid, grid, facts, packed(run.base))


def _facts(run: Examined) -> dict[str, Any]:
    """Return the facts that the release record keeps for the operator.

    They were measured before noise, so subscribers never get them.
    """
    plan, base = run.plan, run.base
    constants = asdict(plan.constants) | {
        "c": plan.c,
        "implied_c": run.implied_c,
        "m": base.documents,
        "m_U": run.options.deletions,
        "length": base.length,
        "q_norm": base.q_norm,
        "rarest": base.rarest,
        "delta_formula": plan.formula,
        "delta_A": plan.topics.sensitivity,
        "delta_R": plan.covariance.sensitivity,
        "sigma_A": plan.topics.sigma,
        "sigma_R": plan.covariance.sigma,
        "epsilon_each": plan.topics.epsilon,
    }
    checks = [asdict(check) | {"holds": check.holds} for check in run.checks]
    return {"checks": checks, "constants": constants, "vacuity": run.vacuity}
