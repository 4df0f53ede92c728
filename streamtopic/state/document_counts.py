"""Counts of the documents in Redis, as of a cut; pairs are counted from the documents when they are asked for.

    DocumentCounts    the documents as of one cut of all partitions: words with their statistics, pairs of chosen words
    ChangedDocuments  what came and went between two cuts, as the learner takes it

A cut is the moment of each partition when the reading began. A hash of documents is read together with the moment of
its partition then. What came after the cut has a later offset and is passed over; what went after it is in the changes
between both moments, and is put back. So a read is exact while ingest goes on, and no reader holds anything up. If
these changes are gone already, `CutGone` says so: take new counts.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, islice

import msgpack
import numpy as np

from streamtopic.counts import (
    Cooccurrence,
    DocumentBatch,
    SymmetricCounts,
    Weighting,
    count,
    narrowed,
    statistics,
)
from streamtopic.counts.arrays import Int32, Int64, Mask, Positions, places
from streamtopic.errors import CountsOverflow
from streamtopic.state.connection import BUCKETS, READ_BUCKETS, Connection, PartitionKeys
from streamtopic.state.document_records import (
    EVERY_OFFSET,
    DecodedRecords,
    Records,
    ascending_rows,
    decode_batch,
    unpack_names,
)
from streamtopic.state.meta import (
    POSITIONS,
    ChangeEntry,
    CutGone,
    PartitionPosition,
    Place,
    came_and_went,
    read_changes,
    require_keys,
)
from streamtopic.words.lexicon import Lexicon, word_text

__all__ = [
    "ChangedDocuments",
    "DocumentCounts",
    "Part",
    "PartitionCut",
    "StoredDocuments",
    "WordTable",
    "changed_documents",
    "followed",
    "read_documents",
    "sample_words",
]

# Threads that read and decode hashes. The first half of the time is Redis's, the other half runs without Python's lock.
_THREADS = 4
# Answers that are under way at most, so that a reader that is slow with them does not hold all in memory.
_AHEAD = 2 * _THREADS
# Documents of one answer, about: a few milliseconds of Redis. Hashes of a small partition are read together.
_DOCUMENTS = 2_000
# No sum of pairs may leave 64 bits; a factor of two is for the rounding of the bound.
_MOST_MASS = float(1 << 62)


@dataclass(frozen=True, slots=True, eq=False)
class PartitionCut:
    """One partition of a cut.

    partition: its number.
    meta: its position.
    before: documents that were added before this offset count.
    """

    partition: int
    keys: PartitionKeys
    meta: PartitionPosition
    before: int


class WordTable:
    """The words of all partitions under one number each. It only grows, since ids are never given again."""

    def __init__(self, partitions: int) -> None:
        self.texts: list[str] = []
        self._lexicon = Lexicon("")
        self._ids = [np.full(0, -1, np.int64) for _ in range(partitions)]

    def learn(self, partition: int, ids: Mapping[bytes, int]) -> None:
        """Take up words of a partition. ids: word, as Redis has it, to its id there."""
        given = np.fromiter(ids.values(), np.int64, len(ids))
        size = int(given.max(initial=-1)) + 1
        known = self._ids[partition]
        if size > len(known):
            self._ids[partition] = np.full(max(size, 2 * len(known)), -1, np.int64)
            self._ids[partition][: len(known)] = known
        self._ids[partition][given] = self._lexicon.number(list(ids))
        if len(self._lexicon) > len(self.texts):
            self.texts += map(word_text, self._lexicon.words(len(self.texts)))

    def numbers(self, partition: int) -> Int64:
        """Return the number of each word id of a partition, -1 for an id that is not known."""
        return self._ids[partition]

    def ascending(self, numbers: Int64) -> Int64:
        """Return numbers of words in the order of the words."""
        return np.array(sorted(numbers.tolist(), key=self.texts.__getitem__), np.int64)

    def positions(self, partition: int, wanted: Int64) -> Int64:
        """Return the position of each word id of a partition among the words wanted, -1 for others.

        wanted: numbers of words; -1 for a word that the table does not have.
        """
        # The last place is that of number -1, an id that has no word.
        position = np.full(len(self) + 1, -1, np.int64)
        known = np.flatnonzero(wanted >= 0)
        position[wanted[known]] = known
        return position[self.numbers(partition)]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some documents of some hashes.

    ids: of all records; () if they were not asked for.
    records: as Redis has them.
    found: those that count.
    """

    ids: Sequence[bytes]
    records: Records
    found: DecodedRecords


@dataclass(frozen=True, slots=True, eq=False)
class DocumentCounts:
    """Counts of the documents that were live at a cut. Pairs are counted when they are asked for.

    words: (n,) ascending by code point.
    numbers: (n,) of the words, in the table.
    frequency, tokens, heavy: (n,) int64, documents, occurrences and heavy documents of each word.
    documents: how many documents are counted.
    cuts: one for each partition.
    table: all words that its reader has met.

    All readings share what went since the cut, so that each goes on from where the one before ended.
    """

    connection: Connection
    table: WordTable
    words: Sequence[str]
    numbers: Int64
    frequency: Int64
    tokens: Int64
    heavy: Int64
    documents: int
    cuts: tuple[PartitionCut, ...]
    _readers: dict[int, "_PartitionReader"] = field(default_factory=dict)

    @property
    def weighting(self) -> Weighting:
        """The weights of the model's pairs."""
        return self.cuts[0].meta.settings.weighting

    @property
    def partial(self) -> bool:
        """Whether only the documents of a base model are counted."""
        return any(cut.before < cut.meta.next_offset for cut in self.cuts)

    @property
    def positions(self) -> dict[int, PartitionPosition]:
        """Partition to its position at the cut."""
        return {cut.partition: cut.meta for cut in self.cuts}

    @property
    def offsets(self) -> dict[int, int]:
        """Partition to the first offset of the log that was not counted at the cut."""
        return {cut.partition: cut.meta.next_offset for cut in self.cuts}

    @property
    def places(self) -> tuple[Place, ...]:
        """The moment of each partition at the cut."""
        return tuple(cut.meta.place for cut in self.cuts)

    def restrict(self, keep: Positions) -> Cooccurrence:
        """Return the pair counts of the words at these ascending positions, in their order.

        This and the methods below read all documents. They raise CutGone, StateCorrupt, CountsOverflow.
        """
        return count(self._batch(keep), len(keep), self.weighting)

    def touching(self, keep: Positions, chosen: Mask) -> Cooccurrence:
        """Return those pair counts of `restrict` whose pairs have a chosen word.

        chosen: (len(keep),) whether a word is chosen.

        Only documents that hold a chosen word are counted.
        """
        holders = [part.found.batch.with_words(chosen) for part in self._parts(keep)]
        some = count(DocumentBatch.stacked(holders), len(keep), self.weighting)
        return some.touching(np.arange(len(keep)), chosen)

    def symmetric(self, keep: Positions) -> SymmetricCounts:
        """Return the pair counts of `restrict` as a working matrix, with little memory besides the result."""
        return SymmetricCounts.counted(self._batch(keep), len(keep), self.weighting)

    def since(self, old: "DocumentCounts") -> "ChangedDocuments":
        """Return what came and went since older counts. Raises CutGone if not all changes since then are there."""
        if self.partial or old.partial:
            raise CutGone("these counts are of some documents only, and changes are of all")
        return changed_documents(self.connection, self.table, old.places, self.cuts)

    def buckets(self, wanted: Int64, *, ids: bool = False, most: int = BUCKETS) -> Iterator[list[Part]]:
        """Yield the documents of some hashes of ids after the other, those of all partitions together.

        How many hashes are read together depends on the number of documents alone.

        wanted: numbers of words, as of `WordTable.positions`; the words of documents are positions in them.
        ids: whether to read the ids of documents.
        most: number of hashes, the first ones.

        Raises CutGone, StateCorrupt.
        """
        of_each = []
        for cut in self.cuts:
            begun = _PartitionReader(self.connection, self.table, cut)
            places = self.table.positions(cut.partition, wanted)
            of_each.append((self._readers.setdefault(cut.partition, begun), places))
        documents = sum(cut.meta.documents for cut in self.cuts)
        together = max(1, BUCKETS * _DOCUMENTS * len(self.cuts) // max(documents, 1))
        spans = [range(first, min(first + together, most)) for first in range(0, most, together)]
        reads = iter([partial(reader.read, span, places, ids=ids) for span in spans for reader, places in of_each])
        with ThreadPoolExecutor(_THREADS) as threads:
            waiting = deque(map(threads.submit, islice(reads, _AHEAD)))
            for span in spans:
                parts = []
                for reader, places in of_each:
                    place, part = waiting.popleft().result()
                    waiting += map(threads.submit, islice(reads, 1))
                    parts += [part, *reader.went(span, places, place, part)]
                yield parts
        for cut in self.cuts:
            # After the reading: documents that Redis has lost since these counts were taken would be missing in it.
            require_keys(self.connection, cut.keys)

    def _batch(self, keep: Positions) -> DocumentBatch:
        batch = DocumentBatch.stacked([part.found.batch for part in self._parts(keep)])
        tokens = self.weighting.tokens(batch).astype(np.float64)
        mass = float((self.weighting.of(batch) * tokens * tokens).sum())
        if mass > _MOST_MASS:
            raise CountsOverflow(
                f"sums over {len(tokens)} passages could exceed 64 bits: too many documents for one model, split the "
                "corpus"
            )
        return batch

    def _parts(self, keep: Positions) -> Iterator[Part]:
        for parts in self.buckets(self.numbers[keep]):
            yield from parts


@dataclass(frozen=True, slots=True, eq=False)
class ChangedDocuments:
    """Documents that came and went between two cuts, as a source of pairs: one that came counts 1, one that went -1.

    words: (n,) ascending; those of the documents.
    numbers: (n,) of the words, in the table.
    frequency, tokens, heavy: (n,) int64, documents, occurrences and heavy documents of each word.
    batch: the documents over these words.
    signs: (documents,) 1 or -1.
    """

    words: Sequence[str]
    numbers: Int64
    frequency: Int64
    tokens: Int64
    heavy: Int64
    batch: DocumentBatch
    signs: Int64
    weighting: Weighting

    @property
    def documents(self) -> int:
        """Documents that came less those that went."""
        return int(self.signs.sum())

    def restrict(self, keep: Positions) -> Cooccurrence:
        """Return the signed pair counts of the words at these ascending positions."""
        ids = places(len(self.words), keep, np.int32)
        return count(narrowed(self.batch, ids), len(keep), self.weighting, self.signs)


def changed_documents(
    connection: Connection, table: WordTable, since: Sequence[Place], cuts: Sequence[PartitionCut]
) -> ChangedDocuments:
    """Return what came and went between a moment of each partition and a cut. Raises CutGone, StateCorrupt."""
    batches, signs = [], []
    for place, cut in zip(since, cuts, strict=True):
        for sign, records in came_and_went(followed(connection, table, cut, place, cut.meta.place)):
            found = decode_batch(records, table.numbers(cut.partition), EVERY_OFFSET).batch
            batches.append(found)
            signs.append(np.full(found.documents, sign, np.int64))
    every, sign_of_each = DocumentBatch.stacked(batches), np.concatenate(signs)
    met = table.ascending(np.unique(every.words).astype(np.int64))
    position: Int32 = places(len(table), met, np.int32)
    in_rows, amounts = ascending_rows(every.indptr, position[every.words], every.counts)
    batch = replace(every, words=in_rows, counts=amounts)
    words = [table.texts[number] for number in met.tolist()]
    of_words = statistics(batch, len(words), sign_of_each)
    return ChangedDocuments(words, met, *of_words, batch, sign_of_each, cuts[0].meta.settings.weighting)


def followed(
    connection: Connection, table: WordTable, cut: PartitionCut, after: Place, through: Place
) -> Iterator[tuple[Place, ChangeEntry]]:
    """Yield the changes of a partition between two moments, and take up their words. Raises CutGone."""
    for place, change in read_changes(connection, cut.keys, after, through):
        table.learn(cut.partition, change.born)
        yield place, change


class _PartitionReader:
    """Reads hashes of a partition as of a cut. What went after it is put back, as far as the changes were read."""

    def __init__(self, connection: Connection, table: WordTable, cut: PartitionCut) -> None:
        self._connection = connection
        self._table = table
        self._cut = cut
        self._reached = cut.meta.place
        self._passed = {self._reached}
        self._gone: dict[int, list[tuple[int, bytes, bytes]]] = {}

    def read(self, buckets: range, positions: Int64, *, ids: bool) -> tuple[Place, Part]:
        """Read some hashes: return the moment, and the documents that are there then.

        positions: as of `decode_batch`.
        ids: whether to read the ids of documents.
        """
        keys = [self._cut.keys.meta, *map(self._cut.keys.documents, buckets)]
        facts, data, sizes, names = self._connection.script(READ_BUCKETS, keys, [int(ids)])
        records = Records(data, np.cumsum(msgpack.unpackb(sizes), dtype=np.int64))
        documents = msgpack.unpackb(names, raw=True) if ids else ()
        found = decode_batch(records, positions, self._cut.before)
        place = POSITIONS.unpack(facts).place if facts else Place(0, "")
        return place, Part(documents, records, found)

    def went(self, buckets: range, positions: Int64, place: Place, there: Part) -> list[Part]:
        """Return the documents of these hashes that went between the cut and a moment. Raises CutGone.

        there: the documents that were there at that moment.
        """
        self._follow(place)
        kept = chain.from_iterable(self._gone.get(bucket, ()) for bucket in buckets)
        gone = [(document, record) for version, document, record in kept if version <= place.version]
        if not gone:
            return []
        records = Records.of([record for _, record in gone])
        found = decode_batch(records, positions, self._cut.before)
        # A document whose people changed is stored again under the offset that it had: it went, and is still there.
        distinct, first = np.unique(found.offsets, return_index=True)
        left = np.sort(first[~np.isin(distinct, there.found.offsets)])
        return [Part([document for document, _ in gone], records, found.take(left))]

    def _follow(self, place: Place) -> None:
        """Read the changes up to a moment. Raises CutGone."""
        keys = self._cut.keys
        if place.version > self._reached.version:
            for at, change in followed(self._connection, self._table, self._cut, self._reached, place):
                self._passed.add(at)
                for document, record in zip(change.ids, change.went, strict=True):
                    self._gone.setdefault(keys.bucket(document), []).append((at.version, document, record))
            self._reached = place
        if place not in self._passed:
            raise CutGone(f"partition {keys.number} was set back while its documents were read: take new counts")


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocuments:
    """Documents in the order of their ids.

    batch: their passages. Words are positions in the words that were asked for; other words are left out, but the
        lengths L count them.
    ids: id of each document, as its producer gave it.
    labels: of each document, task to class.
    """

    batch: DocumentBatch
    ids: tuple[bytes, ...]
    labels: tuple[Mapping[str, str], ...]

    def __len__(self) -> int:
        return len(self.ids)


def read_documents(
    counts: DocumentCounts, words: Sequence[str], *, labelled: Collection[str] = (), limit: int | None = None
) -> StoredDocuments:
    """Read documents in one pass over the records of each partition.

    words: distinct words; those of the batch are positions in them.
    labelled: tasks; only documents with a label of one of them are read, all documents if it is empty.
    limit: about how many documents to read, None for all. Whole hashes of ids are read, the same of every partition, so
        that the choice depends on the ids alone.

    Raises CutGone, StateCorrupt, ComponentUnreachable.
    """
    return _by_id([_chosen(part, labelled) for part in _read(counts, words, limit, ids=True)])


def sample_words(counts: DocumentCounts, words: Sequence[str], limit: int) -> DocumentBatch:
    """Return the passages that `read_documents` reads, in any order: nothing is made of each single document."""
    return DocumentBatch.stacked([part.found.batch for part in _read(counts, words, limit)])


def _read(counts: DocumentCounts, words: Sequence[str], limit: int | None, *, ids: bool = False) -> Iterator[Part]:
    """Yield the documents of as many hashes as hold about `limit` documents; see `read_documents`."""
    # The documents are spread evenly over the hashes.
    most = BUCKETS if limit is None else min(BUCKETS, max(1, BUCKETS * limit // max(counts.documents, 1)))
    position = {word: k for k, word in enumerate(counts.words)}
    places = np.array([position.get(word, -1) for word in words], np.int64)
    # The last one is for words that no document has.
    wanted = np.append(counts.numbers, -1)[places]
    return chain.from_iterable(counts.buckets(wanted, ids=ids, most=most))


# Many documents have the same labels, so each different text is read once. Digests of subjects differ from document to
# document: without a bound they would fill the memory.
_names = lru_cache(10_000)(unpack_names)


def _chosen(part: Part, labelled: Collection[str]) -> StoredDocuments:
    """Return the documents of a part with a label of one of these tasks, in any order; all if there are no tasks."""
    of_each = [_names(part.records.data[start:end])[0] for start, end in part.found.labels.tolist()]
    tasks = frozenset(labelled)
    chosen = [k for k, labels in enumerate(of_each) if not tasks or not tasks.isdisjoint(labels)]
    batch = part.found.batch.take(np.array(chosen, np.intp))
    ids = tuple(part.ids[part.found.places[k]] for k in chosen)
    return StoredDocuments(batch, ids, tuple(of_each[k] for k in chosen))


def _by_id(parts: Sequence[StoredDocuments]) -> StoredDocuments:
    """Return the documents of all parts in the order of their ids: that of a Redis hash depends on its history."""
    ids = [document for part in parts for document in part.ids]
    labels = [one for part in parts for one in part.labels]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
    batch = DocumentBatch.stacked([part.batch for part in parts]).take(order)
    return StoredDocuments(batch, tuple(ids[k] for k in order.tolist()), tuple(labels[k] for k in order.tolist()))
