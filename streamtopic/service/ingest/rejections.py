"""Read the rejected topic, and retry the records that it points at."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack

from streamtopic.documents.deletion_record import decode_request
from streamtopic.documents.dialects import OWN, Dialect
from streamtopic.documents.events import Add
from streamtopic.errors import InvalidEvent
from streamtopic.streams import MURMUR2, Message, pages, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.documents.events import Event
    from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["RETRIED", "Rejection", "parse_rejection", "rejections", "retry"]

RETRIED = ("retried", "still_rejected", "superseded", "gone")
"""Outcomes of a retry. `superseded`: a later record of the same id counts instead, or asks to forget a person whom the
record is about. `gone`: compaction has erased the record."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused record.

    document: its id, None without one; only the beginning of an id that is too long.
    partition, offset: its place in the documents topic.
    reason: the code of the reason.
    time_ms: when it was refused, milliseconds since 1970.
    digest: the SHA-256 of an id that is too long, "" for others.
    """

    document: bytes | None
    partition: int
    offset: int
    reason: str
    time_ms: int
    digest: str = ""

    def is_of(self, record: Record) -> bool:
        """Return whether it points at this record, and not at another one in its place, as in a log made again."""
        if self.digest:
            return hashlib.sha256(record.key or b"").hexdigest() == self.digest
        return (record.key or None) == self.document


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


def retry(log: EventLog, names: TopicNames, partitioner: str = MURMUR2, dialect: Dialect = OWN) -> Mapping[str, int]:
    """Append the refused records again that this version of the program accepts; return numbers by outcome.

    Running this twice repeats nothing, since a repeated record is newer than the refused one. Raises
    ComponentUnreachable.

    partitioner: name of the hash by which the model chooses a key's partition.
    dialect: of the records.
    """
    by_partition: dict[int, dict[int, Rejection]] = {}
    for rejection in rejections(log, names):
        by_partition.setdefault(rejection.partition, {})[rejection.offset] = rejection
    outcomes = Counter(dict.fromkeys(RETRIED, 0))
    for partition, wanted in by_partition.items():
        if partition >= log.partitions(names.documents):
            outcomes["gone"] += len(wanted)
            continue
        again = list(_again(log, names, partition, wanted, outcomes, partitioner, dialect))
        log.append_many(names.documents, again)
        outcomes["retried"] += len(again)
    return dict(outcomes)


def _again(
    log: EventLog,
    names: TopicNames,
    partition: int,
    wanted: Mapping[int, Rejection],
    outcomes: Counter[str],
    partitioner: str,
    dialect: Dialect,
) -> Iterator[Message]:
    """Yield the records of a partition that are to be appended again; count the outcomes of the others.

    wanted: offset to rejection.
    """
    partitions = log.partitions(names.documents)
    keys = {rejection.document for rejection in wanted.values()}
    newest: dict[bytes | None, int] = {}
    found: dict[int, Record] = {}
    forgotten = _forgotten(log, names)
    end = log.end(names.documents, partition)
    # Anybody may write to the rejected topic, so a pointer may name an offset that never was.
    offset = min(max(min(wanted), log.begin(names.documents, partition)), end)
    for page in pages(log, names.documents, partition, offset, end):
        for record in page:
            if record.key in keys:
                newest[record.key] = record.offset
            if record.offset in wanted and wanted[record.offset].is_of(record):
                found[record.offset] = record
    for place in wanted:
        refused = found.get(place)
        event = None if refused is None else _event(refused, dialect)
        if refused is None:
            outcomes["gone"] += 1
        # A record in another partition than its key's stays refused: moved, it could arrive after a newer one.
        elif event is None or partition_of(refused.key, partitions, partitioner) != partition:
            outcomes["still_rejected"] += 1
        # Only the newest record of an id is repeated: an older one would undo the changes after it.
        elif newest.get(refused.key) != place or _is_forgotten(event, refused, forgotten):
            outcomes["superseded"] += 1
        else:
            yield Message(refused.key, refused.value, refused.headers, partition)


def _event(record: Record, dialect: Dialect) -> Event | None:
    """Return the event in a record, None for one that this version of the program refuses."""
    try:
        return dialect.event(record)
    except InvalidEvent:
        return None


def _forgotten(log: EventLog, names: TopicNames) -> dict[str, int]:
    """Return each person whom a request forgets, with its time, for those requests that the log still holds."""
    found: dict[str, int] = {}
    if not log.partitions(names.requests):
        # Nobody has made the topic, so nobody has asked.
        return found
    for page in pages(log, names.requests, 0, log.begin(names.requests, 0)):
        for record in page:
            if record.value is None:
                continue
            with suppress(InvalidEvent):
                found.update(dict.fromkeys(decode_request(record).subjects, record.timestamp_ms))
    return found


def _is_forgotten(event: Event, record: Record, forgotten: Mapping[str, int]) -> bool:
    """Return whether a document is about a person whom a later record asked to forget.

    forgotten: as of `_forgotten`.
    """
    people = event.subjects if isinstance(event, Add) else ()
    return any(forgotten.get(subject, -1) >= record.timestamp_ms for subject in people)


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
    digest = fields.get("key_sha256", "")
    if not isinstance(digest, str):
        digest = ""
    return Rejection(record.key or None, partition, offset, reason, record.timestamp_ms, digest)
