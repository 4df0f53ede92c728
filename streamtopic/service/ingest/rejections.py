"""The rejected topic: what was refused and why, and another try at it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgpack

from streamtopic.errors import InvalidEvent
from streamtopic.events import decode_record
from streamtopic.streams import MURMUR2, Message, pages, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.streams import EventLog, Record, TopicNames

__all__ = ["RETRIED", "Rejection", "parse_rejection", "rejections", "retry"]

RETRIED = ("retried", "still_rejected", "superseded", "gone")
"""What can become of a rejection that is tried again. `superseded`: a later record of the same id counts instead;
`gone`: compaction has erased the record."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A refused record: its document id (None without one), its place in the documents topic, why and when.

    Of an id that is too long `document` is the beginning only, and `digest` the SHA-256 of the whole.
    """

    document: bytes | None
    partition: int
    offset: int
    reason: str
    time_ms: int
    digest: str = ""

    def is_of(self, record: Record) -> bool:
        """Return whether it speaks of this record, and not of another at its place in a log that was made anew."""
        if self.digest:
            return hashlib.sha256(record.key or b"").hexdigest() == self.digest
        return (record.key or None) == self.document


def rejections(log: EventLog, names: TopicNames) -> Iterator[Rejection]:
    """Yield what is in the rejected topic, oldest first, each place once; what is not a rejection is left out."""
    seen = set[tuple[int, int]]()
    for page in pages(log, names.rejected, 0, log.begin(names.rejected, 0)):
        for record in page:
            rejection = parse_rejection(record)
            if rejection is not None and (rejection.partition, rejection.offset) not in seen:
                seen.add((rejection.partition, rejection.offset))
                yield rejection


def retry(log: EventLog, names: TopicNames, partitioner: str = MURMUR2) -> Mapping[str, int]:
    """Append those records again that this version of the program accepts; outcomes by name.

    A record is only repeated if it is the newest of its id: an older one would undo what came after it. Running this
    twice repeats nothing, since a repeated record is newer than the refused one. A record that came to another
    partition than its key's (partitioner: the model's) stays refused: moved, it could arrive behind what came after it.
    """
    by_partition: dict[int, dict[int, Rejection]] = {}
    for rejection in rejections(log, names):
        by_partition.setdefault(rejection.partition, {})[rejection.offset] = rejection
    outcomes = Counter(dict.fromkeys(RETRIED, 0))
    for partition, wanted in by_partition.items():
        if partition >= log.partitions(names.documents):
            outcomes["gone"] += len(wanted)
            continue
        again = list(_again(log, names, partition, wanted, outcomes, partitioner))
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
) -> Iterator[Message]:
    partitions = log.partitions(names.documents)
    ids = {rejection.document for rejection in wanted.values()}
    newest: dict[bytes | None, int] = {}
    found: dict[int, Record] = {}
    end = log.end(names.documents, partition)
    offset = min(max(min(wanted), log.begin(names.documents, partition)), end)
    for page in pages(log, names.documents, partition, offset, end):
        for record in page:
            if record.key in ids:
                newest[record.key] = record.offset
            if record.offset in wanted and wanted[record.offset].is_of(record):
                found[record.offset] = record
    for place in wanted:
        if place not in found:
            outcomes["gone"] += 1
        elif not _accepted(found[place]) or partition_of(found[place].key, partitions, partitioner) != partition:
            outcomes["still_rejected"] += 1
        elif newest.get(found[place].key) != place:
            outcomes["superseded"] += 1
        else:
            yield Message(found[place].key, found[place].value, found[place].headers, partition)


def _accepted(record: Record) -> bool:
    try:
        decode_record(record)
    except InvalidEvent:
        return False
    return True


def parse_rejection(record: Record) -> Rejection | None:
    """Return what a record of the rejected topic says, None if it is not a rejection."""
    try:
        fields = msgpack.unpackb(record.value or b"")
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return None
    if not isinstance(fields, dict):
        return None
    partition, offset, reason = (fields.get(name) for name in ("partition", "offset", "reason"))
    if type(partition) is not int or type(offset) is not int or not isinstance(reason, str):
        return None
    if not (0 <= partition < 1 << 31 and 0 <= offset < 1 << 62):
        return None
    digest = fields.get("key_sha256", "")
    return Rejection(
        record.key or None, partition, offset, reason, record.timestamp_ms, digest if isinstance(digest, str) else ""
    )
