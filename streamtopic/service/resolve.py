"""From records of the documents topic to their net effect on a partition: no I/O, one record after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidEvent
from streamtopic.events import Delete, Heartbeat, encode_rejected
from streamtopic.state import AddedDocument, Changes, Forget, ForgetKind, RemovedDocument, StoredDocument
from streamtopic.streams import Message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from streamtopic.service.decoding import Decoded, Event
    from streamtopic.service.room import Room
    from streamtopic.state import Meta
    from streamtopic.streams import Record

__all__ = ["OUTCOMES", "Resolution", "resolve"]

OUTCOMES = (
    "added",
    "replaced",
    "unchanged",
    "deleted",
    "not_found",
    "rejected",
    "rejected_live",
    "rejected_words",
    "too_short",
    "moved",
    "repeated",
)
"""What can become of a record. `rejected_live`: rejected ones whose document stays as it was; `rejected_words`:
rejected ones whose words found no room; `too_short`: documents added or replaced that have no pair of words. All three
are counted beside their own outcome."""

_ORIGIN = "st-origin"
_MOVED = "st-moved"


@dataclass(frozen=True, slots=True)
class Resolution:
    """Changes to commit, and records that must be written to logs, and confirmed, before.

    rejected: pointers for the rejected topic; moved: records of foreign partitions, sent home and tombstoned here.
    """

    changes: Changes
    rejected: Sequence[Message]
    moved: Sequence[Message]


def resolve(
    decoded: Decoded,
    stored: Mapping[bytes, StoredDocument],
    numbers: npt.NDArray[np.int32],
    base: Meta,
    partition: int,
    now_ms: int,
    room: Room | None = None,
) -> Resolution:
    """Apply records in order to the documents that are live, and return what is different afterwards.

    stored: the live documents among those that the records are about; numbers: the id of each entry of the lexicon of
    `decoded`; base: the state that both were read from. room: for words, None where there is enough for all. The result
    depends on the records only, not on how a log is cut into flushes, except for `applied_ms`.
    """
    run = _Run(stored, numbers, base, partition, now_ms, room)
    for record, event, home in zip(decoded.records, decoded.events, decoded.homes, strict=True):
        run.take(record, event, home)
    return run.result(decoded.next_offset)


@dataclass(slots=True)
class _Run:
    stored: Mapping[bytes, StoredDocument]
    numbers: npt.NDArray[np.int32]
    base: Meta
    partition: int
    now_ms: int
    room: Room | None
    current: dict[bytes, StoredDocument | AddedDocument] = field(init=False)
    forgets: list[Forget] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    counted: Counter[int] = field(default_factory=Counter)
    rejected: list[Message] = field(default_factory=list)
    moved: list[Message] = field(default_factory=list)
    origins: dict[int, int] = field(default_factory=dict)
    time_ms: int = 0

    def __post_init__(self) -> None:
        self.current = dict(self.stored)

    def take(self, record: Record, event: Event, home: int) -> None:
        # A producer's clock may be ahead; records that come after would then look as if they were old.
        self.time_ms = max(self.time_ms, min(record.timestamp_ms, self.now_ms))
        if isinstance(event, InvalidEvent):
            self.reject(record, event)
        elif isinstance(event, Heartbeat) or (isinstance(event, Delete) and event.moved):
            return
        elif home != self.partition:
            self.move(record, home)
        elif self.is_repetition(record):
            self.totals["repeated"] += 1
        elif isinstance(event, AddedDocument):
            self.add(record, event)
        else:
            self.delete(record, event)

    def reject(self, record: Record, error: InvalidEvent) -> None:
        self.totals["rejected"] += 1
        self.totals["rejected_live"] += record.key in self.current
        self.rejected.append(encode_rejected(record, error))

    def move(self, record: Record, home: int) -> None:
        """Send a record to the partition of its key, where its document's other records are, and erase it here."""
        self.totals["moved"] += 1
        origin = (_ORIGIN, f"{self.partition}/{record.offset}".encode())
        self.moved.append(Message(record.key, record.value, (*record.headers, origin), home))
        self.moved.append(Message(record.key, None, ((_MOVED, b""),), self.partition))

    def is_repetition(self, record: Record) -> bool:
        """Whether a moved record had been sent before, by an ingest that was killed before it could commit.

        Taking it twice could bring back a document that was deleted between the two.
        """
        origin = record.header(_ORIGIN)
        if origin is None:
            return False
        partition, _, offset = origin.partition(b"/")
        if not (partition.isdigit() and offset.isdigit() and len(offset) < 16 and len(partition) < 6):
            return False
        source, place = int(partition), int(offset)
        done = self.origins.get(source, self.base.origins.get(source, 0))
        self.origins[source] = max(done, place + 1)
        return place < done

    def add(self, record: Record, event: AddedDocument) -> None:
        document = event.document
        have = self.current.get(document)
        if have is not None and self.same(have, event):
            self.totals["unchanged"] += 1
            return
        problem = None if self.room is None else self.room.replace(have, event)
        if problem is not None:
            self.totals["rejected_words"] += 1
            self.reject(record, problem)
            return
        if have is not None:
            self.forget(record, document, ForgetKind.REPLACED, "")
        self.totals["added" if have is None else "replaced"] += 1
        self.totals["too_short"] += max(event.passages.lengths, default=0) < 2
        self.counted[self.base.epoch_of(record.offset)] += 1
        self.current[document] = event

    def same(self, have: StoredDocument | AddedDocument, event: AddedDocument) -> bool:
        if have.length != event.length or dict(have.labels) != dict(event.labels):
            return False
        if isinstance(have, StoredDocument):
            return have.values() == event.passages.values(self.numbers)
        return have.passages.values() == event.passages.values()

    def delete(self, record: Record, event: Delete) -> None:
        document = event.document.encode()
        found = document in self.current
        self.totals["deleted" if found else "not_found"] += 1
        self.forget(record, document, ForgetKind.DELETED if found else ForgetKind.NOT_FOUND, event.request or "")
        have = self.current.pop(document, None)
        if self.room is not None:
            self.room.replace(have, None)

    def forget(self, record: Record, document: bytes, kind: ForgetKind, request: str) -> None:
        have = self.current.get(document)
        self.forgets.append(
            Forget(
                offset=record.offset,
                document=document,
                kind=kind,
                request=request,
                length=0 if have is None else have.length,
                document_offset=-1 if have is None else have.offset,
                epoch=-1 if have is None else self.base.epoch_of(have.offset),
                received_ms=record.timestamp_ms,
                applied_ms=self.now_ms,
            )
        )

    def result(self, next_offset: int) -> Resolution:
        added = [document for document in self.current.values() if isinstance(document, AddedDocument)]
        removed = [RemovedDocument(i, old) for i, old in self.stored.items() if self.current.get(i) is not old]
        changes = Changes(
            next_offset=next_offset,
            added=added,
            removed=removed,
            forgets=self.forgets,
            counted=self.counted,
            totals={name: number for name, number in self.totals.items() if number},
            origins=self.origins,
            time_ms=self.time_ms,
        )
        return Resolution(changes, self.rejected, self.moved)
