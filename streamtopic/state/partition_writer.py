"""A partition as its one writer sees it: `prepare` a batch of records, resolve it, `apply` the changes.

Numbers of words, look-ups of documents, the plan of a flush and its commit are behind these two calls; nobody outside
sees a word id. A writer is Stale, and stops, as soon as another process opens the partition.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.counts import Weighting
from streamtopic.errors import StateCorrupt, StateError, StateMismatch, TakenOver
from streamtopic.events import LIMITS
from streamtopic.lexicon import Lexicon
from streamtopic.state import scripts
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forgets, Forward
from streamtopic.state.document_records import StoredDocument, decode_records
from streamtopic.state.flush import (
    MAX_FLUSH_DOCUMENTS,
    MAX_FLUSH_PAIRS,
    MAX_FLUSH_RECORD_BYTES,
    MAX_FLUSH_WRITES,
    MAX_STORED_BYTES,
    AddedDocument,
    Batch,
    Changes,
    Flush,
    Uploads,
    by_bucket,
    commit_arguments,
    plan,
)
from streamtopic.state.meta import MURMUR2, SCHEMA, ManifestEntry, Meta, fixed, mismatch, read_position
from streamtopic.state.redis_keys import BUCKETS, ModelKeys, PartitionKeys
from streamtopic.state.scripts import Applied, Outcome, Stale, outcome
from streamtopic.state.segments import SegmentHead, decode_head
from streamtopic.state.word_ids import MAX_WORD_IDS, Rows, RowSpan, Vocabulary, WordLimits, WordPassage

__all__ = ["LiveDocuments", "PartitionWriter", "PreparedBatch"]

_SPARE_WORDS = 1 << 18
_ATTEMPTS = 5
_AT_ONCE = 1_000
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
class LiveDocuments:
    """The live documents among those that a batch is about, by id."""

    documents: Mapping[bytes, StoredDocument]
    numbers: npt.NDArray[np.int32]

    def same(self, have: StoredDocument | AddedDocument, new: AddedDocument) -> bool:
        """Return whether a document is what it was: its passages, word by word, and its labels."""
        if have.length != new.length or dict(have.labels) != dict(new.labels):
            return False
        if isinstance(have, StoredDocument):
            return have.values() == new.passages.values(self.numbers)
        return have.passages.values() == new.passages.values()


@dataclass(frozen=True, slots=True, eq=False)
class PreparedBatch:
    """What a writer says of a batch before it is resolved.

    base: the state that changes will be based on.
    live: the documents that the first records are about.
    records: how many of the first records one flush may hold, at least one.
    likely: how many records like these one flush is likely to hold.
    """

    base: Meta
    live: LiveDocuments
    records: int
    likely: int


class PartitionWriter:
    """The one writer of a partition: it holds the newest fencing token until another writer opens the partition.

    meta: as of `open`, `reload` or the last own commit.
    loads: how often it was read anew, since another change may have come between.
    vocabulary: words that live documents hold.
    lexicon: words that were met, by number, for documents to come.
    word_ids: how many ids there are for words.
    """

    def __init__(
        self,
        connection: Connection,
        keys: PartitionKeys,
        partition: int,
        fence: int,
        weighting: Weighting,
        new_id: Callable[[], str],
        partitioner: str = MURMUR2,
        word_ids: int = MAX_WORD_IDS,
    ) -> None:
        self.connection = connection
        self.keys = keys
        self.partition = partition
        self.fence = fence
        self.weighting = weighting
        self.partitioner = partitioner
        self.new_id = new_id
        self.forgets = Forgets(connection, keys)
        self._uploads = Uploads(connection, keys)
        self._limits = WordLimits(partition, word_ids)
        self.lexicon = Lexicon(new_id())
        self.loads = 0
        self.meta, self.manifest, self.vocabulary = self._read()

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

        partitions, weighting, partitioner, limits: of the model, fixed when the state is created. first_offset: where
        a new state begins to read. Raises StateMismatch where the state was made with other settings, StateCorrupt
        where it cannot be read, ComponentUnreachable.
        """
        keys = ModelKeys(model).partition(partition)
        arguments = (weighting.cap, partitions, first_offset, SCHEMA, partitioner, limits)
        answer = connection.script(scripts.CLAIM_PARTITION, [keys.meta, keys.forwards], arguments)
        if answer[0] == b"differs":
            wanted = SCHEMA, weighting.cap, partitions, partitioner, limits
            raise StateMismatch(mismatch(model, fixed(answer[1:]), wanted))
        return cls(connection, keys, partition, int(answer[1]), weighting, new_id, partitioner, word_ids)

    def prepare(self, batch: Batch, most: int = MAX_FLUSH_DOCUMENTS) -> PreparedBatch:
        """Look up the live documents that a batch is about, and bound the flush that its records will make.

        most: records. Raises StateCorrupt, and StateMismatch where another writer has taken the partition over.
        """
        numbers, loads = self.vocabulary.numbers(), self.loads
        writes = batch.writes(numbers)
        likely = batch.likely(writes, MAX_FLUSH_RECORD_BYTES, MAX_FLUSH_WRITES)
        records = batch.within(writes, most, MAX_FLUSH_RECORD_BYTES, MAX_FLUSH_WRITES)
        keys = batch.keys[:records]
        asked = list(dict.fromkeys(filter(None, keys)))
        stored, looked = self.first_documents(asked, MAX_STORED_BYTES)
        if self.loads != loads:
            numbers = self.vocabulary.numbers()
        affordable = min(batch.affordable(records, stored, MAX_FLUSH_PAIRS), _before(keys, asked[looked:]))
        return PreparedBatch(self.meta, LiveDocuments(stored, numbers), min(records, affordable), likely)

    def apply(self, changes: Changes) -> Outcome:
        """Count the changes and move the offset past their records, all or nothing.

        Stale: the offset, the manifest or the writer changed since the records were prepared; the state was read again,
        so prepare and resolve them anew. Raises StateError where there is no id for a new word, and as `commit`.
        """
        flush = self.plan(changes)
        self._limits.check(flush.base.next_word, len(flush.born), flush.base.next_offset)
        result = self.commit(flush)
        if isinstance(result, Stale):
            self.reload()
            return result
        self.tidy()
        self._limits.look(self.vocabulary)
        return result

    def reload(self) -> None:
        """Read position, manifest and words again, after a Stale that left this the writer.

        Raises StateMismatch where another writer has taken the partition over.
        """
        # All at once, so that words never belong to another position than the one that is checked against Redis.
        self.meta, self.manifest, self.vocabulary = self._read()

    def is_current(self) -> bool:
        """Return whether the state is still as this writer knows it."""
        return self._is_last(self.meta.commit)

    def is_set_back(self) -> bool:
        """Return whether Redis holds an older position than this writer has seen there, or none."""
        position = self.connection.call("HGET", self.keys.meta, "next")
        return position is None or int(position) < self.meta.next_offset

    def follow(self, commit_id: str) -> None:
        """Read meta and manifest after an own change; words too where another change has followed it."""
        meta, manifest = read_position(self.connection, self.keys)
        if meta.commit == commit_id:
            self.meta, self.manifest = meta, manifest
        else:
            self.reload()

    def documents(self, ids: Iterable[bytes]) -> dict[bytes, StoredDocument]:
        """Return those of these documents that are live, however much room they take. Else as `first_documents`."""
        return self.first_documents(ids, _ALL)[0]

    def first_documents(
        self, ids: Iterable[bytes], most: int = MAX_STORED_BYTES
    ) -> tuple[dict[bytes, StoredDocument], int]:
        """Return the live ones of the first of these documents, and how many of the ids were looked for.

        ids: each counts once.
        most: the search ends once the records that were found hold so many bytes.

        The answer is as of `meta`, which is read again if it was out of date. Raises StateCorrupt, and StateMismatch
        where another writer has taken the partition over.
        """
        asked = list(dict.fromkeys(ids))
        if not asked:
            return {}, 0
        hashes = [self.keys.bucket(document) for document in asked]
        places = {bucket: place for place, bucket in enumerate(dict.fromkeys(hashes), start=2)}
        keys = [self.keys.meta, *map(self.keys.documents, places)]
        arguments: list[str | bytes | int] = [most, bytes(places[bucket] for bucket in hashes), *asked]
        # Behind a commit whose answer was lost, or another writer's, records hold word ids that are unknown here.
        while True:
            commit, fence, looked, packed = self.connection.script(scripts.READ_DOCUMENTS, keys, arguments)
            if (commit, fence) == (self.meta.commit.encode(), b"%d" % self.fence):
                break
            self.reload()
        found = msgpack.unpackb(packed, raw=True)
        live = dict(zip([asked[place] for place in found[::2]], decode_records(found[1::2]), strict=True))
        return live, int(looked)

    def live_ids(self) -> Iterator[list[bytes]]:
        """Yield the ids of all live documents, in 64 lists; ids that come or go meanwhile may be missing."""
        for bucket in range(BUCKETS):
            yield [document for document, _ in self.connection.scan(self.keys.documents(bucket))]

    def forwards(self) -> list[Forward]:
        """Return what is still to be sent to other partitions, in the order of the log."""
        fields = self.connection.call("HGETALL", self.keys.forwards)
        found = [Forward.unpack(int(offset), value) for offset, value in dict(fields).items() if offset.isdigit()]
        return sorted(found, key=lambda forward: forward.offset)

    def forwarded(self, forwards: Iterable[Forward]) -> None:
        """Forget what was sent, or need not be."""
        offsets = [forward.offset for forward in forwards]
        for start in range(0, len(offsets), _AT_ONCE):
            self.connection.call("HDEL", self.keys.forwards, *offsets[start : start + _AT_ONCE])

    def live_elsewhere(self, partition: int, ids: Sequence[bytes]) -> tuple[int, frozenset[bytes]] | None:
        """Return up to where another partition is counted, and which of these documents are live there by then.

        None where it has no state yet.
        """
        keys = self.keys.of(partition)
        buckets = by_bucket(ids, keys)
        reads: list[tuple[str | bytes, ...]] = [("HMGET", keys.meta, "next")]
        reads += [("HMGET", keys.documents(bucket), *asked) for bucket, asked in buckets.items()]
        (after,), *found = self.connection.batch(reads, atomic=True)
        if after is None:
            return None
        order = chain.from_iterable(buckets.values())
        answers = zip(order, chain.from_iterable(found), strict=True)
        return int(after), frozenset(document for document, record in answers if record is not None)

    def document(
        self, document: bytes, offset: int, passages: Sequence[WordPassage], labels: Mapping[str, str] | None = None
    ) -> AddedDocument:
        """Return a document to add: passages are (L, word counts), each count at least 1, their sum at most L."""
        rows = Rows.of(passages, self.lexicon)
        return AddedDocument(document, offset, RowSpan(rows, 0, len(passages)), labels or {})

    def tidy(self) -> None:
        """Put a new lexicon in place of one that mostly knows words of no live document."""
        if len(self.lexicon) > 2 * len(self.vocabulary) + _SPARE_WORDS:
            self.lexicon = Lexicon(self.new_id())
            self.vocabulary.use(self.lexicon)

    def plan(self, changes: Changes) -> Flush:
        """Count the changes into a flush. Nothing is written yet but segments that will expire."""
        self._uploads.begin()
        return plan(changes, self.meta, self.vocabulary, self.weighting, self.new_id, self._uploads.send)

    def commit(self, flush: Flush) -> Outcome:
        """Write a flush, all or nothing. May be repeated after any error: at most one repetition is Applied.

        Stale: the offset, the manifest or the writer changed since it was planned; reload and plan anew.
        """
        for entry, strings in flush.segments:
            self._uploads.finish(entry.name, strings)
        result = outcome(self.connection.script(scripts.COMMIT_FLUSH, *commit_arguments(flush, self.keys, self.fence)))
        if not isinstance(result, Stale) and self.meta.commit == flush.base.commit:
            self._take_over(flush, took_part=isinstance(result, Applied))
        return result

    def erased(self, offset: int, since_ms: int) -> Outcome:
        """Note that segments hold nothing of documents that left before `offset`; since_ms: when that was looked at."""
        arguments: list[str | bytes | int] = [self.fence, self.meta.commit, offset, since_ms]
        result = outcome(self.connection.script(scripts.NOTE_ERASED, [self.keys.meta], arguments))
        if not isinstance(result, Stale):
            self.follow(self.meta.commit)
        return result

    def _take_over(self, flush: Flush, *, took_part: bool) -> None:
        if not took_part:
            # The answer to an earlier attempt was lost; what followed it is not known, so read.
            self.reload()
            return
        self.vocabulary.apply(flush.born, flush.dead, flush.ids, flush.frequency)
        self.follow(flush.commit_id)

    def _read(self) -> tuple[Meta, tuple[ManifestEntry, ...], Vocabulary]:
        """Return position, segments and words that belong together, again if another writer came between."""
        self.loads += 1
        for _ in range(_ATTEMPTS):
            meta, manifest = read_position(self.connection, self.keys)
            if meta.fence != self.fence:
                raise TakenOver(f"partition {self.partition} was taken over by another process: this one must stop")
            scanned = self.connection.scan(self.keys.words)
            ids = {word.decode("utf-8", "surrogatepass"): int(number) for word, number in scanned}
            try:
                vocabulary = Vocabulary(ids, meta.next_word, self._heads(manifest), self.lexicon)
            except StateCorrupt:
                if self._is_last(meta.commit):
                    raise
                continue
            if self._is_last(meta.commit):
                return meta, manifest, vocabulary
        raise StateError(f"partition {self.partition} changes faster than it can be read: is a second ingest running?")

    def _is_last(self, commit: str) -> bool:
        last: bytes | None = self.connection.call("HGET", self.keys.meta, "commit")
        return last == commit.encode()

    def _heads(self, manifest: Sequence[ManifestEntry]) -> Iterable[SegmentHead]:
        heads = self.connection.batch(("GET", self.keys.segment(entry.name, 0)) for entry in manifest)
        for entry, head in zip(manifest, heads, strict=True):
            if head is None:
                raise StateCorrupt(f"segment {entry.name} is missing: rebuild the state (`streamtopic rebuild`)")
            yield decode_head(head)
