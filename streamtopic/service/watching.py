"""Reports of the service's parts about their work, and the metrics and health that are made of these reports.

Gauges of the state are set by `inspection/facts.py`. The parts give numbers, and names that the catalogue of
metrics lists: never a document's id and never a word.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

from streamtopic.monitoring import health
from streamtopic.monitoring import metrics as catalogue
from streamtopic.security.concealing import conceal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from streamtopic.monitoring.health import Verdict
    from streamtopic.monitoring.metrics import Family
    from streamtopic.service.ingest.partition_ingest import Ingest, Progress

__all__ = ["Watch"]

_STAGES = {"self check": "self_check", "noise and release": "release"}


class _NoMetrics:
    """In the place of the metrics of a process that nobody watches."""

    def add(self, *_: object, **__: object) -> None:
        """Keep nothing."""

    observe = show = clear = give_up = add


class Watch:
    """Keeps metrics and health of one process; safe with several threads.

    role: `run`, `ingest`, `schedule` or `serve`; "" if nobody watches, as a command, a test, or a service without
        `metrics_address`.
    loops: names of loops besides the one of the role.
    """

    def __init__(self, role: str = "", *loops: str) -> None:
        self.role = role
        self.metrics = catalogue.Metrics(role) if role else cast("catalogue.Metrics", _NoMetrics())
        self.health = health.Health(health.STALLED_AFTER, (role, *loops))
        self._mutex = threading.Lock()
        self._owned: dict[int, Ingest] = {}
        if role in {"run", "ingest"}:
            self.metrics.show(catalogue.OWNED, 0)
        # Kept when a partition is given up: Redis may be set back while nothing is open.
        self._next: dict[int, int] = {}

    def moved(self, loop: str = "") -> None:
        """Take that a loop has got on; "": the first one of the process."""
        self.health.moved(loop)

    def waits(self, error: Exception, reason: str, loop: str = "") -> None:
        """Take that the work was given up and will begin again.

        reason: `unreachable` or `refused`.
        loop: name of the loop that did it, "" for the first one of the process.
        """
        self.metrics.add(catalogue.INTERRUPTIONS, reason=reason)
        self.health.waits(conceal(str(error)), loop)

    def hindered(self, reason: str) -> None:
        """Take why the work does not get on now, in words, while it is not given up."""
        self.health.waits(conceal(reason))

    def busy(self, what: str) -> AbstractContextManager[None]:
        """Tell that something takes long while the block runs: `recovering`, `learning` or `clearing`."""
        # Whether a process is exempt is nobody's question if nobody asks for its health.
        return self.health.exempt(what) if self.role else nullcontext()

    def owns(self, partition: int, ingest: Ingest) -> None:
        """Take that this process counts a partition from now on."""
        with self._mutex:
            self._owned[partition] = ingest
            self.metrics.show(catalogue.OWNED, len(self._owned))

    def gave_up(self, partition: int, *, taken_over: bool = False) -> None:
        """Take that this process counts a partition no longer; taken_over: another one counts it already."""
        with self._mutex:
            self._owned.pop(partition, None)
            self.metrics.show(catalogue.OWNED, len(self._owned))
            self.metrics.give_up(partition)
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
        """Take what one flush of a partition counted, and where it goes on."""
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
        """Take that so many documents are deleted whose deletes had left the log."""
        self.metrics.add(catalogue.RECORDS, documents, outcome="missed")

    def leads(self, *, leading: bool) -> None:
        """Take whether this scheduler leads."""
        self.metrics.show(catalogue.LEADER, leading)
        if not leading:
            # What this scheduler could not do says nothing about the one that leads by now.
            self.unblocked()

    def blocked(self, reason: str) -> None:
        """Take why no model could be made: the code of a CannotLearn."""
        self.unblocked()
        self.metrics.show(catalogue.BLOCKED_RELEASE, 1, reason=reason)

    def unblocked(self) -> None:
        """Take that a model can be made again, or is not asked for."""
        self.metrics.clear(catalogue.BLOCKED_RELEASE)

    def checked(self, *, passed: bool) -> None:
        """Take the result of the service's own check."""
        self.metrics.add(catalogue.SELF_CHECKS, result="passed" if passed else "failed")

    def staged(self, version: int, kind: str, seconds: Mapping[str, float]) -> None:  # noqa: ARG002 - metrics name no version
        """Take that a version was staged, and the seconds that it took by stage."""
        self.unblocked()
        self.metrics.add(catalogue.RELEASES, kind=kind)
        for stage, spent in seconds.items():
            self.metrics.observe(catalogue.STEP, spent, kind=kind, stage=_STAGES.get(stage, "learn"))

    def reached(self, stage: str, seconds: float) -> None:
        """Take that deletions reached a stage, the oldest of them so long after it was counted out."""
        self.metrics.observe(catalogue.FORGET_STAGE, seconds, stage=stage)

    def confirmed(self, ages: Sequence[float]) -> None:
        """Take that receipts are in the log: the seconds since each delete was sent."""
        if ages:
            self.metrics.observe(catalogue.FORGET_STAGE, max(ages), stage="receipted")
            self.metrics.add(catalogue.RECEIPTS, len(ages))

    def alive(self, made: float) -> None:
        """Take that the ledger says which version is the newest at a time, seconds since 1970."""
        self.metrics.show(catalogue.ALIVE, made)

    def witnessed(self, names: int) -> None:
        """Take how many witnesses signed the newest checkpoint of the ledger."""
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
