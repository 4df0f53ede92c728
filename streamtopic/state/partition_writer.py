"""The one writer of a partition: `prepare` a batch of records, resolve it, `apply` the changes.

Word ids, look-ups of documents, the plan of a flush and its commit are inside these two calls; no caller sees a
word id. Every write of a writer is Stale as soon as another process opens the partition.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.counts import Weighting, statistics
from streamtopic.documents.events import LIMITS
from streamtopic.errors import StateCorrupt, StateError, TakenOver
from streamtopic.formats import STATE
from streamtopic.state import scripts
from streamtopic.state.change_log import (
    MOST_UNSUMMED,
    CutGone,
    WordStatistics,
    came_and_went,
    read_changes,
    read_statistics,
)
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forgets
from streamtopic.state.document_records import EVERY_OFFSET, StoredDocument, decode_batch
from streamtopic.state.flush import (
    MAX_FLUSH_DOCUMENTS,
    MAX_FLUSH_RECORD_BYTES,
    MAX_STORED_BYTES,
    AddedDocuments,
    Changes,
    Flush,
    plan,
)
from streamtopic.state.meta import (
    MURMUR2,
    Facts,
    Meta,
    ModelSettings,
    check_settings,
    claimed_keys,
    read_meta,
    require_keys,
    stored_settings,
)
from streamtopic.state.redis_keys import BUCKETS, ModelKeys, PartitionKeys
from streamtopic.state.scripts import Applied, Check, Outcome, Stale
from streamtopic.state.word_ids import MAX_WORD_IDS, Vocabulary
from streamtopic.words.lexicon import Lexicon

__all__ = ["PartitionWriter", "PreparedBatch"]

_SPARE_WORDS = 1 << 18
_ATTEMPTS = 5
_SECRET_BYTES = 32
# The share of a flush that is planned by averages. Below 1, so that most batches fit into one flush as a whole.
_LIKELY = 0.97
# Seconds between looks at Redis's clock while changes hold a document that left.
_LOOK_SECONDS = 60.0
# The largest number of bytes that Lua counts exactly.
_ALL = 1 << 53


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

    base: Meta
    live: Mapping[bytes, StoredDocument]
    numbers: npt.NDArray[np.int32]
    records: int
    likely: int


class PartitionWriter:
    """The one writer of a partition: it holds the newest fencing token until another writer opens the partition.

    fence: the fencing token.
    meta: as of `open`, `reload` or the last own commit.
    vocabulary: words of live documents.
    lexicon: words that this process has met, by number.
    word_ids: number of ids that there are for words.
    new_id: makes ids of commits that no other process makes.
    secret: of the partition; subjects are digested with it.
    """

    def __init__(
        self,
        connection: Connection,
        keys: PartitionKeys,
        partition: int,
        fence: int,
        new_id: Callable[[], str],
        partitioner: str = MURMUR2,
        word_ids: int = MAX_WORD_IDS,
        secret: bytes = b"",
    ) -> None:
        self.connection = connection
        self.keys = keys
        self.partition = partition
        self.fence = fence
        self.partitioner = partitioner
        self.new_id = new_id
        self.secret = secret
        self.forgets = Forgets(connection, keys)
        self._word_ids = word_ids
        self.lexicon = Lexicon(new_id())
        self._look_at = 0.0
        self.meta, self.vocabulary = self._read()

    @classmethod
    def open(
        cls,
        connection: Connection,
        model: str,
        partition: int,
        *,
        partitions: int,
        weighting: Weighting,
        partitioner: str = MURMUR2,
        first_offset: int = 0,
        limits: str = LIMITS,
        word_ids: int = MAX_WORD_IDS,
        new_id: Callable[[], str] = _random_id,
    ) -> "PartitionWriter":
        """Become the writer of a partition; earlier writers are Stale from now on.

        partitions, weighting, partitioner, limits: settings of the model, fixed when the state is created.
        first_offset: the first record that a new state counts.

        Raises StateMismatch if the state was created with other settings, StateCorrupt if it cannot be read or
        keys are lost, ComponentUnreachable.
        """
        keys = ModelKeys(model).partition(partition)
        drawn = secrets.token_bytes(_SECRET_BYTES)
        arguments: list[str | bytes | int] = [weighting.cap, partitions, first_offset, STATE.number, partitioner]
        arguments += [limits, drawn, BUCKETS, Facts().pack()]
        answer = connection.script(scripts.CLAIM_PARTITION, claimed_keys(keys), arguments)
        if answer[0] == b"lost":
            raise StateCorrupt(
                f"Redis has lost the position of partition {partition} of {model}, and has {answer[1].decode()} still: "
                "stop ingest and run `streamtopic rebuild`, which counts the log again"
            )
        if answer[0] == b"differs":
            wanted = ModelSettings(partitions, weighting.cap, partitioner, limits)
            check_settings(model, *stored_settings(answer[1:]), wanted)
        fence = int(answer[1])
        secret = answer[2]
        return cls(connection, keys, partition, fence, new_id, partitioner, word_ids, secret)

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
        stored, looked = self.first_documents(asked, MAX_STORED_BYTES)
        # Only now: the look-up may have read the words again, and the stored documents are numbered by them.
        numbers = self.vocabulary.numbers()
        looked_up = _before(keys, asked[looked:])
        return PreparedBatch(self.meta, stored, numbers, min(records, looked_up), max(1, likely))

    def apply(self, changes: Changes) -> Outcome:
        """Count the changes and move the offset past their records, all or nothing.

        Stale if the offset, the state or the writer changed since the records were prepared. The state was read
        again then, so prepare and resolve the records again. Raises StateError if no id is left for a new word, and
        TakenOver as `reload` does.
        """
        flush = self.plan(changes)
        self._check_ids(flush)
        result = self.commit(flush)
        if isinstance(result, Stale):
            self.reload()
            return result
        self.tidy()
        return result

    def _check_ids(self, flush: Flush) -> None:
        """Raise StateError if a flush needs more word ids than there are."""
        given, most = flush.base.next_word, self._word_ids
        # Before anything is written, so nothing is lost: a rebuild counts the same records from the first id on.
        if given + len(flush.entry.born) > most:
            raise StateError(
                f"partition {self.partition} has given {given:,} of {most:,} word ids, most to words that are gone, "
                "and has none for new ones: run `streamtopic rebuild`, which gives new ids; all records from offset "
                f"{flush.base.next_offset} on are still in the log"
            )

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
        position = self.connection.call("HGET", self.keys.meta, "next")
        return position is None or int(position) < self.meta.next_offset

    def documents(self, ids: Iterable[bytes]) -> dict[bytes, StoredDocument]:
        """Return the live ones of these documents, whatever their size. Raises as `first_documents`."""
        return self.first_documents(ids, _ALL)[0]

    def first_documents(
        self, ids: Iterable[bytes], most: int = MAX_STORED_BYTES
    ) -> tuple[dict[bytes, StoredDocument], int]:
        """Return the live ones of the first of these documents, and how many of the ids were looked for.

        ids: ids of documents; one that comes twice counts once.
        most: bytes; the search ends once the records that were found hold so many.

        The answer is as of `meta`, which is read again if it was out of date. Raises StateCorrupt, and TakenOver if
        another process took ownership of the partition.
        """
        asked = list(dict.fromkeys(ids))
        if not asked:
            return {}, 0
        keys = [self.keys.meta, *map(self.keys.documents, range(BUCKETS))]
        # Place 1 among the keys is meta's. A place is one byte of an argument, which the hashes never fill.
        places = bytes(2 + bucket for bucket in map(self.keys.bucket, asked))
        arguments: list[str | bytes | int] = [most, places, msgpack.packb(asked, use_bin_type=False)]
        # After a commit whose answer was lost, or another writer's, records hold word ids that are unknown here.
        while True:
            commit, fence, looked, packed = self.connection.script(scripts.READ_DOCUMENTS, keys, arguments)
            own = self.meta.commit.encode(), b"%d" % self.fence
            if (commit, fence) == own:
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
            self.lexicon = Lexicon(self.new_id())
            self.vocabulary.use(self.lexicon)

    def plan(self, changes: Changes) -> Flush:
        """Lay the changes out as a flush. Nothing is written so far."""
        return plan(changes, self.meta, self.vocabulary, self.keys, self.new_id)

    def commit(self, flush: Flush) -> Outcome:
        """Write a flush, all or nothing. May be repeated after any error: at most one repetition is Applied.

        Stale if the offset, the state or the writer changed since it was planned: reload and plan again.
        """
        # Keys that are lost would look whole if they were written again. The writer reads the state anew, and its error
        # names what is lost.
        lost: Check = (("EXISTS", self.keys.forgets), "1", "keys of the partition are lost")
        committed = ("HGET", self.keys.meta, "commit"), flush.after.commit
        guards = [*self._guards(flush.base), lost]
        result = self.connection.change(flush.steps, guards=guards, done=committed, clock=(self.keys.meta, "moved"))
        if isinstance(result, Stale) or self.meta.commit != flush.base.commit:
            return result
        if isinstance(result, Applied):
            self.vocabulary.rename(flush.entry.born, flush.entry.dead)
            self.vocabulary.count(flush.ids, flush.totals)
            self.meta = replace(flush.after, moved_ms=result.at_ms)
        else:
            # The answer to an earlier attempt was lost, and other changes may have followed it.
            self.reload()
        return result

    def _guards(self, base: Meta) -> list[Check]:
        """Return what must be so for a write that is based on a position."""
        meta = self.keys.meta
        return [
            (("EXISTS", meta), "1", "the state is gone"),
            (("HGET", meta, "fence"), str(self.fence), "another writer took the partition over"),
            # After Redis was set back, offsets may count up to the same numbers again; the id of a change cannot.
            (("HGET", meta, "commit"), base.commit, "the state has another history"),
            (("HGET", meta, "facts"), base.pack(), "the state has another history"),
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
            unsummed=0,
        )
        steps: list[tuple[str | bytes, ...]] = [
            ("SET", keys.statistics, WordStatistics(meta.place, *self.vocabulary.held()).pack()),
            ("UNLINK", keys.changes[after.generation % 2]),
            ("HSET", keys.meta, "facts", after.pack()),
        ]
        # A repetition after a lost answer would remove changes that readers have had no time to take up.
        summed = ("HGET", keys.meta, "facts"), after.pack()
        result = self.connection.change(steps, guards=self._guards(meta), done=summed, clock=(keys.meta, "summed_at"))
        if not isinstance(result, Stale):
            self.meta = read_meta(self.connection, keys)
        return result

    def _is_overdue(self, max_age: float) -> bool:
        """Return whether changes hold a document that left, and their generation is old enough to be ended."""
        # A document leaves the changes with the second generation that begins after it.
        wait = max_age / 4
        now = time.monotonic()
        if not self.meta.holds_removed or now < self._look_at:
            return False
        self._look_at = now + min(wait, _LOOK_SECONDS)
        # By the clock of this server: masters of a cluster have clocks of their own.
        return self.connection.time_ms(self.keys.meta) - self.meta.summed_ms >= 1000 * wait

    def _read(self) -> tuple[Meta, Vocabulary]:
        """Return position and words of one state. They are read again if a change came between."""
        for _ in range(_ATTEMPTS):
            meta = read_meta(self.connection, self.keys)
            if meta.fence != self.fence:
                raise TakenOver(f"partition {self.partition} was taken over by another process: this one must stop")
            # First: its error names what is lost, if those below name what contradicts it.
            self.require_keys()
            error: StateError | None = None
            try:
                vocabulary = self._words(meta)
            except (CutGone, StateCorrupt) as found:
                # Words and changes of two states look like damage, too.
                error = found
            last: bytes | None = self.connection.call("HGET", self.keys.meta, "commit")
            if last != meta.commit.encode():
                continue
            if isinstance(error, StateCorrupt):
                raise error
            if error is None:
                return meta, vocabulary
        raise StateError(f"partition {self.partition} changes faster than it can be read: is a second ingest running?")

    def _words(self, meta: Meta) -> Vocabulary:
        """Return the words at a position. Raises CutGone, StateCorrupt."""
        known = read_statistics(self.connection, self.keys)
        vocabulary = Vocabulary(known.words, known.ids, known.totals, self.lexicon)
        changes = list(read_changes(self.connection, self.keys, known.place, meta.place))
        for _, entry in changes:
            vocabulary.rename(entry.born, entry.dead)
        itself = np.arange(meta.next_word)
        for sign, records in came_and_went(changes):
            batch = decode_batch(records, itself, EVERY_OFFSET).batch
            totals = statistics(batch, len(itself), np.full(batch.documents, sign))
            vocabulary.count(itself, np.stack(totals))
        vocabulary.check(meta.words, meta.next_word)
        return vocabulary
