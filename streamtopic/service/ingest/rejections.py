"""Read the rejected topic: where refused records are, and why they were refused."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Self

import msgpack

from streamtopic.streams import pages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["RefusedRecords", "Rejection", "parse_rejection"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused record.

    document: its id, None without one; only the beginning of an id that is too long.
    partition, offset: its place in the documents topic.
    reason: the code of the reason.
    time_ms: when it was refused, milliseconds since 1970.
    """

    document: bytes | None
    partition: int
    offset: int
    reason: str
    time_ms: int

    @property
    def place(self) -> tuple[int, int]:
        """The place of the refused record."""
        return self.partition, self.offset


@dataclass(frozen=True, slots=True)
class RefusedRecords:
    """The refused records, as far as they were read.

    number: how many they are.
    reasons: code to number, the most frequent first.
    newest: the last of them, oldest first.
    cut: whether older ones were left out.
    """

    number: int
    reasons: Mapping[str, int]
    newest: Sequence[Rejection]
    cut: bool

    @classmethod
    def read(cls, log: EventLog, names: TopicNames, last: int, most: int | None = None) -> Self:
        """Count the refused records. Records of the topic that point at none are left out.

        last: number of them to keep.
        most: number of records to read, the last of the topic; None for all.
        """
        begin, counted = log.begin(names.rejected, 0), Counter[str]()
        first = begin if most is None else max(begin, log.end(names.rejected, 0) - most)
        # A hostile producer can fill the topic: only the newest are kept in memory.
        kept: deque[Rejection] = deque(maxlen=last)
        # A place is listed once: ingest that was killed before its commit writes its pointers again.
        seen = set[tuple[int, int]]()
        for rejection in map(parse_rejection, chain.from_iterable(pages(log, names.rejected, 0, first))):
            if rejection is not None and rejection.place not in seen:
                seen.add(rejection.place)
                counted[rejection.reason] += 1
                kept.append(rejection)
        return cls(counted.total(), dict(counted.most_common()), tuple(kept), first > begin)


def parse_rejection(record: Record) -> Rejection | None:
    """Return the rejection in a record of the rejected topic, None if it does not hold one."""
    try:
        fields = msgpack.unpackb(record.value or b"")
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    if not isinstance(fields, dict):
        return None
    partition = fields.get("partition")
    offset = fields.get("offset")
    reason = fields.get("reason")
    # `type`, since True is an instance of int.
    if type(partition) is not int or type(offset) is not int or not isinstance(reason, str):
        return None
    # Anybody may write to this topic. Kafka's partitions are int32, its offsets int64.
    if not (0 <= partition < 1 << 31 and 0 <= offset < 1 << 62):
        return None
    return Rejection(record.key or None, partition, offset, reason, record.timestamp_ms)
