"""A flush: how many records it may hold, what it counts, the segments that it uploads, and the commit of all of it.

batch -> Batch.within, Batch.affordable   how many of its records one flush may hold
changes -> plan -> Flush                  words numbered, pairs counted, while Uploads sends the segments
Flush -> commit_arguments                 keys and arguments of `commit_flush.lua`
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.counts import DocumentBatch, PairBlock, SignedPassages, Weighting, count_rows, statistics
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forget, Forward
from streamtopic.state.document_records import StoredDocument, encode_records
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.redis_keys import PartitionKeys
from streamtopic.state.segments import MOST_PASSAGES, SegmentHead, encode_chunk, encode_head, encode_passages
from streamtopic.state.word_ids import Rows, RowSpan, Vocabulary, number_rows

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_FLUSH_PAIRS",
    "MAX_FLUSH_RECORD_BYTES",
    "MAX_FLUSH_WRITES",
    "MAX_STORED_BYTES",
    "AddedDocument",
    "Batch",
    "Changes",
    "Flush",
    "RemovedDocument",
    "Uploads",
    "by_bucket",
    "commit_arguments",
    "plan",
    "upload",
]


Int64 = npt.NDArray[np.int64]
Send = Callable[[str, int, int, Callable[[], bytes]], Future[bytes]]
_BLOCK_PAIRS = 1 << 19

_UPLOAD_SECONDS = 600
_WORTH_A_THREAD = 1 << 16

MAX_FLUSH_DOCUMENTS = 3_000
"""Documents of one flush: more would keep Redis busy for longer than a few milliseconds."""

MAX_FLUSH_WRITES = 4_000
"""Documents, new words and deletions of one flush together, for the same reason."""

MAX_FLUSH_RECORD_BYTES = 1_500_000
"""Bytes of document records of one flush."""

MAX_FLUSH_PAIRS = 1 << 27
"""Pairs that the documents of one flush make, those that come and those that go: a few seconds, and at most 400 MB of a
segment, which the writer holds until it is committed."""

MAX_STORED_BYTES = 5_000_000
"""Bytes of records of live documents that one flush replaces or removes, beside those of the last one. A delete is
short however long its document is, so the log does not bound them. Read, they take ten times as much."""

# A flush that is planned by averages is a little smaller, so that most of them hold the whole of what was read.
_LIKELY = 0.97


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Decoded records, as far as their number in one flush depends on them.

    keys: the document id that each record is about, b"" for none. sizes: (records,) int64, about how many bytes each
    takes in the state, 0 for one that adds no document. tables: rows of the added documents, with the record that each
    row is of. start: where this part begins among the records that `tables` counts.
    """

    keys: Sequence[bytes]
    sizes: Int64
    tables: Sequence[tuple[Rows, Int64]]
    start: int = 0

    def within(self, writes: Int64, max_records: int, max_bytes: int, max_writes: int) -> int:
        """Return how many of the first records, at least one, are within these bounds. writes: as `writes` gives."""
        by_size = np.searchsorted(np.cumsum(self.sizes), max_bytes, side="right")
        by_writes = np.searchsorted(np.cumsum(writes), max_writes, side="right")
        return max(1, min(max_records, len(self.keys), int(by_size), int(by_writes)))

    def affordable(self, records: int, stored: Mapping[bytes, StoredDocument], most: int) -> int:
        """Return how many of the first `records`, at least one, bring and remove documents of at most so many pairs.

        stored: the live documents among those that these records are about.
        """
        made = np.zeros(self.start + records, np.int64)
        for rows, owners in self.tables:
            here = owners < len(made)
            np.add.at(made, owners[here], _pairs(rows.stops - rows.starts)[here])
        made = made[self.start :]
        for k, key in enumerate(self.keys[:records] if stored else ()):
            gone = stored.get(key)
            if gone is not None:
                made[k] += _pairs(np.array([len(passage.words) for passage in gone.passages], np.int64)).sum()
        return max(1, int(np.searchsorted(np.cumsum(made), most, side="right")))

    def likely(self, writes: Int64, max_bytes: int, max_writes: int) -> int:
        """Return how many records like these on average are likely within these bounds. writes: as `writes` gives."""
        bytes_each, writes_each = float(self.sizes.mean()), float(writes.mean())
        return max(1, int(_LIKELY * min(max_bytes / max(bytes_each, 1.0), max_writes / writes_each)))

    def writes(self, numbers: npt.NDArray[np.int32]) -> Int64:
        """Return how many documents and words each record writes or removes; a word counts where it is met first.

        numbers: the id of each entry of the lexicon, -1 for words that the state does not have. A deletion with its
        entry for the receipt is two.
        """
        made = np.zeros(self.start + len(self.keys), np.int64)
        for rows, owners in self.tables:
            new = np.flatnonzero(numbers[rows.entries] < 0)
            _, first = np.unique(rows.entries[new], return_index=True)
            of = owners[np.searchsorted(rows.stops, new[first], side="right")]
            np.add.at(made, of[of < len(made)], 1)
        return made[self.start :] + np.where(self.sizes > 0, 1, 2)


def _pairs(words: Int64) -> Int64:
    return words * (words - 1) // 2


@dataclass(frozen=True, slots=True)
class AddedDocument:
    """A document to store and count; `PartitionWriter.document` makes one. passages: words of the writer's lexicon."""

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
    forwards: what is to be sent to other partitions. time_ms: newest time of the records.
    """

    next_offset: int
    added: Sequence[AddedDocument] = ()
    removed: Sequence[RemovedDocument] = ()
    forgets: Sequence[Forget] = ()
    counted: Mapping[int, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    forwards: Sequence[Forward] = ()
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
    forwards: Sequence[Forward] = ()


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
        forwards=changes.forwards,
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
    added = int((signs > 0).sum())
    head = SegmentHead(ids, *statistics(local, len(ids), signs), added=added, removed=batch.documents - added)
    return head, local


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
    by.update({f"total:{name}": number for name, number in changes.totals.items()})
    return {field: number for field, number in by.items() if number}


def commit_arguments(flush: Flush, of: PartitionKeys, fence: int) -> tuple[list[str], list[str | bytes | int]]:
    """Return keys and arguments of `commit_flush.lua`. fence: the writer's token."""
    keys = [of.meta, of.forgets]
    arguments: list[str | bytes | int] = []
    steps: list[list[str | int]] = []

    def step(command: str, key: str, values: Iterable[str | bytes | int]) -> None:
        first = len(arguments) + 2
        arguments.extend(values)
        if len(arguments) + 1 >= first:
            keys.append(key)
            steps.append([command, len(keys), first, len(arguments) + 1])

    for bucket, documents in by_bucket(flush.removed, of).items():
        step("HDEL", of.documents(bucket), documents)
    for bucket, documents in by_bucket(flush.records, of).items():
        step("HSET", of.documents(bucket), chain.from_iterable((d, flush.records[d]) for d in documents))
    step("HDEL", of.words, map(_word_bytes, flush.dead))
    step("HSET", of.words, chain.from_iterable((_word_bytes(w), i) for w, i in flush.born.items()))
    step("HSET", of.manifest, chain.from_iterable((e.name, e.pack()) for e, _ in flush.segments))
    step("HSET", of.forwards, chain.from_iterable((f.offset, f.pack()) for f in flush.forwards))
    entries = []
    for forget in flush.forgets:
        entries.append(len(arguments) + 2)
        arguments.extend((forget.entry, forget.pack()))
    head = {
        "commit": flush.commit_id,
        "base": flush.base.commit,
        "next": str(flush.base.next_offset),
        "version": str(flush.base.version),
        "fence": str(fence),
        "to": str(flush.next_offset),
        "time": str(flush.time_ms),
        "next_word": str(flush.base.next_word + len(flush.born)),
        "words": str(flush.held),
        "chunks": len(keys) + 1,
        "steps": steps,
        "entries": entries,
        "increments": dict(flush.increments),
    }
    keys.extend(of.segment(e.name, k) for e, strings in flush.segments for k in range(len(strings)))
    return keys, [msgpack.packb(head), *arguments]


def by_bucket(documents: Iterable[bytes], of: PartitionKeys) -> dict[int, list[bytes]]:
    """Return documents by the hash that holds them, each once."""
    buckets: dict[int, list[bytes]] = {}
    for document in dict.fromkeys(documents):
        buckets.setdefault(of.bucket(document), []).append(document)
    return buckets


def _word_bytes(word: str) -> bytes:
    return word.encode("utf-8", "surrogatepass")


def upload(connection: Connection, keys: PartitionKeys, name: str, strings: Sequence[bytes], *, first: int = 0) -> None:
    """Put strings of a segment, from the one numbered `first` on, under a fresh id, to expire unless they are kept."""
    for k, string in enumerate(strings, first):
        _put(connection, keys, name, k, string)


def _put(connection: Connection, keys: PartitionKeys, name: str, k: int, string: bytes) -> None:
    # `NX`: a repetition must not touch strings that a commit has kept meanwhile, nor a zombie overwrite any.
    connection.call("SET", keys.segment(name, k), string, "NX", "EX", _UPLOAD_SECONDS)


class Uploads:
    """Encodes and sends the chunks of a large flush by a thread of its own, while the rest is being counted."""

    def __init__(self, connection: Connection, keys: PartitionKeys) -> None:
        self._connection = connection
        self._keys = keys
        self._thread: ThreadPoolExecutor | None = None
        self._sent: dict[tuple[str, int], Future[None]] = {}

    def begin(self) -> None:
        """Forget what was sent for flushes before."""
        self._sent.clear()

    def send(self, name: str, k: int, pairs: int, make: Callable[[], bytes]) -> Future[bytes]:
        """Begin to make and to send one string of a segment; one of few pairs is made at once and sent later."""
        if self._thread is None:
            if pairs < _WORTH_A_THREAD:
                made = Future[bytes]()
                made.set_result(make())
                return made
            self._thread = ThreadPoolExecutor(1, "upload")
        string = self._thread.submit(make)
        self._sent[name, k] = self._thread.submit(lambda: _put(self._connection, self._keys, name, k, string.result()))
        return string

    def finish(self, name: str, strings: Sequence[bytes]) -> None:
        """Return once all strings of a segment are there; a second time, all are sent again."""
        for k, string in enumerate(strings):
            sent = self._sent.pop((name, k), None)
            if sent is None or sent.exception() is not None:
                _put(self._connection, self._keys, name, k, string)
