"""A flush: the records that it may hold, the statistics of its words, and its commit.

batch -> Batch.within        how many of its records one flush may hold
changes -> plan -> Flush     documents as they are stored, words numbered and counted
Flush -> commit_arguments    keys and arguments of `commit_flush.lua`
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.compiled import kernel
from streamtopic.counts import DocumentBatch, statistics
from streamtopic.state.change_log import ChangeEntry
from streamtopic.state.deletions import Forget
from streamtopic.state.document_records import StoredDocument, encode_records
from streamtopic.state.meta import LastRecord, Meta
from streamtopic.state.redis_keys import PartitionKeys
from streamtopic.state.word_ids import Rows, RowSpan, Vocabulary, number_rows, word_bytes, word_text

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
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
]


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

MAX_FLUSH_DOCUMENTS = 3_000
"""Documents of one flush: its commit keeps Redis busy for about 10 ms (docs/decisions/0004)."""

MAX_FLUSH_WRITES = 4_000
"""Documents, new words and deletions of one flush together, for the same reason."""

MAX_FLUSH_RECORD_BYTES = 1_500_000
"""Bytes of document records of one flush, for the same reason."""

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
    owners: (rows,) the record of each row. Those after the last record of `made` come last, and are left out.
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


@dataclass(frozen=True, slots=True)
class AddedDocument:
    """A document to store and count.

    document: its id.
    offset: of the record that adds it.
    passages: words as numbers of the writer's lexicon.
    labels: task to class.
    subjects: digests of the subjects, ascending.
    """

    document: bytes
    offset: int
    passages: RowSpan
    labels: Mapping[str, str] = field(default_factory=dict)
    subjects: tuple[bytes, ...] = ()

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
    labels, subjects: of each document, as in `AddedDocument`.
    """

    ids: Sequence[bytes]
    offsets: Int64
    rows: Rows
    firsts: Int64
    stops: Int64
    labels: Sequence[Mapping[str, str]]
    subjects: Sequence[tuple[bytes, ...]]

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
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[AddedDocument]:
        spans = map(RowSpan, repeat(self.rows), self.firsts.tolist(), self.stops.tolist())
        return map(AddedDocument, self.ids, self.offsets.tolist(), spans, self.labels, self.subjects)

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
        )


@dataclass(frozen=True, slots=True)
class RemovedDocument:
    """A document to remove, as it is in the state that the flush is based on."""

    document: bytes
    stored: StoredDocument


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect of the records before `next_offset`.

    added, removed: at most one each for a document; a replaced document is in both.
    forgets: deletions, ascending by offset.
    totals: outcome to the number of records.
    time_ms: newest time of the records, milliseconds since 1970.
    last: the last of the records; None if there are none.
    """

    next_offset: int
    added: Sequence[AddedDocument] | AddedDocuments = ()
    removed: Sequence[RemovedDocument] = ()
    forgets: Sequence[Forget] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    time_ms: int = 0
    last: LastRecord | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Flush:
    """One commit.

    base: the state that it is made for; on any other state the commit is Stale.
    records: id of an added document to its stored record.
    removed: ids of documents that leave and are not replaced.
    change: the documents that come and go, for readers that follow them.
    held: number of words of live documents afterwards.
    ids: word ids.
    totals: (3, ids) the difference of their documents, occurrences and heavy documents.
    increments: fields of the meta hash to the numbers that are added to them.
    named, unnamed: (digest of a subject, id of a document) that come to the index of subjects, and that leave it.
    last: the record that is counted last afterwards.
    """

    commit_id: str
    base: Meta
    next_offset: int
    time_ms: int
    records: Mapping[bytes, bytes]
    removed: Sequence[bytes]
    change: ChangeEntry
    held: int
    ids: Int64
    totals: Int64
    forgets: Sequence[Forget]
    increments: Mapping[str, int]
    named: Sequence[tuple[bytes, bytes]] = ()
    unnamed: Sequence[tuple[bytes, bytes]] = ()
    last: LastRecord | None = None

    @property
    def born(self) -> Mapping[str, int]:
        """Words that no live document held before, with their ids."""
        return self.change.born

    @property
    def dead(self) -> Mapping[str, int]:
        """Words that no live document holds any more, with their ids."""
        return self.change.dead


def plan(changes: Changes, base: Meta, vocabulary: Vocabulary, new_id: Callable[[], str]) -> Flush:
    """Lay out the commit of the changes. Nothing is written, and `vocabulary` stays as it is.

    changes: the net effect of the records.
    base: the state that the commit is made for.
    new_id: makes ids of commits that no other process makes.
    """
    added = AddedDocuments.of(changes.added)
    batch, born = _number(added, vocabulary)
    records = encode_records(batch, added.offsets, added.labels, added.subjects)
    arrived = dict(zip(added.ids, records, strict=True))
    left = {r.document for r in changes.removed} - arrived.keys()
    ids, totals = _totals_change(changes.removed, batch)
    unused = vocabulary.frequency(ids) + totals[0] == 0
    gone = ids[unused & (totals[0] < 0)].tolist()
    words = vocabulary.word
    dead = {words(number): number for number in gone}
    held = len(vocabulary) + len(born) - len(gone)
    increments = _increments(changes, added)
    time_ms = max(base.time_ms, changes.time_ms)
    named, unnamed = _index_change(changes.removed, added)
    went = [gone.stored.record for gone in changes.removed]
    change = ChangeEntry(records, went, [gone.document for gone in changes.removed], born, dead)
    return Flush(
        commit_id=new_id(),
        base=base,
        next_offset=changes.next_offset,
        time_ms=time_ms,
        records=arrived,
        removed=sorted(left),
        change=change,
        held=held,
        ids=ids,
        totals=totals,
        forgets=changes.forgets,
        increments=increments,
        named=named,
        unnamed=unnamed,
        last=changes.last or base.last,
    )


def _index_change(
    removed: Sequence[RemovedDocument], added: AddedDocuments
) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Return the entries that come to the index of subjects, and those that leave it, both ascending."""
    before = set[tuple[bytes, bytes]]()
    for gone in removed:
        before.update((digest, gone.document) for digest in gone.stored.subjects)
    after = set[tuple[bytes, bytes]]()
    for document, subjects in zip(added.ids, added.subjects, strict=True):
        if subjects:
            after.update((digest, document) for digest in subjects)
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
    batch = DocumentBatch.whole(
        indptr=indptr, words=words, counts=counts, lengths=lengths, owners=owners, documents=len(added)
    )
    born = {}
    for number, entry in enumerate(entries.tolist(), first):
        word = vocabulary.lexicon.word(entry)
        born[word_text(word)] = number
    return batch, born


def _totals_change(removed: Sequence[RemovedDocument], arrived: DocumentBatch) -> tuple[Int64, Int64]:
    """Return the ids of the words of a flush, and the (3, ids) difference of their statistics.

    arrived: the added documents with word ids.
    """
    left = DocumentBatch.build([gone.stored.passages for gone in removed])
    both = DocumentBatch.joined(arrived, left) if left.documents else arrived
    signs = np.repeat(np.array([1, -1], np.int64), [arrived.documents, left.documents])
    largest = int(both.words.max(initial=-1))
    used = np.zeros(largest + 1, np.bool_)
    used[both.words] = True
    ids = np.flatnonzero(used)
    # Positions among the ids that are used: ids may be millions, and the statistics take memory for each.
    place = np.cumsum(used, dtype=np.int32) - np.int32(1)
    local = replace(both, words=place[both.words])
    return ids, np.stack(statistics(local, len(ids), signs))


def _increments(changes: Changes, added: AddedDocuments) -> dict[str, int]:
    by = {f"total:{name}": number for name, number in changes.totals.items()}
    by["documents"] = len(added) - len(changes.removed)
    return {field: number for field, number in by.items() if number}


def commit_arguments(flush: Flush, of: PartitionKeys, fence: int) -> tuple[list[str], list[str | bytes | int]]:
    """Return keys and arguments of `commit_flush.lua`. fence: the writer's token."""
    keys = [of.meta, of.forgets, *of.changes]
    arguments: list[str | bytes | int] = [flush.change.pack(flush.base.commit, flush.commit_id)]
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
    for bucket, members in _by_subject(flush.unnamed, of).items():
        step("ZREM", of.subjects(bucket), members)
    for bucket, members in _by_subject(flush.named, of).items():
        # All of one score: Redis then sorts them by their bytes, and those of a subject are neighbours.
        scored = ((0, member) for member in members)
        step("ZADD", of.subjects(bucket), chain.from_iterable(scored))
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
        "fence": str(fence),
        "to": str(flush.next_offset),
        "time": str(flush.time_ms),
        "last": "" if flush.last is None else flush.last.pack(),
        "next_word": str(next_word),
        "words": str(flush.held),
        "steps": steps,
        "entries": entries,
        "increments": dict(flush.increments),
    }
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
