"""A flush: the records that it may hold, the counts of its documents, the upload of its segments, and its commit.

batch -> Batch.within, Batch.affordable   how many of its records one flush may hold
changes -> plan -> Flush                  words numbered, pairs counted, while Uploads sends the segments
Flush -> commit_arguments                 keys and arguments of `commit_flush.lua`
"""

from collections import Counter
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
from streamtopic.state.scripts import UPLOAD_SECONDS
from streamtopic.state.segments import MOST_PASSAGES, SegmentHead, encode_chunk, encode_head, encode_passages
from streamtopic.state.word_ids import Rows, RowSpan, Vocabulary, number_rows, word_bytes, word_text

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
# A thread costs more than it saves for a block of fewer pairs.
_WORTH_A_THREAD = 1 << 16

MAX_FLUSH_DOCUMENTS = 3_000
"""Documents of one flush: its commit keeps Redis busy for about 10 ms (docs/decisions/0013)."""

MAX_FLUSH_WRITES = 4_000
"""Documents, new words and deletions of one flush together, for the same reason."""

MAX_FLUSH_RECORD_BYTES = 1_500_000
"""Bytes of document records of one flush, for the same reason."""

MAX_FLUSH_PAIRS = 1 << 27
"""Pairs of the documents that one flush adds or removes: counting them takes a few seconds, and their segment at most
400 MB, which the writer holds until the commit."""

MAX_STORED_BYTES = 5_000_000
"""Bytes of the records of live documents that one flush replaces or removes; the last one may go over. A delete is
short however long its document is, so the log does not bound them. In memory they take ten times as much."""

# The share of a flush that is planned by averages. Below 1, so that most batches fit into one flush as a whole.
_LIKELY = 0.97


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The facts of decoded records that decide how many of them one flush may hold.

    keys: document id of each record, b"" for a record without one.
    sizes: (records,) int64, approximate bytes of each in the state; 0 for one that adds no document.
    tables: rows of the added documents, with (rows,) int64 record numbers: the record that each row is of.
    start: number, in `tables`, of the first of these records.
    """

    keys: Sequence[bytes]
    sizes: Int64
    tables: Sequence[tuple[Rows, Int64]]
    start: int = 0

    def within(self, writes: Int64, max_records: int, max_bytes: int, max_writes: int) -> int:
        """Return how many of the first records are within all bounds, at least one.

        writes: as the method `writes` returns them.
        """
        by_size = np.searchsorted(np.cumsum(self.sizes), max_bytes, side="right")
        by_writes = np.searchsorted(np.cumsum(writes), max_writes, side="right")
        # One at least: a record that is too large by itself must still be counted, or the partition would stop.
        return max(1, min(max_records, len(self.keys), int(by_size), int(by_writes)))

    def affordable(self, records: int, stored: Mapping[bytes, StoredDocument], most: int) -> int:
        """Return how many of the first records add and remove documents of at most `most` pairs, at least one.

        records: how many of the first records to look at.
        stored: the live documents among those that these records are about.
        """
        made = np.zeros(self.start + records, np.int64)
        for rows, owners in self.tables:
            here = owners < len(made)
            pairs = _pairs(rows.stops - rows.starts)
            np.add.at(made, owners[here], pairs[here])
        made = made[self.start :]
        for k, key in enumerate(self.keys[:records] if stored else ()):
            gone = stored.get(key)
            if gone is not None:
                sizes = np.array([len(passage.words) for passage in gone.passages], np.int64)
                made[k] += _pairs(sizes).sum()
        affordable = np.searchsorted(np.cumsum(made), most, side="right")
        return max(1, int(affordable))

    def likely(self, writes: Int64, max_bytes: int, max_writes: int) -> int:
        """Return how many records are likely to be within the bounds, if they are like these on average.

        writes: as the method `writes` returns them.
        """
        bytes_each = float(self.sizes.mean())
        writes_each = float(writes.mean())
        by_size = max_bytes / max(bytes_each, 1.0)
        by_writes = max_writes / writes_each
        return max(1, int(_LIKELY * min(by_size, by_writes)))

    def writes(self, numbers: npt.NDArray[np.int32]) -> Int64:
        """Return how many documents and words each record writes or removes, (records,) int64.

        numbers: id of each entry of the lexicon, -1 for words that the state does not have.

        A new word counts for the record that has it first. A deletion counts twice, with its entry for the receipt.
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
    """A document to store and count; `PartitionWriter.document` makes one.

    document: its id.
    offset: of the record that adds it.
    passages: words as numbers of the writer's lexicon.
    labels: task to class.
    """

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
    """A document to remove, as it stands in the state that the flush is based on."""

    document: bytes
    stored: StoredDocument


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect of the records before `next_offset`.

    added, removed: at most one each for a document; a replaced document is in both.
    forgets: deletions, ascending by offset.
    counted: epoch to the number of accepted documents, those that left in the same flush included.
    totals: outcome to the number of records.
    forwards: deletions to send to other partitions.
    time_ms: newest time of the records, milliseconds since 1970.
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
    """One commit.

    base: the state that it is made for; on any other state the commit is Stale.
    records: id of an added document to its stored record.
    removed: ids of documents that leave and are not replaced.
    segments: (manifest entry, Redis strings).
    born, dead: words that appear and vanish, with their ids.
    held: number of words of live documents afterwards.
    ids, frequency: word ids and the difference of their document frequency.
    increments: fields of the meta hash to the numbers that are added to them.
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
    """Count the changes and lay out the commit. Nothing is committed, and `vocabulary` stays as it is.

    changes: the net effect of the records.
    base: the state that the commit is made for.
    new_id: makes ids of segments and commits that no other process makes.
    send: takes the name of a segment, the number of a chunk, its number of pairs and a function that makes its bytes;
        it calls the function, perhaps in another thread while the next chunk is counted.
    """
    added, born = _number(changes.added, vocabulary)
    offsets = [document.offset for document in changes.added]
    labels = [document.labels for document in changes.added]
    records = encode_records(added, offsets, labels)
    arrived = {a.document: record for a, record in zip(changes.added, records, strict=True)}
    left = {r.document for r in changes.removed} - arrived.keys()
    segments = []
    heads = []
    # A segment holds documents of one epoch, so that a reader of the earlier epochs can leave it out as a whole.
    for epoch, batch, signs in _by_epoch(changes, added, base):
        head, local = _headed(batch, signs)
        heads.append(head)
        name = new_id()
        blocks = count_rows(local, len(head.ids), weighting, signs, _BLOCK_PAIRS)
        chunks, pairs = _chunks(name, blocks, send)
        passages = _passages(local, weighting, signs)
        strings = [encode_head(head, packed=False), *chunks, *passages]
        size = sum(map(len, strings))
        entry = ManifestEntry(name, base.version, epoch, len(strings), pairs, size)
        segments.append((entry, strings))
    ids, frequency = _frequency_change(heads)
    unused = vocabulary.frequency(ids) + frequency == 0
    gone = ids[unused & (frequency < 0)].tolist()
    return Flush(
        commit_id=new_id(),
        base=base,
        next_offset=changes.next_offset,
        time_ms=max(base.time_ms, changes.time_ms),
        records=arrived,
        removed=sorted(left),
        segments=segments,
        born=born,
        dead={vocabulary.word(number): number for number in gone},
        held=len(vocabulary) + len(born) - len(gone),
        ids=ids,
        frequency=frequency,
        forgets=changes.forgets,
        increments=_increments(changes, base),
        forwards=changes.forwards,
    )


def _number(added: Sequence[AddedDocument], vocabulary: Vocabulary) -> tuple[DocumentBatch, dict[str, int]]:
    """Return the added documents with word ids, and the words that are new with the ids that they get."""
    tables, spans = _spans(added)
    rows = Rows.joined(tables)
    sizes = np.array([stop - first for first, stop in spans], np.int64)
    places = chain.from_iterable(range(*span) for span in spans)
    chosen = np.fromiter(places, np.int64, int(sizes.sum()))
    first = vocabulary.next_id
    indptr, words, counts, entries = number_rows(
        chosen, rows.starts, rows.stops, rows.entries, rows.counts, vocabulary.numbers(), first
    )
    owners = np.repeat(np.arange(len(added), dtype=np.int32), sizes)
    batch = DocumentBatch(indptr, words, counts, rows.lengths[chosen], owners, len(added))
    born = {}
    for number, entry in enumerate(entries.tolist(), first):
        born[word_text(vocabulary.lexicon.word(entry))] = number
    return batch, born


def _spans(added: Sequence[AddedDocument]) -> tuple[list[Rows], list[tuple[int, int]]]:
    """Return the tables of rows, and for each document its first and last row in all tables together."""
    tables = list[Rows]()
    places = dict[int, int]()
    spans = list[tuple[int, int]]()
    used = 0
    # The documents of a batch share a table: each must be joined once only, hence the search by identity.
    for document in added:
        rows = document.passages.rows
        place = places.get(id(rows))
        if place is None:
            tables.append(rows)
            place = places[id(rows)] = used
            used += len(rows.lengths)
        passages = document.passages
        spans.append((place + passages.first, place + passages.stop))
    return tables, spans


def _by_epoch(changes: Changes, added: DocumentBatch, base: Meta) -> Iterator[tuple[int, DocumentBatch, Int64]]:
    """Yield each epoch with its documents of this flush, and with their signs: 1 for an added one, -1 for a removed."""
    removed = DocumentBatch.build([gone.stored.passages for gone in changes.removed])
    # A removed document counts in the epoch in which it was added, so that both cancel out there.
    offsets = [document.offset for document in changes.added]
    offsets += [gone.stored.offset for gone in changes.removed]
    cuts = np.array(base.cuts, np.int64)
    epochs = base.folded + np.searchsorted(cuts, np.array(offsets, np.int64), side="right")
    both_signs = np.array([1, -1], np.int64)
    signs = np.repeat(both_signs, [added.documents, removed.documents])
    both = DocumentBatch.joined(added, removed) if removed.documents else added
    for epoch in np.unique(epochs).tolist():
        here = np.flatnonzero(epochs == epoch)
        # Most flushes have one epoch, and then nothing need be copied.
        documents = both if len(here) == both.documents else both.take(here)
        yield epoch, documents, signs[here]


def _headed(batch: DocumentBatch, signs: Int64) -> tuple[SegmentHead, DocumentBatch]:
    """Return the head of a segment, and its documents with words as positions among the head's ids."""
    largest = int(batch.words.max(initial=-1))
    used = np.zeros(largest + 1, np.bool_)
    used[batch.words] = True
    ids = np.flatnonzero(used)
    place = np.cumsum(used, dtype=np.int32) - np.int32(1)
    local = DocumentBatch(batch.indptr, place[batch.words], batch.counts, batch.lengths, batch.owners, batch.documents)
    added = int((signs > 0).sum())
    frequency, tokens, heavy = statistics(local, len(ids), signs)
    return SegmentHead(ids, frequency, tokens, heavy, added, batch.documents - added), local


def _chunks(name: str, blocks: Iterator[PairBlock], send: Send) -> tuple[list[bytes], int]:
    """Return the row chunks of a segment, and the number of their pairs."""
    pairs = 0
    chunks = list[Future[bytes]]()
    for block in blocks:
        if len(block.values):
            pairs += len(block.values)
            made = send(name, len(chunks) + 1, len(block.values), partial(_chunk, block))
            chunks.append(made)
        if len(chunks) > 1:
            # The next block takes the buffer of the one before this.
            chunks[-2].result()
    return [chunk.result() for chunk in chunks], pairs


def _chunk(block: PairBlock) -> bytes:
    return encode_chunk(block.first, block.sizes, block.columns, block.values, packed=False)


def _passages(local: DocumentBatch, weighting: Weighting, signs: Int64) -> Iterator[bytes]:
    """Yield the passages as one string, for a segment of few documents and passages; else nothing."""
    # A larger flush is a bulk load, which no update follows (docs/decisions/0013).
    if max(local.documents, len(local.lengths)) <= MOST_PASSAGES:
        passages = SignedPassages.of(local, weighting, signs)
        positions = np.arange(int(local.words.max(initial=-1)) + 1)
        yield encode_passages(passages.relabel(positions))


def _frequency_change(heads: Sequence[SegmentHead]) -> tuple[Int64, Int64]:
    # The empty array is for a flush without documents: `concatenate` refuses an empty list.
    all_ids = np.concatenate([np.empty(0, np.int64), *(head.ids for head in heads)])
    ids = np.unique(all_ids)
    frequency = np.zeros(len(ids), np.int64)
    for head in heads:
        frequency[np.searchsorted(ids, head.ids)] += head.frequency
    return ids, frequency


def _increments(changes: Changes, base: Meta) -> dict[str, int]:
    by = Counter[str]()
    for document in changes.added:
        by[f"live:{base.epoch_of(document.offset)}"] += 1
    for gone in changes.removed:
        by[f"live:{base.epoch_of(gone.stored.offset)}"] -= 1
    for epoch, number in changes.counted.items():
        by[f"counted:{epoch}"] = number
    for name, number in changes.totals.items():
        by[f"total:{name}"] = number
    return {field: number for field, number in by.items() if number}


def commit_arguments(flush: Flush, of: PartitionKeys, fence: int) -> tuple[list[str], list[str | bytes | int]]:
    """Return keys and arguments of `commit_flush.lua`. fence: the writer's token."""
    keys = [of.meta, of.forgets]
    arguments: list[str | bytes | int] = []
    steps: list[list[str | int]] = []

    def step(command: str, key: str, values: Iterable[str | bytes | int]) -> None:
        # Arguments of Lua count from 1, and the plan is the first of them.
        first = len(arguments) + 2
        arguments.extend(values)
        if len(arguments) + 1 >= first:
            keys.append(key)
            steps.append([command, len(keys), first, len(arguments) + 1])

    def put(key: str, fields: Iterable[tuple[str | bytes | int, str | bytes | int]]) -> None:
        step("HSET", key, chain.from_iterable(fields))

    for bucket, documents in by_bucket(flush.removed, of).items():
        step("HDEL", of.documents(bucket), documents)
    for bucket, documents in by_bucket(flush.records, of).items():
        put(of.documents(bucket), ((document, flush.records[document]) for document in documents))
    step("HDEL", of.words, map(word_bytes, flush.dead))
    put(of.words, ((word_bytes(word), number) for word, number in flush.born.items()))
    put(of.manifest, ((entry.name, entry.pack()) for entry, _ in flush.segments))
    put(of.forwards, ((forward.offset, forward.pack()) for forward in flush.forwards))
    entries = []
    for forget in flush.forgets:
        entries.append(len(arguments) + 2)
        arguments.extend((forget.entry, forget.pack()))
    # Offsets and versions as text: that is how Redis holds them, and Lua compares numbers as floats.
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
    for entry, strings in flush.segments:
        keys.extend(of.segment(entry.name, k) for k in range(len(strings)))
    return keys, [msgpack.packb(head), *arguments]


def by_bucket(documents: Iterable[bytes], of: PartitionKeys) -> dict[int, list[bytes]]:
    """Return the number of each hash with the documents that it holds, each once."""
    buckets: dict[int, list[bytes]] = {}
    for document in dict.fromkeys(documents):
        buckets.setdefault(of.bucket(document), []).append(document)
    return buckets


def upload(connection: Connection, keys: PartitionKeys, name: str, strings: Sequence[bytes], *, first: int = 0) -> None:
    """Write strings of a segment, the first of them as number `first`. They expire unless a commit keeps them."""
    for k, string in enumerate(strings, first):
        _put(connection, keys, name, k, string)


def _put(connection: Connection, keys: PartitionKeys, name: str, k: int, string: bytes) -> None:
    # `NX`: a repetition must not touch strings that a commit has kept meanwhile, nor a zombie overwrite any.
    connection.call("SET", keys.segment(name, k), string, "NX", "EX", UPLOAD_SECONDS)


class Uploads:
    """Encodes and sends the chunks of a large flush in a thread of its own, while the rest is counted."""

    def __init__(self, connection: Connection, keys: PartitionKeys) -> None:
        self._connection = connection
        self._keys = keys
        self._thread: ThreadPoolExecutor | None = None
        self._sent: dict[tuple[str, int], Future[None]] = {}

    def begin(self) -> None:
        """Begin a flush: forget the uploads of those before."""
        self._sent.clear()

    def send(self, name: str, k: int, pairs: int, make: Callable[[], bytes]) -> Future[bytes]:
        """Begin to make and send a chunk of a segment, and return its bytes to come.

        A chunk of few pairs is made at once, and sent by `finish`.
        """
        if self._thread is None:
            if pairs < _WORTH_A_THREAD:
                made = Future[bytes]()
                made.set_result(make())
                return made
            self._thread = ThreadPoolExecutor(1, "upload")
        string = self._thread.submit(make)

        def put() -> None:
            _put(self._connection, self._keys, name, k, string.result())

        # Two tasks of one thread: the caller needs the bytes as soon as they are made, before they are sent.
        self._sent[name, k] = self._thread.submit(put)
        return string

    def finish(self, name: str, strings: Sequence[bytes]) -> None:
        """Return once all strings of a segment are in Redis. A second call sends all again."""
        for k, string in enumerate(strings):
            # An upload that failed is sent again here, where its error reaches the caller.
            sent = self._sent.pop((name, k), None)
            if sent is None or sent.exception() is not None:
                _put(self._connection, self._keys, name, k, string)
