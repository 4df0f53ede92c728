"""A flush: the records that it may hold, the statistics of its words, and its commit.

AddedDocuments               what the records of a batch add, and what that costs a flush
Changes -> plan -> Flush     documents as they are stored, words numbered and counted
Flush -> commit_arguments    keys and arguments of `commit_flush.lua`
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

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
from streamtopic.state.word_ids import Rows, Vocabulary, WordPassage, number_rows, word_bytes, word_text
from streamtopic.words.lexicon import Lexicon

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_FLUSH_RECORD_BYTES",
    "MAX_FLUSH_WRITES",
    "MAX_STORED_BYTES",
    "AddedDocuments",
    "Changes",
    "Flush",
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

# Bytes of an average document in Redis (measured: 1.8 a word). A flush has to be bounded before it is encoded.
_BYTES_A_WORD = 2
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

    def values(self, place: int, numbers: Int32 | None = None) -> list[tuple[int, bytes, bytes]]:
        """Return each passage of a document as (L, words, counts), words ascending: equal for equal passages.

        numbers: the number of each entry; None for the entries themselves.
        """
        found = []
        for row in range(self.firsts[place], self.stops[place]):
            within = slice(self.rows.starts[row], self.rows.stops[row])
            words = self.rows.entries[within]
            if numbers is not None:
                words = numbers[words]
            order = np.argsort(words)
            counts = self.rows.counts[within][order]
            found.append((int(self.rows.lengths[row]), words[order].tobytes(), counts.tobytes()))
        return found

    def sizes(self) -> Int64:
        """Return about how many bytes each document takes in the state, (k,)."""
        chosen, owners = self.own_rows()
        words = np.bincount(owners, (self.rows.stops - self.rows.starts)[chosen], len(self))
        sizes = _BYTES_A_DOCUMENT + _BYTES_A_WORD * words.astype(np.int64)
        for k, labels in enumerate(self.labels):
            if labels:
                sizes[k] += sum(map(len, chain.from_iterable(labels.items())))
        return sizes + _BYTES_A_SUBJECT * np.fromiter(map(len, self.subjects), np.int64, len(self))

    def writes(self, numbers: Int32) -> Int64:
        """Return how many documents and words each place writes or removes, (k,).

        numbers: id of each entry of the lexicon, -1 for words that the state does not have.

        A new word counts for the document that has it first. A place without a passage counts twice: a deletion also
        has an entry for its receipt.
        """
        made = np.where(self.stops > self.firsts, 1, 2)
        _count_new(*self.own_rows(), self.rows.starts, self.rows.stops, self.rows.entries, numbers < 0, made)
        return made


@kernel
def _count_new(
    chosen: Int64, owners: Int64, starts: Int64, stops: Int64, entries: Int32, unseen: npt.NDArray[np.bool_],
    made: Int64,
) -> None:  # fmt: skip
    """Add to the number of each document the words that it has first, of those that are `unseen`.

    chosen, owners: rows, and the document of each.
    starts, stops, entries: as in `Rows`.
    unseen: (entries of the lexicon,); False afterwards for words that were met.
    made: (documents,).
    """
    for k in range(len(chosen)):
        for place in range(starts[chosen[k]], stops[chosen[k]]):
            entry = entries[place]
            if unseen[entry]:
                unseen[entry] = False
                made[owners[k]] += 1


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
    changes: that are committed.
    records: id of an added document to its stored record.
    entry: the documents that come and go, for readers that follow them.
    held: number of words of live documents afterwards.
    ids: word ids.
    totals: (3, ids) the difference of their documents, occurrences and heavy documents.
    """

    commit_id: str
    base: Meta
    changes: Changes
    records: Mapping[bytes, bytes]
    entry: ChangeEntry
    held: int
    ids: Int64
    totals: Int64


def plan(changes: Changes, base: Meta, vocabulary: Vocabulary, new_id: Callable[[], str]) -> Flush:
    """Lay out the commit of the changes. Nothing is written, and `vocabulary` stays as it is.

    changes: the net effect of the records.
    base: the state that the commit is made for.
    new_id: makes ids of commits that no other process makes.
    """
    added, removed = changes.added, changes.removed
    batch, born, records = DocumentBatch.build([]), dict[str, int](), dict[bytes, bytes]()
    if added is not None and len(added):
        batch, born = _number(added, vocabulary)
        packed = encode_records(batch, added.offsets, added.labels, added.subjects)
        records = dict(zip(added.ids, packed, strict=True))
    ids, totals = _totals_change(removed.values(), batch)
    unused = vocabulary.frequency(ids) + totals[0] == 0
    gone = ids[unused & (totals[0] < 0)].tolist()
    words = vocabulary.word
    dead = {words(number): number for number in gone}
    held = len(vocabulary) + len(born) - len(gone)
    went = [stored.record for stored in removed.values()]
    entry = ChangeEntry(list(records.values()), went, list(removed), born, dead)
    return Flush(new_id(), base, changes, records, entry, held, ids, totals)


def _index_change(changes: Changes) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Return the entries that come to the index of subjects, and those that leave it, both ascending.

    An entry is the digest of a subject and the id of a document.
    """
    before = set[tuple[bytes, bytes]]()
    for document, stored in changes.removed.items():
        before.update((digest, document) for digest in stored.subjects)
    after = set[tuple[bytes, bytes]]()
    if changes.added is not None:
        for document, subjects in zip(changes.added.ids, changes.added.subjects, strict=True):
            after.update((digest, document) for digest in subjects)
    return sorted(after - before), sorted(before - after)


def _number(added: AddedDocuments, vocabulary: Vocabulary) -> tuple[DocumentBatch, dict[str, int]]:
    """Return the added documents with word ids, and the words that are new with the ids that they get."""
    rows = added.rows
    chosen, owners = added.own_rows()
    first = vocabulary.next_id
    numbers = vocabulary.numbers()
    indptr, words, counts, entries = number_rows(
        chosen, rows.starts, rows.stops, rows.entries, rows.counts, numbers, first
    )
    batch = DocumentBatch.whole(
        indptr=indptr,
        words=words,
        counts=counts,
        lengths=rows.lengths[chosen],
        owners=owners.astype(np.int32),
        documents=len(added),
    )
    born = {}
    for number, entry in enumerate(entries.tolist(), first):
        word = vocabulary.lexicon.word(entry)
        born[word_text(word)] = number
    return batch, born


def _totals_change(removed: Collection[StoredDocument], arrived: DocumentBatch) -> tuple[Int64, Int64]:
    """Return the ids of the words of a flush, and the (3, ids) difference of their statistics.

    arrived: the added documents with word ids.
    """
    left = DocumentBatch.build([gone.passages for gone in removed])
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


def commit_arguments(flush: Flush, of: PartitionKeys, fence: int) -> tuple[list[str], list[str | bytes | int]]:
    """Return keys and arguments of `commit_flush.lua`. fence: the writer's token."""
    base, changes, records, entry = flush.base, flush.changes, flush.records, flush.entry
    keys = [of.meta, of.forgets, *of.changes]
    arguments: list[str | bytes | int] = [entry.pack(base.commit, flush.commit_id)]
    steps: list[list[str | int]] = []

    def step(command: str, key: str, values: Iterable[str | bytes | int]) -> None:
        # Arguments of Lua count from 1, and the plan is the first of them.
        begin = len(arguments) + 2
        arguments.extend(values)
        end = len(arguments) + 1
        if end >= begin:
            keys.append(key)
            steps.append([command, len(keys), begin, end])

    def put(key: str, fields: Iterable[tuple[str | bytes | int, str | bytes | int]]) -> None:
        step("HSET", key, chain.from_iterable(fields))

    for bucket, documents in by_bucket(changes.removed.keys() - records.keys(), of).items():
        step("HDEL", of.documents(bucket), sorted(documents))
    for bucket, documents in by_bucket(records, of).items():
        put(of.documents(bucket), ((document, records[document]) for document in documents))
    step("HDEL", of.words, map(word_bytes, entry.dead))
    put(of.words, ((word_bytes(word), number) for word, number in entry.born.items()))
    named, unnamed = _index_change(changes)
    for bucket, members in _by_subject(unnamed, of).items():
        step("ZREM", of.subjects(bucket), members)
    for bucket, members in _by_subject(named, of).items():
        # All of one score: Redis then sorts them by their bytes, and those of a subject are neighbours.
        scored = ((0, member) for member in members)
        step("ZADD", of.subjects(bucket), chain.from_iterable(scored))
    entries = []
    for forget in changes.forgets:
        entries.append(len(arguments) + 2)
        arguments.extend((forget.entry, forget.pack()))
    last = changes.last or base.last
    increments = {f"total:{name}": number for name, number in changes.totals.items()}
    increments["documents"] = len(records) - len(changes.removed)
    # Offsets and versions as text: that is how Redis holds them, and Lua compares numbers as floats.
    head = {
        "commit": flush.commit_id,
        "base": base.commit,
        "next": str(base.next_offset),
        "fence": str(fence),
        "to": str(changes.next_offset),
        "time": str(max(base.time_ms, changes.time_ms)),
        "last": "" if last is None else last.pack(),
        "next_word": str(base.next_word + len(entry.born)),
        "words": str(flush.held),
        "steps": steps,
        "entries": entries,
        "increments": increments,
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
