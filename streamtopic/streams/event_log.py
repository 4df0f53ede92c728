"""The interface of an event log: records with keys, in partitions, under offsets; and the names of a model's topics.

The partition of a key follows from its hash, as in Kafka's Java client (`partition_of`).

Every event log makes the checks at the end, so that all refuse the same in the same words.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import NamedTuple, Protocol, Self

import msgpack

from streamtopic.errors import StateMismatch, UsageError

__all__ = [
    "MAX_HEADERS",
    "MAX_READ_BYTES",
    "MAX_READ_RECORDS",
    "Closing",
    "EventLog",
    "Headers",
    "LogTopic",
    "Membership",
    "Message",
    "Record",
    "TopicNames",
    "check_offset",
    "check_partition",
    "check_topic",
    "last_header",
    "murmur2",
    "pages",
    "partition_of",
    "placed",
    "within",
]

MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
DAY_MS = 24 * 3600 * 1000
# Life of pointers to refused adds: time to look into them.
_REJECTED_MS = 30 * DAY_MS


# 32-bit MurmurHash2 (Appleby) with the seed of Kafka's Java client, which kafka-python uses too.
_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The topics of one model. Raises UsageError for a name that cannot be part of a topic name or a Redis key."""

    model: str

    def __post_init__(self) -> None:
        if not MODEL.match(self.model):
            raise UsageError(
                f"model name {self.model!r} is not usable: 1 to 100 letters, digits, dashes and underscores, the first "
                "a letter or digit"
            )

    @property
    def documents(self) -> str:
        """Adds and deletes, keyed by document id."""
        return f"{self.model}.documents"

    @property
    def requests(self) -> str:
        """Requests to forget documents or people, keyed by request id. It has one partition."""
        return f"{self.model}.requests"

    @property
    def releases(self) -> str:
        """Published versions, in chunks. It has one partition."""
        return f"{self.model}.releases"

    @property
    def ledger(self) -> str:
        """The ledger: versions, receipts and all else that is signed. It has one partition."""
        return f"{self.model}.ledger"

    @property
    def rejected(self) -> str:
        """Pointers to adds that were refused. It has one partition."""
        return f"{self.model}.rejected"

    def settings(
        self,
        max_compaction_lag_ms: int = DAY_MS,
        delete_retention_ms: int = 30 * DAY_MS,
    ) -> dict[str, dict[str, str]]:
        """Return the Kafka settings of each topic by its name. All times are milliseconds.

        max_compaction_lag_ms: time within which a delete erases its add from the log.
        delete_retention_ms: life of a delete after it was compacted.
        """
        common = {
            # The time of a producer may be anything.
            "message.timestamp.type": "LogAppendTime",
            # The broker undoes any compression: every consumer can read the record, and a small one cannot unfold into
            # more than `max.message.bytes`.
            "compression.type": "uncompressed",
            "max.message.bytes": str(1 << 20),
        }
        compacted = common | {"cleanup.policy": "compact", "max.compaction.lag.ms": str(max_compaction_lag_ms)}
        kept = common | {"cleanup.policy": "delete"}
        documents = {
            "delete.retention.ms": str(delete_retention_ms),
            "max.message.bytes": str(4 << 20),
            # Kafka compacts whole segments, each once its newest record is old enough. Segments must be short, or the
            # oldest record of one would stay for longer than it may.
            "segment.ms": str(max(max_compaction_lag_ms // 2, 1)),
        }
        return {
            self.documents: compacted | documents,
            # A record names people until its tombstone erases it.
            self.requests: compacted,
            # Withdrawn versions hold words of deleted documents, so their chunks must go in time as well.
            self.releases: compacted,
            # Its entries are proved by all that are before them, so it keeps every record for ever.
            self.ledger: kept | {"retention.ms": "-1", "retention.bytes": "-1"},
            self.rejected: kept | {"retention.ms": str(_REJECTED_MS)},
        }


Headers = tuple[tuple[str, bytes], ...]

MAX_HEADERS = 256
"""Headers that a record may have. A reader keeps one more, by which the record is refused, and passes over the others:
an empty header is two bytes in a log and some seventy in memory."""

MAX_READ_RECORDS = 4_000
"""Records of one read, unless the caller asks for another number."""

MAX_READ_BYTES = 16 << 20
"""Bytes of one read, unless the caller asks for another number."""


@dataclass(frozen=True, slots=True)
class LogTopic:
    """A topic as it is now.

    id: given when the topic was made; a topic that is made again under its name has another one. "" if there is no such
        topic, or if the brokers give no ids (before Kafka 2.8).
    partitions: number of partitions, 0 if there is no such topic.
    replicas, in_sync: the least number of replicas of any partition, and of replicas in sync; 1 in files.
    """

    id: str
    partitions: int
    replicas: int = 1
    in_sync: int = 1


@dataclass(frozen=True, slots=True)
class Message:
    """A record to append.

    key: decides which records compaction replaces; None only in topics that are not compacted.
    value: None for a tombstone.
    partition: None for that of the key's hash.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


class Record(NamedTuple):
    """A record at its place in the log. A tuple: a log makes millions, and a dataclass takes three times as long.

    timestamp_ms: time at which it was appended, milliseconds since 1970.
    stamped: whether that is the time of the log's own clock, which no writer chooses.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    stamped: bool = False

    def appended_ms(self, now_ms: int) -> int:
        """Return when it was appended, milliseconds since 1970: never later than now, if a writer chose the time.

        now_ms: by this machine's clock. If the log has a clock, it is not asked: it may be behind.
        """
        appended = max(self.timestamp_ms, 0)
        return appended if self.stamped else min(appended, now_ms)

    @property
    def next_offset(self) -> int:
        """The offset at which reading goes on after this record."""
        return self.offset + 1

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, as `max_bytes` of a read counts them."""
        size = len(self.key or b"") + len(self.value or b"")
        # Most records have no header, and a log asks each for its size.
        return size + sum(len(name) + len(value) for name, value in self.headers) if self.headers else size

    @property
    def digest(self) -> str:
        """32 hexadecimal digits that tell this record from another one at the same offset."""
        content = msgpack.packb((self.key, self.value, self.headers, self.timestamp_ms))
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def header(self, name: str) -> bytes | None:
        """Return the value of the last header called `name`, None without one."""
        return last_header(self.headers, name)


def last_header(headers: Headers, name: str) -> bytes | None:
    """Return the value of the last header called `name`, None without one."""
    return next((value for key, value in reversed(headers) if key == name), None)


class EventLog(Protocol):
    """An append-only log of topics, partitions and offsets; compaction may leave gaps between offsets.

    Every method raises ComponentUnreachable if the log does not answer, UsageError for a topic or partition that does
    not exist, StateCorrupt if a stored record fails its checksum.
    """

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic. One that exists stays as it is, whatever its number of partitions.

        settings: Kafka's topic settings; a log ignores those that it has no use for.
        """
        ...

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if there is no such topic."""
        ...

    def describe(self, topic: str) -> LogTopic:
        """Return what is known of a topic. The log is asked at each call; nothing is remembered."""
        ...

    def settings(self, topic: str) -> Mapping[str, str]:  # noqa: ARG002 - of a log that has settings
        """Return Kafka's topic settings that are in effect; files have none."""
        return {}

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:  # noqa: ARG002 - as above
        """Change these settings of a topic; its other settings stay. Files have none."""
        return

    def append_many(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """Append records, in order within each partition; return (partition, offset) of each once all are confirmed.

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
        """Return the records from `offset` on, in order, without waiting; [] at the end of the log.

        max_records, max_bytes: bounds of the answer, which has one record at least if there is one.

        Raises StateMismatch if `offset` has left the log or lies beyond its end.
        """
        ...

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """Wait until one of these partitions holds a record at or past its position, for `seconds` at most.

        positions: partition to offset.

        It may return early without a record: the read that follows tells.
        """
        ...

    def begin(self, topic: str, partition: int) -> int:
        """Return the least offset that the log still promises to hold."""
        ...

    def end(self, topic: str, partition: int) -> int:
        """Return the offset of the next record; in Kafka that of the first open transaction, if there is one."""
        ...

    def written_end(self, topic: str, partition: int) -> int:
        """Return the offset of the next record, after records of open transactions as well; files have none."""
        return self.end(topic, partition)

    def appended_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """Return the time of the first record from `offset` on, None without one.

        Records of open transactions count. The time is milliseconds since 1970 by the log's clock.
        """
        ...

    def remove(self, topic: str) -> None:
        """Remove a topic with all its records. Nothing happens if there is no such topic."""
        ...

    def join(self, topic: str, group: str, session_timeout_ms: int) -> "Membership":  # noqa: ARG002 - as below
        """Return a place in a consumer group; files have no groups, so one process owns all partitions.

        topic: whose partitions the members share.
        group: name of the group.
        session_timeout_ms: a member that is silent for so long loses its partitions; brokers allow 6 s to 30 minutes by
            default.
        """
        return Membership(range(self.partitions(topic)))

    def members(self, group: str) -> list[str]:  # noqa: ARG002 - of a log that has groups
        """Return the host of each process in a consumer group; files have no groups."""
        return []

    def close(self) -> None:
        """Give back files and connections; the log must not be used afterwards."""
        ...


class Membership:
    """The place of a process in its group. This one is of a log without groups: it owns what it was given.

    Ownership is a matter of efficiency, not of safety: a member that was stopped may believe for a while that it owns a
    partition which another has taken over. The fencing token in Redis decides who may write.

    lost: why this process has no contact with its group now; "" if it has, though it may own no partition.
    """

    lost = ""

    def __init__(self, partitions: Iterable[int] = ()) -> None:
        self._owned = frozenset(partitions)

    def poll(self, seconds: float) -> frozenset[int]:  # noqa: ARG002 - there is nothing to wait for
        """Take part in the group; return the partitions that this process owns now.

        seconds: how long to wait for a change.

        Call it every few seconds. Raises SettingsError if the cluster refuses the group to this user.
        """
        return self._owned

    def leave(self) -> None:
        """Give the partitions up, so that others take ownership at once."""
        self._owned = frozenset()


class Closing:
    """A base class for objects with `close`: the end of a `with` block calls it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back files and connections."""
        raise NotImplementedError


def pages(log: EventLog, topic: str, partition: int, offset: int, end: int | None = None) -> Iterator[list[Record]]:
    """Yield the records of a partition from `offset` on, one list for each read.

    end: where to stop; the last list may go past it. None for the end of the log.
    """
    while (end is None or offset < end) and (page := log.read(topic, partition, offset)):
        yield page
        offset = page[-1].next_offset


def within(records: Iterable[Record], max_records: int, max_bytes: int) -> list[Record]:
    """Return the first records within both limits of a read: one at least, if there is one."""
    found: list[Record] = []
    size = 0
    for record in islice(records, max_records):
        size += record.size
        if found and size > max_bytes:
            break
        found.append(record)
    return found


def check_topic(topic: str, count: int, where: object) -> int:
    """Return `count`, the number of partitions of a topic. Raises UsageError if there is no such topic."""
    if not count:
        raise UsageError(f"topic {topic} does not exist {where}: create it with `streamtopic init`")
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
            "have left the log, or this is another log; run `streamtopic rebuild` if it is the documents topic, and "
            "start the process again, which reads any other topic from its beginning"
        )


def murmur2(data: Sequence[int], start: int = 0, stop: int = -1) -> int:
    """Return the MurmurHash2 of data[start:stop], an unsigned 32-bit number; stop -1 means the end of `data`."""
    # Byte by byte, since numba compiles this very function for ingest. In plain Python slices would not be faster.
    if stop < 0:
        stop = len(data)
    h = _SEED ^ (stop - start)
    at = start
    while stop - at >= 4:
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = word * _FACTOR & _MASK
        k = (k ^ k >> 24) * _FACTOR & _MASK
        h = h * _FACTOR & _MASK ^ k
        at += 4
    if at < stop:
        k = 0
        while stop > at:
            stop -= 1
            k = k << 8 | data[stop]
        h = (h ^ k) * _FACTOR & _MASK
    h = (h ^ h >> 13) * _FACTOR & _MASK
    return h ^ h >> 15


def partition_of(key: bytes | None, partitions: int) -> int:
    """Return the partition of a key, below `partitions`; 0 for a record without a key."""
    if key is None:
        return 0
    # Without the sign bit, as Kafka's Java client does it: Java has no unsigned numbers.
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def placed(topic: str, messages: Sequence[Message], partitions: int) -> list[int]:
    """Return the partition of each message: the one that it names, else that of its key.

    Raises UsageError for a partition that the topic does not have.
    """
    found = []
    for message in messages:
        partition = message.partition
        if partition is None:
            partition = partition_of(message.key, partitions)
        check_partition(topic, partition, partitions)
        found.append(partition)
    return found
