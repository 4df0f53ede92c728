"""Ingest counts the records of one partition of the documents topic, each exactly once."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamtopic.documents.deletion_record import encode_misplaced
from streamtopic.errors import StateError, StateMismatch, StreamtopicError
from streamtopic.monitoring.tracing import span
from streamtopic.service.ingest.decode import decode_all
from streamtopic.service.ingest.resolve import resolve
from streamtopic.service.log_history import count_remedy, departures
from streamtopic.state import (
    MAX_FLUSH_DOCUMENTS,
    DocumentChanges,
    ForgetKind,
    LastRecord,
    PartitionWriter,
    Stale,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamtopic.service.ingest.decode import Decoded
    from streamtopic.service.ingest.resolve import Resolution
    from streamtopic.service.ingest.suppressions import Suppressions
    from streamtopic.state import Connection, ModelSettings
    from streamtopic.streams import EventLog, TopicNames

__all__ = ["Ingest", "Progress", "count_to_the_end"]

# A partition has one writer, so its state changes under it a few times at most: after this many, something is wrong.
_ATTEMPTS = 10

# Bytes of one read. A read ahead is held in memory besides the records that are being counted.
_BYTES = 8 << 20

# One thread for all partitions: a log may keep a connection for each thread that reads.
_reading = ThreadPoolExecutor(1, "read")

# The setting `residue_max_age` if nobody sets another.
_RESIDUE_SECONDS = 86_400.0

# Seconds between two looks for keys that Redis has lost, and at the history of the log. A version is made only after a
# look of its own.
_LOOK_SECONDS = 60.0

# Seconds between two looks for the end of a transaction that hides records.
_PAUSE = 0.2

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """One flush.

    records: how many records were read.
    next_offset: the offset of the next record to read.
    outcomes: number of events by outcome, as `records_total` of the metrics names them.
    reasons: number of refused records by reason.
    waited: seconds from when each delete was sent until it was counted.
    seconds: time that it took to count and commit the flush.
    begin: the offset where the flush began. It is before the end of the last flush if the state was set back between.
    """

    records: int
    next_offset: int
    outcomes: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    waited: Sequence[float] = ()
    seconds: float = 0.0
    begin: int | None = None


class Ingest:
    """Keeps the counts of a partition up to date with its log, as the partition's one writer.

    Whoever makes one takes ownership of the partition; a new one begins at the beginning of its log.

    settings: of the model.
    clock: seconds since 1970, for receipts.
    suppressions: who is suppressed; None in a model without any.

    The changes of the partition are free of a removed document within `residue_max_age`, seconds that may be set.

    State and offset move in one commit, so a process that is killed anywhere loses nothing and counts nothing twice.
    Pointers to rejected records, requests for deletions at other partitions, and tombstones of suppressed adds are
    confirmed by their log before the commit; after a crash they may be there twice.

    Raises StateMismatch if settings, partitions or the log do not fit the state, SettingsError if the key of the
    model's suppressions is missing.
    """

    def __init__(
        self,
        connection: Connection,
        log: EventLog,
        topics: TopicNames,
        partition: int,
        *,
        settings: ModelSettings,
        clock: Callable[[], float],
        suppressions: Suppressions | None = None,
    ) -> None:
        known = log.describe(topics.documents)
        if known.partitions != settings.partitions:
            remedy = count_remedy(topics, topics.documents, known.partitions)
            raise StateMismatch(
                f"topic {topics.documents} has {known.partitions} partitions, the model was made for "
                f"{settings.partitions}, and a document's delete would miss its add: {remedy}"
            )
        if suppressions is not None:
            suppressions.check()
        self.state = PartitionWriter.open(
            connection,
            topics.model,
            partition,
            settings,
            first_offset=log.begin(topics.documents, partition),
            clock=clock,
        )
        self.residue_max_age = _RESIDUE_SECONDS
        self._log = log
        self._topics = topics
        self._topic_id = known.id
        self._clock = clock
        self._announced = 0, 0
        # The writer has looked when it read the state.
        self._looked_at = clock()
        self._fitting = MAX_FLUSH_DOCUMENTS
        self._records = _ReadAhead(log, topics.documents, self.state)
        self._suppressions = suppressions
        # What was not read yet may have lost records to compaction.
        self._doubtful = log.end(topics.documents, partition)
        self.check_log()

    @property
    def topic(self) -> str:
        """The documents topic."""
        return self._topics.documents

    @property
    def partition(self) -> int:
        """The partition of the documents topic."""
        return self.state.partition

    @property
    def lag(self) -> int:
        """Number of records that are not yet counted.

        Raises StateMismatch if the log ends before what was counted.
        """
        end = self._log.end(self._topics.documents, self.partition)
        uncounted = end - self.state.meta.next_offset
        if uncounted < 0:
            self.state.reload()
            self.check_log()
            uncounted = end - self.state.meta.next_offset
        return uncounted

    def step(self, max_records: int | None = None) -> Progress:
        """Read and commit at most one flush; `records` is 0 at the end of the log.

        Changes are not summed up, so that a step takes about as long as its records: call `sum_if_due` in between.

        max_records: the most records of the flush, None for as many as a flush may have.

        Raises StateMismatch if another process took the partition over or the log lost records that were not read,
        StateCorrupt if Redis has lost keys of the partition, ComponentUnreachable if log or Redis do not answer.
        It may be repeated after any error.
        """
        most = min(max_records or MAX_FLUSH_DOCUMENTS, MAX_FLUSH_DOCUMENTS)
        for _ in range(_ATTEMPTS):
            offset = self.state.meta.next_offset
            try:
                self._look_for_losses()
                progress = self._attempt(most)
            except StateMismatch:
                # Another process may have taken the partition over and counted on: then the log may well have lost the
                # records at this writer's position. Only for the newest position is that a fault of the log.
                self.state.reload()
                if self.state.meta.next_offset == offset:
                    raise
                continue
            if progress is not None:
                return progress
        raise StateError(f"partition {self.partition} keeps changing under its writer: is a second ingest running?")

    def sum_if_due(self) -> None:
        """Write the word statistics again where many changes came since, or changes hold a removed document for long.

        Raises as `step`.
        """
        held = self.state.meta.holds_removed
        self.state.keep_summed(self.residue_max_age)
        if held and not self.state.meta.holds_removed:
            extra = {"event": "changes_cleared", "partition": self.partition}
            logger.info("partition %d: its changes hold no deleted document any more", self.partition, extra=extra)

    def check_log(self) -> None:
        """Raise StateMismatch if the log is not the one that was counted, or has partitions that nobody counts."""
        meta = self.state.meta
        found = departures(self._log, self._topics.documents, meta.settings.partitions, {self.partition: meta})
        if found:
            raise StateMismatch(found[0].text)

    def went_back(self) -> bool:
        """Return whether Redis was set back to an earlier moment; go back with it if so."""
        # A commit would notice, but at the end of the log there is none, perhaps for hours: deletions that a promoted
        # replica, or a restored server, had not heard of would wait for the next record.
        if not self.state.is_set_back():
            return False
        self.state.reload()
        logger.warning(
            "partition %d: Redis holds less than was committed; reading again from offset %d",
            self.partition,
            self.state.meta.next_offset,
            extra={"event": "redis_set_back", "partition": self.partition, "offset": self.state.meta.next_offset},
        )
        return True

    def drain(self) -> Iterator[Progress]:
        """Yield flushes until the log's present end is counted, summing changes up in between.

        Call `went_back` first where Redis may have been set back since this process last wrote to it.
        """
        end = self._log.end(self._topics.documents, self.partition)
        while self.state.meta.next_offset < end:
            progress = self.step()
            if not progress.records:
                break
            self.sum_if_due()
            yield progress

    def _look_for_losses(self) -> None:
        """Raise StateCorrupt if Redis has lost keys of the partition, and as `check_log`, unless it looked lately.

        Raises SettingsError if suppressions have begun under a key that is not here.
        """
        now = self._clock()
        # `abs`: a clock may be set back.
        if abs(now - self._looked_at) >= _LOOK_SECONDS:
            self.state.require_keys()
            self.check_log()
            if self._suppressions is not None:
                self._suppressions.check()
            self._looked_at = now

    def _attempt(self, max_records: int) -> Progress | None:
        """Return the flush that was committed, or None if the state changed meanwhile and nothing was written."""
        offset = self.state.meta.next_offset
        most = min(max_records, self._fitting)
        whole = self._records.at(offset, most)
        if whole is None:
            return self._pass_empty_offsets(offset)
        ready = self.state.prepare(whole.documents, max_records)
        # As many as fit into a flush are read at a time, since those that do not are read again.
        self._fitting = ready.likely
        # The look-up found a newer state, as after a commit whose answer was lost: these records are counted already.
        if ready.base.next_offset != offset:
            return None
        decoded = whole.first(ready.records)
        if decoded.next_offset - offset > len(decoded.records):
            self._doubtful = self._log.end(self._topics.documents, self.partition)
        now_ms = int(self._clock() * 1000)
        judged = decoded if self._suppressions is None else self._suppressions.refuse(decoded)
        resolution = resolve(judged, ready, self.partition, now_ms, self._doubtful)
        # A document that was not found was never there, unless Redis has lost keys before the look-up.
        if any(forget.kind is ForgetKind.NOT_FOUND for forget in resolution.changes.forgets):
            self.state.require_keys()
        # Before the commit: the offset must not pass a refused record whose pointer could still be lost.
        self._announce(resolution)
        found = resolution.changes
        last = decoded.records[-1]
        changes = replace(found, last=LastRecord(self._topic_id, last.offset, last.digest))
        start = time.perf_counter()
        with self._records.beyond(decoded, min(max_records, self._fitting)):
            result = self.state.apply(changes)
        seconds = time.perf_counter() - start
        if isinstance(result, Stale):
            return None
        self._alert(resolution)
        self._trace(resolution)
        waited = [(forget.applied_ms - forget.received_ms) / 1000 for forget in found.forgets]
        return Progress(
            len(decoded.records), found.next_offset, found.totals, resolution.reasons, waited, seconds, offset
        )

    def _pass_empty_offsets(self, offset: int) -> Progress | None:
        """Move the offset to the end of a log whose last offsets have no record, as the marks of transactions.

        Otherwise its lag would never be 0. Return None if there is a record by now, or the state changed.
        """
        end = self._log.end(self._topics.documents, self.partition)
        if end < offset:
            self.check_log()
        if end <= offset:
            return None if self.went_back() else Progress(0, offset)
        # Read after the end was known: a record before that end would be there by now.
        if self._records.at(offset, 1) is not None:
            return None
        if isinstance(self.state.apply(DocumentChanges(end)), Stale):
            return None
        return Progress(0, end)

    def _announce(self, resolution: Resolution) -> None:
        """Write what other topics and partitions have to know, once for each flush however often it is committed."""
        end, rejected = self._announced
        # Somebody may have been suppressed since the last attempt.
        if resolution.changes.next_offset <= end and len(resolution.rejected) <= rejected:
            return
        if resolution.rejected:
            self._log.append_many(self._topics.rejected, resolution.rejected)
        if resolution.elsewhere:
            self._log.append_many(self._topics.requests, encode_misplaced(resolution.elsewhere))
        self._announced = resolution.changes.next_offset, len(resolution.rejected)

    def _alert(self, resolution: Resolution) -> None:
        """Warn the operator of refused changes that removed documents, once for a flush."""
        refused = [forget for forget in resolution.changes.forgets if forget.kind is ForgetKind.REFUSED]
        if refused:
            logger.warning(
                "partition %d: %d refused changes removed the documents of their ids, the first at offset %d; "
                "`streamtopic rejected` gives the reasons, docs/messages.md the remedies",
                self.partition, len(refused), refused[0].offset,
                extra={"event": "changes_refused", "partition": self.partition, "offset": refused[0].offset},
            )  # fmt: skip

    def _trace(self, resolution: Resolution) -> None:
        """Report that deletions were counted out, to those who trace them."""
        for forget in resolution.changes.forgets:
            if forget.trace:
                times = (forget.received_ms, int(self._clock() * 1000))
                span("streamtopic ingest", times, {"partition": self.partition}, forget.trace)


def count_to_the_end(
    ingests: Sequence[Ingest], update: Callable[[int, int | None], None], *, patient: bool = False
) -> Iterator[Progress]:
    """Count until no partition has records left; yield each flush.

    update: told how many records are counted, of how many.
    patient: whether to wait for records that some producer's open transaction hides; else they are left.
    """
    records = 0
    # Several rounds: one partition may send deletions to another.
    while lag := sum(ingest.lag for ingest in ingests):
        before, total = records, records + lag
        for ingest in ingests:
            for progress in ingest.drain():
                records += progress.records
                update(records, max(total, records))
                yield progress
        if records == before and sum(ingest.lag for ingest in ingests) == lag:
            if not patient:
                return
            time.sleep(_PAUSE)


class _ReadAhead:
    """Reads a partition, and the next records already while those before them are being counted.

    state: of the partition; its rules say how records are decoded.

    The memory is bounded: one read of 8 MiB besides the records that are being counted.
    """

    def __init__(self, log: EventLog, topic: str, state: PartitionWriter) -> None:
        self._log = log
        self._topic = topic
        self._state = state
        # An offset, and the records from there on: None if there were none when they were read.
        self._next: tuple[int, Decoded | None] = 0, None

    def at(self, offset: int, max_records: int) -> Decoded | None:
        """Return at least one record from `offset` on; None at the end of the log."""
        known, decoded = self._next
        # If the state has begun a new table of words, the same entries name other words in it.
        if known != offset or decoded is None or decoded.lexicon is not self._state.lexicon:
            decoded = self._begin(offset, max_records).result()
        self._next = offset, decoded
        return decoded

    @contextmanager
    def beyond(self, used: Decoded, max_records: int) -> Iterator[None]:
        """Read the records after the used ones meanwhile, for the next `at`.

        used: the records that are being committed, the first that `at` returned.

        If the body of the `with` fails, the used records are kept, since they are to be read again.
        """
        future = self._begin(used.next_offset, max_records)
        try:
            yield
        finally:
            # The thread must not read on during the next call.
            wait([future])
        # An error of reading ahead comes again when the records are read in turn, and is reported then.
        failed = isinstance(future.exception(), StreamtopicError)
        self._next = used.next_offset, None if failed else future.result()

    def _begin(self, offset: int, max_records: int) -> Future[Decoded | None]:
        """Begin to read and decode records from `offset` on; None at the end of the log."""
        state, settings, lexicon = self._state, self._state.meta.settings, self._state.lexicon

        def read() -> Decoded | None:
            records = self._log.read(self._topic, state.partition, offset, max_records, _BYTES)
            if not records:
                return None
            return decode_all(records, lexicon, settings.partitions, state.secret)

        return _reading.submit(read)
