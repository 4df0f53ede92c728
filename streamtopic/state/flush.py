"""A flush: the records that it may hold, the statistics of its words, and its commit.

AddedDocuments       what the records of a batch add, and what that costs a flush
Changes -> Flush     documents as they are stored, words numbered and counted, and the commands that write all of it
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import numpy.typing as npt

from streamtopic.counts import DocumentBatch, statistics
from streamtopic.state.change_log import CHANGES, ChangeEntry
from streamtopic.state.connection import Command
from streamtopic.state.deletions import Forget
from streamtopic.state.document_records import EVERY_OFFSET, Records, StoredDocument, decode_batch, encode_records
from streamtopic.state.meta import LastRecord, Meta
from streamtopic.state.redis_keys import BUCKETS, PartitionKeys
from streamtopic.state.word_ids import Rows, Vocabulary, WordPassage, number_rows
from streamtopic.words.lexicon import Lexicon

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_FLUSH_RECORD_BYTES",
    "MAX_STORED_BYTES",
    "AddedDocuments",
    "Changes",
    "Flush",
    "by_bucket",
    "plan",
]


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

MAX_FLUSH_DOCUMENTS = 3_000
"""Documents of one flush: its commit keeps Redis busy for about 10 ms (docs/decisions/0004)."""

MAX_FLUSH_RECORD_BYTES = 1_500_000
"""Bytes of document records of one flush, for the same reason."""

MAX_STORED_BYTES = 5_000_000
"""Bytes of the records of live documents that one flush replaces or removes; the last one may go over. A delete is
short however long its document is, so the log does not bound them. In memory they take ten times as much."""

# Bytes of a document in Redis, and of its words in the change: 1.8 a word that is known (measured), and more than 10 a
# new one. A flush has to be bounded before it is encoded.
_BYTES_A_WORD = 5
_BYTES_A_DOCUMENT = 60
# Each subject is one more write of the commit, which costs Redis as much time as so many bytes.
_BYTES_A_SUBJECT = 375


@dataclass(frozen=True, slots=True, eq=False)
class AddedDocuments:
    """Documents to store and count, as columns: an object for each would take longer than to read its text.

    ids: of the documents.
    offsets: (k,) of the records that add them.
    rows: passages, words as numbers of the writer's lexicon; those of document d are rows firsts[d] to stops[d] - 1.
    firsts, stops: (k,).
    labels: of each document, task to class.
    subjects: of each document, the digests of its subjects, ascending.

    A place may hold a record that adds nothing, which has no passage.
    """

    ids: Sequence[bytes]
    offsets: Int64
    rows: Rows
    firsts: Int64
    stops: Int64
    labels: Sequence[Mapping[str, str]]
    subjects: Sequence[tuple[bytes, ...]]

    @classmethod
    def of(
        cls,
        ids: Sequence[bytes],
        offsets: Sequence[int],
        passages: Sequence[Sequence[WordPassage]],
        lexicon: Lexicon,
        labels: Sequence[Mapping[str, str]] = (),
        subjects: Sequence[tuple[bytes, ...]] = (),
    ) -> "AddedDocuments":
        """Lay out documents whose words are text. passages: of each document. No labels or subjects: none has any."""
        sizes = np.array([len(of_one) for of_one in passages], np.int64)
        stops = np.cumsum(sizes)
        rows = Rows.of(list(chain.from_iterable(passages)), lexicon)
        places = np.array(offsets, np.int64)
        return cls(ids, places, rows, stops - sizes, stops, labels or [{}] * len(ids), subjects or [()] * len(ids))

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Sequence[int]) -> "AddedDocuments":
        """Return some of the documents, which share the rows."""
        if len(places) == len(self):
            return self
        chosen = np.array(places, np.int64)
        return AddedDocuments(
            ids=[self.ids[k] for k in places],
            offsets=self.offsets[chosen],
            rows=self.rows,
            firsts=self.firsts[chosen],
            stops=self.stops[chosen],
            labels=[self.labels[k] for k in places],
            subjects=[self.subjects[k] for k in places],
        )

    def own_rows(self) -> tuple[Int64, Int64]:
        """Return the rows of all documents, one document after the other, and the document of each."""
        sizes = self.stops - self.firsts
        ends = np.cumsum(sizes)
        shifts = self.firsts - (ends - sizes)
        owners = np.repeat(np.arange(len(self)), sizes)
        return shifts[owners] + np.arange(len(owners)), owners

    def too_short(self) -> npt.NDArray[np.bool_]:
        """Return which documents have no pair of words, (k,): it needs two words of one passage."""
        chosen, owners = self.own_rows()
        short = np.ones(len(self), np.bool_)
        short[owners[self.rows.lengths[chosen] >= 2]] = False
        return short

    def numbered(self, numbers: Int32, next_id: int) -> tuple[DocumentBatch, Int32]:
        """Return the documents with word ids, and the entries that get an id by this.

        numbers: id of each entry of the lexicon, as in `number_rows`.
        next_id: the first id to give.
        """
        rows = self.rows
        chosen, owners = self.own_rows()
        indptr, words, counts, born = number_rows(
            chosen, rows.starts, rows.stops, rows.entries, rows.counts, numbers, next_id
        )
        batch = DocumentBatch.whole(
            indptr=indptr,
            words=words,
            counts=counts,
            lengths=rows.lengths[chosen],
            owners=owners.astype(np.int32),
            documents=len(self),
        )
        return batch, born

    def bodies(self, places: Sequence[int], numbers: Int32, next_id: int) -> dict[int, bytes]:
        """Return the passages of the documents at these places as `StoredDocument.body` has them.

        numbers, next_id: as in `numbered`.
        """
        batch, _ = self.take(places).numbered(numbers, next_id)
        nothing = [0] * len(places)
        records = encode_records(batch, nothing, [{}] * len(places))
        return {place: StoredDocument.of(record).body for place, record in zip(places, records, strict=True)}

    def sizes(self) -> Int64:
        """Return about how many bytes each document takes in the state, (k,)."""
        chosen, owners = self.own_rows()
        words = np.bincount(owners, (self.rows.stops - self.rows.starts)[chosen], len(self))
        sizes = _BYTES_A_DOCUMENT + _BYTES_A_WORD * words.astype(np.int64)
        if any(self.labels):
            for k, labels in enumerate(self.labels):
                sizes[k] += sum(map(len, chain.from_iterable(labels.items())))
        return sizes + _BYTES_A_SUBJECT * np.fromiter(map(len, self.subjects), np.int64, len(self))


@dataclass(frozen=True, slots=True)
class Changes:
    """The net effect of the records before `next_offset`.

    added, removed: at most one each for a document; a replaced document is in both. Those removed are as they are in
        the state that the flush is based on.
    forgets: deletions, ascending by offset.
    totals: outcome to the number of records.
    time_ms: newest time of the records, milliseconds since 1970.
    last: the last of the records; None if there are none.
    """

    next_offset: int
    added: AddedDocuments | None = None
    removed: Mapping[bytes, StoredDocument] = field(default_factory=dict)
    forgets: Sequence[Forget] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    time_ms: int = 0
    last: LastRecord | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Flush:
    """One commit.

    base: the state that it is made for; on any other state the commit is Stale.
    after: the state afterwards, but for the time of the commit.
    entry: the documents that come and go, for readers that follow them.
    ids: word ids.
    totals: (3, ids) the difference of their documents, occurrences and heavy documents.
    steps: commands that write all of it.
    """

    base: Meta
    after: Meta
    entry: ChangeEntry
    ids: Int64
    totals: Int64
    steps: Sequence[Command]


def plan(changes: Changes, base: Meta, vocabulary: Vocabulary, of: PartitionKeys, new_id: Callable[[], str]) -> Flush:
    """Lay out the commit of the changes. Nothing is written, and `vocabulary` stays as it is.

    changes: the net effect of the records.
    base: the state that the commit is made for.
    of: keys of the partition.
    new_id: makes ids of commits that no other process makes.
    """
    added, removed = changes.added, changes.removed
    batch, born, records = DocumentBatch.build([]), dict[bytes, int](), dict[bytes, bytes]()
    if added is not None and len(added):
        batch, entries = added.numbered(vocabulary.numbers(), vocabulary.next_id)
        born = {vocabulary.lexicon.word(entry): k for k, entry in enumerate(entries.tolist(), vocabulary.next_id)}
        packed = encode_records(batch, added.offsets, added.labels, added.subjects)
        records = dict(zip(added.ids, packed, strict=True))
    went = [stored.record for stored in removed.values()]
    ids, totals = _totals_change(went, batch, vocabulary.next_id)
    unused = vocabulary.frequency(ids) + totals[0] == 0
    gone = ids[unused & (totals[0] < 0)].tolist()
    dead = {vocabulary.word(number): number for number in gone}
    commit = new_id()
    entry = ChangeEntry(base.commit, commit, list(records.values()), went, list(removed), born, dead)
    change = CHANGES.pack(entry)
    after = replace(
        base,
        next_offset=changes.next_offset,
        version=base.version + 1,
        commit=commit,
        time_ms=max(base.time_ms, changes.time_ms),
        next_word=base.next_word + len(born),
        words=len(vocabulary) + len(born) - len(dead),
        documents=base.documents + len(records) - len(removed),
        totals=dict(Counter(base.totals) + Counter(changes.totals)),
        removed=changes.next_offset if changes.forgets else base.removed,
        removals=base.removals + len(changes.forgets),
        # With what Redis itself takes for an entry.
        unsummed=base.unsummed + len(change) + 100,
        last=changes.last or base.last,
    )
    steps = [*_document_steps(changes, records, of), *_subject_steps(changes, of)]
    steps += [("XADD", of.forgets, forget.entry, "forget", forget.pack()) for forget in changes.forgets]
    steps.append(("HSET", of.changes[base.generation % 2], after.version, change))
    position = ("next", after.next_offset, "version", after.version, "commit", commit, "facts", after.pack())
    steps.append(("HSET", of.meta, *position))
    return Flush(base, after, entry, ids, totals, steps)


def _document_steps(changes: Changes, records: Mapping[bytes, bytes], of: PartitionKeys) -> Iterator[Command]:
    """Yield the commands that remove and store documents. records: id of an added document to its record."""
    for bucket, documents in by_bucket(changes.removed.keys() - records.keys(), of).items():
        yield "HDEL", of.documents(bucket), *sorted(documents)
    fields: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for item in records.items():
        fields[of.bucket(item[0])] += item
    for bucket, values in enumerate(fields):
        if values:
            yield "HSET", of.documents(bucket), *values


def _subject_steps(changes: Changes, of: PartitionKeys) -> Iterator[Command]:
    """Yield the commands that keep the index of subjects."""
    named, unnamed = _index_change(changes)
    for bucket, members in _by_subject(unnamed, of).items():
        yield "ZREM", of.subjects(bucket), *members
    for bucket, members in _by_subject(named, of).items():
        # All of one score: Redis then sorts them by their bytes, and those of a subject are neighbours.
        scored: list[str | bytes] = []
        for member in members:
            scored += ("0", member)
        yield "ZADD", of.subjects(bucket), *scored


def _index_change(changes: Changes) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Return the entries that come to the index of subjects, and those that leave it, both ascending.

    An entry is the digest of a subject and the id of a document.
    """
    before = set[tuple[bytes, bytes]]()
    for document, stored in changes.removed.items():
        before.update((digest, document) for digest in stored.subjects)
    after = set[tuple[bytes, bytes]]()
    if changes.added is not None and any(changes.added.subjects):
        for document, subjects in zip(changes.added.ids, changes.added.subjects, strict=True):
            after.update((digest, document) for digest in subjects)
    return sorted(after - before), sorted(before - after)


def _totals_change(went: Sequence[bytes], arrived: DocumentBatch, given: int) -> tuple[Int64, Int64]:
    """Return the ids of the words of a flush, and the (3, ids) difference of their statistics.

    went: records of the removed documents.
    arrived: the added documents with word ids.
    given: number of word ids that were given before.
    """
    both, left = arrived, 0
    if went:
        gone = decode_batch(Records.of(went), np.arange(given), EVERY_OFFSET).batch
        both, left = DocumentBatch.joined(arrived, gone), gone.documents
    signs = np.repeat(np.array([1, -1], np.int64), [arrived.documents, left])
    largest = int(both.words.max(initial=-1))
    used = np.zeros(largest + 1, np.bool_)
    used[both.words] = True
    ids = np.flatnonzero(used)
    # Positions among the ids that are used: ids may be millions, and the statistics take memory for each.
    place = np.empty(largest + 1, np.int32)
    place[ids] = np.arange(len(ids))
    local = replace(both, words=place[both.words])
    return ids, np.stack(statistics(local, len(ids), signs))


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
