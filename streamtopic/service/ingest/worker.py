"""The ingest process takes its share of the partitions, counts their records, and gives partitions up on request."""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from streamtopic.documents.events import encode_heartbeat
from streamtopic.errors import TakenOver
from streamtopic.service.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamtopic.service.ingest.partition_ingest import Ingest
    from streamtopic.streams import EventLog
    from streamtopic.streams.event_log import Membership

__all__ = ["IngestWorker", "Round"]

T = TypeVar("T")
logger = logging.getLogger(__name__)

_TAKEN_OVER_PAUSE = 1.0
# After a round of fewer records the next one waits for more: commits would cost more than the records in them.
_FULL_ENOUGH = 1_000


@dataclass(frozen=True, slots=True)
class Round:
    """One round over the partitions of a process.

    partitions: the partitions that it owns.
    records: how many records were counted.
    outcomes: number of events by outcome, as `records_total` of the metrics names them.
    waiting: why it can own none, "" if it could: a process without a partition gets on as long as its group answers.
    """

    partitions: frozenset[int]
    records: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    waiting: str = ""


class IngestWorker:
    """Counts the partitions that its consumer group gives it.

    topic: the documents topic.
    open_ingest: opens a partition as its writer, and fences the writer before.
    heartbeat: seconds between records that keep an idle partition moving, 0 for no such records.
    linger: seconds to wait for more records after a small round.
    clock: seconds since 1970.
    ticks: seconds that only grow.
    watch: is told of partitions that come, go and are counted.

    The state and the offset of a partition move in one commit of its newest writer, so a rebalance needs no hand-over.
    A process that lost a partition without noticing, as after a SIGSTOP, can write nothing more to it.
    """

    def __init__(
        self,
        log: EventLog,
        topic: str,
        membership: Membership,
        open_ingest: Callable[[int], Ingest],
        *,
        heartbeat: float = 0.0,
        linger: float = 0.1,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] = time.monotonic,
        watch: Watch | None = None,
    ) -> None:
        self._log = log
        self._topic = topic
        self._membership = membership
        self._open_ingest = open_ingest
        self._heartbeat = heartbeat
        self._linger = linger
        self._clock = clock
        self._ticks = ticks
        self._watch = watch or Watch()
        self._ingests: dict[int, Ingest] = {}
        self._shunned: dict[int, float] = {}

    @property
    def ingests(self) -> Mapping[int, Ingest]:
        """The writers of the partitions that this process owns now, by partition."""
        return self._ingests

    def step(self, seconds: float) -> Round:
        """Do one round: take part in the group, commit one flush of each own partition, sum changes up.

        seconds: if no record came, wait for one for so long.

        Raises ComponentUnreachable and StateMismatch as Ingest does. Calling again later, or making a new worker, is
        always safe.
        """
        self._join()
        outcomes = Counter[str]()
        records = 0
        for partition in list(self._ingests):
            progress = self._guarded(partition, lambda ingest: ingest.step())
            if progress is not None:
                self._watch.counted(partition, progress)
                # Counted, or found the end of its log: both are progress.
                self._watch.health.moved()
                records += progress.records
                outcomes.update(progress.outcomes)
        for partition in list(self._ingests):
            self._guarded(partition, lambda ingest: ingest.sum_if_due())
        if not records:
            self._idle(seconds)
        elif records < _FULL_ENOUGH:
            time.sleep(self._linger)
        waiting = "" if self._ingests else self._membership.lost
        return Round(frozenset(self._ingests), records, outcomes, waiting)

    def close(self) -> None:
        """Leave the group, so that others take the partitions at once."""
        for partition in self._ingests:
            self._watch.gave_up(partition)
        self._ingests.clear()
        self._membership.leave()

    def _join(self) -> None:
        """Take part in the group; open and give up partitions as it says."""
        owned = self._membership.poll(0.0)
        for partition in [partition for partition in self._ingests if partition not in owned]:
            self._give_up(partition)
        for partition in sorted(owned - self._ingests.keys()):
            if self._ticks() >= self._shunned.get(partition, 0.0):
                self._take(partition)

    def _give_up(self, partition: int) -> None:
        """Leave a partition to the process to which the group has given it."""
        extra = {"event": "partition_given_up", "partition": partition}
        logger.info("gave up ownership of partition %d", partition, extra=extra)
        del self._ingests[partition]
        self._watch.gave_up(partition)

    def _take(self, partition: int) -> None:
        """Become the writer of a partition, unless another process becomes it in the same moment."""
        try:
            ingest = self._open_ingest(partition)
        except TakenOver as error:
            self._shun(partition, error)
            return
        self._ingests[partition] = ingest
        self._watch.owns(partition, ingest)
        logger.info(
            "took ownership of partition %d", partition, extra={"event": "partition_taken", "partition": partition}
        )

    def _guarded(self, partition: int, act: Callable[[Ingest], T]) -> T | None:
        """Act on a partition. If another process has taken it over, leave it alone for a moment."""
        try:
            return act(self._ingests[partition])
        except TakenOver as error:
            # In a rebalance the new owner may be first; nobody lost anything unnoticed then.
            if partition not in self._membership.poll(0.0):
                self._give_up(partition)
                return None
            del self._ingests[partition]
            self._shun(partition, error)
            return None

    def _shun(self, partition: int, error: TakenOver) -> None:
        """Leave a partition to the other process for a moment, whatever the group says."""
        logger.warning("%s", error, extra={"event": "partition_taken_over", "partition": partition})
        self._watch.gave_up(partition, taken_over=True)
        # The group may still say that it is ours: taking it back at once would only make the two of us alternate.
        self._shunned[partition] = self._ticks() + _TAKEN_OVER_PAUSE

    def _idle(self, seconds: float) -> None:
        """Wait for records, and keep idle partitions moving."""
        now_ms = int(self._clock() * 1000)
        for partition, ingest in self._ingests.items():
            quiet_ms = now_ms - ingest.state.meta.time_ms
            if self._heartbeat and quiet_ms >= self._heartbeat * 1000:
                # Kafka closes a partition's last file only on a new record, and compaction never reaches an open file.
                self._log.append_many(self._topic, [encode_heartbeat(partition)])
        positions = {partition: ingest.state.meta.next_offset for partition, ingest in self._ingests.items()}
        if positions:
            self._log.wait(self._topic, positions, seconds)
        else:
            self._membership.poll(seconds)
