"""From records of the documents topic to their net effect on a partition: no I/O, one record after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidEvent
from streamtopic.events import Delete, Heartbeat, document_of, encode_rejected, request_of, salt_of
from streamtopic.state import AddedDocument, Changes, Forget, ForgetKind, Forward, RemovedDocument, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.service.ingest.decode import Decoded, Event
    from streamtopic.state import LiveDocuments, Meta
    from streamtopic.streams import Message, Record

__all__ = ["MISPLACED", "OUTCOMES", "Resolution", "misplaced", "resolve"]

OUTCOMES = (
    "added",
    "replaced",
    "unchanged",
    "deleted",
    "not_found",
    "rejected",
    "deleted_by_refusal",
    "too_short",
    "forwarded",
    "misplaced",
)
"""What can become of a record. `deleted_by_refusal`: rejected ones that removed what their id held; `too_short`:
documents added or replaced that have no pair of words; `misplaced`: rejected ones in another partition than that of
their key. All three are counted beside their own outcome. `forwarded`: deletes in another partition, sent to that of
their key."""

MISPLACED = "partition"
"""The reason code of adds that came to another partition than that of their key."""

# From then on records of its home that are newer may have been counted already, see send_home.py.
_LATE_MS = 60_000
# Headers of a tombstone that its receipt is made of; longer ones are not taken anyway.
_MAX_HEADER = 512


@dataclass(frozen=True, slots=True)
class Resolution:
    """Changes to commit, and records that must be written to a log, and confirmed, before.

    rejected: pointers for the rejected topic.
    reasons: how many of them there are, by reason.
    """

    changes: Changes
    rejected: Sequence[Message]
    reasons: Mapping[str, int]


def resolve(
    decoded: Decoded,
    live: LiveDocuments,
    base: Meta,
    partition: int,
    now_ms: int,
) -> Resolution:
    """Apply records in order to the documents that are live, and return what is different afterwards.

    live: the live documents among those that the records are about.
    base: the state that they were read from.
    partition: which partition the records are of.
    now_ms: milliseconds since 1970, for receipts.

    The result depends on the records only, not on how a log is cut into flushes, except for `applied_ms`. The documents
    that are live afterwards depend on the newest record of each id only, since compaction leaves no other.
    """
    run = _Run(live, base, partition, now_ms)
    for record, event, home in zip(decoded.records, decoded.events, decoded.homes, strict=True):
        run.take(record, event, home)
    return run.result(decoded.next_offset)


@dataclass(slots=True)
class _Run:
    live: LiveDocuments
    base: Meta
    partition: int
    now_ms: int
    current: dict[bytes, StoredDocument | AddedDocument] = field(init=False)
    forgets: list[Forget] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    counted: Counter[int] = field(default_factory=Counter)
    rejected: list[Message] = field(default_factory=list)
    forwards: list[Forward] = field(default_factory=list)
    time_ms: int = 0

    def __post_init__(self) -> None:
        self.current = dict(self.live.documents)

    def take(self, record: Record, event: Event, home: int) -> None:
        # A producer's clock may be ahead; records that come after would then look as if they were old.
        self.time_ms = max(self.time_ms, min(record.timestamp_ms, self.now_ms))
        if isinstance(event, Heartbeat):
            return
        if home != self.partition and not _keyless(event):
            self.elsewhere(record, event, home)
        elif isinstance(event, InvalidEvent):
            self.reject(record, event, here=True)
        elif isinstance(event, AddedDocument):
            self.add(record, event)
        else:
            self.delete(record, event)

    def reject(self, record: Record, error: InvalidEvent, *, here: bool) -> None:
        """Point at a record that cannot be taken, and remove what its id held: compaction keeps only this record."""
        self.totals["rejected"] += 1
        self.reasons[error.reason] += 1
        self.rejected.append(encode_rejected(record, error))
        document, request, salt = record.key or b"", request_of(record.headers) or "", salt_of(record.headers)
        if document in self.current:
            self.totals["deleted_by_refusal"] += 1
            self.forget(record, document, ForgetKind.REFUSED, request, salt)
            del self.current[document]
        elif here and request and document_of(document) is not None:
            self.forget(record, document, ForgetKind.NOT_FOUND, request, salt)

    def elsewhere(self, record: Record, event: Event, home: int) -> None:
        """Take a record in another partition than its key's: an add is refused, but its document is deleted at home.

        A refused change is a delete everywhere. Compaction keeps the last record of a key only, so an add may have
        taken the place of a delete here before anybody read that one.
        """
        asked = isinstance(event, Delete)
        if isinstance(event, Delete):
            self.totals["forwarded"] += 1
        else:
            self.totals["misplaced"] += 1
            error = event if isinstance(event, InvalidEvent) else misplaced(self.partition, home)
            self.reject(record, error, here=False)
        if record.offset < self.base.through or record.key is None:
            return
        self.forwards.append(
            Forward(
                offset=record.offset,
                document=record.key,
                home=home,
                asked=asked,
                time_ms=record.timestamp_ms,
                headers=_of_receipts(event) if isinstance(event, Delete) else (),
                late=self.now_ms - record.timestamp_ms > _LATE_MS,
            )
        )

    def add(self, record: Record, event: AddedDocument) -> None:
        document = event.document
        have = self.current.get(document)
        if have is not None and self.live.same(have, event):
            self.totals["unchanged"] += 1
            return
        if have is not None:
            self.forget(record, document, ForgetKind.REPLACED, "")
        self.totals["added" if have is None else "replaced"] += 1
        self.totals["too_short"] += max(event.passages.lengths, default=0) < 2
        self.counted[self.base.epoch_of(record.offset)] += 1
        self.current[document] = event

    def delete(self, record: Record, event: Delete) -> None:
        document = event.document.encode()
        found = document in self.current
        self.totals["deleted" if found else "not_found"] += 1
        self.forget(
            record, document, ForgetKind.DELETED if found else ForgetKind.NOT_FOUND, event.request or "", event.salt
        )
        self.current.pop(document, None)

    def forget(self, record: Record, document: bytes, kind: ForgetKind, request: str, salt: bytes = b"") -> None:
        have = self.current.get(document)
        self.forgets.append(
            Forget(
                offset=record.offset,
                document=document,
                kind=kind,
                request=request,
                salt=salt,
                document_offset=-1 if have is None else have.offset,
                epoch=-1 if have is None else self.base.epoch_of(have.offset),
                # A producer's clock, where a topic lets it decide, may say anything.
                received_ms=min(max(record.timestamp_ms, 0), self.now_ms),
                applied_ms=self.now_ms,
            )
        )

    def result(self, next_offset: int) -> Resolution:
        added = [document for document in self.current.values() if isinstance(document, AddedDocument)]
        removed = [RemovedDocument(i, old) for i, old in self.live.documents.items() if self.current.get(i) is not old]
        changes = Changes(
            next_offset=next_offset,
            added=added,
            removed=removed,
            forgets=self.forgets,
            counted=self.counted,
            totals={name: number for name, number in self.totals.items() if number},
            forwards=self.forwards,
            time_ms=self.time_ms,
        )
        return Resolution(changes, self.rejected, self.reasons)


def misplaced(partition: int, home: int) -> InvalidEvent:
    """Return why an add in another partition than that of its key is refused."""
    return InvalidEvent(
        MISPLACED,
        f"the record is in partition {partition}, its key belongs to {home}: set the producer's partitioner to that of "
        "the model (setting `partitioner`) and send the document again",
    )


def _keyless(event: Event) -> bool:
    """Whether a record has no key that could name a document, so that it belongs nowhere."""
    return isinstance(event, InvalidEvent) and event.reason.startswith("key-")


def _of_receipts(event: Delete) -> tuple[tuple[str, bytes], ...]:
    """Return the headers that a delete takes along: those that its receipt is made of."""
    found = {"request": (event.request or "").encode(), "salt": event.salt}
    return tuple((name, value) for name, value in found.items() if 0 < len(value) <= _MAX_HEADER)
