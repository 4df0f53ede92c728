"""From records of the documents topic to their net effect on a partition: no I/O, one record after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidEvent
from streamtopic.events import Add, Delete, Heartbeat, decode_record, encode_rejected
from streamtopic.state import AddedDocument, Changes, Forget, ForgetKind, RemovedDocument, StoredDocument
from streamtopic.streams import Message, partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.events import Event
    from streamtopic.state import Meta
    from streamtopic.streams import Record

__all__ = ["OUTCOMES", "Decoded", "Resolution", "decode_all", "resolve"]

OUTCOMES = (
    "added",
    "replaced",
    "unchanged",
    "deleted",
    "not_found",
    "rejected",
    "rejected_live",
    "too_short",
    "moved",
    "repeated",
)
"""What can become of a record. `rejected_live`: rejected ones whose document stays as it was; `too_short`: documents
added or replaced that have no pair of words; both are counted beside their own outcome."""

_ORIGIN = "st-origin"
_MOVED = "st-moved"
# What a record takes on average (measured: 1.8 bytes a word), so that a flush can be bounded before it is encoded.
_BYTES_A_WORD = 2
_BYTES_A_DOCUMENT = 60


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record and the event in it, or why there is none."""

    record: Record
    event: Event | InvalidEvent

    @property
    def document(self) -> bytes | None:
        """Key of the document that the record is about, if it has a usable one."""
        return None if isinstance(self.event, Heartbeat) else self.record.key

    @property
    def stored_bytes(self) -> int:
        """Estimate of what the document takes in the state."""
        if not isinstance(self.event, Add):
            return 0
        labels = sum(len(task) + len(name) for task, name in self.event.labels.items())
        words = sum(len(words) for _, words in self.event.passages)
        return _BYTES_A_DOCUMENT + labels + _BYTES_A_WORD * words


@dataclass(frozen=True, slots=True)
class Resolution:
    """Changes to commit, and records that must be written to logs, and confirmed, before.

    rejected: pointers for the rejected topic; moved: records of foreign partitions, sent home and tombstoned here.
    """

    changes: Changes
    rejected: Sequence[Message]
    moved: Sequence[Message]


def decode_all(records: Sequence[Record], *, max_bytes: int) -> list[Decoded]:
    """Decode records up to about max_bytes of document records, at least one."""
    decoded: list[Decoded] = []
    size = 0
    for record in records:
        try:
            entry = Decoded(record, decode_record(record))
        except InvalidEvent as error:
            entry = Decoded(record, error)
        size += entry.stored_bytes
        if decoded and size > max_bytes:
            break
        decoded.append(entry)
    return decoded


def resolve(
    decoded: Sequence[Decoded],
    stored: Mapping[bytes, StoredDocument],
    words_of: Callable[[StoredDocument], Sequence[tuple[int, Mapping[str, int]]]],
    base: Meta,
    partition: int,
    now_ms: int,
) -> Resolution:
    """Apply records in order to the documents that are live, and return what is different afterwards.

    stored: the live documents among those that the records are about; words_of: their passages with words;
    base: the state that they were read from. The result depends on the records only, not on how a log is cut into
    flushes, except for `applied_ms`.
    """
    run = _Run(stored, words_of, base, partition, now_ms)
    for entry in decoded:
        run.take(entry)
    return run.result(decoded[-1].record.next_offset)


@dataclass(slots=True)
class _Run:
    stored: Mapping[bytes, StoredDocument]
    words_of: Callable[[StoredDocument], Sequence[tuple[int, Mapping[str, int]]]]
    base: Meta
    partition: int
    now_ms: int
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

    def take(self, entry: Decoded) -> None:
        record, event = entry.record, entry.event
        # A producer's clock may be ahead; records that come after would then look as if they were old.
        self.time_ms = max(self.time_ms, min(record.timestamp_ms, self.now_ms))
        if isinstance(event, InvalidEvent):
            self.reject(record, event)
        elif isinstance(event, Heartbeat) or (isinstance(event, Delete) and event.moved):
            return
        elif partition_of(record.key, self.base.partitions) != self.partition:
            self.move(record)
        elif self.is_repetition(record):
            self.totals["repeated"] += 1
        elif isinstance(event, Add):
            self.add(record, event)
        else:
            self.delete(record, event)

    def reject(self, record: Record, error: InvalidEvent) -> None:
        self.totals["rejected"] += 1
        self.totals["rejected_live"] += record.key in self.current
        self.rejected.append(encode_rejected(record, error))

    def move(self, record: Record) -> None:
        """Send a record to the partition of its key, where its document's other records are, and erase it here."""
        self.totals["moved"] += 1
        origin = (_ORIGIN, f"{self.partition}/{record.offset}".encode())
        home = partition_of(record.key, self.base.partitions)
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

    def add(self, record: Record, event: Add) -> None:
        document = event.document.encode()
        have = self.current.get(document)
        if have is not None and self.same(have, event):
            self.totals["unchanged"] += 1
            return
        if have is not None:
            self.forget(record, document, ForgetKind.REPLACED, "")
        self.totals["added" if have is None else "replaced"] += 1
        self.totals["too_short"] += all(length < 2 for length, _ in event.passages)
        self.counted[self.base.epoch_of(record.offset)] += 1
        self.current[document] = AddedDocument(document, record.offset, event.passages, event.labels)

    def same(self, have: StoredDocument | AddedDocument, event: Add) -> bool:
        if dict(have.labels) != dict(event.labels) or len(have.passages) != len(event.passages):
            return False
        passages = self.words_of(have) if isinstance(have, StoredDocument) else have.passages
        pairs = zip(passages, event.passages, strict=True)
        return all(a == b and dict(x) == dict(y) for (a, x), (b, y) in pairs)

    def delete(self, record: Record, event: Delete) -> None:
        document = event.document.encode()
        found = document in self.current
        self.totals["deleted" if found else "not_found"] += 1
        self.forget(record, document, ForgetKind.DELETED if found else ForgetKind.NOT_FOUND, event.request or "")
        self.current.pop(document, None)

    def forget(self, record: Record, document: bytes, kind: ForgetKind, request: str) -> None:
        have = self.current.get(document)
        self.forgets.append(
            Forget(
                offset=record.offset,
                document=document,
                kind=kind,
                request=request,
                length=0 if have is None else _length(have),
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


def _length(document: StoredDocument | AddedDocument) -> int:
    if isinstance(document, StoredDocument):
        return document.length
    return sum(length for length, _ in document.passages)
