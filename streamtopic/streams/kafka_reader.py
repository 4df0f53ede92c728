"""Reading partitions of a Kafka topic from any offset, in order, ahead of the caller."""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from kafka import KafkaConsumer, TopicPartition, errors

from streamtopic.streams.event_log import EventLog, Record, check_offset
from streamtopic.streams.kafka_clients import connect
from streamtopic.streams.kafka_compat import give_up, let_go, read_all_records, records_in
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["PartitionReader", "consumer_of"]

# A broker holds a request for this long if nothing is new, and other requests of the connection wait after it.
_HOLD_MS = 200
_FETCH_BYTES = 16 << 20
_PARTITION_BYTES = 4 << 20
# Records of a partition that are held at most, before those of the last answer. A batch counts as one in an answer.
_POLL_RECORDS = 4_000
# A partition that was not read for so long belongs to another process, or was read once, to its end.
_IDLE_SECONDS = 120.0
# After so long without a record before the end of the log, compaction may have left nothing there.
_DOUBT_SECONDS = 1.0
# read_committed: records of an aborted transaction do not count.
_CONSUMER = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
    "isolation_level": "read_committed",
    "metrics_enabled": False,
    # Without sessions each answer names every partition, and so tells its end, also without new records.
    "enable_incremental_fetch_sessions": False,
}


def consumer_of(options: KafkaOptions, **more: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    """Return a consumer without a group, which can read any record. more: of its arguments."""
    consumer = connect(KafkaConsumer, options, **(_CONSUMER | more))
    read_all_records(consumer)
    return consumer


class _Buffer:
    """The records of one partition that were read ahead.

    start, position: `records` are all records of the log from `start` up to `position`.
    size: bytes of the records.
    used: time of the last read, seconds.
    """

    __slots__ = ("position", "records", "size", "start", "used")

    def __init__(self, start: int) -> None:
        self.start = self.position = start
        self.used = 0.0
        self.records: deque[tuple[int, Record]] = deque()
        self.size = 0

    @property
    def full(self) -> bool:
        """Whether no more records should be read ahead."""
        return len(self.records) >= _POLL_RECORDS or self.size >= _FETCH_BYTES

    def holds(self, offset: int) -> bool:
        """Return whether reading can go on at `offset` without a new request."""
        return self.start <= offset <= self.position

    def put(self, found: list[Any]) -> None:
        """Append the records that a poll has found."""
        new = [(record.size, record) for record in records_in(found, self.position)]
        self.records += new
        self.size += sum(size for size, _ in new)
        self.position = found[-1].offset + 1

    def take(self, max_records: int, max_bytes: int) -> list[Record]:
        """Remove and return the first records within both limits, at least one."""
        taken: list[Record] = []
        total = 0
        while self.records and len(taken) < max_records:
            size, record = self.records[0]
            total += size
            if taken and total > max_bytes:
                break
            self.records.popleft()
            self.size -= size
            taken.append(record)
        if taken:
            self.start = taken[-1].next_offset
        return taken

    def skip_to(self, offset: int) -> None:
        """Drop the records before `offset`."""
        while self.records and self.records[0][1].offset < offset:
            self.size -= self.records.popleft()[0]
        self.start = offset


class PartitionReader:
    """Reads partitions for one thread, ahead of the caller. Each partition takes about 32 MB at most.

    offsets: tells the first and the last offset of partitions, over another connection.
    clock: monotonic seconds.
    hold_ms: milliseconds for which a broker holds a request while nothing is new. With 0, a read elsewhere in the
        partition waits for no held request.

    Raises StateMismatch for an offset that the log does not hold, and kafka-python's own errors. After these it can be
    used again.
    """

    def __init__(
        self, options: KafkaOptions, offsets: EventLog, *, clock: Callable[[], float], hold_ms: int = _HOLD_MS
    ) -> None:
        self._options, self._offsets, self._clock, self._hold_ms = options, offsets, clock, hold_ms
        self._earlier: PartitionReader | None = None
        self._consumer: Any = None
        self._buffers: dict[TopicPartition, _Buffer] = {}

    def read(self, topic: str, partition: int, offset: int, max_records: int, max_bytes: int) -> list[Record]:
        """See EventLog.read."""
        place = TopicPartition(topic, partition)
        known = self._buffers.get(place)
        if self._hold_ms and known is not None and offset < known.start:
            # A look back: this reader goes on where it is.
            return self._looking_back.read(topic, partition, offset, max_records, max_bytes)
        if known is None or not known.holds(offset):
            self._check(topic, partition, offset)
        buffer = self._at(place, offset)
        if not buffer.records:
            self._poll(place, _HOLD_MS / 1000 if self._goes_on(place, buffer) else 0)
        if not buffer.records:
            # Only if nothing has come: the end takes a request on another connection.
            end = self._offsets.end(topic, partition)
            if offset > end:
                self._check(topic, partition, offset)
            self._fill(place, buffer, end)
        return buffer.take(max_records, max_bytes)

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait."""
        deadline = self._clock() + seconds
        # An error ends the wait: the read that follows meets it too, and handles it.
        with suppress(errors.KafkaError, OSError):
            buffers = [self._at(TopicPartition(topic, partition), offset) for partition, offset in positions.items()]
            while not any(buffer.records for buffer in buffers):
                remaining = deadline - self._clock()
                if remaining <= 0:
                    return
                self._poll(None, min(remaining, 1.0))

    def close(self) -> None:
        """Give connection and memory back."""
        if self._earlier is not None:
            self._earlier.close()
        self._buffers.clear()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            give_up(consumer, autocommit=False, timeout_ms=0)

    @property
    def _looking_back(self) -> "PartitionReader":
        """The reader of records before those that this one has given out, over a connection of its own."""
        if self._earlier is None:
            self._earlier = PartitionReader(self._options, self._offsets, clock=self._clock, hold_ms=0)
        return self._earlier

    def _check(self, topic: str, partition: int, offset: int) -> None:
        begin = self._offsets.begin(topic, partition)
        end = self._offsets.end(topic, partition)
        check_offset(topic, partition, offset, begin, end)

    def _fill(self, place: TopicPartition, buffer: _Buffer, end: int) -> None:
        """Wait for records before `end`, or until it is certain that compaction has left none there."""
        start = self._clock()
        doubted = False
        while not buffer.records and buffer.position < end:
            before = buffer.position
            self._poll(place, _HOLD_MS / 1000)
            if before < buffer.position:
                # A batch from which compaction took all records says nothing about the records after it.
                start = self._clock()
                doubted = False
                continue
            waited = self._clock() - start
            if waited > self._options.patience:
                self.close()
                raise errors.KafkaTimeoutError(f"no records of {place.topic}/{place.partition} in {waited:.0f} s")
            if doubted and self._consumer.highwater(place) is not None and not buffer.records:
                buffer.position = max(buffer.position, end)
            elif not doubted and waited > _DOUBT_SECONDS:
                # Assigned again, so that every answer from here on is one to a request from this position.
                doubted = True
                others = [other for other in self._consumer.assignment() if other != place]
                self._consumer.assign(others)
                self._place(place, buffer.position)

    def _goes_on(self, place: TopicPartition, buffer: _Buffer) -> bool:
        """Return whether the last answer has told of more records: they are on their way."""
        return int(self._consumer.highwater(place) or 0) > buffer.position

    def _at(self, place: TopicPartition, offset: int) -> _Buffer:
        """Return the buffer of a partition, beginning at `offset`."""
        buffer = self._buffers.get(place)
        if buffer is None or not buffer.holds(offset):
            buffer = self._seek(place, offset)
        buffer.skip_to(offset)
        buffer.used = self._clock()
        return buffer

    def _seek(self, place: TopicPartition, offset: int) -> _Buffer:
        if self._consumer is None:
            self._consumer = consumer_of(
                self._options,
                fetch_max_wait_ms=self._hold_ms,
                fetch_max_bytes=_FETCH_BYTES,
                max_partition_fetch_bytes=_PARTITION_BYTES,
                max_poll_records=_POLL_RECORDS,
            )
        self._place(place, offset)
        buffer = self._buffers[place] = _Buffer(offset)
        return buffer

    def _place(self, place: TopicPartition, offset: int) -> None:
        assigned = self._consumer.assignment()
        if place not in assigned:
            self._consumer.assign([*assigned, place])
        self._consumer.seek(place, offset)

    def _poll(self, reading: TopicPartition | None, seconds: float) -> None:
        """Move records that have come into the buffers.

        reading: the partition that is read now; None if it may be any.
        seconds: how long to wait for the first records.
        """
        try:
            self._tend()
            let_go(self._consumer)
            found = self._consumer.poll(timeout_ms=int(seconds * 1000))
            for place, buffer in self._buffers.items():
                if place in found:
                    buffer.put(found[place])
                elif not buffer.records:
                    # If compaction or a transaction took records out, the position moves on without a record.
                    buffer.position = max(buffer.position, self._consumer.position(place, timeout_ms=0) or 0)
        except errors.OffsetOutOfRangeError as error:
            # The log may have lost the records at the position of a partition that was read before. That is no fault of
            # the partition that is read now.
            lost = set(error.args[0])
            if reading in lost:
                self.close()
                raise
            self._leave(lost)
        except Exception:
            # A consumer that failed is not used again: nobody knows which records it holds.
            self.close()
            raise

    def _leave(self, places: Collection[TopicPartition]) -> None:
        """Read some partitions no more."""
        stay = [place for place in self._consumer.assignment() if place not in places]
        self._consumer.assign(stay)
        for place in places:
            self._buffers.pop(place, None)

    def _tend(self) -> None:
        """Pause partitions with full buffers, and give up those that nobody reads any more."""
        now = self._clock()
        left = {place for place, buffer in self._buffers.items() if now - buffer.used > _IDLE_SECONDS}
        if left:
            self._leave(left)
        paused = self._consumer.paused()
        for place, buffer in self._buffers.items():
            if buffer.full and place not in paused:
                self._consumer.pause(place)
            elif not buffer.full and place in paused:
                self._consumer.resume(place)
