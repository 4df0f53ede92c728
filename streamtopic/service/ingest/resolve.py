"""Find the net effect of records on a partition, without any I/O: new documents at once, all else one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
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
from streamtopic.documents.suppression import suppressed
from streamtopic.errors import InvalidEvent
from streamtopic.monitoring.metrics import OUTCOMES
from streamtopic.monitoring.tracing import trace_of
from streamtopic.service.ingest.suppressions import NOBODY, Refusals
from streamtopic.state import (
    AddedDocument,
    Changes,
    Forget,
    ForgetKind,
    RemovedDocument,
    StoredDocument,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.service.ingest.decode import Decoded, Event
    from streamtopic.state import LiveDocuments, Meta
    from streamtopic.streams import Message, Record

__all__ = ["MISPLACED", "OUTCOMES", "Resolution", "misplaced", "resolve"]

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

    changes: Changes
    rejected: Sequence[Message]
    elsewhere: Sequence[Misplaced]
    reasons: Mapping[str, int]


def resolve(
    decoded: Decoded,
    live: LiveDocuments,
    base: Meta,
    partition: int,
    now_ms: int,
    refusals: Refusals = NOBODY,
    doubtful: int = 0,
) -> Resolution:
    """Apply records in order to the live documents, and return the changes.

    live: the live documents of the ids in the records.
    base: the state that these documents were read from.
    partition: the partition of the records.
    now_ms: milliseconds since 1970, for receipts.
    refusals: records that are about somebody who is suppressed.
    doubtful: offset before which compaction may have taken records that nobody has read.

    The result depends on the records only, not on how a log is cut into flushes, except for `applied_ms`. The documents
    that are live afterwards depend on the newest record of each id only, since compaction leaves no other.
    """
    found = _only_new(decoded, live, partition, now_ms, refusals)
    if found is not None:
        return found
    run = _Run(live, base, partition, now_ms, doubtful)
    rows = zip(decoded.records, decoded.events, decoded.homes, decoded.batch.keys, strict=True)
    for k, (record, event, home, document) in enumerate(rows):
        if k in refusals.settled:
            run.settle(record, document)
        else:
            run.take(record, suppressed() if k in refusals.adds else event, home, document)
    return run.result(decoded.next_offset)


def _only_new(
    decoded: Decoded, live: LiveDocuments, partition: int, now_ms: int, refusals: Refusals
) -> Resolution | None:
    """Return the net effect of records that each add another new document; None if there may be another one."""
    # Nearly all large batches are such, and their columns become the changes as they are.
    documents = decoded.documents
    may_differ = decoded.others or live.documents or refusals.adds
    if may_differ or any(home != partition for home in decoded.homes) or len(set(documents.ids)) < len(documents):
        return None
    # A pair needs two words of one passage.
    too_short = int((documents.rows.lengths[documents.firsts] < 2).sum())
    totals = {"added": len(documents), "too_short": too_short}
    newest_ms = max(record.appended_ms(now_ms) for record in decoded.records)
    changes = Changes(
        next_offset=decoded.next_offset,
        added=documents,
        totals={name: number for name, number in totals.items() if number},
        time_ms=newest_ms,
    )
    return Resolution(changes, [], [], {})


@dataclass(slots=True)
class _Run:
    """The state while records are applied.

    live: the documents as they were before the first record.
    current: the live documents of the ids in the records, after the records so far.
    forgets, totals, rejected, elsewhere, time_ms: of the changes to commit.
    """

    live: LiveDocuments
    base: Meta
    partition: int
    now_ms: int
    doubtful: int
    current: dict[bytes, StoredDocument | AddedDocument] = field(init=False)
    forgets: list[Forget] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rejected: list[Message] = field(default_factory=list)
    elsewhere: list[Misplaced] = field(default_factory=list)
    time_ms: int = 0

    def __post_init__(self) -> None:
        self.current = dict(self.live.documents)

    def settle(self, record: Record, document: bytes) -> None:
        """Take the service's own tombstone after a suppressed add: nobody asked for it, so it has no receipt."""
        self.time_ms = max(self.time_ms, record.appended_ms(self.now_ms))
        self.totals["deleted_by_refusal" if document in self.current else "unchanged"] += 1
        if document in self.current:
            self.forget(record, document, ForgetKind.REFUSED, "")
            del self.current[document]

    def take(self, record: Record, event: Event, home: int, document: bytes) -> None:
        """Apply a record.

        home: partition of its key.
        document: the id in its key, b"" without one.
        """
        self.time_ms = max(self.time_ms, record.appended_ms(self.now_ms))
        if isinstance(event, Heartbeat):
            return
        # Partitioners differ over records without a key, and such a record names no document that could be deleted.
        if home != self.partition and not _keyless(event):
            self.misplace(record, event, home, document)
        elif isinstance(event, InvalidEvent):
            self.reject(record, event, document, here=True)
        elif isinstance(event, AddedDocument):
            self.add(record, event)
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

    def misplace(self, record: Record, event: Event, home: int, document: bytes) -> None:
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
        if record.offset >= self.base.through and (asked or record.offset < self.doubtful):
            name, trace = document.decode(), trace_of(record.headers)
            time_ms = record.appended_ms(self.now_ms)
            self.elsewhere.append(Misplaced(name, time_ms, asked, request, salt, trace))

    def add(self, record: Record, event: AddedDocument) -> None:
        """Put a document in place of the one that its id held."""
        document = event.document
        have = self.current.get(document)
        # The same content again forgets nothing, so it must not count against the deletion capacity.
        if have is not None and self.live.same(have, event):
            self.totals["unchanged"] += 1
            if have.subjects != event.subjects:
                # It is still the document of the earlier record, so its offset stays.
                self.current[document] = replace(event, offset=have.offset)
            return
        if have is not None:
            self.forget(record, document, ForgetKind.REPLACED, "")
        self.totals["added" if have is None else "replaced"] += 1
        # A pair needs two words of one passage.
        longest = max(event.passages.lengths, default=0)
        self.totals["too_short"] += longest < 2
        self.current[document] = event

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
        added = -1 if have is None else have.offset
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

    def result(self, next_offset: int) -> Resolution:
        """Return the net effect."""
        added = [document for document in self.current.values() if isinstance(document, AddedDocument)]
        # A document that was replaced counts on both sides: the counts of the old text go, those of the new one come.
        removed = []
        for document, old in self.live.documents.items():
            if self.current.get(document) is not old:
                removed.append(RemovedDocument(document, old))
        totals = {name: number for name, number in self.totals.items() if number}
        changes = Changes(
            next_offset=next_offset,
            added=added,
            removed=removed,
            forgets=self.forgets,
            totals=totals,
            time_ms=self.time_ms,
        )
        return Resolution(changes, self.rejected, self.elsewhere, self.reasons)


def misplaced(partition: int, home: int) -> InvalidEvent:
    """Return the refusal of an add in another partition than its key's."""
    return InvalidEvent(
        MISPLACED,
        f"the record is in partition {partition}, its key belongs to {home}: set the producer's partitioner to that of "
        "the model (setting `partitioner`) and send the document again",
    )


def _keyless(event: Event) -> bool:
    """Return whether a record has no key that could name a document, so that it belongs to no partition."""
    return isinstance(event, InvalidEvent) and event.reason.startswith("key-")
