"""From resolved changes to one flush: what is counted, written and removed by one commit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from streamtopic.counts import DocumentBatch, PairBlock, SignedPassages, Weighting, count_rows, statistics
from streamtopic.state.forgets import Forget
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.records import StoredDocument, encode_records
from streamtopic.state.rows import Rows, RowSpan, number_rows
from streamtopic.state.segments import MOST_PASSAGES, SegmentHead, encode_chunk, encode_head, encode_passages
from streamtopic.state.vocabulary import Vocabulary

__all__ = ["AddedDocument", "Changes", "Flush", "RemovedDocument", "plan"]

Int64 = npt.NDArray[np.int64]
Send = Callable[[str, int, int, Callable[[], bytes]], Future[bytes]]
_BLOCK_PAIRS = 1 << 19


@dataclass(frozen=True, slots=True)
class AddedDocument:
    """A document to store and count; `PartitionState.document` makes one. passages: words of the writer's lexicon."""

    document: bytes
    offset: int
    passages: RowSpan
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens L of all passages."""
        return sum(self.passages.lengths)


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
    born, dead: words that appear and vanish, with their ids. ids, frequency: difference in document frequency per
    word id. held: words of live documents afterwards.
    """

    commit_id: str
    base: Meta
    next_offset: int
    time_ms: int
    records: Mapping[bytes, bytes]
    removed: Sequence[bytes]
    segments: Sequence[tuple[ManifestEntry, Sequence[bytes]]]
    born: Mapping[str, int]
    dead: Mapping[str, int]
    held: int
    ids: Int64
    frequency: Int64
    forgets: Sequence[Forget]
    increments: Mapping[str, int]


def plan(
    changes: Changes,
    base: Meta,
    vocabulary: Vocabulary,
    weighting: Weighting,
    new_id: Callable[[], str],
    send: Send,
) -> Flush:
    """Count the changes and lay out the commit. Nothing is written, and `vocabulary` stays as it is.

    new_id: makes a segment or commit id that nobody else makes. send: given the name of a segment, the number of a
    chunk, how many pairs it has and what makes its bytes, it does that, perhaps while the next chunk is being counted.
    """
    added, born = _number(changes.added, vocabulary)
    records = encode_records(added, [a.offset for a in changes.added], [a.labels for a in changes.added])
    segments = []
    heads = []
    for epoch, batch, signs in _by_epoch(changes, added, base):
        head, local = _headed(batch, signs)
        heads.append(head)
        name = new_id()
        chunks, pairs = _chunks(name, count_rows(local, len(head.ids), weighting, signs, _BLOCK_PAIRS), send)
        strings = [encode_head(head, packed=False), *chunks, *_passages(local, weighting, signs)]
        entry = ManifestEntry(name, base.version, epoch, len(strings), pairs, sum(map(len, strings)))
        segments.append((entry, strings))
    ids, frequency = _frequency_change(heads)
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
        dead={vocabulary.word(number): number for number in gone.tolist()},
        held=len(vocabulary) + len(born) - len(gone),
        ids=ids,
        frequency=frequency,
        forgets=changes.forgets,
        increments=_increments(changes, base),
    )


def _number(added: Sequence[AddedDocument], vocabulary: Vocabulary) -> tuple[DocumentBatch, dict[str, int]]:
    """Give every word its id; words not seen before get the next free ones."""
    tables, spans = _spans(added)
    rows = Rows.joined(tables)
    sizes = np.array([stop - first for first, stop in spans], np.int64)
    chosen = np.fromiter(chain.from_iterable(range(*span) for span in spans), np.int64, int(sizes.sum()))
    indptr, words, counts, born = number_rows(
        chosen, rows.starts, rows.stops, rows.entries, rows.counts, vocabulary.numbers(), vocabulary.next_id
    )
    owners = np.repeat(np.arange(len(added), dtype=np.int32), sizes)
    names = [vocabulary.lexicon.word(entry).decode("utf-8", "surrogatepass") for entry in born.tolist()]
    batch = DocumentBatch(indptr, words, counts, rows.lengths[chosen], owners, len(added))
    return batch, {name: vocabulary.next_id + k for k, name in enumerate(names)}


def _spans(added: Sequence[AddedDocument]) -> tuple[list[Rows], list[tuple[int, int]]]:
    """Return tables of rows, and where in all of them together the rows of each document are."""
    tables, places, spans = list[Rows](), dict[int, int](), list[tuple[int, int]]()
    used = 0
    for document in added:
        rows = document.passages.rows
        place = places.get(id(rows))
        if place is None:
            tables.append(rows)
            place = places[id(rows)] = used
            used += len(rows.lengths)
        spans.append((place + document.passages.first, place + document.passages.stop))
    return tables, spans


def _by_epoch(changes: Changes, added: DocumentBatch, base: Meta) -> Iterator[tuple[int, DocumentBatch, Int64]]:
    """Yield the documents that come and go in each epoch, with 1 for those that come and -1 for those that go."""
    removed = DocumentBatch.build([gone.stored.passages for gone in changes.removed])
    offsets = [*(document.offset for document in changes.added), *(gone.stored.offset for gone in changes.removed)]
    epochs = base.folded + np.searchsorted(np.array(base.cuts, np.int64), np.array(offsets, np.int64), side="right")
    signs = np.repeat(np.array([1, -1], np.int64), [added.documents, removed.documents])
    both = DocumentBatch.joined(added, removed) if removed.documents else added
    for epoch in np.unique(epochs).tolist():
        here = np.flatnonzero(epochs == epoch)
        yield epoch, both if len(here) == both.documents else both.take(here), signs[here]


def _headed(batch: DocumentBatch, signs: Int64) -> tuple[SegmentHead, DocumentBatch]:
    """Return the head of a segment, and its documents by position among the head's ids."""
    used = np.zeros(int(batch.words.max(initial=-1)) + 1, np.bool_)
    used[batch.words] = True
    ids = np.flatnonzero(used)
    place = np.cumsum(used, dtype=np.int32) - np.int32(1)
    local = DocumentBatch(batch.indptr, place[batch.words], batch.counts, batch.lengths, batch.owners, batch.documents)
    frequency, tokens = statistics(local, len(ids), signs)
    added = int((signs > 0).sum())
    return SegmentHead(ids, frequency, tokens, added=added, removed=batch.documents - added), local


def _chunks(name: str, blocks: Iterator[PairBlock], send: Send) -> tuple[list[bytes], int]:
    """Return the row chunks of a segment, and how many pairs they hold."""
    pairs, chunks = 0, list[Future[bytes]]()
    for block in blocks:
        if len(block.values):
            pairs += len(block.values)
            chunks.append(send(name, len(chunks) + 1, len(block.values), partial(_chunk, block)))
        if len(chunks) > 1:
            # The next block takes the buffer of the one before this.
            chunks[-2].result()
    return [chunk.result() for chunk in chunks], pairs


def _chunk(block: PairBlock) -> bytes:
    return encode_chunk(block.first, block.sizes, block.columns, block.values, packed=False)


def _passages(local: DocumentBatch, weighting: Weighting, signs: Int64) -> Iterator[bytes]:
    """Yield the passages that have pairs as one string, for a segment of few; else nothing."""
    if max(local.documents, len(local.lengths)) <= MOST_PASSAGES:
        passages = SignedPassages.of(local, weighting, signs)
        yield encode_passages(passages.relabel(np.arange(int(local.words.max(initial=-1)) + 1)))


def _frequency_change(heads: Sequence[SegmentHead]) -> tuple[Int64, Int64]:
    ids = np.unique(np.concatenate([np.empty(0, np.int64), *(head.ids for head in heads)]))
    frequency = np.zeros(len(ids), np.int64)
    for head in heads:
        frequency[np.searchsorted(ids, head.ids)] += head.frequency
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
