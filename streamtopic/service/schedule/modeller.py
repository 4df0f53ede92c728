"""Make models: one class for every mode, one value for every model, and the certified mode.

    Modeller           a mode; the service chooses one and hands it to the scheduler
    ModelBeforeNoise   a model of counted documents, with the facts that its version states
    NotVerified        an update that must not be published, with the reason
    CertifiedModeller  carries the model over if that is verified, and learns it cold if it is not

Only an update that was carried over in memory is checked: one that was learned cold would be compared with itself.
In certified mode the retained counts decide the anchors of an update. They may differ from those of the base model.
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from streamtopic.counts import CountSource
from streamtopic.errors import CannotLearn, StateCorrupt
from streamtopic.paper.algorithm1 import BaseModel
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.service.schedule.payload import Ingredients, PayloadPlan, make_payload
from streamtopic.signed import Envelope
from streamtopic.state import Base, CutGone, DocumentCounts
from streamtopic.state.stored_counts import StoredCounts, SummedCounts
from streamtopic.topics.fit import TopicFit, fingerprint
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import NeedsRetrain, update

__all__ = [
    "CertifiedModeller",
    "Checked",
    "Guarantee",
    "ModelBeforeNoise",
    "Modeller",
    "NotVerified",
    "check_is_due",
    "learn_cold",
]


# A carried-over certificate up to this share of the tolerance leaves no doubt that a cold one keeps the tolerance: in
# random chains it was .06 % larger at most.
_SURELY = 1 / 16

Draw = Callable[[Ingredients], PayloadPlan]


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check.

    passed: whether the update is that of a model learned from the counts alone.
    detail: in words. It is shown to people, so it has no figure of a model before noise.
    seconds: how long the check took.
    """

    passed: bool
    detail: str
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class ModelBeforeNoise:
    """A model of counted documents, before noise. All of it is secret, except for the facts that its version states.

    counts: the counts that it was made from.
    words: (n,), ascending.
    anchors: (r,), the name of each topic: its anchor word, or the name of a guided topic.
    notes: a sentence for each guided topic that has ended or lacks a seed.
    tolerance: the promised distance to the model of a retraining (Frobenius norm of the difference of A).
    certificate: what its version claims as a bound on that distance: the tolerance, or infinity if the promise rests on
        another proof.
    draw: adds noise and fills the payload of a version.
    fit: the learned model in certified mode, None in the others.
    warm: whether it was carried over from the last model, or from the sums in Redis, so that it is worth a check.
    checked: the result of that check, if there was one.
    """

    counts: DocumentCounts
    words: tuple[str, ...]
    anchors: tuple[str, ...]
    tolerance: float
    certificate: float
    draw: Draw
    notes: tuple[str, ...] = ()
    fit: TopicFit | None = None
    warm: bool = False
    checked: Checked | None = None


@dataclass(frozen=True, slots=True)
class NotVerified:
    """An update that could not be verified, so that a retrain is due; `reason` says why."""

    reason: str


Guarantee = Literal["certified", "theorem", "private"]


class Modeller(ABC):
    """A mode of making models: it learns base models, unlearns documents from them, and says what decisions ask of it.

    guarantee: the setting that chooses this mode, and the promise that its versions name.
    base_only: whether an update covers the documents of the base model only.
    most_versions: the versions that the budget of a base model is for; None if each version spends more. A base model
        then begins a period, which only an operator does after the first. An update rests on the counts alone, so that
        there is no capacity.
    options: of the learner.
    stored: reads the base model in Redis; it returns None before the first.
    last: the last model before noise, for checks inside the service only.
    """

    guarantee: ClassVar[Guarantee]
    base_only = False
    most_versions: int | None = None
    last: TopicFit | BaseModel | None = None

    def __init__(self, options: LearnerOptions, stored: Callable[[], Base | None]) -> None:
        self.options = options
        self._stored = stored

    @property
    @abstractmethod
    def scale(self) -> float:
        """The scale of the Gaussian mechanism by which one more version composes with others."""

    @property
    def rules(self) -> Mapping[str, Any]:
        """The choices that an update has in common with its base model, by the names of settings."""
        return self.options.rules

    @abstractmethod
    def retrain(self, counts: DocumentCounts, capacity: int) -> ModelBeforeNoise:
        """Learn a new base model cold; return its first version.

        counts: of all documents.
        capacity: number of deletions that the base model bears.

        Raises CannotLearn if these counts allow no model that may be published.
        """

    @abstractmethod
    def unlearn(self, counts: DocumentCounts, base: Base) -> ModelBeforeNoise | NotVerified:
        """Make a model of the documents that remain.

        counts: of all live documents; if `base_only`, of the documents of the base model that are left.
        base: the base model that the update rests on.

        Raises CannotLearn if no model can be made of them at all.
        """

    def check(self, made: ModelBeforeNoise) -> ModelBeforeNoise:
        """Learn an update again from its counts alone; return it with the result. By default there is nothing to check.

        If the two differ, the model that was learned again takes the place of the update.

        Raises CannotLearn, CutGone.
        """
        return made

    @abstractmethod
    def again(self, counts: CountSource, envelope: Envelope, ingredients: Ingredients) -> PayloadPlan:
        """Return a version made again from the log, for a check of it.

        counts: of the documents that the version covers.
        envelope: the facts of the version.
        ingredients: as when it was made, without a sample.

        Raises CannotLearn, StateCorrupt, and UsageError if settings have changed since it was made.
        """

    def kept(self, version: int) -> tuple[Base, bytes]:
        """Return a base model in Redis, and the bytes that this mode keeps of it.

        version: the version that it was published as.

        Raises CannotLearn if it was replaced meanwhile, StateCorrupt if another mode made it.
        """
        stored = self._stored()
        if stored is None or stored.version != version:
            raise CannotLearn("base", "its base model is not kept any more")
        if not stored.blob:
            raise StateCorrupt(
                f"the base model was not kept for {self.guarantee} mode: run `streamtopic unlearn --retrain`"
            )
        return stored, stored.blob


class CertifiedModeller(Modeller):
    """Certified mode: it keeps the last fit in memory with the counts that it fits, and carries it over.

    After a restart there is no such fit, and the first model is learned from the sums in Redis, or from the documents.

    options: of the learner.
    guarded: the guarantee that noise is calibrated to.
    carries: whether an update may be carried over. Noise of withheld heads follows from figures of the model, so that
        each run needs the same bits.
    sums: reads the sums in Redis; it returns None if there are none.
    """

    guarantee = "certified"
    last: TopicFit | None

    def __init__(
        self,
        options: LearnerOptions,
        guarded: CalibratedGuarantee,
        *,
        carries: bool = True,
        sums: Callable[[], StoredCounts | None] = lambda: None,
    ) -> None:
        # An update rests on the counts alone.
        super().__init__(options, lambda: None)
        self._guarded = guarded
        self._carries = carries
        self._sums = sums
        self._fitted: DocumentCounts | None = None

    @property
    def scale(self) -> float:
        """As of `gaussian_scale`."""
        return gaussian_scale(self._guarded.epsilon, self._guarded.delta)

    def retrain(self, counts: DocumentCounts, capacity: int) -> ModelBeforeNoise:  # noqa: ARG002 - see Modeller
        """Learn cold, so that nothing of earlier models is left, and the privacy account begins again.

        Raises CannotLearn, also if the certificate does not reach the tolerance.
        """
        # Dropped before learning, so that two models are not in memory at once.
        self.last = self._fitted = None
        return self._made(learn_cold(counts, self.options), counts, warm=False)

    def unlearn(self, counts: DocumentCounts, base: Base) -> ModelBeforeNoise | NotVerified:  # noqa: ARG002 - see Modeller
        """Carry the model over to the documents that remain.

        Raises CannotLearn if no model can be made of them at all.
        """
        warm = self._warm(counts)
        if isinstance(warm, NotVerified):
            return warm
        # A cold model belongs to the same base and spends its epsilon.
        carried = warm or self._from_sums(counts)
        fit = carried or learn(counts, self.options)
        try:
            return self._made(_require_tolerance(fit), counts, warm=carried is not None)
        except CannotLearn as error:
            return NotVerified(str(error))

    def check(self, made: ModelBeforeNoise) -> ModelBeforeNoise:
        """See Modeller. While this runs, both models are in memory."""
        if made.fit is None:
            return made
        start = time.perf_counter()
        cold = learn(made.counts, self.options)
        problem = _difference(made.fit, cold)
        checked = Checked(problem is None, problem or _SAME, time.perf_counter() - start)
        if problem is not None:
            made = self._made(_require_tolerance(cold), made.counts, warm=False)
        return replace(made, checked=checked)

    def again(self, counts: CountSource, envelope: Envelope, ingredients: Ingredients) -> PayloadPlan:  # noqa: ARG002 - see Modeller
        """Learn cold from the counts of the log, and draw the same noise. Raises CannotLearn."""
        return make_payload(learn(counts, self.options), counts, self._guarded, ingredients)

    def _from_sums(self, counts: DocumentCounts) -> TopicFit | None:
        """Return a model that is learned from the sums in Redis, as after a restart; None if they cannot be used."""
        stored = self._sums()
        if stored is None:
            return None
        with suppress(CutGone):
            return learn(SummedCounts.of(counts, stored), self.options)
        return None

    def _warm(self, counts: DocumentCounts) -> TopicFit | NotVerified | None:
        """Return the carried-over fit, None if there is nothing to start from or its certificate decides nothing."""
        fit, before = self.last, self._fitted
        if fit is None or before is None or not self._carries:
            return None
        # A model that is learned cold needs the memory of this one.
        self.last = self._fitted = None
        try:
            change = counts.since(before)
            outcome = update(fit, counts, change)
        # The changes since the older counts are gone, so nobody knows what came and went: learn cold.
        except CutGone:
            return None
        if isinstance(outcome, NeedsRetrain):
            return NotVerified(outcome.reason)
        # This certificate depends on the path to the model. That of a model learned cold is the same for everybody, so
        # near the tolerance it decides whether there is a version.
        return outcome if outcome.certificate.bound <= _SURELY * self.options.tolerance else None

    def _made(self, fit: TopicFit, counts: DocumentCounts, *, warm: bool) -> ModelBeforeNoise:
        """Return a fit as the model of the counts that it was learned from, and keep it for the next update."""
        self.last, self._fitted = fit, counts
        tolerance = self.options.tolerance
        return ModelBeforeNoise(
            counts,
            words=fit.words,
            anchors=fit.topic_names,
            notes=tuple(fit.notes.values()),
            tolerance=tolerance,
            # Its own certificate depends on the path to the model, so its digits would tell candidates for a deleted
            # document apart. It reaches the tolerance, and a version claims that.
            certificate=tolerance,
            draw=partial(make_payload, fit, counts, self._guarded),
            fit=fit,
            warm=warm,
        )


def learn_cold(counts: DocumentCounts, options: LearnerOptions) -> TopicFit:
    """Learn from counts alone. Raises CannotLearn, also if the certificate does not reach the tolerance."""
    return _require_tolerance(learn(counts, options))


def _require_tolerance(fit: TopicFit) -> TopicFit:
    """Return the fit if its certificate reaches the tolerance. Raises CannotLearn otherwise."""
    tolerance = fit.options.tolerance
    # Written so that a certificate of nan is refused as well.
    if not fit.certificate.bound <= tolerance:
        raise CannotLearn(
            "certificate",
            f"the certificate does not reach the tolerance {tolerance:g}: "
            "ask for fewer topics, add documents or raise the tolerance",
        )
    return fit


_SAME = "words, anchors and counts are those of a model learned from the counts alone, and so are topics, as certified"


def check_is_due(last: Mapping[str, Any] | None, interval: float | Literal["off"], now_ms: int) -> bool:
    """Return whether the next update is checked.

    last: fields of the last check, None before the first.
    interval: seconds from one check to the next; `off` if updates are not checked.
    now_ms: milliseconds since 1970.
    """
    if interval == "off":
        return False
    # After a failure every update is checked until one passes.
    if last is None or not last["passed"]:
        return True
    return bool(now_ms - last["at"] >= interval * 1000)


def _difference(fit: TopicFit, cold: TopicFit) -> str | None:
    """Say how a carried-over fit differs from one learned cold, None if it does not."""
    # A key of this comparison alone: nobody can have chosen documents by it.
    key = secrets.token_bytes(32)
    if fingerprint(fit, [], fit.topic_names, key) != fingerprint(cold, [], cold.topic_names, key):
        return "its words, anchors or counts are not those of a model learned from the counts in Redis alone"
    # Both lie within their certificates of the exact model. Written so that a nan counts as a difference.
    apart = float(np.linalg.norm(fit.A - cold.A))
    if not apart <= fit.certificate.bound + cold.certificate.bound:
        return "its topics lie farther from those learned from the counts alone than both certificates allow"
    return None
