"""Read the rejected topic: where refused records are, and why they were refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack

from streamtopic.streams import pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["Rejection", "parse_rejection", "rejections"]


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


def rejections(log: EventLog, names: TopicNames, newest: int | None = None) -> Iterator[Rejection]:
    """Yield the rejections in the rejected topic, oldest first; records that are not rejections are left out.

    newest: number of records to read, the last of the topic; None for all.
    """
    # A place is listed once: ingest that was killed before its commit writes its pointers again.
    seen = set[tuple[int, int]]()
    begin = log.begin(names.rejected, 0)
    if newest is not None:
        begin = max(begin, log.end(names.rejected, 0) - newest)
    for page in pages(log, names.rejected, 0, begin):
        for record in page:
            rejection = parse_rejection(record)
            if rejection is None:
                continue
            place = rejection.partition, rejection.offset
            if place not in seen:
                seen.add(place)
                yield rejection


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
