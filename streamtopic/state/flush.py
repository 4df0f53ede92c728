"""A flush: the records that it may hold, the rows of its documents, the upload of its segments, and its commit.

batch -> Batch.within, Batch.affordable   how many of its records one flush may hold
changes -> plan -> Flush                  words numbered and counted, rows laid out; a merge counts their pairs
Flush -> commit_arguments                 keys and arguments of `commit_flush.lua`
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.compiled import kernel
from streamtopic.counts import DocumentBatch, Weighting, statistics
from streamtopic.documents.suppression import Suppression
from streamtopic.formats import ROWS_FROM, TRACES_FROM
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forget, Forward, SubjectRequest
from streamtopic.state.document_records import StoredDocument, encode_records
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.redis_keys import PartitionKeys
from streamtopic.state.scripts import UPLOAD_SECONDS
from streamtopic.state.segments import FlushRows, SegmentHead, encode_chunk, encode_head, encode_rows
from streamtopic.state.word_ids import Rows, RowSpan, Vocabulary, number_rows, word_bytes, word_text

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_FLUSH_PAIRS",
    "MAX_FLUSH_RECORD_BYTES",
    "MAX_FLUSH_WRITES",
    "MAX_STORED_BYTES",
    "AddedDocument",
    "AddedDocuments",
    "Batch",
    "Changes",
    "Flush",
    "RemovedDocument",
    "by_bucket",
    "commit_arguments",
    "plan",
    "upload",
]


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

MAX_FLUSH_DOCUMENTS = 3_000
"""Documents of one flush: its commit keeps Redis busy for about 10 ms (docs/decisions/0013)."""

MAX_FLUSH_WRITES = 4_000
"""Documents, new words and deletions of one flush together, for the same reason."""

MAX_FLUSH_RECORD_BYTES = 1_500_000
"""Bytes of document records of one flush, for the same reason."""

MAX_FLUSH_PAIRS = 1 << 27
"""Pairs of the documents that one flush adds or removes: whoever counts their rows is busy for a second."""

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
        total_sizes = np.cumsum(self.sizes)
        total_writes = np.cumsum(writes)
        by_size = int(np.searchsorted(total_sizes, max_bytes, side="right"))
        by_writes = int(np.searchsorted(total_writes, max_writes, side="right"))
        fitting = min(max_records, len(self.keys), by_size, by_writes)
        # One at least: a record that is too large by itself must still be counted, or the partition would stop.
        return max(1, fitting)

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
        keys = self.keys[:records] if stored else ()
        for k, key in enumerate(keys):
            gone = stored.get(key)
            if gone is not None:
                words_of_each = [len(passage.words) for passage in gone.passages]
                sizes = np.array(words_of_each, np.int64)
                made[k] += _pairs(sizes).sum()
        total_pairs = np.cumsum(made)
        affordable = int(np.searchsorted(total_pairs, most, side="right"))
        return max(1, affordable)

    def likely(self, writes: Int64, max_bytes: int, max_writes: int) -> int:
        """Return how many records are likely to be within the bounds, if they are like these on average.

        writes: as the method `writes` returns them.
        """
        bytes_each = float(self.sizes.mean())
        writes_each = float(writes.mean())
        by_size = max_bytes / max(bytes_each, 1.0)
        by_writes = max_writes / writes_each
        expected = min(by_size, by_writes)
        return max(1, int(_LIKELY * expected))

    def writes(self, numbers: npt.NDArray[np.int32]) -> Int64:
        """Return how many documents and words each record writes or removes, (records,) int64.

        numbers: id of each entry of the lexicon, -1 for words that the state does not have.

        A new word counts for the record that has it first. A deletion counts twice, with its entry for the receipt.
        """
        made = np.zeros(self.start + len(self.keys), np.int64)
        for rows, owners in self.tables:
            unseen = numbers < 0
            _count_new(rows.starts, rows.stops, rows.entries, owners, unseen, made)
        documents = np.where(self.sizes > 0, 1, 2)
        return made[self.start :] + documents


@kernel
def _count_new(
    starts: Int64, stops: Int64, entries: Int32, owners: Int64, unseen: npt.NDArray[np.bool_], made: Int64
) -> None:
    """Add to the number of each record the words that it has first, of those that are `unseen`.

    starts, stops, entries: as in `Rows`.
    owners: (rows,) the record of each row. Those behind the last record of `made` come last, and are left out.
    unseen: (entries of the lexicon,); False afterwards for words that were met.
    made: (records,).
    """
    for row in range(len(owners)):
        if owners[row] >= len(made):
            break
        for place in range(starts[row], stops[row]):
            entry = entries[place]
            if unseen[entry]:
                unseen[entry] = False
                made[owners[row]] += 1


def _pairs(words: Int64) -> Int64:
    return words * (words - 1) // 2


@dataclass(frozen=True, slots=True)
class AddedDocument:
    """A document to store and count.

    document: its id.
    offset: of the record that adds it.
    passages: words as numbers of the writer's lexicon.
    labels: task to class.
    subjects: digests of the subjects, ascending.
    form: key of that record; b"" where the key is the id itself.
    """

    document: bytes
    offset: int
    passages: RowSpan
    labels: Mapping[str, str] = field(default_factory=dict)
    subjects: tuple[bytes, ...] = ()
    form: bytes = b""

    @property
    def length(self) -> int:
        """Tokens L of all passages."""
        return sum(self.passages.lengths)


@dataclass(frozen=True, slots=True, eq=False)
class AddedDocuments:
    """Documents to store and count, as columns: an object for each would take longer than to read its text.

    ids: of the documents.
    offsets: (k,) of the records that add them.
    rows: passages; those of document d are rows firsts[d] to stops[d] - 1.
    firsts, stops: (k,).
    labels, subjects, forms: of each document, as in `AddedDocument`.
    """

    ids: Sequence[bytes]
    offsets: Int64
    rows: Rows
    firsts: Int64
    stops: Int64
    labels: Sequence[Mapping[str, str]]
    subjects: Sequence[tuple[bytes, ...]]
    forms: Sequence[bytes]

    @classmethod
    def of(cls, documents: "Sequence[AddedDocument] | AddedDocuments") -> "AddedDocuments":
        """Lay documents out as columns, in their order."""
        if isinstance(documents, cls):
            return documents
        tables = list[Rows]()
        places = dict[int, int]()
        firsts = list[int]()
        stops = list[int]()
        used = 0
        # The documents of a batch share a table: each must be joined once only, hence the search by identity.
        for document in documents:
            passages = document.passages
            place = places.get(id(passages.rows))
            if place is None:
                tables.append(passages.rows)
                place = places[id(passages.rows)] = used
                used += len(passages.rows.lengths)
            firsts.append(place + passages.first)
            stops.append(place + passages.stop)
        return cls(
            ids=[document.document for document in documents],
            offsets=np.array([document.offset for document in documents], np.int64),
            rows=Rows.joined(tables),
            firsts=np.array(firsts, np.int64),
            stops=np.array(stops, np.int64),
            labels=[document.labels for document in documents],
            subjects=[document.subjects for document in documents],
            forms=[document.form for document in documents],
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[AddedDocument]:
        spans = map(RowSpan, repeat(self.rows), self.firsts.tolist(), self.stops.tolist())
        return map(AddedDocument, self.ids, self.offsets.tolist(), spans, self.labels, self.subjects, self.forms)

    def span(self, start: int, stop: int) -> "AddedDocuments":
        """Return documents start ... stop - 1, which share the rows."""
        here = slice(start, stop)
        return AddedDocuments(
            ids=self.ids[here],
            offsets=self.offsets[here],
            rows=self.rows,
            firsts=self.firsts[here],
            stops=self.stops[here],
            labels=self.labels[here],
            subjects=self.subjects[here],
            forms=self.forms[here],
        )


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
    requests: requests to forget a subject that came, or whose own record went, each once.
    suppressions: what was said about ids and subjects, the last of each.
    suppressed: how many more of them are suppressed afterwards.
    """

    next_offset: int
    added: Sequence[AddedDocument] | AddedDocuments = ()
    removed: Sequence[RemovedDocument] = ()
    forgets: Sequence[Forget] = ()
    counted: Mapping[int, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    forwards: Sequence[Forward] = ()
    time_ms: int = 0
    requests: Sequence[SubjectRequest] = ()
    suppressions: Sequence[Suppression] = ()
    suppressed: int = 0


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
    named, unnamed: (digest of a subject, id of a document) that come to the index of subjects, and that leave it.
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
    named: Sequence[tuple[bytes, bytes]] = ()
    unnamed: Sequence[tuple[bytes, bytes]] = ()
    requests: Sequence[SubjectRequest] = ()
    suppressions: Sequence[Suppression] = ()


def plan(
    changes: Changes,
    base: Meta,
    vocabulary: Vocabulary,
    weighting: Weighting,
    new_id: Callable[[], str],
) -> Flush:
    """Lay out the commit of the changes. Nothing is written, and `vocabulary` stays as it is.

    changes: the net effect of the records.
    base: the state that the commit is made for.
    new_id: makes ids of segments and commits that no other process makes.
    """
    added = AddedDocuments.of(changes.added)
    batch, born = _number(added, vocabulary)
    records = encode_records(batch, added.offsets, added.labels, added.subjects, added.forms)
    arrived = dict(zip(added.ids, records, strict=True))
    left = {r.document for r in changes.removed} - arrived.keys()
    segments = []
    heads = []
    # A segment holds documents of one epoch, so that a reader of the earlier epochs can leave it out as a whole.
    for epoch, documents, signs in _by_epoch(changes.removed, added, batch, base):
        head, local = _headed(documents, signs)
        heads.append(head)
        rows = FlushRows.of(local, weighting, signs)
        pairs = rows.most_pairs
        if base.layout < ROWS_FROM:
            strings, pairs = _counted(rows, len(head.ids))
            passages = 0
        else:
            # Rows that make no pair add nothing to the counts of words, which are in the head.
            strings = [encode_rows(rows)] if pairs else []
            passages = rows.passages if pairs else 0
        strings = [encode_head(head, packed=False), *strings]
        size = sum(map(len, strings))
        entry = ManifestEntry(new_id(), base.version, epoch, len(strings), pairs, size, passages)
        segments.append((entry, strings))
    ids, frequency = _frequency_change(heads)
    unused = vocabulary.frequency(ids) + frequency == 0
    gone = ids[unused & (frequency < 0)].tolist()
    words = vocabulary.word
    dead = {words(number): number for number in gone}
    held = len(vocabulary) + len(born) - len(gone)
    increments = _increments(changes, added, base)
    time_ms = max(base.time_ms, changes.time_ms)
    named, unnamed = _index_change(changes.removed, added)
    return Flush(
        commit_id=new_id(),
        base=base,
        next_offset=changes.next_offset,
        time_ms=time_ms,
        records=arrived,
        removed=sorted(left),
        segments=segments,
        born=born,
        dead=dead,
        held=held,
        ids=ids,
        frequency=frequency,
        forgets=_forgets(changes.forgets, base.layout),
        increments=increments,
        forwards=changes.forwards,
        named=named,
        unnamed=unnamed,
        requests=changes.requests,
        suppressions=changes.suppressions,
    )


def _index_change(
    removed: Sequence[RemovedDocument], added: AddedDocuments
) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Return the entries that come to the index of subjects, and those that leave it, both ascending."""
    before = set[tuple[bytes, bytes]]()
    for gone in removed:
        key = gone.stored.form or gone.document
        before.update((digest, key) for digest in gone.stored.subjects)
    after = set[tuple[bytes, bytes]]()
    for document, form, subjects in zip(added.ids, added.forms, added.subjects, strict=True):
        if subjects:
            after.update((digest, form or document) for digest in subjects)
    return sorted(after - before), sorted(before - after)


def _number(added: AddedDocuments, vocabulary: Vocabulary) -> tuple[DocumentBatch, dict[str, int]]:
    """Return the added documents with word ids, and the words that are new with the ids that they get."""
    rows = added.rows
    sizes = added.stops - added.firsts
    ends = np.cumsum(sizes)
    shifts = added.firsts - (ends - sizes)
    passages = int(sizes.sum())
    # The rows of all documents, one document after the other.
    chosen = np.repeat(shifts, sizes) + np.arange(passages)
    first = vocabulary.next_id
    numbers = vocabulary.numbers()
    indptr, words, counts, entries = number_rows(
        chosen, rows.starts, rows.stops, rows.entries, rows.counts, numbers, first
    )
    documents = np.arange(len(added), dtype=np.int32)
    owners = np.repeat(documents, sizes)
    lengths = rows.lengths[chosen]
    batch = DocumentBatch(indptr, words, counts, lengths, owners, len(added))
    born = {}
    for number, entry in enumerate(entries.tolist(), first):
        word = vocabulary.lexicon.word(entry)
        born[word_text(word)] = number
    return batch, born


def _by_epoch(
    removed: Sequence[RemovedDocument], added: AddedDocuments, arrived: DocumentBatch, base: Meta
) -> Iterator[tuple[int, DocumentBatch, Int64]]:
    """Yield each epoch with its documents of this flush, and with their signs: 1 for an added one, -1 for a removed.

    arrived: the added documents with word ids.
    """
    passages = [gone.stored.passages for gone in removed]
    left = DocumentBatch.build(passages)
    # A removed document counts in the epoch in which it was added, so that both cancel out there.
    offsets_left = np.array([gone.stored.offset for gone in removed], np.int64)
    epochs = base.epochs_of(np.concatenate([added.offsets, offsets_left]))
    both_signs = np.array([1, -1], np.int64)
    amounts = [arrived.documents, left.documents]
    signs = np.repeat(both_signs, amounts)
    both = DocumentBatch.joined(arrived, left) if left.documents else arrived
    distinct: list[int] = np.unique(epochs).tolist()
    for epoch in distinct:
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
    words = place[batch.words]
    local = DocumentBatch(batch.indptr, words, batch.counts, batch.lengths, batch.owners, batch.documents)
    added = int((signs > 0).sum())
    removed = batch.documents - added
    frequency, tokens, heavy = statistics(local, len(ids), signs)
    head = SegmentHead(ids, frequency, tokens, heavy, added, removed)
    return head, local


def _counted(rows: FlushRows, n_words: int) -> tuple[list[bytes], int]:
    """Return the chunks with the pairs of rows, for a state that programs without rows read too; and how many pairs."""
    strings = []
    pairs = 0
    for block in rows.blocks(n_words):
        if len(block.values):
            pairs += len(block.values)
            chunk = encode_chunk(block.first, block.sizes, block.columns, block.values, packed=False)
            strings.append(chunk)
    return strings, pairs


def _forgets(forgets: Sequence[Forget], layout: int) -> Sequence[Forget]:
    """Return deletions as a state of this layout may hold them."""
    return forgets if layout >= TRACES_FROM else [replace(forget, trace=b"") for forget in forgets]


def _frequency_change(heads: Sequence[SegmentHead]) -> tuple[Int64, Int64]:
    # Most flushes have one epoch: ids of a head are distinct and ascend.
    if len(heads) == 1:
        return heads[0].ids, heads[0].frequency
    # The empty array is for a flush without documents: `concatenate` refuses an empty list.
    nothing = np.empty(0, np.int64)
    ids_of_each = [head.ids for head in heads]
    all_ids = np.concatenate([nothing, *ids_of_each])
    ids = np.unique(all_ids)
    frequency = np.zeros(len(ids), np.int64)
    for head in heads:
        places = np.searchsorted(ids, head.ids)
        frequency[places] += head.frequency
    return ids, frequency


def _increments(changes: Changes, added: AddedDocuments, base: Meta) -> dict[str, int]:
    by = Counter[str]()
    for arrived_in, number in base.by_epoch(added.offsets).items():
        by[f"live:{arrived_in}"] += number
    for gone in changes.removed:
        left_from = base.epoch_of(gone.stored.offset)
        by[f"live:{left_from}"] -= 1
    for epoch, number in changes.counted.items():
        by[f"counted:{epoch}"] = number
    for name, number in changes.totals.items():
        by[f"total:{name}"] = number
    by["suppressed"] = changes.suppressed
    return {field: number for field, number in by.items() if number}


def commit_arguments(flush: Flush, of: PartitionKeys, fence: int) -> tuple[list[str], list[str | bytes | int]]:
    """Return keys and arguments of `commit_flush.lua`. fence: the writer's token."""
    keys = [of.meta, of.forgets, of.suppressed]
    arguments: list[str | bytes | int] = []
    steps: list[list[str | int]] = []

    def step(command: str, key: str, values: Iterable[str | bytes | int]) -> None:
        # Arguments of Lua count from 1, and the plan is the first of them.
        first = len(arguments) + 2
        arguments.extend(values)
        last = len(arguments) + 1
        if last >= first:
            keys.append(key)
            steps.append([command, len(keys), first, last])

    def put(key: str, fields: Iterable[tuple[str | bytes | int, str | bytes | int]]) -> None:
        step("HSET", key, chain.from_iterable(fields))

    for bucket, documents in by_bucket(flush.removed, of).items():
        step("HDEL", of.documents(bucket), documents)
    for bucket, documents in by_bucket(flush.records, of).items():
        records = ((document, flush.records[document]) for document in documents)
        put(of.documents(bucket), records)
    step("HDEL", of.words, map(word_bytes, flush.dead))
    born = ((word_bytes(word), number) for word, number in flush.born.items())
    put(of.words, born)
    segments = ((entry.name, entry.pack()) for entry, _ in flush.segments)
    put(of.manifest, segments)
    forwards = ((forward.name, forward.pack()) for forward in flush.forwards)
    put(of.forwards, forwards)
    for bucket, members in _by_subject(flush.unnamed, of).items():
        step("ZREM", of.subjects(bucket), members)
    for bucket, members in _by_subject(flush.named, of).items():
        # All of one score: Redis then sorts them by their bytes, and those of a subject are neighbours.
        scored = ((0, member) for member in members)
        step("ZADD", of.subjects(bucket), chain.from_iterable(scored))
    requests = ((request.name, request.pack()) for request in flush.requests)
    put(of.subject_requests, requests)
    suppressions = ((one.digest, one.pack()) for one in flush.suppressions)
    put(of.suppressed, suppressions)
    entries = []
    for forget in flush.forgets:
        entries.append(len(arguments) + 2)
        arguments.extend((forget.entry, forget.pack()))
    # Offsets and versions as text: that is how Redis holds them, and Lua compares numbers as floats.
    base = flush.base
    next_word = base.next_word + len(flush.born)
    head = {
        "commit": flush.commit_id,
        "base": base.commit,
        "next": str(base.next_offset),
        "version": str(base.version),
        "fence": str(fence),
        "to": str(flush.next_offset),
        "time": str(flush.time_ms),
        "next_word": str(next_word),
        "words": str(flush.held),
        "chunks": len(keys) + 1,
        "steps": steps,
        "entries": entries,
        "increments": dict(flush.increments),
    }
    for entry, strings in flush.segments:
        numbers = range(len(strings))
        keys.extend(of.segment(entry.name, k) for k in numbers)
    return keys, [msgpack.packb(head), *arguments]


def _by_subject(entries: Iterable[tuple[bytes, bytes]], of: PartitionKeys) -> dict[int, list[bytes]]:
    """Return the number of each sorted set with the members of it that these entries are."""
    buckets: dict[int, list[bytes]] = {}
    for digest, document in entries:
        bucket = of.bucket(digest)
        buckets.setdefault(bucket, []).append(digest + document)
    return buckets


def by_bucket(documents: Iterable[bytes], of: PartitionKeys) -> dict[int, list[bytes]]:
    """Return the number of each hash with the documents that it holds, each once."""
    buckets: dict[int, list[bytes]] = {}
    for document in dict.fromkeys(documents):
        bucket = of.bucket(document)
        buckets.setdefault(bucket, []).append(document)
    return buckets


def upload(connection: Connection, keys: PartitionKeys, name: str, strings: Sequence[bytes], *, first: int = 0) -> None:
    """Write strings of a segment, the first of them as number `first`. They expire unless a commit keeps them."""
    # `NX`: a repetition must not touch strings that a commit has kept meanwhile, nor a zombie overwrite any.
    rule = ("NX", "EX", UPLOAD_SECONDS)
    commands = (("SET", keys.segment(name, k), string, *rule) for k, string in enumerate(strings, first))
    connection.batch(commands)
