"""Make models: one protocol for every mode, one value for every model, and the certified mode.

    Modeller           the protocol of a mode; the service chooses a mode and hands it to the scheduler
    Made               a model of counted documents, before noise, with the facts that its version states
    FromLog            what a version is made again from, by a check
    NotVerified        an update that must not be published, with the reason
    CertifiedModeller  carries the model over if that is verified, and learns it cold if it is not
    check_update       the service's own check before an update is staged: learn it again from the counts, and compare

Only an update that was carried over in memory is checked: one that was learned cold would be compared with itself.
In certified mode the retained counts decide the anchors of an update. They may differ from those of the base model.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, DocumentBatch
from streamtopic.errors import CannotLearn
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service.schedule.payload import Guarded, PayloadPlan, Sample, TaskData, make_payload, no_sample
from streamtopic.service.schedule.situation import Base, Guarantee, Mode
from streamtopic.signed import Envelope
from streamtopic.state import CutGone, DocumentCounts, StoredBase
from streamtopic.state.stored_counts import StoredCounts, SummedCounts
from streamtopic.topics.fit import TopicFit, fingerprint
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import NeedsRetrain, update

__all__ = [
    "CertifiedModeller",
    "Checked",
    "FromLog",
    "Made",
    "MeasureCapacity",
    "ModelBeforeNoise",
    "Modeller",
    "NotVerified",
    "check_is_due",
    "check_update",
    "learn_cold",
    "require_tolerance",
]


# A carried-over certificate up to this share of the tolerance leaves no doubt that a cold one keeps the tolerance: in
# random chains it was .06 % larger at most.
_SURELY = 1 / 16

Draw = Callable[[Sample, NoiseKey, str, int, TaskData], PayloadPlan]
MeasureCapacity = Callable[[TopicFit], int]


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A model of counted documents, before noise. All of it is secret, except for the facts that its version states.

    counts: the counts that it was made from.
    documents: number of documents that it was made from.
    words: (n,), ascending.
    anchors: (r,), the name of each topic: its anchor word, or the name of a guided topic.
    notes: a sentence for each guided topic that has ended or lacks a seed.
    tolerance: the promised distance to the model of a retraining (Frobenius norm of the difference of A).
    certificate: the proven bound on that distance, infinite if the promise rests on another proof.
    draw: adds noise and fills the payload of a version. It takes a sample (as in `make_payload`), the noise
        key, the model's name, the version and the data of downstream tasks.
    fit: the learned model; None if a kept base model was moved without learning.
    warm: whether it was carried over from the last model, or from the sums in Redis, so that it is worth a check.
    """

    counts: DocumentCounts
    documents: int
    words: tuple[str, ...]
    anchors: tuple[str, ...]
    tolerance: float
    certificate: float
    draw: Draw
    notes: tuple[str, ...] = ()
    fit: TopicFit | None = None
    warm: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FromLog:
    """What a version is made again from, by whoever has read it from the log.

    envelope: the facts of the version.
    record: of the version in Redis; empty if Redis was set back to before it.
    versions: all versions of the ledger.
    counts: of the documents that the version covers.
    documents: returns their words and the documents over them.
    labelled: returns the data of downstream tasks over the words of a model.
    """

    envelope: Envelope
    record: Mapping[str, Any]
    versions: Sequence[Envelope]
    counts: CountSource
    documents: Callable[[], tuple[Sequence[str], DocumentBatch]]
    labelled: Callable[[Sequence[str]], TaskData]


@dataclass(frozen=True, slots=True)
class NotVerified:
    """An update that could not be verified, so that a retrain is due; `reason` says why."""

    reason: str


class ModelBeforeNoise(Protocol):
    """Topics before noise, secret: A is (n, r), its columns on the simplex of `words`."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its rows, ascending."""

    @property
    def A(self) -> npt.NDArray[np.float64]:  # noqa: N802 - the paper's symbol, as in every model
        """The topics."""


class Modeller(Mode, Protocol):
    """A mode of making models: learns base models, and unlearns documents from them."""

    @property
    def options(self) -> LearnerOptions:
        """The choices of the learner."""

    @property
    def last(self) -> ModelBeforeNoise | None:
        """The last model before noise, for checks inside the service only."""

    def retrain(self, counts: DocumentCounts, capacity: MeasureCapacity) -> tuple[Made, int]:
        """Learn a new base model cold; return its first version and the number of deletions that it bears.

        counts: of all documents.
        capacity: measures how many deletions the base model bears.

        Raises CannotLearn if these counts allow no model that may be published.
        """

    def unlearn(self, counts: DocumentCounts, base: Base) -> Made | NotVerified:
        """Make a model of the documents that remain.

        counts: of all live documents; if `base_only`, of the documents of the base model that are left.
        base: the base model that the update rests on.

        Raises CannotLearn if no model can be made of them at all.
        """

    def forget(self) -> None:
        """Drop the model in memory, so that nothing of a model that was found false lives on."""

    def again(self, found: FromLog, stored: StoredBase | None, key: NoiseKey) -> PayloadPlan:
        """Return a version made again from the log, for a check of it.

        stored: its base model in Redis, if that is still kept.

        Raises CannotLearn, StateCorrupt, and UsageError if settings have changed since it was made.
        """


class CertifiedModeller:
    """Certified mode: it keeps the last fit in memory with the counts that it fits, and carries it over.

    After a restart there is no such fit, and the first model is learned from the sums in Redis, or from the documents.

    options: of the learner.
    guarded: the guarantee that noise is calibrated to.
    stored: reads the sums in Redis, None if there are none.
    """

    guarantee: Guarantee = "certified"
    base_only = False
    most_versions = None

    def __init__(
        self,
        options: LearnerOptions,
        guarded: Guarded,
        stored: Callable[[], StoredCounts | None] = lambda: None,
    ) -> None:
        self.options = options
        self._guarded = guarded
        self._stored = stored
        self._last: tuple[TopicFit, DocumentCounts] | None = None

    @property
    def rules(self) -> Mapping[str, Any]:
        """The choices of the learner."""
        return self.options.rules

    @property
    def scale(self) -> float:
        """The scale by which one more version composes with others, see `gaussian_scale`."""
        return gaussian_scale(self._guarded.epsilon, self._guarded.delta)

    @property
    def last(self) -> TopicFit | None:
        """The last model before noise: secret."""
        return self._last[0] if self._last else None

    def forget(self) -> None:
        """Drop the last model, so that the next one is learned cold."""
        self._last = None

    def retrain(self, counts: DocumentCounts, capacity: MeasureCapacity) -> tuple[Made, int]:
        """Learn cold, so that nothing of earlier models is left, and the privacy account begins again.

        Raises CannotLearn, also if the certificate does not reach the tolerance.
        """
        # Dropped before learning, so that two models are not in memory at once.
        self._last = None
        fit = self._keep(learn_cold(counts, self.options), counts)
        return self._made(fit, counts, warm=False), capacity(fit)

    def unlearn(self, counts: DocumentCounts, base: Base) -> Made | NotVerified:  # noqa: ARG002 - see Modeller
        """Carry the model over to the documents that remain.

        Raises CannotLearn if no model can be made of them at all.
        """
        warm = self._warm(counts)
        if isinstance(warm, NotVerified):
            return warm
        # A cold model belongs to the same base and spends its epsilon.
        fit = warm or self._from_sums(counts)
        carried = fit is not None
        fit = fit or learn(counts, self.options)
        try:
            self._keep(require_tolerance(fit), counts)
        except CannotLearn as error:
            return NotVerified(str(error))
        return self._made(fit, counts, warm=carried)

    def again(self, found: FromLog, stored: StoredBase | None, key: NoiseKey) -> PayloadPlan:  # noqa: ARG002 - see Modeller
        """Learn cold from the counts of the log, and draw the same noise. Raises CannotLearn."""
        fit = learn(found.counts, self.options)
        data = found.labelled(fit.words)
        envelope = found.envelope
        return make_payload(fit, found.counts, self._guarded, no_sample, key, envelope.model, envelope.version, data)

    def _from_sums(self, counts: DocumentCounts) -> TopicFit | None:
        """Return a model that is learned from the sums in Redis, as after a restart; None if they cannot be used."""
        stored = self._stored()
        if stored is None:
            return None
        with suppress(CutGone):
            return learn(SummedCounts.of(counts, stored), self.options)
        return None

    def _warm(self, counts: DocumentCounts) -> TopicFit | NotVerified | None:
        """Return the carried-over fit, None if there is nothing to start from or its certificate decides nothing."""
        if self._last is None:
            return None
        fit, before = self._last
        # The update works in place, so the old fit is gone even if it fails.
        self._last = None
        try:
            change = counts.since(before)
            outcome = update(fit, counts, change, change.passages())
        # The changes since the older counts are gone, so nobody knows what came and went: learn cold.
        except CutGone:
            return None
        if isinstance(outcome, NeedsRetrain):
            return NotVerified(outcome.reason)
        # This certificate depends on the path to the model. That of a model learned cold is the same for everybody, so
        # near the tolerance it decides whether there is a version.
        return outcome.fit if outcome.fit.certificate.bound <= _SURELY * self.options.tolerance else None

    def _keep(self, fit: TopicFit, counts: DocumentCounts) -> TopicFit:
        """Keep a fit for the next update, and return it."""
        self._last = (fit, counts)
        return fit

    def _made(self, fit: TopicFit, counts: DocumentCounts, *, warm: bool) -> Made:
        """Return a fit as the model of the counts that it was learned from."""
        return Made(
            counts,
            documents=fit.documents,
            words=fit.words,
            anchors=fit.topic_names,
            notes=tuple(fit.notes.values()),
            tolerance=fit.options.tolerance,
            certificate=fit.certificate.bound,
            draw=partial(make_payload, fit, counts, self._guarded),
            fit=fit,
            warm=warm,
        )


def learn_cold(counts: DocumentCounts, options: LearnerOptions) -> TopicFit:
    """Learn from counts alone. Raises CannotLearn, also if the certificate does not reach the tolerance."""
    return require_tolerance(learn(counts, options))


def require_tolerance(fit: TopicFit) -> TopicFit:
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


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check.

    passed: None if the check could not be made.
    detail: in words. It is shown to people, so it has no figure of a model before noise.
    seconds: how long the check took.
    """

    passed: bool | None
    detail: str
    seconds: float


def check_update(
    fit: TopicFit, counts: DocumentCounts, key: bytes, clock: Callable[[], float] = time.perf_counter
) -> Checked:
    """Learn an update's counts cold, and compare the result with the update's fit.

    fit: the update. While this runs, both models are in memory.
    counts: the counts that it was carried over to.
    key: the secret of the digest of counts.
    clock: seconds, for the duration.
    """
    start = clock()
    try:
        cold = learn(counts, fit.options)
    except CutGone:
        return Checked(None, "its documents could not be read again: the changes since are gone", clock() - start)
    except CannotLearn as error:
        return Checked(passed=False, detail=f"its counts allow no model: {error}", seconds=clock() - start)
    problem = _difference(fit, cold, key)
    return Checked(problem is None, problem or _SAME, clock() - start)


def _difference(fit: TopicFit, cold: TopicFit, key: bytes) -> str | None:
    """Say how a carried-over fit differs from one learned cold, None if it does not."""
    if fit.words != cold.words:
        return "its words are not those of a model learned from the counts alone"
    if fit.topic_names != cold.topic_names:
        return "its anchors are not those of a model learned from the counts alone"
    carried = fingerprint(fit, [], [], key)
    again = fingerprint(cold, [], [], key)
    if carried != again:
        return "the counts that it was carried over to are not those in Redis"
    # Both lie within their certificates of the exact model. Written so that a nan counts as a difference.
    apart = float(np.linalg.norm(fit.A - cold.A))
    if not apart <= fit.certificate.bound + cold.certificate.bound:
        return "its topics lie farther from those learned from the counts alone than both certificates allow"
    return None
