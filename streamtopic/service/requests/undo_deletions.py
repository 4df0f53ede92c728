"""Documents that were deleted by mistake, added again from the log while it still holds them.

A document that a request asked to delete is left alone: somebody held it, and nobody cancelled it. So is every document
of a person who was forgotten, however it went, and every document that is suppressed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from streamtopic.documents.events import FORM_HEADER, Add, Delete, ForgetSubject, SubjectForgotten
from streamtopic.documents.subjects import is_subject_key
from streamtopic.documents.suppression import Suppression
from streamtopic.errors import InvalidEvent
from streamtopic.signed import ReceiptReader, request_digest
from streamtopic.state.deletion_requests import RequestState
from streamtopic.state.deletions import LinkKeys, SubjectRequests
from streamtopic.streams import Message, pages, partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamtopic.documents.events import Event
    from streamtopic.service.app import Service
    from streamtopic.signed import SubjectReceipt
    from streamtopic.streams import Record

__all__ = ["Undone", "starts_at", "undo"]

_BATCH = 500
_SENT = frozenset({RequestState.SENDING, RequestState.SENT, RequestState.COMPLETED})


@dataclass(slots=True)
class Undone:
    """What an undo found.

    restored: ids of documents that were added again, or can be.
    lost: ids of documents that the log holds no more.
    requested: number of documents that stay deleted: a request asked for it, they are about a person who was forgotten,
        or they are suppressed.
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
        later = (record.offset for record in records if record.timestamp_ms >= time_ms)
        first = next(later, None)
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
    begins behind the end of the log, SettingsError without a key that settings name, ComponentUnreachable.
    """
    # Without it, nobody could tell who is suppressed.
    service.need_suppression_key()
    asked = _Asked.of(service)
    undone = Undone()
    read = 0
    for partition, start in starts.items():
        begin = service.log.begin(service.names.documents, partition)
        in_range = _records(service, partition, max(start, begin))
        erased, requested = _erased(service, in_range, asked)
        undone.requested += requested
        history = _History(service, asked, erased)
        for record in _records(service, partition, begin):
            read += 1
            update(read, None)
            history.take(record)
        undone.lost += [document for document in erased if document not in history.adds]
        free = [name for name in history.adds if not history.stays_deleted(name)]
        adds = {name: history.adds[name][0] for name in free}
        undone.requested += len(history.adds) - len(adds)
        undone.restored += _restore(service, partition, adds, erased, append=append)
    return undone


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, and so is not undone. Request ids are no secret, so the salt has to fit as well.

    requests: id and salt of requests whose deletes were sent, and of those to forget a subject that are open.
    digests: of id and salt of requests that are completed.
    unsalted: ids of requests whose salt nobody knows any more.
    covering: receipts of subjects that are forgotten.
    keys: month to the service's key, for requests that came without a salt.
    known: request id and salt of a delete to the answer, since all documents of a subject have the same.
    """

    requests: frozenset[tuple[str, bytes]]
    digests: frozenset[str]
    unsalted: frozenset[str]
    covering: Sequence[SubjectReceipt]
    keys: Mapping[str, bytes]
    known: dict[tuple[str, bytes], bool] = field(default_factory=dict)

    @classmethod
    def of(cls, service: Service) -> Self:
        """Read requests and covering receipts. Raises ComponentUnreachable, StateCorrupt."""
        door = service.door.requests
        # Salts first: a request that ends meanwhile has a digest by then.
        salts = door.salts([one.id for one in door.open()])
        sent = [one for one in (*door.ended(), *door.open()) if one.state in _SENT]
        requests = {(one.id, salts[one.id].encode()) for one in sent if one.id in salts}
        digests = {one.digest for one in sent} - {""}
        unsalted = {one.id for one in sent if not (one.digest or one.id in salts)}
        settings = service.settings
        waiting = SubjectRequests(service.connection, settings.model, settings.partitions).read()
        for people in waiting.values():
            requests.update((request.request, request.salt) for request in people.values())
        reader = ReceiptReader(service.log, settings.model, service.keys)
        reader.catch_up()
        covering = [receipt for receipt, _ in reader.covering.values()]
        keys = LinkKeys(service.connection, settings.model).all() if covering else {}
        return cls(frozenset(requests), frozenset(digests), frozenset(unsalted), covering, keys)

    def holds(self, delete: Delete) -> bool:
        """Return whether a delete was asked for."""
        name = delete.request
        if not name:
            return False
        asked = name, delete.salt
        if asked in self.requests or name in self.unsalted:
            return True
        if asked not in self.known:
            answers = (self._covers(receipt, *asked) for receipt in self.covering)
            self.known[asked] = self._is_completed(*asked) or any(answers)
        return self.known[asked]

    def _is_completed(self, name: str, salt: bytes) -> bool:
        return bool(salt) and request_digest(name, salt) in self.digests

    def _covers(self, receipt: SubjectReceipt, name: str, salt: bytes) -> bool:
        return receipt.is_of(name, salt) if salt else receipt.is_linked(name, self.keys)


@dataclass(slots=True)
class _History:
    """What a partition's log says of documents that were erased, from its beginning to its end.

    asked: what requests asked for.
    erased: document to the offset of its newest record, which erased it.
    adds: document to the offset and the subjects of its last add.
    wanted: documents that a request deleted since then. A later delete of somebody else does not change that.
    forgotten: subject to the offset up to which its documents are forgotten.
    said: digest to what the operator said last about it.
    """

    service: Service
    asked: _Asked
    erased: Mapping[str, int]
    adds: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    forgotten: dict[str, float] = field(default_factory=dict)
    said: dict[bytes, Suppression] = field(default_factory=dict)
    _open: dict[bytes, set[str]] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Read the next record."""
        document = _id(self.service, record)
        if document is not None and document in self.erased:
            if record.offset < self.erased[document]:
                self._take_document(document, record)
        elif is_subject_key(record.key) or self.service.dialect.is_suppression(record.key):
            self._take_own(record)

    def stays_deleted(self, document: str) -> bool:
        """Return whether nobody may bring a document back that has an add."""
        offset, subjects = self.adds[document]
        ends = (self.forgotten.get(subject, -1) for subject in subjects)
        if document in self.wanted or any(end > offset for end in ends):
            return True
        return self._is_suppressed(document, subjects)

    def _is_suppressed(self, document: str, subjects: Sequence[str]) -> bool:
        """Return whether an add is refused at this place of the log, since its id or a subject is suppressed."""
        key = self.service.suppression
        if key is None:
            return False
        digests = [key.of_document(document.encode()), *map(key.of_subject, subjects)]
        said = (self.said[digest] for digest in digests if digest in self.said)
        return any(statement.suppressed for statement in said)

    def _take_document(self, document: str, record: Record) -> None:
        event = _event(self.service, record)
        if isinstance(event, Add):
            # Such an add was never a document: neither a lift nor an undo makes it one.
            if self._is_suppressed(document, event.subjects):
                return
            self.adds[document] = record.offset, event.subjects
            self.wanted.discard(document)
        elif isinstance(event, Delete) and self.asked.holds(event):
            self.wanted.add(document)

    def _take_own(self, record: Record) -> None:
        event = _event(self.service, record)
        if isinstance(event, ForgetSubject):
            subjects = self._open.setdefault(event.key, set())
            subjects.add(event.subject)
            self.forgotten[event.subject] = math.inf
        elif isinstance(event, SubjectForgotten):
            # Documents that were added behind the end of a request stay.
            for subject in self._open.pop(event.key, ()):
                others = any(subject in named for named in self._open.values())
                self.forgotten[subject] = math.inf if others else record.offset
        elif isinstance(event, Suppression) and event.outranks(self.said.get(event.digest)):
            self.said[event.digest] = event


def _records(service: Service, partition: int, start: int) -> Iterator[Record]:
    for page in pages(service.log, service.names.documents, partition, start):
        yield from page


def _id(service: Service, record: Record) -> str | None:
    """Return the id of a record's document; None for the service's own, without an id, or in a wrong partition."""
    # A second key of a document that has another one by now says nothing about the document.
    if record.header(FORM_HEADER) is not None:
        return None
    # An add in another partition than its key's was refused: written there again, it would remove the document once
    # more. A delete is in the right partition as well.
    settings = service.settings
    if partition_of(record.key, settings.partitions, settings.partitioner) != record.partition:
        return None
    return service.dialect.document_of(record.key)


def _erased(service: Service, records: Iterator[Record], asked: _Asked) -> tuple[dict[str, int], int]:
    """Return the documents whose newest record erases, each with its offset, and how many a request asked for."""
    erased: dict[str, int] = {}
    requested = set()
    for record in records:
        document = _id(service, record)
        if document is None:
            continue
        erased.pop(document, None)
        requested.discard(document)
        event = _event(service, record)
        if isinstance(event, Delete) and asked.holds(event):
            requested.add(document)
        elif not isinstance(event, Add):
            erased[document] = record.offset
    return erased, len(requested)


def _event(service: Service, record: Record) -> Event | None:
    """Return the event in a record, None for one that is refused, which erases as well."""
    try:
        return service.dialect.event(record)
    except InvalidEvent:
        return None


def _restore(
    service: Service, partition: int, adds: Mapping[str, int], erased: Mapping[str, int], *, append: bool
) -> list[str]:
    """Append adds again; return the ids of their documents.

    adds: document to the offset of its last add.
    erased: document to the offset of the record that erased it.
    """
    if not append:
        return list(adds)
    restored = list[str]()
    newer = set[str | None]()
    position = max(erased.values(), default=0) + 1
    todo = sorted(adds.items(), key=lambda item: item[1])
    for start in range(0, len(todo), _BATCH):
        some = todo[start : start + _BATCH]
        # A producer may have sent such a document again, or deleted it again, while the log was read.
        for record in _records(service, partition, position):
            newer.add(_id(service, record))
            position = record.next_offset
        found = {}
        unchanged = [(document, offset) for document, offset in some if document not in newer]
        for document, offset in unchanged:
            message = _again(service, partition, offset)
            if message is not None:
                found[document] = message
        service.log.append_many(service.names.documents, list(found.values()))
        restored += found
    return restored


def _again(service: Service, partition: int, offset: int) -> Message | None:
    """Return the record at an offset as a new one; None where compaction has erased it meanwhile."""
    found: Sequence[Record] = service.log.read(service.names.documents, partition, offset, 1)
    if not found or found[0].offset != offset:
        return None
    record = found[0]
    return Message(record.key, record.value, record.headers, partition)
