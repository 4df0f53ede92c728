"""The rejected topic: what was refused and why, and another try at it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack

from streamtopic.errors import InvalidEvent
from streamtopic.events import decode_record
from streamtopic.service.room import NO_ROOM
from streamtopic.streams import Message

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["RETRIED", "Rejection", "no_room", "rejections", "retry"]

RETRIED = ("retried", "still_rejected", "superseded", "gone")
"""What can become of a rejection that is tried again. `superseded`: a later record of the same id counts instead;
`gone`: compaction has erased the record."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused record: its document id (None without one), its place in the documents topic, why and when."""

    document: bytes | None
    partition: int
    offset: int
    reason: str
    time_ms: int


def rejections(log: EventLog, names: TopicNames) -> Iterator[Rejection]:
    """Yield what is in the rejected topic, oldest first, each place once; what is no rejection is left out."""
    seen = set[tuple[int, int]]()
    offset = log.begin(names.rejected, 0)
    while records := log.read(names.rejected, 0, offset):
        offset = records[-1].next_offset
        for record in records:
            rejection = _parse(record)
            if rejection is not None and (rejection.partition, rejection.offset) not in seen:
                seen.add((rejection.partition, rejection.offset))
                yield rejection


def no_room(log: EventLog, names: TopicNames) -> frozenset[tuple[int, int]]:
    """Return the places (partition, offset) of documents that were refused because their words found no room."""
    return frozenset((found.partition, found.offset) for found in rejections(log, names) if found.reason == NO_ROOM)


def retry(log: EventLog, names: TopicNames) -> Mapping[str, int]:
    """Append those records again that this version of the program accepts; outcomes by name.

    A record is only repeated if it is the newest of its id: an older one would undo what came after it. Running this
    twice repeats nothing, since a repeated record is newer than the refused one.
    """
    by_partition: dict[int, dict[int, Rejection]] = {}
    for rejection in rejections(log, names):
        by_partition.setdefault(rejection.partition, {})[rejection.offset] = rejection
    outcomes = Counter(dict.fromkeys(RETRIED, 0))
    for partition, wanted in by_partition.items():
        if partition >= log.partitions(names.documents):
            outcomes["gone"] += len(wanted)
            continue
        again = list(_again(log, names, partition, wanted, outcomes))
        log.append_many(names.documents, again)
        outcomes["retried"] += len(again)
    return dict(outcomes)


def _again(
    log: EventLog, names: TopicNames, partition: int, wanted: Mapping[int, Rejection], outcomes: Counter[str]
) -> Iterator[Message]:
    ids = {rejection.document for rejection in wanted.values()}
    newest: dict[bytes | None, int] = {}
    found: dict[int, Record] = {}
    offset = max(min(wanted), log.begin(names.documents, partition))
    while records := log.read(names.documents, partition, offset):
        offset = records[-1].next_offset
        for record in records:
            if record.key in ids:
                newest[record.key] = record.offset
            if record.offset in wanted:
                found[record.offset] = record
    for place, rejection in wanted.items():
        if place not in found or found[place].key != rejection.document:
            outcomes["gone"] += 1
        elif not _accepted(found[place]):
            outcomes["still_rejected"] += 1
        elif newest[rejection.document] != place:
            outcomes["superseded"] += 1
        else:
            yield Message(found[place].key, found[place].value, found[place].headers)


def _accepted(record: Record) -> bool:
    try:
        decode_record(record)
    except InvalidEvent:
        return False
    return True


def _parse(record: Record) -> Rejection | None:
    try:
        fields = msgpack.unpackb(record.value or b"")
        partition, offset, reason = int(fields["partition"]), int(fields["offset"]), str(fields["reason"])
    except (ValueError, KeyError, TypeError, msgpack.UnpackException):
        return None
    if partition < 0 or offset < 0:
        return None
    return Rejection(record.key, partition, offset, reason, record.timestamp_ms)
