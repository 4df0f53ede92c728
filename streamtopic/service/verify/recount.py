"""Counts again from the log alone, without the code that keeps the counts, so that the two can be compared.

recount            counts documents from scratch, in memory (batch_of: as numbers of words)
documents_in_log   reads the documents that a log leaves alive
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from streamtopic.counts import Counts, DocumentBatch, Passage, Weighting, count
from streamtopic.counts.arrays import entry_rows, places
from streamtopic.documents.events import (
    Delete,
    Heartbeat,
    decode_record,
    document_of,
)
from streamtopic.errors import InvalidEvent
from streamtopic.state.document_counts import StoredDocuments
from streamtopic.streams import pages, partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streamtopic.documents.events import Passages
    from streamtopic.documents.suppression import SuppressionKey
    from streamtopic.streams import EventLog, Record

__all__ = [
    "batch_of",
    "documents_in_log",
    "recount",
]


# Records between two calls of `progress`.
STRIDE = 1_000

Document = Sequence[Passage]
DocumentKey = tuple[int, str]
"""Partition and id of a document."""
Progress = Callable[[int, int | None], None]
"""Called with the number of records read so far, and their total."""


def recount(documents: Iterable[Passages], weighting: Weighting) -> Counts:
    """Return the counts of documents, made from scratch in memory over all their words.

    documents: passages of each document, (L, word counts), where L is the number of all tokens.
    weighting: the weights of passages.
    """
    words, batch = batch_of(documents)
    return Counts(words, count(batch, len(words), weighting))


def batch_of(documents: Iterable[Passages]) -> tuple[list[str], DocumentBatch]:
    """Return the sorted words of documents, and the documents over them. documents: as of `recount`."""
    numbering = Numbering()
    return numbering.batch([numbering.number(document) for document in documents])


class Numbering:
    """Numbers words as they come. Documents over numbers take a tenth of the memory of their words."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def number(self, document: Passages) -> tuple[Passage, ...]:
        """Return a document over numbers, for `batch`."""
        return tuple(self._numbered(length, counts) for length, counts in document)

    def _numbered(self, length: int, counts: Mapping[str, int]) -> Passage:
        """Return a passage over numbers, ascending; words that are new get the next ones."""
        ids = self._ids
        numbers = np.array([ids.setdefault(word, len(ids)) for word in counts], np.int32)
        times = np.array(list(counts.values()), np.int32)
        # One record may name its words in another order than the next one, and hold the same document.
        order = np.argsort(numbers)
        return Passage(length, numbers[order], times[order])

    def batch(self, documents: Sequence[Document]) -> tuple[list[str], DocumentBatch]:
        """Return documents that were numbered here as one batch, over the sorted words that they hold."""
        numbered = DocumentBatch.build(documents)
        held = set(np.unique(numbered.words).tolist())
        names = {number: word for word, number in self._ids.items() if number in held}
        order = sorted(names, key=names.__getitem__)
        place = places(len(self._ids), np.array(order, np.intp), np.int32)
        words = place[numbered.words]
        # Each row again ascends, in the order of the words.
        sorting = np.lexsort((words, entry_rows(numbered.indptr)))
        renamed = replace(numbered, words=words[sorting], counts=numbered.counts[sorting])
        return [names[number] for number in order], renamed


@dataclass(slots=True)
class DocumentsInLog:
    """The documents that the records before some offsets leave alive, by (partition, id), over numbers of words.

    alive: passages of each document.
    labels: task to class, of each document with labels.
    added: offset of the record that added each document.
    deleted: partition to the offset of each delete that somebody asked for.
    numbering: the numbers of the words in `alive`.
    whole: whether the log still holds every record before the offsets.
    """

    alive: dict[DocumentKey, Document] = field(default_factory=dict)
    labels: dict[DocumentKey, Mapping[str, str]] = field(default_factory=dict)
    added: dict[DocumentKey, int] = field(default_factory=dict)
    deleted: dict[int, array[int]] = field(default_factory=dict)
    numbering: Numbering = field(default_factory=Numbering)
    whole: bool = True

    def added_before(self, offsets: Mapping[int, int]) -> Self:
        """Return only the documents that were added before these offsets.

        offsets: by partition.
        """
        alive = {}
        for key, document in self.alive.items():
            partition, _ = key
            if self.added[key] < offsets.get(partition, 0):
                alive[key] = document
        return replace(self, alive=alive)

    def stored(self) -> tuple[list[str], StoredDocuments]:
        """Return the sorted words of the documents, and the documents over them, as they would be read from Redis."""
        order = sorted(self.alive, key=lambda key: key[1].encode())
        words, batch = self.numbering.batch([self.alive[key] for key in order])
        labels = tuple(self.labels.get(key, {}) for key in order)
        return words, StoredDocuments(batch, tuple(key[1].encode() for key in order), labels)

    def apply(self, record: Record, *, refused: bool = False, asked: bool = True) -> None:
        """Apply the next record of a partition, as ingest does.

        refused: whether it is the add of somebody who was suppressed.
        asked: whether somebody asked for it, if it is a delete. The service deletes after suppressed adds.
        """
        try:
            event = None if refused else decode_record(record)
        except InvalidEvent:
            event = None
        document = document_of(record.key)
        if document is None or isinstance(event, Heartbeat):
            return
        if isinstance(event, Delete) and asked:
            self.deleted.setdefault(record.partition, array("q")).append(record.offset)
        key = record.partition, document
        # A record that is refused ends what its id held, as a delete does.
        before = self.alive.pop(key, None)
        had = self.labels.pop(key, {})
        if event is None or isinstance(event, Delete):
            return
        self.alive[key] = self.numbering.number(event.passages)
        if event.labels:
            self.labels[key] = event.labels
        # An identical add changes nothing, so the document was still added by the record before.
        same = before is not None and had == event.labels and _content(before) == _content(self.alive[key])
        if not same:
            self.added[key] = record.offset


def documents_in_log(
    log: EventLog,
    topic: str,
    offsets: Mapping[int, int],
    progress: Progress,
    *,
    suppression: SuppressionKey | None = None,
) -> DocumentsInLog:
    """Return the documents that the records before these offsets leave alive, read with the events' own codec.

    log, topic: where documents are.
    offsets: partition to the offset at which reading ends.
    progress: called with the number of records read so far, and their total.
    suppression: key of the model's suppressions. Without it, adds that were refused for them count until their
        tombstones, which follow within moments.

    Raises ComponentUnreachable.
    """
    living = DocumentsInLog()
    partitions = log.partitions(topic)
    total = sum(offsets.values())
    done = 0
    for partition, end in offsets.items():
        expected = 0
        refused = set() if suppression is None else _refused(log, topic, partition, end, suppression)
        for record in _records(log, topic, partition, end):
            # Offsets skip where compaction or retention has erased a record.
            living.whole &= record.offset == expected
            expected = record.next_offset
            # A producer with another hash wrote the record to the wrong partition: ingest does not count it there.
            if not record.key or partition_of(record.key, partitions) == partition:
                own = suppression is not None and _refusal(record, suppression) is not None
                living.apply(record, refused=record.offset in refused, asked=not own)
            if expected % STRIDE == 0:
                progress(done + expected, total)
        living.whole &= expected == end
        done += end
        progress(done, total)
    return living


def _refused(log: EventLog, topic: str, partition: int, end: int, key: SuppressionKey) -> set[int]:
    """Return the offsets of the adds before `end` that ingest refused for a suppression, with a tombstone after it."""
    found = set[int]()
    for page in pages(log, topic, partition, max(end, log.begin(topic, partition))):
        offsets = (_refusal(record, key) for record in page)
        found.update(offset for offset in offsets if offset is not None)
    return found


def _refusal(record: Record, key: SuppressionKey) -> int | None:
    return key.refused(record.partition, record.value, record.headers)


def _records(log: EventLog, topic: str, partition: int, end: int) -> Iterator[Record]:
    """Yield the records of a partition before `end` that are still there."""
    begin = log.begin(topic, partition)
    for page in pages(log, topic, partition, begin, end):
        # The last page may reach beyond the end.
        yield from (record for record in page if record.offset < end)


def _content(document: Document) -> list[tuple[int, bytes, bytes]]:
    """Return what makes two documents the same: their passages, in their order."""
    return [(passage.length, passage.words.tobytes(), passage.counts.tobytes()) for passage in document]
