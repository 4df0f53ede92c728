"""What the service asks of an event log: records with keys, in partitions, under offsets.

The checks at the end are what every event log refuses, in the same words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from streamtopic.errors import StateMismatch, UsageError

__all__ = [
    "MAX_HEADERS",
    "MAX_READ_BYTES",
    "MAX_READ_RECORDS",
    "EventLog",
    "Headers",
    "Message",
    "Record",
    "check_count",
    "check_new_topic",
    "check_offset",
    "check_partition",
    "check_topic",
    "pages",
]

Headers = tuple[tuple[str, bytes], ...]

MAX_HEADERS = 256
"""Headers of a record that has not too many. An empty one is two bytes in a log and some seventy in memory, so a reader
keeps one more than this and passes over the others."""

MAX_READ_RECORDS = 4_000
MAX_READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """What is appended: a key (None only where order by key does not matter), a value (None is a tombstone), headers.

    partition None: the murmur2 hash of the key decides, as Kafka's own clients do.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What is read: a message at its place in the log; `timestamp_ms` is when it was appended, by the log's clock."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def next_offset(self) -> int:
        """Where reading goes on after this record."""
        return self.offset + 1

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, which is what `max_bytes` of a read counts."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    def header(self, name: str) -> bytes | None:
        """Value of the last header called `name`, None without one."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@runtime_checkable
class EventLog(Protocol):
    """An append-only log of topics, partitions and offsets; compaction may leave gaps between offsets.

    Every method raises ComponentUnreachable if the log does not answer, UsageError for a topic or partition that does
    not exist, StateCorrupt if what is stored fails its checksum.
    """

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic; one that exists with as many partitions is left alone, else StateMismatch.

        `settings` are Kafka's topic settings; a log that has no use for one ignores it.
        """
        ...

    def partitions(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if there is no such topic."""
        ...

    def settings(self, topic: str) -> Mapping[str, str]:
        """Kafka's topic settings that are in effect; in files, those that the topic was given."""
        ...

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Change these settings of a topic, leaving its others."""
        ...

    def append(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int | None = None
    ) -> tuple[int, int]:
        """Write one record; (partition, offset) once the log has confirmed it."""
        ...

    def append_many(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """Write records in order within each partition; their places, once all are confirmed.

        After an error a part of them may have been written.
        """
        ...

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = MAX_READ_RECORDS,
        max_bytes: int = MAX_READ_BYTES,
    ) -> list[Record]:
        """Records at `offset` and after, in order, at least one if there is one; [] at the end, without waiting.

        Raises StateMismatch if `offset` has left the log or lies beyond its end.
        """
        ...

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """Return as soon as one of these partitions holds a record at or past its position, or after `seconds`.

        It may return early, with nothing there: the read that follows tells.
        """
        ...

    def begin(self, topic: str, partition: int) -> int:
        """The least offset that the log still promises to hold."""
        ...

    def end(self, topic: str, partition: int) -> int:
        """The offset that the next record will get; on Kafka, that of the first open transaction, if one is open."""
        ...

    def written_end(self, topic: str, partition: int) -> int:
        """The offset that the next record will get, records of open transactions included."""
        ...

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:
        """An offset before which no record was appended at `time_ms` or later, by the log's clock."""
        ...

    def appended_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """When the first record at `offset` or after was appended, those of open transactions included."""
        ...

    def close(self) -> None:
        """Give back files and connections; the log must not be used afterwards."""
        ...


def pages(log: EventLog, topic: str, partition: int, offset: int, end: int | None = None) -> Iterator[list[Record]]:
    """Yield a partition's records from `offset` on, a read at a time, until there are none.

    end: no more is read from here on; the last page may go past it.
    """
    while (end is None or offset < end) and (page := log.read(topic, partition, offset)):
        yield page
        offset = page[-1].next_offset


TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")


def check_new_topic(topic: str, partitions: int) -> None:
    """Raise UsageError for a topic that cannot be made."""
    if not TOPIC.match(topic):
        raise UsageError(f"topic name {topic!r} is not usable: 1 to 249 letters, digits, dots, dashes, underscores")
    if partitions < 1:
        raise UsageError(f"topic {topic} needs at least one partition, not {partitions}")


def check_count(topic: str, existing: int, wanted: int) -> None:
    """Raise StateMismatch for a topic that is there with another number of partitions."""
    if existing != wanted:
        raise StateMismatch(
            f"topic {topic} has {existing} partitions, not {wanted}: set partitions = {existing}, or rebuild "
            "into a new log"
        )


def check_topic(topic: str, count: int, where: object) -> int:
    """Return a topic's number of partitions. Raises UsageError where there is no such topic."""
    if not count:
        raise UsageError(f"there is no topic {topic} {where}: create it with `streamtopic init`")
    return count


def check_partition(topic: str, partition: int, count: int) -> None:
    """Raise UsageError for a partition that the topic does not have."""
    if not 0 <= partition < count:
        raise UsageError(f"topic {topic} has partitions 0 to {count - 1}, not {partition}")


def check_offset(topic: str, partition: int, offset: int, begin: int, end: int) -> None:
    """Raise StateMismatch for an offset from which the log cannot be read."""
    if not begin <= offset <= end:
        raise StateMismatch(
            f"{topic}/{partition} holds offsets {begin} to {end}, so offset {offset} cannot be read: its records "
            "are gone or this is another log; run `streamtopic rebuild`"
        )
