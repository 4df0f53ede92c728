"""What the service asks of an event log: records with keys, in partitions, under offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["MAX_READ_BYTES", "MAX_READ_RECORDS", "EventLog", "Headers", "Message", "Record"]

Headers = tuple[tuple[str, bytes], ...]

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
        """The offset that the next record will get."""
        ...

    def close(self) -> None:
        """Give back files and connections; the log must not be used afterwards."""
        ...
