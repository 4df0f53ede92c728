"""The scheduler's model in memory: carried over warm where that is verified, learned cold where it is not."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamtopic.errors import CannotLearn
from streamtopic.state import Snapshot, SnapshotExpired
from streamtopic.topics.anchors import changed_anchors
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import learn
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.update import NeedsRetrain, update

__all__ = ["Modelled", "Modeller", "NotVerified"]


@dataclass(frozen=True, slots=True, eq=False)
class Modelled:
    """A model of a snapshot. warm: whether it was carried over; seconds: what it took, without reading for display."""

    fit: TopicFit
    snapshot: Snapshot
    warm: bool
    seconds: float

    @property
    def documents(self) -> int:
        """Documents that it is of."""
        return self.fit.documents

    @property
    def words(self) -> tuple[str, ...]:
        """Its words, ascending."""
        return self.fit.words

    @property
    def anchors(self) -> tuple[str, ...]:
        """The anchor word of each topic."""
        return self.fit.anchors

    @property
    def certificate(self) -> float:
        """Bound on its distance to the exact optimum."""
        return self.fit.certificate.bound

    @property
    def tolerance(self) -> float:
        """What was promised of that distance."""
        return self.fit.options.tolerance

    @property
    def margin(self) -> float:
        """The least lead of an anchor."""
        return self.fit.choice.margin

    @property
    def cut(self) -> dict[int, int]:
        """Partition to the offset up to which records are reflected.

        A retraining reads epochs that were closed before it; records behind a partition's cut belong to the next epoch.
        """
        return {view.partition: view.meta.end_of(self.snapshot.through) for view in self.snapshot.views}


@dataclass(frozen=True, slots=True)
class NotVerified:
    """An update could not be verified against the base model, so a retrain is due; `reason` says why."""

    reason: str


class Modeller:
    """Keeps the last fit with its snapshot. After a restart it has none, and the first model is learned cold."""

    def __init__(self, options: LearnerOptions, clock: Callable[[], float] = time.perf_counter) -> None:
        self.options = options
        self._clock = clock
        self._last: tuple[TopicFit, Snapshot] | None = None

    @property
    def fit(self) -> TopicFit | None:
        """The last model before noise: secret."""
        return self._last[0] if self._last else None

    def retrain(self, snapshot: Snapshot) -> Modelled:
        """Learn cold. Raises CannotLearn, also where the certificate does not reach the tolerance."""
        start = self._clock()
        self._last = None
        return self._keep(learn(snapshot, self.options), snapshot, start, warm=False)

    def unlearn(self, snapshot: Snapshot, anchors: Sequence[str]) -> Modelled | NotVerified:
        """Carry the model over to a snapshot of the documents that remain; `anchors` are the base model's.

        Raises CannotLearn where no model can be made of them at all.
        """
        start = self._clock()
        warm = self._warm(snapshot)
        if isinstance(warm, NotVerified):
            return warm
        fit = warm or learn(snapshot, self.options)
        if fit.anchors != tuple(anchors):
            return NotVerified(changed_anchors(anchors, fit.anchors))
        try:
            return self._keep(fit, snapshot, start, warm=warm is not None)
        except CannotLearn as error:
            return NotVerified(str(error))

    def _warm(self, snapshot: Snapshot) -> TopicFit | NotVerified | None:
        """Return the carried-over fit, None where there is nothing to start from."""
        if self._last is None:
            return None
        fit, before = self._last
        # The update works in place, so whatever happens the old fit is gone.
        self._last = None
        try:
            delta = snapshot.since(before)
            outcome = update(fit, snapshot, delta, delta.passages())
        except SnapshotExpired:
            return None
        return NotVerified(outcome.reason) if isinstance(outcome, NeedsRetrain) else outcome.fit

    def _keep(self, fit: TopicFit, snapshot: Snapshot, start: float, *, warm: bool) -> Modelled:
        bound = fit.certificate.bound
        if not bound <= self.options.tolerance:
            raise CannotLearn(
                "certificate",
                f"the certificate {bound:.2g} does not reach the tolerance {self.options.tolerance:g}: "
                "ask fewer topics, add documents or raise the tolerance",
            )
        self._last = (fit, snapshot)
        return Modelled(fit, snapshot, warm, self._clock() - start)
