"""The position of a partition, and its history: what readers follow, and whether its keys are there.

    PartitionPosition   offset, versions and counters
    ChangeEntry         the documents that came and those that went with one commit
    WordStatistics      the words of live documents with their statistics as of a moment

Every change of the state has an entry under its version: the documents that came and those that went, as they are
stored, with the ids of this change and of the one before. So a reader that holds counts of one moment carries them to a
later one without reading the documents again, and notices a history that is not its own, as after Redis was set back.
Nothing else names the words of a partition: those of any change are in the statistics, or changes add them.

Entries are in two hashes, one for each of the last two generations. The writer begins a generation when it writes the
word statistics (`PartitionWriter.sum_changes`), and the generation before the last goes as a whole: Redis then gives
its memory back, where deleted entries of a stream would stay in memory until their whole node is empty.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Self

import msgpack
import numpy as np

from streamtopic.counts import Weighting
from streamtopic.counts.arrays import Int64
from streamtopic.documents.events import LIMITS
from streamtopic.errors import StateCorrupt, StateError, StateMismatch, StateMissing
from streamtopic.state.connection import BUCKETS, Codec, Command, Connection, ModelKeys, PartitionKeys
from streamtopic.state.document_records import Records

__all__ = [
    "CHANGES",
    "MOST_UNSUMMED",
    "POSITIONS",
    "SETTINGS",
    "STATE_FORMAT",
    "ChangeEntry",
    "Cut",
    "CutGone",
    "LastRecord",
    "ModelSettings",
    "PartitionPosition",
    "Place",
    "WordStatistics",
    "came_and_went",
    "check_format",
    "check_settings",
    "pack_numbers",
    "read_changes",
    "read_position",
    "read_statistics",
    "require_keys",
    "stored_settings",
    "unpack_numbers",
]

STATE_FORMAT = 15
"""The number of the form of all bytes in Redis. It changes with them, and a state of another number is refused."""

MOST_UNSUMMED = 8 << 20
"""Bytes of changes after which the writer writes the word statistics again, in a small partition."""

# Entries of one command: those of full commits hold a third of a megabyte each, and Redis should not be busy for long.
_AT_ONCE = 16


class CutGone(StateError):
    """The changes since a cut are gone: take new counts."""


@dataclass(frozen=True, slots=True)
class Place:
    """A moment of a partition's history.

    version: number of changes of the state until then.
    commit: id of the last of them.
    """

    version: int
    commit: str


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment of all partitions.

    offsets: partition to the first offset that was not counted then.
    places: partition to the moment.
    """

    offsets: Mapping[int, int]
    places: Mapping[int, Place]


@dataclass(frozen=True, slots=True, eq=False)
class ChangeEntry:
    """The documents of one commit.

    base, commit: ids of the change before, and of this one.
    came: records of documents that came.
    went: records of documents that went. A document that was replaced is in both.
    ids: of the documents that went.
    born: words that got an id, as `word_bytes` writes them, with their ids.
    """

    base: str
    commit: str
    came: list[bytes] = field(default_factory=list)
    went: list[bytes] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    born: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.went) != len(self.ids):
            raise ValueError("each document that went has an id")


CHANGES = Codec(ChangeEntry, "a change cannot be read: run `streamtopic rebuild`")


@dataclass(frozen=True, slots=True, eq=False)
class WordStatistics:
    """The words of a partition's live documents, and of those that have gone since the word statistics before.

    place: the moment that they are of.
    words: (k,) as `word_bytes` writes them.
    ids: (k,) of the words, ascending.
    totals: (3, k) documents, occurrences and heavy documents of each.
    """

    place: Place
    words: list[bytes]
    ids: Int64
    totals: Int64

    def pack(self) -> bytes:
        """Return the bytes that Redis keeps."""
        columns = [pack_numbers(column) for column in (self.ids, *self.totals)]
        return bytes(msgpack.packb((self.place.version, self.place.commit, self.words, *columns)))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Undo `pack`. Raises StateCorrupt."""
        try:
            version, commit, words, *columns = msgpack.unpackb(data)
            place = Place(int(version), str(commit))
            ids, *totals = (unpack_numbers(column, len(words)) for column in columns)
            found = cls(place, words, ids, np.stack(totals).reshape(3, len(words)))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(f"word statistics cannot be read ({error}): run `streamtopic rebuild`") from None
        if not set(map(type, words)) <= {bytes} or (np.diff(ids) <= 0).any():
            raise StateCorrupt("word statistics cannot be read: run `streamtopic rebuild`")
        return found


def pack_numbers(values: Int64) -> bytes:
    """Return numbers of 0 or more, each in as many bytes as the largest takes, and this number of bytes before them."""
    size = (int(values.max(initial=0)).bit_length() + 7) // 8
    return bytes([size]) + values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :size].tobytes()


def unpack_numbers(data: bytes, number: int) -> Int64:
    """Undo `pack_numbers`. number: how many there are. Raises StateCorrupt for other bytes."""
    size = data[0] if data else 9
    if size > 8 or len(data) != 1 + size * number:
        raise StateCorrupt("numbers in Redis cannot be read: run `streamtopic rebuild`")
    found = np.zeros((number, 8), np.uint8)
    found[:, :size] = np.frombuffer(data, np.uint8, offset=1).reshape(number, size)
    values: Int64 = found.view("<i8").reshape(number).astype(np.int64, copy=False)
    if size == 8 and (values < 0).any():
        raise StateCorrupt("numbers in Redis cannot be read: run `streamtopic rebuild`")
    return values


def read_statistics(connection: Connection, keys: PartitionKeys) -> WordStatistics:
    """Return the word statistics of a partition. Before the first ones all changes are kept: these are of no word."""
    data = connection.call("GET", keys.statistics)
    if data is None:
        return WordStatistics(Place(1, ""), [], np.zeros(0, np.int64), np.zeros((3, 0), np.int64))
    return WordStatistics.unpack(data)


def read_changes(
    connection: Connection, keys: PartitionKeys, after: Place, through: Place
) -> Iterator[tuple[Place, ChangeEntry]]:
    """Yield the changes after one moment up to another one, with the moment of each, in their order.

    Raises CutGone if an entry is gone, or if the two moments are not of one history.
    """
    reached = after
    versions = range(after.version + 1, through.version + 1)
    for start in range(0, len(versions), _AT_ONCE):
        some = versions[start : start + _AT_ONCE]
        commands = [("HMGET", key, *some) for key in keys.changes]
        first, second = connection.batch(commands)
        for version, entry in zip(some, map(_either, first, second), strict=True):
            if entry is None:
                raise CutGone(f"changes of partition {keys.number} since version {after.version} are gone by now")
            change = CHANGES.unpack(entry)
            if change.base != reached.commit:
                raise _other_history(keys)
            reached = Place(version, change.commit)
            yield reached, change
    if reached != through:
        raise _other_history(keys)


def came_and_went(changes: Iterable[tuple[Place, ChangeEntry]]) -> list[tuple[int, Records]]:
    """Return the documents that came, with sign 1, and those that went, with sign -1."""
    came, went = list[bytes](), list[bytes]()
    for _, change in changes:
        came += change.came
        went += change.went
    return [(1, Records.of(came)), (-1, Records.of(went))]


def _either(first: bytes | None, second: bytes | None) -> bytes | None:
    return second if first is None else first


def _other_history(keys: PartitionKeys) -> CutGone:
    return CutGone(f"partition {keys.number} has another history by now, as after Redis was set back")


# A commit between two reads would look like a loss: then all is read again.
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings that are fixed when a model is created.

    partitions: number of partitions of the documents topic.
    cap: upper bound of a document's weight f(L).
    limits: every limit that refuses a record, as `events.LIMITS`.
    """

    partitions: int
    cap: int
    limits: str = LIMITS

    @property
    def weighting(self) -> Weighting:
        """The weight of a document's word pairs."""
        return Weighting(self.cap)


SETTINGS = Codec(ModelSettings, "the settings of a model in Redis cannot be read: run `streamtopic rebuild`")


def stored_settings(connection: Connection, model: str) -> tuple[bytes | None, ModelSettings | None]:
    """Return the format of a model's state, and its settings; None for what is not there or cannot be read."""
    number, packed = connection.call("HMGET", ModelKeys(model).named("settings"), "schema", "settings")
    with suppress(StateCorrupt):
        return number, SETTINGS.unpack(packed or b"")
    return number, None


def check_format(found: bytes, name: str = "the state in Redis") -> None:
    """Raise StateMismatch for the number of another format. name: of the state, for the error."""
    if found != b"%d" % STATE_FORMAT:
        number = found.decode("ascii", "replace")[:20]
        program = f"streamtopic {metadata.version('streamtopic')}"
        raise StateMismatch(
            f"{name} has format {number}, and {program} reads format {STATE_FORMAT}: "
            "run `streamtopic rebuild`, which counts the log again"
        )


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The record that was counted last, so that a log that is not the one that was counted is noticed.

    topic: id of its topic (`LogTopic.id`), "" if the log gives none.
    offset: of the record.
    digest: of its content and its time (`Record.digest`).
    """

    topic: str
    offset: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPosition:
    """The position of a partition, and its counters. Times are milliseconds since 1970.

    settings: of the model.
    next_offset: the first record that is not counted yet.
    version: grows with every commit.
    commit: id of the last change; it names this history of the partition and no other.
    time_ms: newest time of a counted record, by the log's clock; 0 before the first.
    moved_ms: time of the last commit.
    next_word: the first word id that was never given.
    words: number of words that have an id: those of live documents, and of documents that changes name.
    documents: number of live documents.
    named: number of entries in the index of subjects.
    totals: outcome of a record to the number of records, since the state was created.
    removed: offset after the last flush with a deletion.
    removals: number of documents that ever left.
    generation: number of generations of changes before this one.
    summed: version that the word statistics are of.
    summed_next: the first record that was not counted then.
    summed_ms: time at which they were written.
    unsummed: bytes of the changes since then.
    trimmed: the changes hold no document that left before this offset.
    last: the record that was counted last; None before the first.
    through: records of other partitions' keys before this offset were dealt with before the state was last rebuilt.
    """

    settings: ModelSettings
    next_offset: int
    version: int = 1
    commit: str = ""
    time_ms: int = 0
    moved_ms: int = 0
    next_word: int = 0
    words: int = 0
    documents: int = 0
    named: int = 0
    totals: Mapping[str, int] = field(default_factory=dict)
    removed: int = 0
    removals: int = 0
    generation: int = 0
    summed: int = 1
    summed_next: int = 0
    summed_ms: int = 0
    unsummed: int = 0
    trimmed: int = 0
    last: LastRecord | None = None
    through: int = 0

    @property
    def place(self) -> Place:
        """The moment of the partition's history."""
        return Place(self.version, self.commit)

    @property
    def accepted(self) -> int:
        """Documents that were ever counted, those that left since included."""
        return self.totals.get("added", 0) + self.totals.get("replaced", 0)

    @property
    def holds_removed(self) -> bool:
        """Whether the changes may hold documents that left."""
        return self.removed > self.trimmed


POSITIONS = Codec(PartitionPosition, "a partition's position cannot be read: run `streamtopic rebuild`")


def read_position(connection: Connection, keys: PartitionKeys) -> PartitionPosition:
    """Return the position of a partition.

    Raises StateMissing if there is no state, StateMismatch for one of another format, StateCorrupt.
    """
    found = _parsed(connection.call("HMGET", keys.meta, *_FIELDS))
    if found is None:
        raise StateMissing(
            f"there is no state under {keys.tag}: start `streamtopic ingest`, or check model and address"
        )
    return found


_FIELDS = "schema", "facts"


def _parsed(stored: Sequence[bytes | None]) -> PartitionPosition | None:
    """Return the position in these fields, None without any. Raises as `read_position`."""
    number, facts = stored
    if number is None and facts is None:
        return None
    # Before any other field is read: those of another format may be missing, which is not damage.
    check_format(number or b"")
    return POSITIONS.unpack(facts or b"")


def require_keys(connection: Connection, keys: PartitionKeys) -> None:
    """Raise StateCorrupt if keys of a partition are gone.

    Redis may lose some keys and keep others: a master that a slot was moved to loses the end of its append-only file,
    somebody deletes a key, a server evicts. A key that is gone looks like one that has nothing in it, so each kind is
    compared with something that another key says:

        documents                   the number of live documents in the position
        changes                     there is one for each version since the word statistics
        word statistics             they are there from the second generation of changes on
        the index of subjects       the number of its entries in the position
        secret of subjects          it is there from the first claim on
        deletions that wait         as many facts as offsets, and one of each from the claim on
        the position itself         a claim without one refuses a partition whose other keys are there

    A key that is lost and then written again stays noticed. Numbers that differ keep their difference, and a commit is
    refused if both are gone.

    Without a position nothing is compared. Raises StateMismatch for another format, ComponentUnreachable.
    """
    documents: list[Command] = [("HLEN", keys.documents(bucket)) for bucket in range(BUCKETS)]
    subjects: list[Command] = [("ZCARD", keys.subjects(bucket)) for bucket in range(BUCKETS)]
    position: Command = ("HMGET", keys.meta, *_FIELDS)
    reads: list[Command] = [
        ("ZCARD", keys.forgets),
        ("HLEN", keys.forget_facts),
        ("HEXISTS", keys.subject_secret, "secret"),
        ("EXISTS", keys.statistics),
        *(("HLEN", key) for key in keys.changes),
    ]
    for _ in range(_ATTEMPTS):
        stored, *answers, after = connection.batch([position, *reads, *documents, *subjects, position])
        if stored == after:
            break
    else:
        # Commits came between each time, so somebody counts, who looks as well.
        return
    known, waiting, secret, statistics, even, odd, *numbers = answers
    meta = _parsed(stored)
    if meta is None:
        return
    expected = {
        "documents": (sum(numbers[:BUCKETS]), meta.documents),
        "changes": ((even, odd)[meta.generation % 2], meta.version - meta.summed),
        "entries of the index of subjects": (sum(numbers[BUCKETS:]), meta.named),
        "word statistics": (statistics, min(meta.generation, 1)),
        "deletions that wait for receipts": (waiting, max(known, 1)),
        "secret of the index of subjects": (secret, 1),
    }
    lost = [f"{kind}: {there} there, {made} written" for kind, (there, made) in expected.items() if there != made]
    if lost:
        raise StateCorrupt(
            f"Redis has lost keys of partition {keys.number}: {'; '.join(lost)}. Stop ingest and run `streamtopic "
            "rebuild`, which counts the log again"
        )


def check_settings(model: str, have: ModelSettings, want: ModelSettings) -> None:
    """Raise StateMismatch if a state was made with other settings than those that it must have."""
    before, now = _named(have), _named(want)
    changed = [name for name in now | before if before.get(name) != now.get(name)]
    if changed:
        listed = ", ".join(f"{name} {before.get(name, 'none')} and not {now.get(name, 'none')}" for name in changed)
        back = ", ".join(f"{name} = {before.get(name, 'none')}" for name in changed)
        raise StateMismatch(
            f"the state of {model} was counted under other settings or limits of records ({listed}), and what is in it "
            f"rests on them: set {back}, go back to the program that counted it, or rebuild the state from the log "
            "under the present ones (`streamtopic rebuild`)"
        )


def _named(settings: ModelSettings) -> dict[str, str]:
    """Return settings and limits of records by their names."""
    named = {name: str(value) for name, value in asdict(settings).items()}
    limits = dict(limit.partition("=")[::2] for limit in named.pop("limits").split(","))
    return named | limits
