"""The one writer of a partition: `prepare` a batch of records, resolve it, `apply` the changes.

    DocumentChanges   documents that come and go
    Flush             the same as they are stored, words with their ids, and the commands that write all of it
    PartitionWriter   looks documents up, bounds a flush, plans and commits it

No caller sees a word id. Every write of a writer is Stale as soon as another process opens the partition.
"""

import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgpack
import numpy as np

from streamtopic.counts import DocumentBatch
from streamtopic.counts.arrays import Int32
from streamtopic.errors import StateCorrupt, StateError, TakenOver
from streamtopic.state.connection import (
    BUCKETS,
    READ_DOCUMENTS,
    Applied,
    Check,
    Command,
    Connection,
    ModelKeys,
    Outcome,
    PartitionKeys,
    Stale,
)
from streamtopic.state.deletions import Forget, Forgets
from streamtopic.state.document_records import EVERY_OFFSET, Records, StoredDocument, decode_batch, encode_records
from streamtopic.state.meta import (
    CHANGES,
    MOST_UNSUMMED,
    POSITIONS,
    STATE_FORMAT,
    ChangeEntry,
    CutGone,
    LastRecord,
    ModelSettings,
    PartitionPosition,
    WordStatistics,
    came_and_went,
    check_settings,
    read_changes,
    read_position,
    read_statistics,
    require_keys,
)
from streamtopic.state.word_ids import MAX_WORD_IDS, AddedDocuments, Vocabulary
from streamtopic.words.lexicon import Lexicon

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_FLUSH_RECORD_BYTES",
    "MAX_STORED_BYTES",
    "DocumentChanges",
    "Flush",
    "PartitionWriter",
    "PreparedBatch",
]

MAX_FLUSH_DOCUMENTS = 1_500
"""Documents of one flush: its commit keeps Redis busy for 10 ms at most, also while its hashes still are lists that
Redis searches from their begin (docs/decisions/0004)."""

MAX_FLUSH_RECORD_BYTES = 1_500_000
"""Bytes of document records of one flush, for the same reason."""

MAX_STORED_BYTES = 5_000_000
"""Bytes of the records of live documents that one flush replaces or removes; the last one may go over. A delete is
short however long its document is, so the log does not bound them. In memory they take ten times as much."""

_SPARE_WORDS = 1 << 18
_ATTEMPTS = 5
_SECRET_BYTES = 32
# The share of a flush that is planned by averages. Below 1, so that most batches fit into one flush as a whole.
_LIKELY = 0.97


@dataclass(frozen=True, slots=True)
class DocumentChanges:
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
    after: the state afterwards.
    born: words that get an id, as lexicons have them, with their ids.
    came, went: the documents that come and go, with word ids.
    steps: commands that write all of it.
    """

    base: PartitionPosition
    after: PartitionPosition
    born: Mapping[bytes, int]
    came: DocumentBatch
    went: DocumentBatch
    steps: Sequence[Command]


def _document_steps(removed: Iterable[bytes], records: Mapping[bytes, bytes], of: PartitionKeys) -> Iterator[Command]:
    """Yield the commands that remove and store documents. records: id of a document to its record."""
    for bucket, documents in of.by_bucket(removed).items():
        yield "HDEL", of.documents(bucket), *sorted(documents)
    fields: list[list[bytes]] = [[] for _ in range(BUCKETS)]
    for bucket, item in zip(of.buckets(records), records.items(), strict=True):
        fields[bucket] += item
    for bucket, values in enumerate(fields):
        if values:
            yield "HSET", of.documents(bucket), *values


def _index_steps(
    named: Iterable[tuple[bytes, bytes]], unnamed: Iterable[tuple[bytes, bytes]], of: PartitionKeys
) -> Iterator[Command]:
    """Yield the commands that keep the index of subjects. An entry is a digest and the id of a document."""
    gone, come = defaultdict[int, list[bytes]](list), defaultdict[int, list[str | bytes]](list)
    for digest, document in unnamed:
        gone[of.bucket(digest)].append(digest + document)
    for digest, document in named:
        # All of one score: Redis then sorts them by their bytes, and those of a subject are neighbours.
        come[of.bucket(digest)] += ("0", digest + document)
    for bucket, members in gone.items():
        yield "ZREM", of.subjects(bucket), *members
    for bucket, scored in come.items():
        yield "ZADD", of.subjects(bucket), *scored


def _index_change(changes: DocumentChanges) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
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


def _random_id() -> str:
    return secrets.token_hex(12)


def _before(keys: Sequence[bytes], unseen: Sequence[bytes]) -> int:
    """Return how many records come before the first one that is about an unseen document."""
    if not unseen:
        return len(keys)
    named = frozenset(unseen)
    return next(place for place, key in enumerate(keys) if key in named)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedBatch:
    """A batch with the facts that resolving needs.

    base: the state that the changes will be based on.
    live: the live documents that the first records are about, by id.
    numbers: (entries,) int32, id of each word of the writer's lexicon, -1 for a word without one.
    records: how many of the first records one flush may hold, at least one.
    likely: how many records like these one flush is likely to hold.
    """

    base: PartitionPosition
    live: Mapping[bytes, StoredDocument]
    numbers: Int32
    records: int
    likely: int


class PartitionWriter:
    """The one writer of a partition: it holds the newest fencing token until another writer opens the partition.

    fence: the fencing token.
    meta: as of `open`, `reload` or the last own commit.
    vocabulary: words of live documents.
    lexicon: words that this process has met, by number.
    clock: seconds since 1970.
    secret: of the partition; subjects are digested with it.
    """

    def __init__(
        self,
        connection: Connection,
        keys: PartitionKeys,
        fence: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.connection = connection
        self.keys = keys
        self.partition = keys.number
        self.fence = fence
        self.forgets = Forgets(connection, keys)
        self._clock = clock
        self.lexicon = Lexicon(_random_id())
        self.meta, self.vocabulary = self._read()
        self.secret: bytes = connection.call("HGET", keys.subject_secret, "secret")

    @classmethod
    def open(
        cls,
        connection: Connection,
        model: str,
        partition: int,
        settings: ModelSettings,
        *,
        first_offset: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> "PartitionWriter":
        """Become the writer of a partition; earlier writers are Stale from now on.

        settings: of the model, fixed when the state is created.
        first_offset: the first record that a new state counts.

        Raises StateMismatch if the state was created with other settings, StateCorrupt if it cannot be read or
        keys are lost, ComponentUnreachable.
        """
        keys = ModelKeys(model).partition(partition)
        _create(connection, keys, settings, first_offset)
        check_settings(model, read_position(connection, keys).settings, settings)
        fence = _random_id()
        connection.change([("HSET", keys.meta, "fence", fence)], guards=[(("EXISTS", keys.meta), "1", "it is gone")])
        return cls(connection, keys, fence, clock=clock)

    def prepare(self, batch: AddedDocuments, most: int = MAX_FLUSH_DOCUMENTS) -> PreparedBatch:
        """Look up the live documents that a batch is about, and bound the flush that its records will make.

        batch: a place for each record; its id, b"" without one, is that of the document that the record is about.
        most: number of records of one flush.

        Raises StateCorrupt, and TakenOver if another process took ownership of the partition.
        """
        sizes = batch.sizes()
        fitting = int(np.searchsorted(np.cumsum(sizes), MAX_FLUSH_RECORD_BYTES, side="right"))
        likely = int(_LIKELY * MAX_FLUSH_RECORD_BYTES / sizes.mean())
        # One at least: a record that is too large by itself must still be counted, or the partition would stop.
        records = max(1, min(most, len(batch), fitting))
        # In this order: documents are looked up only for records that the other bounds let in.
        keys = batch.ids[:records]
        named = filter(None, keys)
        asked = list(dict.fromkeys(named))
        stored, looked = self.documents(asked)
        # Only now: the look-up may have read the words again, and the stored documents are numbered by them.
        numbers = self.vocabulary.numbers()
        looked_up = _before(keys, asked[looked:])
        return PreparedBatch(self.meta, stored, numbers, min(records, looked_up), max(1, likely))

    def apply(self, changes: DocumentChanges) -> Outcome:
        """Count the changes and move the offset past their records, all or nothing.

        Stale if the offset, the state or the writer changed since the records were prepared. The state was read
        again then, so prepare and resolve the records again. Raises as `plan` and `reload`.
        """
        result = self.commit(self.plan(changes))
        if isinstance(result, Stale):
            self.reload()
            return result
        self.tidy()
        return result

    def reload(self) -> None:
        """Read position and words again, after a change that was not this writer's.

        Raises TakenOver if another process took ownership of the partition.
        """
        # All at once: words of an older position would give wrong ids to a plan that Redis accepts.
        self.meta, self.vocabulary = self._read()

    def require_keys(self) -> None:
        """Raise StateCorrupt if Redis has lost keys of the partition: what is missing then says nothing."""
        require_keys(self.connection, self.keys)

    def is_set_back(self) -> bool:
        """Return whether Redis holds an older position than this writer has seen there, or none."""
        facts = self.connection.call("HGET", self.keys.meta, "facts")
        return facts is None or POSITIONS.unpack(facts).next_offset < self.meta.next_offset

    def documents(self, ids: Iterable[bytes]) -> tuple[dict[bytes, StoredDocument], int]:
        """Return the live ones of the first of these documents, and how many of the ids were looked for.

        ids: ids of documents; one that comes twice counts once.

        The search ends once the records that were found hold MAX_STORED_BYTES. The answer is as of `meta`, which is
        read again if it was out of date. Raises StateCorrupt, and TakenOver if another process took ownership of the
        partition.
        """
        asked = list(dict.fromkeys(ids))
        if not asked:
            return {}, 0
        keys = [self.keys.meta, *map(self.keys.documents, range(BUCKETS))]
        # Place 1 among the keys is meta's. A place is one byte of an argument, which the hashes never fill.
        places = bytes(2 + bucket for bucket in self.keys.buckets(asked))
        arguments: list[str | bytes | int] = [MAX_STORED_BYTES, places, msgpack.packb(asked, use_bin_type=False)]
        # After a commit whose answer was lost, or another writer's, records hold word ids that are unknown here.
        while True:
            facts, fence, looked, packed = self.connection.script(READ_DOCUMENTS, keys, arguments)
            if (facts, fence) == (POSITIONS.pack(self.meta), self.fence.encode()):
                break
            self.reload()
        found = msgpack.unpackb(packed, raw=True)
        ids_found = [asked[place] for place in found[::2]]
        return dict(zip(ids_found, map(StoredDocument.of, found[1::2]), strict=True)), int(looked)

    def live_ids(self) -> Iterator[list[bytes]]:
        """Yield the ids of all live documents, one list for each hash.

        An id that comes or goes meanwhile may be missing.
        """
        for bucket in range(BUCKETS):
            yield self.connection.call("HKEYS", self.keys.documents(bucket))

    def tidy(self) -> None:
        """Replace the lexicon once most of its words are in no live document."""
        # A lexicon only grows: without this, texts that are all refused or deleted would fill the memory.
        allowed = 2 * len(self.vocabulary) + _SPARE_WORDS
        if len(self.lexicon) > allowed:
            self.lexicon = Lexicon(_random_id())
            self.vocabulary = self.vocabulary.renewed(self.lexicon)

    def plan(self, changes: DocumentChanges) -> Flush:
        """Lay the changes out as a flush. Nothing is written, and the words stay as they are.

        Raises StateError if no id is left for a new word.
        """
        meta, keys, commit = self.meta, self.keys, _random_id()
        added, removed = changes.added, changes.removed
        came, born, records = DocumentBatch.build([]), dict[bytes, int](), dict[bytes, bytes]()
        if added is not None and len(added):
            came, entries = added.numbered(self.vocabulary.numbers(), meta.next_word)
            born = {word: number for number, word in enumerate(self.lexicon.words_of(entries), meta.next_word)}
            packed = encode_records(came, added.offsets, added.labels, added.subjects)
            records = dict(zip(added.ids, packed, strict=True))
        # Before anything is written, so nothing is lost: a rebuild counts the same records from the first id on.
        if meta.next_word + len(born) > MAX_WORD_IDS:
            raise StateError(
                f"partition {self.partition} has given {meta.next_word:,} of {MAX_WORD_IDS:,} word ids, most to words "
                "that are gone, and has none for new ones: run `streamtopic rebuild`, which gives new ids; all records "
                f"from offset {meta.next_offset} on are still in the log"
            )
        gone = [stored.record for stored in removed.values()]
        went = decode_batch(Records.of(gone), np.arange(meta.next_word), EVERY_OFFSET).batch
        change = CHANGES.pack(ChangeEntry(meta.commit, commit, list(records.values()), gone, list(removed), born))
        named, unnamed = _index_change(changes)
        after = replace(
            meta,
            next_offset=changes.next_offset,
            version=meta.version + 1,
            commit=commit,
            time_ms=max(meta.time_ms, changes.time_ms),
            moved_ms=int(self._clock() * 1000),
            next_word=meta.next_word + len(born),
            words=len(self.vocabulary) + len(born),
            documents=meta.documents + len(records) - len(removed),
            named=meta.named + len(named) - len(unnamed),
            totals=dict(Counter(meta.totals) + Counter(changes.totals)),
            removed=changes.next_offset if changes.forgets else meta.removed,
            removals=meta.removals + len(changes.forgets),
            # With what Redis itself takes for an entry.
            unsummed=meta.unsummed + len(change) + 100,
            last=changes.last or meta.last,
        )
        steps = [*_document_steps(removed.keys() - records.keys(), records, keys), *_index_steps(named, unnamed, keys)]
        steps += self.forgets.added(changes.forgets) if changes.forgets else []
        steps.append(("HSET", keys.changes[meta.generation % 2], after.version, change))
        steps.append(("HSET", keys.meta, "facts", POSITIONS.pack(after)))
        return Flush(meta, after, born, came, went, steps)

    def commit(self, flush: Flush) -> Outcome:
        """Write a flush, all or nothing. May be repeated after any error: at most one repetition is Applied.

        Stale if the offset, the state or the writer changed since it was planned: reload and plan again.
        """
        # Keys that are lost would look whole if they were written again. The writer reads the state anew, and its error
        # names what is lost.
        reason = "keys of the partition are lost"
        lost: list[Check] = [(("EXISTS", key), "1", reason) for key in (self.keys.forgets, self.keys.forget_facts)]
        guards = [*self._guards(flush.base), *lost]
        result = self.connection.change(flush.steps, guards=guards, done=self._written(flush.after))
        if isinstance(result, Stale) or self.meta.commit != flush.base.commit:
            return result
        if isinstance(result, Applied):
            self.vocabulary.give(list(flush.born), np.fromiter(flush.born.values(), np.int64, len(flush.born)))
            self.vocabulary.count(flush.came, 1)
            self.vocabulary.count(flush.went, -1)
            self.meta = flush.after
        else:
            # The answer to an earlier attempt was lost, and other changes may have followed it.
            self.reload()
        return result

    def _written(self, after: PartitionPosition) -> tuple[Command, bytes]:
        """Return the command whose answer is this text as long as a position was written, and no other after it."""
        return ("HGET", self.keys.meta, "facts"), POSITIONS.pack(after)

    def _guards(self, base: PartitionPosition) -> list[Check]:
        """Return what must be so for a write that is based on a position."""
        fence = ("HGET", self.keys.meta, "fence")
        return [
            (fence, self.fence, "another writer took the partition over, or the state is gone"),
            # After Redis was set back, offsets may count up to the same numbers again; the id of a change cannot.
            (*self._written(base), "the state has another history"),
        ]

    def keep_summed(self, max_age: float) -> bool:
        """Write the word statistics if that is due; return whether they were written.

        max_age: seconds within which the changes must be free of a document that left.

        Raises TakenOver as `reload` does.
        """
        meta = self.meta
        # Statistics take about 24 bytes for each word: writing them must not cost more than the changes do. And whoever
        # reads many documents takes longer, and must find the changes since its cut still.
        most = max(MOST_UNSUMMED, 24 * meta.words, 16 * meta.documents)
        if meta.unsummed <= most and not self._is_overdue(max_age):
            return False
        result = self.sum_changes()
        if isinstance(result, Stale):
            self.reload()
        return isinstance(result, Applied)

    def sum_changes(self) -> Outcome:
        """Write the word statistics of now, and begin a generation of changes: that before the last is removed."""
        keys, meta = self.keys, self.meta
        after = replace(
            meta,
            generation=meta.generation + 1,
            trimmed=meta.summed_next,
            summed=meta.version,
            summed_next=meta.next_offset,
            summed_ms=int(self._clock() * 1000),
            unsummed=0,
        )
        steps: list[Command] = [
            ("SET", keys.statistics, WordStatistics(meta.place, *self.vocabulary.words_to_keep()).pack()),
            ("UNLINK", keys.changes[after.generation % 2]),
            ("HSET", keys.meta, "facts", POSITIONS.pack(after)),
        ]
        # A repetition after a lost answer would remove changes that readers have had no time to take up.
        result = self.connection.change(steps, guards=self._guards(meta), done=self._written(after))
        if not isinstance(result, Stale):
            self.meta = after
            self.vocabulary.summed()
        return result

    def _is_overdue(self, max_age: float) -> bool:
        """Return whether changes hold a document that left, and their generation is old enough to be ended."""
        # A document leaves the changes with the second generation that begins after it.
        return self.meta.holds_removed and self._clock() * 1000 - self.meta.summed_ms >= 250 * max_age

    def _read(self) -> tuple[PartitionPosition, Vocabulary]:
        """Return position and words of one state. They are read again if a change came between."""
        for _ in range(_ATTEMPTS):
            meta = read_position(self.connection, self.keys)
            if self.connection.call("HGET", self.keys.meta, "fence") != self.fence.encode():
                raise TakenOver(f"partition {self.partition} was taken over by another process: this one must stop")
            # First: its error names what is lost, if those below name what contradicts it.
            self.require_keys()
            error: StateError | None = None
            try:
                vocabulary = self._words(meta)
            except (CutGone, StateCorrupt) as found:
                # Words and changes of two states look like damage, too.
                error = found
            if self.connection.call("HGET", self.keys.meta, "facts") != POSITIONS.pack(meta):
                continue
            if isinstance(error, StateCorrupt):
                raise error
            if error is None:
                return meta, vocabulary
        raise StateError(f"partition {self.partition} changes faster than it can be read: is a second ingest running?")

    def _words(self, meta: PartitionPosition) -> Vocabulary:
        """Return the words at a position. Raises CutGone, StateCorrupt."""
        known = read_statistics(self.connection, self.keys)
        vocabulary = Vocabulary(known.words, known.ids, known.totals, self.lexicon, meta.next_word)
        changes = list(read_changes(self.connection, self.keys, known.place, meta.place))
        for _, entry in changes:
            vocabulary.give(list(entry.born), np.fromiter(entry.born.values(), np.int64, len(entry.born)))
        for sign, records in came_and_went(changes):
            vocabulary.count(decode_batch(records, np.arange(meta.next_word), EVERY_OFFSET).batch, sign)
        vocabulary.check()
        return vocabulary


def _create(connection: Connection, keys: PartitionKeys, settings: ModelSettings, first_offset: int) -> None:
    """Create the state of a partition if there is none. Raises StateCorrupt if a part of one is there."""
    if connection.call("EXISTS", keys.meta):
        return
    # These outlive a rebuild: digests of subjects are made with the secret, and deletions wait for their receipts.
    through = connection.call("HGET", keys.subject_secret, "through")
    begun = PartitionPosition(settings=settings, next_offset=first_offset, through=int(through or 0))
    steps: list[Command] = [
        ("HSET", keys.meta, "schema", STATE_FORMAT, "fence", "", "facts", POSITIONS.pack(begun)),
        ("HSETNX", keys.subject_secret, "secret", secrets.token_bytes(_SECRET_BYTES)),
        *Forgets(connection, keys).made(),
    ]
    # Counted anew beside what is left of the state, documents would count twice. A rebuild removes all of these.
    rest = [name(bucket) for name in (keys.documents, keys.subjects) for bucket in range(BUCKETS)]
    guards: list[Check] = [(("EXISTS", key), "0", key) for key in (keys.meta, keys.statistics, *keys.changes, *rest)]
    answer = connection.change(steps, guards=guards)
    if isinstance(answer, Stale) and answer.reason != keys.meta:
        raise StateCorrupt(
            f"Redis has lost the position of partition {keys.number}, and has {answer.reason} still: stop ingest and "
            "run `streamtopic rebuild`, which counts the log again"
        )
