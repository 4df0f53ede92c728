"""Documents that were deleted by mistake, added again from the log while it still holds them.

A delete that a request asked for is left alone: somebody held it, and nobody cancelled it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidEvent
from streamtopic.events import Add, Delete, decode_record, document_of
from streamtopic.state.deletion_requests import RequestState
from streamtopic.streams import Message, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamtopic.service.app import Service
    from streamtopic.streams import Record

__all__ = ["Undone", "starts_at", "undo"]

_BATCH = 500
_SENT = frozenset({RequestState.SENDING, RequestState.SENT, RequestState.COMPLETED})


@dataclass(slots=True)
class Undone:
    """What an undo found.

    restored: ids of documents that were added again, or can be.
    lost: ids of documents that the log holds no more.
    requested: number of documents that stay deleted, since a request asked for it.
    """

    restored: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    requested: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return {"restored": self.restored, "lost": self.lost, "requested": self.requested}


def starts_at(service: Service, time_ms: int) -> dict[int, int]:
    """Return the offset of the first record from a time on, for each partition that has one.

    time_ms: milliseconds since 1970, by the log's clock.
    """
    topic = service.names.documents
    found = {}
    for partition in range(service.settings.partitions):
        start = service.log.offset_at(topic, partition, time_ms)
        records = _records(service, partition, start)
        first = next((record.offset for record in records if record.timestamp_ms >= time_ms), None)
        if first is not None:
            found[partition] = first
    return found


def undo(
    service: Service, starts: Mapping[int, int], *, append: bool, update: Callable[[int, int | None], None]
) -> Undone:
    """Find documents whose newest record, in a range, erased them; add them again as they were before.

    starts: partition to the offset where the range begins; it ends at the end of the log.
    append: whether they are added, or only found.
    update: told how many records were read.

    A refused record erases the document of its id too, so it counts as a delete. Raises StateMismatch for a range that
    begins behind the end of the log, ComponentUnreachable.
    """
    asked = _asked_for(service)
    undone = Undone()
    read = 0
    for partition, start in starts.items():
        begin = service.log.begin(service.names.documents, partition)
        erased, requested = _erased(_records(service, partition, max(start, begin)), asked)
        undone.requested += requested
        adds: dict[bytes, int] = {}
        for record in _records(service, partition, begin):
            read += 1
            update(read, None)
            key = record.key or b""
            if key in erased and record.offset < erased[key] and _is_add(record):
                adds[key] = record.offset
        undone.lost += [key.decode() for key in erased if key not in adds]
        undone.restored += _restore(service, partition, adds, erased, append=append)
    return undone


def _asked_for(service: Service) -> frozenset[str]:
    """Return the ids of requests whose deletes were sent."""
    requests = service.door.requests
    return frozenset(one.id for one in [*requests.ended(), *requests.open()] if one.state in _SENT)


def _records(service: Service, partition: int, start: int) -> Iterator[Record]:
    for page in pages(service.log, service.names.documents, partition, start):
        yield from page


def _erased(records: Iterator[Record], asked: frozenset[str]) -> tuple[dict[bytes, int], int]:
    """Return the keys whose newest record erases, each with its offset, and how many a request asked for."""
    erased: dict[bytes, int] = {}
    requested = set()
    for record in records:
        key = record.key or b""
        if document_of(record.key) is None:
            continue
        erased.pop(key, None)
        requested.discard(key)
        request = _erases(record)
        if request is None:
            continue
        if request in asked:
            requested.add(key)
        else:
            erased[key] = record.offset
    return erased, len(requested)


def _erases(record: Record) -> str | None:
    """Return the request id of a record that erases the document of its key, "" without one; None for an add."""
    try:
        event = decode_record(record)
    except InvalidEvent:
        return ""
    return event.request or "" if isinstance(event, Delete) else None


def _is_add(record: Record) -> bool:
    try:
        return isinstance(decode_record(record), Add)
    except InvalidEvent:
        return False


def _restore(
    service: Service, partition: int, adds: Mapping[bytes, int], erased: Mapping[bytes, int], *, append: bool
) -> list[str]:
    """Append adds again; return the ids of their documents.

    adds: key to the offset of its last add.
    erased: key to the offset of the record that erased it.
    """
    if not append:
        return [key.decode() for key in adds]
    restored = list[str]()
    newer = set[bytes]()
    position = max(erased.values(), default=0) + 1
    todo = sorted(adds.items(), key=lambda item: item[1])
    for start in range(0, len(todo), _BATCH):
        some = todo[start : start + _BATCH]
        # A producer may have sent such a document again, or deleted it again, while the log was read.
        for record in _records(service, partition, position):
            newer.add(record.key or b"")
            position = record.next_offset
        messages = [_again(service, partition, offset) for key, offset in some if key not in newer]
        found = [message for message in messages if message is not None]
        service.log.append_many(service.names.documents, found)
        restored += [(message.key or b"").decode() for message in found]
    return restored


def _again(service: Service, partition: int, offset: int) -> Message | None:
    """Return the record at an offset as a new one; None where compaction has erased it meanwhile."""
    found: Sequence[Record] = service.log.read(service.names.documents, partition, offset, 1)
    if not found or found[0].offset != offset:
        return None
    record = found[0]
    return Message(record.key, record.value, record.headers, partition)
