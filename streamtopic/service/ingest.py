"""Ingest: records of one partition of the documents topic into its counts, each exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.errors import StateError, StateMismatch
from streamtopic.events import HEARTBEAT_KEY
from streamtopic.service.reading import ReadAhead
from streamtopic.service.resolve import OUTCOMES, resolve
from streamtopic.service.room import LIMITS, WordLimits, WordWatch
from streamtopic.state import (
    MAX_FLUSH_DOCUMENTS,
    MAX_FLUSH_RECORD_BYTES,
    MAX_FLUSH_WRITES,
    Compactor,
    PartitionState,
    Stale,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamtopic.service.resolve import Resolution
    from streamtopic.state import Changes, Connection, ModelSettings
    from streamtopic.streams import EventLog, TopicNames

__all__ = ["OUTCOMES", "Ingest", "Progress"]

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Progress:
    """One flush: records read, where reading goes on, and events by outcome."""

    records: int
    next_offset: int
    outcomes: Mapping[str, int] = field(default_factory=dict)


class Ingest:
    """Keeps a partition's counts up with its log.

    state: the partition, of which this is the writer. clock: seconds since 1970, for receipts. base_epoch: epoch of the
    base model, or None before the first; epochs that are part of it are folded when segments are merged. limits: of the
    partition's words. ahead: read the next records by a second thread while those before are being counted.

    State and offset move in one commit, so being killed anywhere loses nothing and counts nothing twice. Rejected and
    moved records are confirmed by their logs before that; after a crash they may be there twice.
    """

    def __init__(
        self,
        state: PartitionState,
        log: EventLog,
        topics: TopicNames,
        clock: Callable[[], float],
        base_epoch: Callable[[], int | None] = lambda: None,
        *,
        limits: WordLimits = LIMITS,
        ahead: bool = True,
    ) -> None:
        self.state = state
        self._words = WordWatch(state.partition, limits)
        self._log = log
        self._topics = topics
        self._clock = clock
        self._base_epoch = base_epoch
        self._announced = 0
        self._fitting = MAX_FLUSH_DOCUMENTS
        self._compactor = Compactor(state)
        self._records = ReadAhead(log, topics.documents, state.partition, state.meta.partitions, ahead=ahead)
        self._check_position()

    @classmethod
    def open(
        cls,
        connection: Connection,
        log: EventLog,
        topics: TopicNames,
        partition: int,
        *,
        settings: ModelSettings,
        clock: Callable[[], float],
        base_epoch: Callable[[], int | None] = lambda: None,
        limits: WordLimits = LIMITS,
        ahead: bool = True,
    ) -> Ingest:
        """Take a partition over, creating its state at the beginning of its log.

        Raises StateMismatch where settings, partitions or the log do not fit the state, with the remedy.
        """
        have = log.partitions(topics.documents)
        if have != settings.partitions:
            raise StateMismatch(
                f"topic {topics.documents} has {have} partitions, the model was made for {settings.partitions}: a "
                "document's delete would miss its add; go back to that number, or run `streamtopic rebuild`"
            )
        state = PartitionState.open(
            connection,
            topics.model,
            partition,
            partitions=settings.partitions,
            weighting=settings.weighting,
            first_offset=log.begin(topics.documents, partition),
        )
        return cls(state, log, topics, clock, base_epoch, limits=limits, ahead=ahead)

    @property
    def topic(self) -> str:
        """The documents topic."""
        return self._topics.documents

    @property
    def partition(self) -> int:
        """The partition of the documents topic."""
        return self.state.partition

    @property
    def merging(self) -> float:
        """Processor seconds spent on merging segments since this process took the partition over."""
        return self._compactor.spent

    @property
    def lag(self) -> int:
        """Records that are not yet counted."""
        return self._log.end(self._topics.documents, self.partition) - self.state.meta.next_offset

    def step(
        self, max_records: int | None = None, amend: Callable[[Changes], Changes | None] = lambda changes: changes
    ) -> Progress:
        """Read and commit at most one flush of at most max_records; `records` is 0 at the end of the log.

        amend: may add to what is committed; it answers None to have the records read again. Segments are not merged, so
        that a step takes about as long as its records: call `compact_if_due` in between.

        Raises StateMismatch where another process took the partition over or the log lost records that were not read,
        ComponentUnreachable where log or Redis do not answer; calling again later is always safe.
        """
        for _ in range(_ATTEMPTS):
            progress = self._attempt(min(max_records or MAX_FLUSH_DOCUMENTS, MAX_FLUSH_DOCUMENTS), amend)
            if progress is not None:
                return progress
        raise StateError(f"partition {self.partition} keeps changing under its writer: is a second ingest running?")

    def compact_if_due(self) -> bool:
        """Do at most one small merge of segments, or take over a larger one that a thread has done meanwhile.

        Returns whether the segments have changed. Raises as `step`.
        """
        return self._compactor.step(self._base_epoch())

    def drain(self) -> Iterator[Progress]:
        """Yield flushes until the log's present end is counted, merging in between."""
        end = self._log.end(self._topics.documents, self.partition)
        while self.state.meta.next_offset < end:
            progress = self.step()
            if not progress.records:
                return
            self.compact_if_due()
            yield progress

    def _attempt(self, max_records: int, amend: Callable[[Changes], Changes | None]) -> Progress | None:
        """Return what was committed, or None where the state changed meanwhile and nothing was written."""
        offset = self.state.meta.next_offset
        whole = self._records.at(offset, self.state.lexicon, min(max_records, self._fitting))
        if whole is None:
            return Progress(0, offset)
        numbers = self.state.vocabulary.numbers()
        decoded, rest = whole.split(numbers, max_records, MAX_FLUSH_RECORD_BYTES, MAX_FLUSH_WRITES)
        # As many as fit into a flush are read at a time: otherwise every other flush would be a small rest.
        self._fitting = whole.fitting(numbers, MAX_FLUSH_RECORD_BYTES, MAX_FLUSH_WRITES)
        stored = self.state.documents(r.key for r in decoded.records if r.key and r.key != HEARTBEAT_KEY)
        base = self.state.meta
        if base.next_offset != offset:
            return None
        now_ms = int(self._clock() * 1000)
        numbers, vocabulary = self.state.vocabulary.numbers(), self.state.vocabulary
        room = self._words.room(vocabulary, numbers, decoded)
        resolution = resolve(decoded, stored, numbers, base, self.partition, now_ms, room)
        self._announce(resolution)
        changes = amend(resolution.changes)
        if changes is None:
            self.state.reload()
            return None
        with self._records.beyond(decoded, rest, min(max_records, self._fitting)):
            result = self.state.commit(self.state.plan(changes))
        if isinstance(result, Stale):
            self.state.reload()
            return None
        self.state.tidy()
        self._words.look(self.state.vocabulary, resolution.changes.totals)
        return Progress(len(decoded.records), resolution.changes.next_offset, resolution.changes.totals)

    def _announce(self, resolution: Resolution) -> None:
        """Write rejected and moved records, once for each flush however often its commit is repeated."""
        if resolution.changes.next_offset <= self._announced:
            return
        if resolution.rejected:
            self._log.append_many(self._topics.rejected, resolution.rejected)
        if resolution.moved:
            self._log.append_many(self._topics.documents, resolution.moved)
        self._announced = resolution.changes.next_offset

    def _check_position(self) -> None:
        topic, offset = self._topics.documents, self.state.meta.next_offset
        begin, end = self._log.begin(topic, self.partition), self._log.end(topic, self.partition)
        if offset < begin:
            raise StateMismatch(
                f"partition {self.partition} of {topic}: records {offset} to {begin - 1} left the log before they were "
                "counted, deletes perhaps among them: run `streamtopic rebuild`"
            )
        if offset > end:
            raise StateMismatch(
                f"partition {self.partition} of {topic} ends at {end}, but records up to {offset} were counted: it is "
                "another log, or a restored one; point to the right one, or run `streamtopic rebuild`"
            )
