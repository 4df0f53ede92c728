"""Reading the partitions of a Kafka topic from any offset, in order, some megabytes at a time."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition, errors

from streamtopic.streams.event_log import EventLog, Record, check_offset, within
from streamtopic.streams.kafka_clients import connect
from streamtopic.streams.kafka_compat import give_up, read_all_records, records_in
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["TopicReader", "consumer_of"]

# A broker holds a request for this long if nothing is new, and the next one of the same thread waits for it.
_HOLD_MS = 200
# One answer, which is held as a whole; a longer batch comes alone.
_FETCH_BYTES = 4 << 20
# As many batches as any answer has, so that nothing of an answer is left behind in the consumer.
_POLL_RECORDS = _FETCH_BYTES
# A partition that was not read for so long belongs to another process, or was read once, to its end.
_IDLE_SECONDS = 120.0
# Answers in a row without a record. The first may be one to an earlier request, from before the end was known.
_CERTAIN = 3
# read_committed: records of an aborted transaction do not count.
_CONSUMER = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
    "isolation_level": "read_committed",
    "metrics_enabled": False,
    # Without sessions each answer names every partition, also without new records.
    "enable_incremental_fetch_sessions": False,
}


def consumer_of(options: KafkaOptions, answered: Callable[[], None] = lambda: None, **more: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    """Return a consumer without a group, which can read any record.

    answered: called for each answer about a partition.
    more: of its arguments.
    """
    consumer = connect(KafkaConsumer, options, **(_CONSUMER | more))
    read_all_records(consumer, answered)
    return consumer


class _Buffer:
    """The records of one partition that were fetched.

    start, position: `records` are all records of the log from `start`, where the next read begins, up to `position`.
    end: of the partition as far as it is known, -1 before it was asked for.
    used: time of the last read, seconds.
    """

    __slots__ = ("end", "position", "records", "start", "used")

    def __init__(self, start: int) -> None:
        self.start = self.position = start
        self.end = -1
        self.used = 0.0
        self.records: deque[Record] = deque()

    def put(self, found: list[Any]) -> None:
        """Append the records that a poll has found."""
        self.records += records_in(found, self.position)
        self.position = found[-1].offset + 1

    def take(self, max_records: int, max_bytes: int) -> list[Record]:
        """Remove and return the first records within both limits, at least one."""
        taken = within(self.records, max_records, max_bytes)
        for record in taken:
            self.records.popleft()
            self.start = record.next_offset
        return taken


class TopicReader:
    """Reads the partitions of a topic for one thread. Of each partition it holds one answer, about 4 MB.

    offsets: tells the first and the last offset of partitions, over another connection.
    clock: monotonic seconds.

    Raises StateMismatch for an offset that the log does not hold, and kafka-python's own errors. After these it can be
    used again.
    """

    def __init__(self, options: KafkaOptions, offsets: EventLog, topic: str, *, clock: Callable[[], float]) -> None:
        self._options, self._offsets, self._topic, self._clock = options, offsets, topic, clock
        self._consumer: Any = None
        self._buffers: dict[int, _Buffer] = {}
        self._answers = 0

    def read(self, partition: int, offset: int, max_records: int, max_bytes: int) -> list[Record]:
        """See EventLog.read."""
        buffer = self._buffer(partition, offset)
        if not buffer.records and offset >= buffer.end:
            begin, buffer.end = (ask(self._topic, partition) for ask in (self._offsets.begin, self._offsets.end))
            check_offset(self._topic, partition, offset, begin, buffer.end)
        if not buffer.records and offset < buffer.end:
            try:
                self._fetch(partition, buffer)
            except Exception:
                # A consumer that failed is not used again: nobody knows which records it holds.
                self.close()
                raise
        return buffer.take(max_records, max_bytes)

    def wait(self, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait."""
        buffers = {TopicPartition(self._topic, one): self._buffer(one, offset) for one, offset in positions.items()}
        if any(buffer.records for buffer in buffers.values()):
            return
        try:
            self._go_to({place: buffer.position for place, buffer in buffers.items()})
            for place, found in self._consumer.poll(timeout_ms=int(seconds * 1000)).items():
                buffers[place].put(found)
        except (errors.KafkaError, OSError):
            # An error ends the wait: the read that follows meets it too, and handles it.
            self.close()

    def close(self) -> None:
        """Give connection and memory back."""
        self._buffers.clear()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            give_up(consumer, autocommit=False, timeout_ms=0)

    def _buffer(self, partition: int, offset: int) -> _Buffer:
        """Return the buffer of a partition, which begins at `offset` from now on; those that are left idle go."""
        now = self._clock()
        for left in [one for one, buffer in self._buffers.items() if now - buffer.used > _IDLE_SECONDS]:
            del self._buffers[left]
        buffer = self._buffers.get(partition)
        if buffer is None or buffer.start != offset:
            buffer = self._buffers[partition] = _Buffer(offset)
        buffer.used = now
        return buffer

    def _fetch(self, partition: int, buffer: _Buffer) -> None:
        """Fetch the next records before the end, unless compaction has left none there."""
        place = TopicPartition(self._topic, partition)
        deadline = self._clock() + self._options.patience
        self._go_to({place: buffer.position})
        while not buffer.records and buffer.position < buffer.end and not self._is_gap(place, buffer.end):
            if self._clock() > deadline:
                raise errors.KafkaTimeoutError(f"no records of {self._topic}/{partition} in time")
            found = self._consumer.poll(timeout_ms=_HOLD_MS).get(place)
            # If compaction or a transaction took records out, the position moves on without a record.
            position = self._consumer.position(place, timeout_ms=0) or 0
            if found:
                buffer.put(found)
            elif position > buffer.position:
                buffer.position, self._answers = position, 0

    def _go_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Fetch these places from now on, each from its offset, and no others."""
        if self._consumer is None:
            limits = {"max_partition_fetch_bytes": _FETCH_BYTES, "max_poll_records": _POLL_RECORDS}
            self._consumer = consumer_of(self._options, self._answered, fetch_max_wait_ms=_HOLD_MS, **limits)
        known = set(self._consumer.assignment())
        self._consumer.assign(list(offsets))
        for place, offset in offsets.items():
            if place not in known or self._consumer.position(place, timeout_ms=0) != offset:
                self._consumer.seek(place, offset)
        self._answers = 0

    def _is_gap(self, place: TopicPartition, end: int) -> bool:
        """Return whether the answers say that no record is left before `end`."""
        # A broker that leads since a moment ago may not know yet how far it may give records out.
        return self._answers >= _CERTAIN and int(self._consumer.highwater(place) or 0) >= end

    def _answered(self) -> None:
        self._answers += 1
