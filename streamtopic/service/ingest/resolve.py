"""Find the net effect of records on a partition, without any I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from streamtopic.documents.deletion_record import Misplaced
from streamtopic.documents.events import (
    Delete,
    Heartbeat,
    document_of,
    encode_rejected,
    request_of,
    salt_of,
)
from streamtopic.errors import InvalidEvent
from streamtopic.monitoring.tracing import trace_of
from streamtopic.service.ingest.decode import OwnTombstone
from streamtopic.state import DocumentChanges, Forget, ForgetKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.service.ingest.decode import Decoded, Event
    from streamtopic.state import PreparedBatch, StoredDocument
    from streamtopic.streams import Message, Record

__all__ = ["MISPLACED", "Resolution", "misplaced", "resolve"]

MISPLACED = "partition"
"""The reason code of an add in another partition than its key's."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The net effect of a batch.

    changes: to be committed.
    rejected: pointers for the rejected topic. They must be written and confirmed before the commit.
    elsewhere: deletions of documents of other partitions. They must be asked for before the commit.
    reasons: number of these pointers by reason.
    """

    changes: DocumentChanges
    rejected: Sequence[Message]
    elsewhere: Sequence[Misplaced]
    reasons: Mapping[str, int]


def resolve(
    decoded: Decoded,
    ready: PreparedBatch,
    partition: int,
    now_ms: int,
    doubtful: int = 0,
) -> Resolution:
    """Apply records in order to the live documents, and return the changes.

    ready: the live documents of the ids in the records.
    partition: the partition of the records.
    now_ms: milliseconds since 1970, for receipts.
    doubtful: offset before which compaction may have taken records that nobody has read.

    The result depends on the records only, not on how a log is cut into flushes, except for `applied_ms`. The documents
    that are live afterwards depend on the newest record of each id only, since compaction leaves no other.
    """
    run = _Run(decoded, ready, partition, now_ms, doubtful)
    records, homes, others, current = decoded.records, decoded.homes, decoded.others, run.current
    elsewhere = (k for k, home in enumerate(homes) if home != partition)
    unusual = {*others, *elsewhere}
    for k, document in enumerate(decoded.documents.ids):
        if k in unusual:
            run.take(k, records[k], others.get(k), homes[k])
        elif document in current:
            run.replace(k, records[k], current[document])
        else:
            # Most records are new documents, and take no more than this.
            current[document] = k
            run.new.append(k)
    return run.result()


class _Run:
    """The state while records are applied.

    current: the live documents of the ids in the records, after the records so far; a document of these records as its
        place among them.
    new: the places of documents whose ids held none.
    forgets, totals, reasons, rejected, elsewhere: of the changes to commit.
    """

    def __init__(self, decoded: Decoded, ready: PreparedBatch, partition: int, now_ms: int, doubtful: int) -> None:
        self.decoded = decoded
        self.documents = decoded.documents
        self.ready = ready
        self.partition = partition
        self.now_ms = now_ms
        self.doubtful = doubtful
        self.current: dict[bytes, StoredDocument | int] = dict(ready.live)
        self.offsets = self.documents.offsets.copy()
        self.new: list[int] = []
        self.forgets: list[Forget] = []
        self.totals = Counter[str]()
        self.reasons = Counter[str]()
        self.rejected: list[Message] = []
        self.elsewhere: list[Misplaced] = []

    @cached_property
    def bodies(self) -> dict[int, bytes]:
        """Place of a document that may be compared to its passages as bytes: its id is live, or comes twice here."""
        times = Counter(self.documents.ids)
        places = enumerate(self.documents.ids)
        compared = [k for k, one in places if one in self.ready.live or times[one] > 1]
        return self.documents.bodies(compared, self.ready.numbers, self.ready.base.next_word)

    def settle(self, k: int, record: Record) -> None:
        """Take the service's own tombstone after a suppressed add: nobody asked for it, so it has no receipt."""
        document = self.documents.ids[k]
        self.totals["deleted_by_refusal" if document in self.current else "unchanged"] += 1
        if document in self.current:
            self.forget(record, document, ForgetKind.REFUSED, "")
            del self.current[document]

    def take(self, k: int, record: Record, event: Event | None, home: int) -> None:
        """Apply a record that is no add, or does not belong here.

        event: None for an add.
        home: partition of its key.
        """
        if isinstance(event, Heartbeat):
            return
        if isinstance(event, OwnTombstone):
            self.settle(k, record)
            return
        document = self.documents.ids[k]
        # Partitioners differ over records without a key, and such a record names no document that could be deleted.
        if home != self.partition and not _keyless(event):
            self.misplace(record, event, home, document)
        elif isinstance(event, InvalidEvent):
            self.reject(record, event, document, here=True)
        elif isinstance(event, Delete):
            self.delete(record, event)

    def reject(self, record: Record, error: InvalidEvent, document: bytes, *, here: bool) -> None:
        """Refuse a record: point at it, and remove the document of its id.

        document: its id, b"" without one.
        here: whether the record is in the partition of its key.
        """
        self.totals["rejected"] += 1
        self.reasons[error.reason] += 1
        self.rejected.append(encode_rejected(record, error))
        request = request_of(record.headers) or ""
        salt = salt_of(record.headers)
        # Compaction keeps only this record of the id: a recount of the log could not find the document any more.
        if document in self.current:
            self.totals["deleted_by_refusal"] += 1
            self.forget(record, document, ForgetKind.REFUSED, request, salt)
            del self.current[document]
        elif here and request and document_of(document) is not None:
            self.forget(record, document, ForgetKind.NOT_FOUND, request, salt)

    def misplace(self, record: Record, event: Event | None, home: int, document: bytes) -> None:
        """Take a record in another partition than its key's: a delete is asked for at home, an add is refused.

        Compaction keeps the last record of a key only, so a refused change may have taken the place of a delete that
        nobody has read. If that is possible, it deletes at home as well.
        """
        asked = isinstance(event, Delete)
        request, salt = request_of(record.headers) or "", salt_of(record.headers)
        if isinstance(event, Delete):
            self.totals["forwarded"] += 1
            request, salt = event.request or "", event.salt
        else:
            self.totals["misplaced"] += 1
            error = event if isinstance(event, InvalidEvent) else misplaced(self.partition, home)
            self.reject(record, error, document, here=False)
        # A rebuild reads old records again, whose deletions at other partitions were settled before it.
        if record.offset >= self.ready.base.through and (asked or record.offset < self.doubtful):
            name, trace = document.decode(), trace_of(record.headers)
            time_ms = record.appended_ms(self.now_ms)
            self.elsewhere.append(Misplaced(name, time_ms, asked, request, salt, trace))

    def replace(self, k: int, record: Record, have: StoredDocument | int) -> None:
        """Put a document in place of the one that its id holds."""
        document = self.documents.ids[k]
        # The same content again forgets nothing, so it must not count against the deletion capacity.
        if self.same(have, k):
            self.totals["unchanged"] += 1
            named = self.documents.subjects[have] if isinstance(have, int) else have.subjects
            if named != self.documents.subjects[k]:
                # It is still the document of the earlier record, so its offset stays.
                self.offsets[k] = self.offset(have)
                self.current[document] = k
            return
        self.forget(record, document, ForgetKind.REPLACED, "")
        self.totals["replaced"] += 1
        self.current[document] = k

    def same(self, have: StoredDocument | int, k: int) -> bool:
        """Return whether two versions of a document have the same passages, word by word, and the same labels."""
        # Subjects are not compared: the same text about another person is not a text that was forgotten.
        if isinstance(have, int):
            labels, body = self.documents.labels[have], self.bodies[have]
        else:
            labels, body = have.labels, have.body
        return dict(labels) == self.documents.labels[k] and body == self.bodies[k]

    def offset(self, have: StoredDocument | int) -> int:
        """Return the offset of the record that added a live document."""
        return int(self.offsets[have]) if isinstance(have, int) else have.offset

    def delete(self, record: Record, event: Delete) -> None:
        """Delete a document."""
        document = event.document.encode()
        found = document in self.current
        self.totals["deleted" if found else "not_found"] += 1
        kind = ForgetKind.DELETED if found else ForgetKind.NOT_FOUND
        self.forget(record, document, kind, event.request or "", event.salt)
        self.current.pop(document, None)

    def forget(self, record: Record, document: bytes, kind: ForgetKind, request: str, salt: bytes = b"") -> None:
        """Note a deletion, before the document leaves `current`."""
        have = self.current.get(document)
        added = -1 if have is None else self.offset(have)
        # If a topic takes the producer's time, it may be any number.
        received_ms = record.appended_ms(self.now_ms)
        # Nobody waits for a replacement, so its trace ends with the record.
        trace = b"" if kind is ForgetKind.REPLACED else trace_of(record.headers)
        forget = Forget(
            offset=record.offset,
            document=document,
            kind=kind,
            request=request,
            salt=salt,
            document_offset=added,
            received_ms=received_ms,
            applied_ms=self.now_ms,
            trace=trace,
        )
        self.forgets.append(forget)

    def result(self) -> Resolution:
        """Return the net effect."""
        self.totals["added"] += len(self.new)
        places = sorted(k for k in self.current.values() if isinstance(k, int))
        # Of many records with one time one is asked.
        dated = {record.timestamp_ms: record for record in self.decoded.records}
        # A document that was replaced counts on both sides: the counts of the old text go, those of the new one come.
        live = self.ready.live.items()
        changes = DocumentChanges(
            next_offset=self.decoded.next_offset,
            added=replace(self.documents.take(places), offsets=self.offsets[places]),
            removed={document: old for document, old in live if self.current.get(document) is not old},
            forgets=self.forgets,
            totals={name: number for name, number in self.totals.items() if number},
            time_ms=max(record.appended_ms(self.now_ms) for record in dated.values()),
        )
        return Resolution(changes, self.rejected, self.elsewhere, self.reasons)


def misplaced(partition: int, home: int) -> InvalidEvent:
    """Return the refusal of an add in another partition than its key's."""
    return InvalidEvent(
        MISPLACED,
        f"the record is in partition {partition}, its key belongs to {home}: set the producer's partitioner to murmur2 "
        "(docs/messages.md) and send the document again",
    )


def _keyless(event: Event | None) -> bool:
    """Return whether a record has no key that could name a document, so that it belongs to no partition."""
    return isinstance(event, InvalidEvent) and event.reason.startswith("key-")
