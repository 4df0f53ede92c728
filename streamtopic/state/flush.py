"""From resolved changes to one flush: what is counted, written and removed by one commit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence, DocumentBatch, Passage, Weighting, count
from streamtopic.state.forgets import Forget
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.records import StoredDocument, encode_records
from streamtopic.state.segments import Segment, encode
from streamtopic.state.vocabulary import Vocabulary

__all__ = ["AddedDocument", "Changes", "Flush", "RemovedDocument", "plan"]

Int64 = npt.NDArray[np.int64]

WordPassage = tuple[int, Mapping[str, int]]
"""Tokens L, and counts of the words."""


@dataclass(frozen=True, slots=True)
class AddedDocument:
    """A document to store and count: passages are (L, word counts), each count at least 1, their sum at most L."""

    document: bytes
    offset: int
    passages: Sequence[WordPassage]
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemovedDocument:
    """A document to remove, as it was read from the state that the flush is based on."""

    document: bytes
    stored: StoredDocument


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect of records up to `next_offset`.

    added, removed: at most one each per document; a replaced document is in both. forgets: ascending by offset.
    counted: documents accepted per epoch, those that went again in the same flush included. totals: events by outcome.
    origins: partition to the first of its offsets from which no record was moved here yet. time_ms: newest time of the
    records.
    """

    next_offset: int
    added: Sequence[AddedDocument] = ()
    removed: Sequence[RemovedDocument] = ()
    forgets: Sequence[Forget] = ()
    counted: Mapping[int, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[int, int] = field(default_factory=dict)
    time_ms: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Flush:
    """One commit: `base` is the state that it is made for; committing it to any other answers Stale.

    records: document id to record; removed: ids; segments: (manifest entry, Redis strings).
    born, dead: words that appear and vanish; ids, frequency: difference in document frequency per word id.
    """

    commit_id: str
    base: Meta
    next_offset: int
    time_ms: int
    records: Mapping[bytes, bytes]
    removed: Sequence[bytes]
    segments: Sequence[tuple[ManifestEntry, Sequence[bytes]]]
    born: Mapping[str, int]
    dead: Sequence[str]
    ids: Int64
    frequency: Int64
    forgets: Sequence[Forget]
    increments: Mapping[str, int]

    @property
    def record_bytes(self) -> int:
        """Bytes of document records that the commit writes."""
        return sum(map(len, self.records.values()))


def plan(
    changes: Changes, base: Meta, vocabulary: Vocabulary, weighting: Weighting, new_id: Callable[[], str]
) -> Flush:
    """Count the changes and lay out the commit. Nothing is written, and `vocabulary` stays as it is.

    new_id: makes a segment or commit id that nobody else makes.
    """
    added, born = _number(changes.added, vocabulary)
    records = encode_records(
        DocumentBatch.build(added), [a.offset for a in changes.added], [a.labels for a in changes.added]
    )
    parts = _segments(changes, added, base, weighting)
    segments = []
    for epoch, segment in parts:
        strings = encode(segment)
        size = sum(map(len, strings))
        segments.append(
            (ManifestEntry(new_id(), base.version, epoch, len(strings), segment.counts.pairs, size), strings)
        )
    ids, frequency = _frequency_change([segment for _, segment in parts])
    gone = ids[(vocabulary.frequency(ids) + frequency == 0) & (frequency < 0)]
    return Flush(
        commit_id=new_id(),
        base=base,
        next_offset=changes.next_offset,
        time_ms=max(base.time_ms, changes.time_ms),
        records={a.document: record for a, record in zip(changes.added, records, strict=True)},
        removed=sorted({r.document for r in changes.removed} - {a.document for a in changes.added}),
        segments=segments,
        born=born,
        dead=[vocabulary.names[number] for number in gone.tolist()],
        ids=ids,
        frequency=frequency,
        forgets=changes.forgets,
        increments=_increments(changes, base),
    )


def _number(added: Sequence[AddedDocument], vocabulary: Vocabulary) -> tuple[list[Sequence[Passage]], dict[str, int]]:
    """Give every word its id; words not seen before get the next free ones."""
    known, born, first = vocabulary.ids, dict[str, int](), vocabulary.next_id
    documents: list[Sequence[Passage]] = []
    for document in added:
        passages = []
        for length, words in document.passages:
            for word in words:
                if word not in known and word not in born:
                    born[word] = first + len(born)
            ids = np.fromiter((known[w] if w in known else born[w] for w in words), np.int32, len(words))
            counts = np.fromiter(words.values(), np.int32, len(words))
            order = np.argsort(ids)
            passages.append(Passage(length, ids[order], counts[order]))
        documents.append(passages)
    return documents, born


def _segments(
    changes: Changes, added: Sequence[Sequence[Passage]], base: Meta, weighting: Weighting
) -> list[tuple[int, Segment]]:
    """Return one segment for each epoch that gains or loses a document."""
    plus: dict[int, list[Sequence[Passage]]] = {}
    minus: dict[int, list[Sequence[Passage]]] = {}
    for document, passages in zip(changes.added, added, strict=True):
        plus.setdefault(base.epoch_of(document.offset), []).append(passages)
    for gone in changes.removed:
        minus.setdefault(base.epoch_of(gone.stored.offset), []).append(gone.stored.passages)
    epochs = sorted({*plus, *minus})
    return [(epoch, _count(plus.get(epoch, []), minus.get(epoch, []), weighting)) for epoch in epochs]


def _count(plus: Sequence[Sequence[Passage]], minus: Sequence[Sequence[Passage]], weighting: Weighting) -> Segment:
    used = [passage.words for document in chain(plus, minus) for passage in document]
    ids = np.unique(np.concatenate([np.empty(0, np.int32), *used])).astype(np.int64)
    counts = _count_local(plus, ids, weighting) - _count_local(minus, ids, weighting)
    return Segment(ids, counts, added=len(plus), removed=len(minus))


def _count_local(documents: Sequence[Sequence[Passage]], ids: Int64, weighting: Weighting) -> Cooccurrence:
    if not documents:
        return Cooccurrence.zero(len(ids))
    batch = DocumentBatch.build(documents)
    local = np.searchsorted(ids, batch.words).astype(np.int32)
    numbered = DocumentBatch(batch.indptr, local, batch.counts, batch.lengths, batch.owners, batch.documents)
    return count(numbered, len(ids), weighting)


def _frequency_change(segments: Sequence[Segment]) -> tuple[Int64, Int64]:
    ids = np.unique(np.concatenate([np.empty(0, np.int64), *(segment.ids for segment in segments)]))
    frequency = np.zeros(len(ids), np.int64)
    for segment in segments:
        frequency[np.searchsorted(ids, segment.ids)] += segment.counts.frequency
    return ids, frequency


def _increments(changes: Changes, base: Meta) -> dict[str, int]:
    by: dict[str, int] = {}
    for document in changes.added:
        key = f"live:{base.epoch_of(document.offset)}"
        by[key] = by.get(key, 0) + 1
    for gone in changes.removed:
        key = f"live:{base.epoch_of(gone.stored.offset)}"
        by[key] = by.get(key, 0) - 1
    by.update({f"counted:{epoch}": number for epoch, number in changes.counted.items()})
    by.update({f"origin:{p}": offset - base.origins.get(p, 0) for p, offset in changes.origins.items()})
    by.update({f"total:{name}": number for name, number in changes.totals.items()})
    return {field: number for field, number in by.items() if number}
