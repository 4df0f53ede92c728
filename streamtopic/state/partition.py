"""A partition's state as its one writer sees it."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

from streamtopic.counts import Weighting
from streamtopic.errors import StateCorrupt, StateError, StateMismatch, StateMissing, TakenOver
from streamtopic.state import scripts
from streamtopic.state.commit import by_bucket, commit_arguments
from streamtopic.state.connection import Connection
from streamtopic.state.flush import AddedDocument, Changes, Flush, plan
from streamtopic.state.forgets import Forgets
from streamtopic.state.keys import ModelKeys, PartitionKeys
from streamtopic.state.lexicon import Lexicon
from streamtopic.state.meta import SCHEMA, ManifestEntry, Meta
from streamtopic.state.outcomes import Applied, Outcome, Stale, outcome
from streamtopic.state.records import StoredDocument, decode_records
from streamtopic.state.rows import Rows, RowSpan, WordPassage
from streamtopic.state.segments import SegmentHead, decode_head
from streamtopic.state.upload import Uploads
from streamtopic.state.vocabulary import Vocabulary

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_FLUSH_RECORD_BYTES",
    "MAX_FLUSH_WRITES",
    "MAX_WORD_IDS",
    "PartitionState",
    "cut",
    "mismatch",
    "read_position",
]

MAX_FLUSH_DOCUMENTS = 3_000
"""Documents of one flush: more would keep Redis busy for longer than a few milliseconds."""

MAX_FLUSH_WRITES = 4_000
"""Documents, new words and deletions of one flush together, for the same reason."""

MAX_FLUSH_RECORD_BYTES = 1_500_000
"""Bytes of document records of one flush."""

MAX_WORD_IDS = 1 << 26
"""Ids that a partition gives to words in all, those that are gone included: a writer holds up to 16 bytes for each, a
reader 8, and numbers of words are of 31 bits. Counting anew (`rebuild`) begins at 0."""

_SPARE_WORDS = 1 << 18
_ATTEMPTS = 5


def _random_id() -> str:
    return secrets.token_hex(12)


class PartitionState:
    """The one writer of a partition: it holds the newest fencing token until another writer opens the partition.

    meta: as of `open`, `reload` or the last own commit. vocabulary: words that live documents hold. lexicon: words that
    were met, by number, for documents to come.
    """

    def __init__(
        self,
        connection: Connection,
        keys: PartitionKeys,
        partition: int,
        fence: int,
        weighting: Weighting,
        new_id: Callable[[], str],
    ) -> None:
        self.connection = connection
        self.keys = keys
        self.partition = partition
        self.fence = fence
        self.weighting = weighting
        self.new_id = new_id
        self.forgets = Forgets(connection, keys)
        self._uploads = Uploads(connection, keys)
        self.lexicon = Lexicon(new_id())
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
        first_offset: int = 0,
        new_id: Callable[[], str] = _random_id,
    ) -> "PartitionState":
        """Become the writer of a partition; earlier writers are Stale from now on.

        partitions, weighting: settings of the model, fixed when the state is created. first_offset: where a new state
        begins to read. Raises StateMismatch where the state was made with other settings, StateCorrupt where it
        cannot be read, ComponentUnreachable.
        """
        keys = ModelKeys(model).partition(partition)
        answer = connection.script(scripts.CLAIM, [keys.meta], [weighting.cap, partitions, first_offset, SCHEMA])
        if answer[0] == b"differs":
            schema, cap, count = (int(value) for value in answer[1:])
            raise StateMismatch(mismatch(model, schema, cap, count, weighting.cap, partitions))
        return cls(connection, keys, partition, int(answer[1]), weighting, new_id)

    def reload(self) -> None:
        """Read position, manifest and words again, after a Stale that left this the writer.

        Raises StateMismatch where another writer has taken the partition over.
        """
        # All at once, so that words never belong to another position than the one that is checked against Redis.
        self.meta, self.manifest, self.vocabulary = self._read()

    def is_current(self) -> bool:
        """Return whether the state is still as this writer knows it."""
        return self._is_last(self.meta.commit)

    def follow(self, commit_id: str) -> None:
        """Read meta and manifest after an own change; words too where another change has followed it."""
        meta, manifest = read_position(self.connection, self.keys)
        if meta.commit == commit_id:
            self.meta, self.manifest = meta, manifest
        else:
            self.reload()

    def documents(self, ids: Iterable[bytes]) -> dict[bytes, StoredDocument]:
        """Return those of these documents that are live, as of `meta`, which is read again if it was out of date.

        Raises StateCorrupt, and StateMismatch where another writer has taken the partition over.
        """
        buckets = by_bucket(ids, self.keys)
        order = list(chain.from_iterable(buckets.values()))
        reads: list[tuple[str | bytes, ...]] = [
            ("HMGET", self.keys.documents(b), *asked) for b, asked in buckets.items()
        ]
        # Behind a commit whose answer was lost, or another writer's, records hold word ids that are unknown here.
        while True:
            *answers, (commit, fence) = self.connection.batch(
                [*reads, ("HMGET", self.keys.meta, "commit", "fence")], atomic=True
            )
            if (commit, fence) == (self.meta.commit.encode(), b"%d" % self.fence):
                break
            self.reload()
        found = [(i, r) for i, r in zip(order, chain.from_iterable(answers), strict=True) if r is not None]
        return dict(zip([i for i, _ in found], decode_records([r for _, r in found]), strict=True))

    def words_of(self, stored: StoredDocument) -> list[tuple[int, Mapping[str, int]]]:
        """Return a stored document's passages with their words: (L, counts)."""
        word = self.vocabulary.word
        return [
            (p.length, {word(i): n for i, n in zip(p.words.tolist(), p.counts.tolist(), strict=True)})
            for p in stored.passages
        ]

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
        result = outcome(self.connection.script(scripts.COMMIT, *commit_arguments(flush, self.keys, self.fence)))
        if not isinstance(result, Stale) and self.meta.commit == flush.base.commit:
            self._take_over(flush, took_part=isinstance(result, Applied))
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


def cut(connection: Connection, model: str, partition: int, *, epoch: int, leader: int) -> Outcome:
    """Begin epochs up to `epoch` at the partition's next offset; for the scheduler, beside the partition's writer.

    leader: fencing token of the scheduler's lease. Already there: AlreadyApplied. The writer's next commit, if it was
    planned before, answers Stale, so that no document is counted in the wrong epoch.
    """
    keys = ModelKeys(model).partition(partition)
    return outcome(connection.script(scripts.CUT, [keys.meta], [epoch, leader]))


def read_position(connection: Connection, keys: PartitionKeys) -> tuple[Meta, tuple[ManifestEntry, ...]]:
    """Return meta and manifest of one instant, the manifest in the order of its commits.

    Raises StateMismatch where there is no state or one of another layout, StateCorrupt.
    """
    fields, entries = connection.batch([("HGETALL", keys.meta), ("HGETALL", keys.manifest)], atomic=True)
    if not fields:
        raise StateMissing(
            f"there is no state under {keys.tag}: start `streamtopic ingest`, or check model and address"
        )
    manifest = [ManifestEntry.parse(name, value) for name, value in entries.items()]
    return Meta.parse(fields), tuple(sorted(manifest, key=lambda entry: (entry.order, entry.name)))


def mismatch(model: str, schema: int, cap: int, partitions: int, want_cap: int, want_partitions: int) -> str:
    """Return what to tell a user whose settings differ from those the state was made with."""
    remedy = "or rebuild the state from the log under the new setting (`streamtopic rebuild`)"
    if schema != SCHEMA:
        differs = f"has layout {schema}, this program reads {SCHEMA}: use the version that wrote it"
    elif partitions != want_partitions:
        differs = (
            f"was made for {partitions} partitions, not {want_partitions}, and documents would be looked for where "
            f"they are not: go back to {partitions} partitions"
        )
    else:
        differs = f"was counted with document mass cap {cap}, not {want_cap}: go back to cap {cap}"
    return f"the state of {model} {differs}, {remedy}"
