"""Reports of the service's parts about their work, and the metrics and health that are made of these reports.

Watch     nobody listens: the parts of a command, a test or a service that is not watched
Watching  metrics and health of a process; its gauges are set by the looks in processes.py

The parts give numbers, and names that the catalogue of metrics lists: never a document's id and never a word.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING

from streamtopic.monitoring import metrics as catalogue
from streamtopic.security.concealing import conceal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from streamtopic.monitoring.health import Health, Verdict
    from streamtopic.monitoring.metrics import Family, Metrics
    from streamtopic.service.ingest.partition_ingest import Ingest, Progress

__all__ = ["Watch", "Watching"]

_STAGES = {"self check": "self_check", "noise and release": "release"}
_RESULTS = {True: "passed", False: "failed", None: "undecided"}


class Watch:
    """Takes the reports of the parts, and does nothing with them."""

    def moved(self, name: str) -> None:
        """Take that a loop, or a partition, has got on: it has ended a round."""

    def waits(self, error: Exception, reason: str, loop: str = "") -> None:
        """Take that the work was given up and will begin again.

        reason: `unreachable` or `refused`.
        loop: name of the loop that did it, "" for the first one of the process.
        """

    def hindered(self, reason: str) -> None:
        """Take why the work does not get on now, in words, while it is not given up."""

    def busy(self, what: str) -> AbstractContextManager[None]:  # noqa: ARG002 - nobody listens
        """Tell that something takes long while the block runs: `recovering`, `learning` or `clearing`."""
        return nullcontext()

    def owns(self, partition: int, ingest: Ingest) -> None:
        """Take that this process counts a partition from now on."""

    def gave_up(self, partition: int, *, taken_over: bool = False) -> None:
        """Take that this process counts a partition no longer; taken_over: another one counts it already."""

    def counted(self, partition: int, progress: Progress) -> None:
        """Take what one flush of a partition counted, and where it goes on."""

    def missed(self, documents: int) -> None:
        """Take that so many documents are deleted whose deletes had left the log."""

    def leads(self, *, leading: bool) -> None:
        """Take whether this scheduler leads."""

    def blocked(self, reason: str) -> None:
        """Take why no model could be made: the code of a CannotLearn."""

    def unblocked(self) -> None:
        """Take that a model can be made again, or is not asked for."""

    def checked(self, *, passed: bool | None) -> None:
        """Take the result of the service's own check; None: it could not be made."""

    def staged(self, version: int, kind: str, seconds: Mapping[str, float]) -> None:
        """Take that a version was staged, and the seconds that it took by stage."""

    def reached(self, stage: str, seconds: float) -> None:
        """Take that deletions reached a stage, the oldest of them so long after it was counted out."""

    def confirmed(self, ages: Sequence[float]) -> None:
        """Take that receipts are in the log: the seconds since each delete was sent."""

    def alive(self, made: float) -> None:
        """Take that the ledger says which version is the newest at a time, seconds since 1970."""

    def witnessed(self, names: int) -> None:
        """Take how many witnesses signed the newest checkpoint of the ledger."""


class Watching(Watch):
    """Keeps metrics and health of one process; safe with several threads.

    role: `run`, `ingest`, `schedule` or `serve`.
    """

    def __init__(self, role: str, metrics: Metrics, health: Health) -> None:
        self.role = role
        self.metrics = metrics
        self.health = health
        self._mutex = threading.Lock()
        self._owned: dict[int, Ingest] = {}
        if role in {"run", "ingest"}:
            metrics.show(catalogue.OWNED, 0)
        # Kept when a partition is given up: Redis may be set back while nothing is open.
        self._next: dict[int, int] = {}

    def moved(self, name: str) -> None:
        """See Watch.moved."""
        self.health.moved(name)

    def waits(self, error: Exception, reason: str, loop: str = "") -> None:
        """See Watch.waits."""
        self.metrics.add(catalogue.INTERRUPTIONS, reason=reason)
        self.health.waits(conceal(str(error)), loop)

    def hindered(self, reason: str) -> None:
        """See Watch.hindered."""
        self.health.waits(conceal(reason))

    def busy(self, what: str) -> AbstractContextManager[None]:
        """See Watch.busy."""
        return self.health.exempt(what)

    def owns(self, partition: int, ingest: Ingest) -> None:
        """See Watch.owns."""
        with self._mutex:
            self._owned[partition] = ingest
            self.metrics.show(catalogue.OWNED, len(self._owned))

    def gave_up(self, partition: int, *, taken_over: bool = False) -> None:
        """See Watch.gave_up."""
        with self._mutex:
            self._owned.pop(partition, None)
            self.metrics.show(catalogue.OWNED, len(self._owned))
            self.metrics.give_up(partition)
        self.health.gave_up(f"partition {partition}")
        if taken_over:
            self.metrics.add(catalogue.INTERRUPTIONS, reason="taken_over")

    @property
    def owned(self) -> Mapping[int, Ingest]:
        """The partitions that this process counts now."""
        with self._mutex:
            return dict(self._owned)

    def show_partition(self, partition: int, values: Mapping[Family, float | None], hidden: int = 0) -> None:
        """Set gauges of a partition, unless it was given up meanwhile. hidden: records that nobody can read yet."""
        with self._mutex:
            if partition in self._owned:
                for family, value in values.items():
                    self.metrics.show(family, value, partition=partition, kind="readable")
                self.metrics.show(catalogue.LAG_RECORDS, hidden, partition=partition, kind="hidden")

    def counted(self, partition: int, progress: Progress) -> None:
        """See Watch.counted."""
        if progress.begin is not None and progress.begin < self._next.get(partition, 0):
            self.metrics.add(catalogue.INTERRUPTIONS, reason="set_back")
        self._next[partition] = progress.next_offset
        for outcome, number in progress.outcomes.items():
            self.metrics.add(catalogue.RECORDS, number, outcome=outcome)
        for reason, number in progress.reasons.items():
            self.metrics.add(catalogue.REJECTED, number, reason=reason)
        if progress.waited:
            # One observation takes microseconds, and a flush may hold thousands of deletions.
            self.metrics.observe(catalogue.FORGET_STAGE, max(progress.waited), stage="counted")
        if progress.records:
            self.metrics.observe(catalogue.COMMIT, progress.seconds)

    def missed(self, documents: int) -> None:
        """See Watch.missed."""
        self.metrics.add(catalogue.RECORDS, documents, outcome="missed")

    def leads(self, *, leading: bool) -> None:
        """See Watch.leads."""
        self.metrics.show(catalogue.LEADER, leading)
        if not leading:
            # What this scheduler could not do says nothing about the one that leads by now.
            self.unblocked()

    def blocked(self, reason: str) -> None:
        """See Watch.blocked."""
        self.unblocked()
        self.metrics.show(catalogue.BLOCKED_RELEASE, 1, reason=reason)

    def unblocked(self) -> None:
        """See Watch.unblocked."""
        self.metrics.clear(catalogue.BLOCKED_RELEASE)

    def checked(self, *, passed: bool | None) -> None:
        """See Watch.checked."""
        self.metrics.add(catalogue.SELF_CHECKS, result=_RESULTS[passed])

    def staged(self, version: int, kind: str, seconds: Mapping[str, float]) -> None:  # noqa: ARG002 - metrics name no version
        """See Watch.staged."""
        self.unblocked()
        self.metrics.add(catalogue.RELEASES, kind=kind)
        for stage, spent in seconds.items():
            self.metrics.observe(catalogue.STEP, spent, kind=kind, stage=_STAGES.get(stage, "learn"))

    def reached(self, stage: str, seconds: float) -> None:
        """See Watch.reached."""
        self.metrics.observe(catalogue.FORGET_STAGE, seconds, stage=stage)

    def confirmed(self, ages: Sequence[float]) -> None:
        """See Watch.confirmed."""
        if ages:
            self.metrics.observe(catalogue.FORGET_STAGE, max(ages), stage="receipted")
            self.metrics.add(catalogue.RECEIPTS, len(ages))

    def alive(self, made: float) -> None:
        """See Watch.alive."""
        self.metrics.show(catalogue.ALIVE, made)

    def witnessed(self, names: int) -> None:
        """See Watch.witnessed."""
        self.metrics.show(catalogue.WITNESSES, names)

    def verdict(self) -> Verdict:
        """Return how the process is now."""
        return self.health.verdict

    def text(self) -> bytes:
        """Return all metrics, those of health as of now."""
        verdict = self.health.verdict
        self.metrics.show(catalogue.LIVE, verdict.live)
        self.metrics.clear(catalogue.BUSY)
        for reason in verdict.busy:
            self.metrics.show(catalogue.BUSY, 1, what=reason)
        return self.metrics.text()
