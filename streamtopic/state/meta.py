"""The position of a partition: offset, versions and counters in one hash; and whether its keys are there."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from streamtopic.counts import Weighting
from streamtopic.documents.events import LIMITS
from streamtopic.errors import StateCorrupt, StateMismatch, StateMissing
from streamtopic.formats import STATE, refusal
from streamtopic.state.change_log import Place
from streamtopic.state.connection import Codec, Command, Connection
from streamtopic.state.redis_keys import BUCKETS, MARK, PartitionKeys

__all__ = [
    "FIXED",
    "MURMUR2",
    "Facts",
    "LastRecord",
    "Meta",
    "ModelSettings",
    "check_settings",
    "claimed_keys",
    "read_meta",
    "require_keys",
    "stored_settings",
]

MURMUR2 = "murmur2"
"""The default partitioner."""

# A commit between two reads would look like a loss: then all is read again.
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings that are fixed when a model is created.

    partitions: number of partitions of the documents topic.
    cap: upper bound of a document's weight f(L).
    partitioner: hash that chooses the partition of a key, `murmur2` or `crc32`.
    limits: every limit that refuses a record, as `events.LIMITS`.
    """

    partitions: int
    cap: int
    partitioner: str = MURMUR2
    limits: str = LIMITS

    @property
    def weighting(self) -> Weighting:
        """The weight of a document's word pairs."""
        return Weighting(self.cap)

    def fields(self) -> dict[str, str]:
        """Return the fields of Redis that hold them, with the format of the state."""
        return {
            "schema": str(STATE.number),
            "cap": str(self.cap),
            "partitions": str(self.partitions),
            "partitioner": self.partitioner,
            "limits": self.limits,
        }


FIXED = ("schema", "cap", "partitions", "partitioner", "limits")
"""Names of those fields."""


def stored_settings(answer: Sequence[bytes | None]) -> tuple[int, ModelSettings]:
    """Return format and settings from the fields of Redis, in the order of FIXED.

    Fields that are missing, as a state of another format may have them, are 0 or "".
    """
    number, cap, partitions, partitioner, limits = answer
    hashed, text = ((field or b"").decode(errors="replace") for field in (partitioner, limits))
    return int(number or 0), ModelSettings(int(partitions or 0), int(cap or 0), hashed, text)


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
class Facts:
    """The part of a Meta that a commit writes as one value: its writer knows all of it beforehand.

    time_ms: newest time of a counted record, by the log's clock, milliseconds since 1970; 0 before the first.
    next_word: the first word id that was never given.
    words: number of words of live documents.
    documents: number of live documents.
    totals: outcome of a record to the number of records, since the state was created.
    removed: offset after the last flush with a deletion.
    removals: number of documents that ever left.
    generation: number of generations of changes before this one.
    summed: version that the word statistics are of.
    summed_next: the first record that was not counted then.
    unsummed: bytes of the changes since then.
    trimmed: the changes hold no document that left before this offset.
    last: the record that was counted last; None before the first.
    """

    time_ms: int = 0
    next_word: int = 0
    words: int = 0
    documents: int = 0
    totals: Mapping[str, int] = field(default_factory=dict)
    removed: int = 0
    removals: int = 0
    generation: int = 0
    summed: int = 1
    summed_next: int = 0
    unsummed: int = 0
    trimmed: int = 0
    last: LastRecord | None = None

    def pack(self) -> bytes:
        """Return the bytes that Redis keeps."""
        return _FACTS.pack(Facts(**{one.name: getattr(self, one.name) for one in fields(Facts)}))


_FACTS = Codec(Facts, "a partition's position cannot be read: run `streamtopic rebuild`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta(Facts):
    """A partition's meta hash. Times are milliseconds since 1970 by Redis's clock.

    partitions: number of partitions of the model.
    cap: the model's cap of a document's weight f(L).
    next_offset: the first record that is not counted yet.
    version: grows with every commit.
    commit: id of the last change; it names this history of the partition and no other.
    fence: fencing token of the newest writer.
    moved_ms: time of the last commit.
    summed_ms: time at which the word statistics were written.
    through: records of other partitions' keys before this offset were dealt with before the state was last rebuilt.
    marked: SHA-1 of the secret of the partition, in hex (`require_keys`).
    """

    partitions: int
    cap: int
    next_offset: int
    version: int
    commit: str
    fence: int
    moved_ms: int
    summed_ms: int
    through: int
    marked: str

    @classmethod
    def parse(cls, stored: Mapping[bytes, bytes]) -> "Meta":
        """Read the hash. Raises StateMismatch for another format and StateCorrupt for a hash that is damaged."""
        # Before any field is read: those of another format may be missing, which is not damage.
        found = stored.get(b"schema", b"").decode("ascii", "replace")
        if found != str(STATE.number):
            raise StateMismatch(refusal(STATE, found))
        try:
            facts = _FACTS.unpack(stored[b"facts"])
            return cls(
                **{one.name: getattr(facts, one.name) for one in fields(facts)},
                partitions=int(stored[b"partitions"]),
                cap=int(stored[b"cap"]),
                next_offset=int(stored[b"next"]),
                version=int(stored[b"version"]),
                commit=stored[b"commit"].decode(),
                fence=int(stored[b"fence"]),
                moved_ms=int(stored[b"moved"]),
                summed_ms=int(stored[b"summed_at"]),
                through=int(stored[b"through"]),
                marked=stored[b"marked"].decode(),
            )
        except (KeyError, ValueError) as error:
            raise StateCorrupt(f"partition state cannot be read ({error}): run `streamtopic rebuild`") from None

    @property
    def accepted(self) -> int:
        """Documents that were ever counted, those that left since included."""
        return self.totals.get("added", 0) + self.totals.get("replaced", 0)

    @property
    def holds_removed(self) -> bool:
        """Whether the changes may hold documents that left."""
        return self.removed > self.trimmed

    @property
    def place(self) -> Place:
        """The moment of the partition's history."""
        return Place(self.version, self.commit)


def read_meta(connection: Connection, keys: PartitionKeys) -> Meta:
    """Return the position of a partition.

    Raises StateMissing if there is no state, StateMismatch for one of another format, StateCorrupt.
    """
    stored = connection.call("HGETALL", keys.meta)
    if not stored:
        raise StateMissing(
            f"there is no state under {keys.tag}: start `streamtopic ingest`, or check model and address"
        )
    return Meta.parse(stored)


def claimed_keys(keys: PartitionKeys) -> list[str]:
    """Return the keys that a claim looks at, in the order of `claim_partition.lua`."""
    subjects = [keys.subjects(bucket) for bucket in range(BUCKETS)]
    documents = [keys.documents(bucket) for bucket in range(BUCKETS)]
    first = [keys.meta, keys.subject_secret, keys.forgets]
    return [*first, *subjects, keys.statistics, *keys.changes, *documents]


def require_keys(connection: Connection, keys: PartitionKeys) -> None:
    """Raise StateCorrupt if keys of a partition are gone.

    Redis may lose some keys and keep others: a master that a slot was moved to loses the end of its append-only file,
    somebody deletes a key, a server evicts. A key that is gone looks like one that has nothing in it, so each kind is
    compared with something that another key says:

        documents                   the number of live documents in the position
        changes                     there is one for each version since the word statistics
        word statistics             they are there from the second generation of changes on
        the index of subjects       each part has a mark in it from the claim on: an entry with an empty name
        secret of subjects          its digest is in the position
        deletions that wait         the stream is there from the claim on, also without entries
        the position itself         a claim without one refuses a partition whose other keys are there

    A key that is lost and then written again stays noticed. Numbers that differ keep their difference, a mark is
    written by a claim only, and a commit is refused if the stream is gone.

    Without a position nothing is compared. Raises StateMismatch for another format, ComponentUnreachable.
    """
    documents: list[Command] = [("HLEN", keys.documents(bucket)) for bucket in range(BUCKETS)]
    # From the first of all members up to the mark, which sorts before all others.
    subjects: list[Command] = [("ZLEXCOUNT", keys.subjects(bucket), "-", b"[" + MARK) for bucket in range(BUCKETS)]
    position: Command = ("HGETALL", keys.meta)
    reads: list[Command] = [
        ("EXISTS", keys.forgets),
        ("HGET", keys.subject_secret, "secret"),
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
    stream, secret, statistics, even, odd, *numbers = answers
    if not stored:
        return
    meta = Meta.parse(stored)
    held = sum(numbers[:BUCKETS])
    lost = []
    if held != meta.documents:
        lost.append(f"{held} documents are there, {meta.documents} are counted")
    changes, made = (even, odd)[meta.generation % 2], meta.version - meta.summed
    if changes != made:
        lost.append(f"{changes} changes are there, {made} were made")
    whole = {
        "the word statistics": bool(statistics) or not meta.generation,
        "the deletions that wait for receipts": bool(stream),
        "the secret of the index of subjects": _digest(secret) == meta.marked,
        "a part of the index of subjects": all(numbers[BUCKETS:]),
    }
    lost += [f"{kind} are gone" for kind, there in whole.items() if not there]
    if lost:
        raise _corrupt(keys.number, "; ".join(lost))


def _digest(secret: bytes | None) -> str:
    # As Lua has it, for `claim_partition.lua`. The secret is 32 random bytes, which no digest gives away.
    return hashlib.sha1(secret or b"", usedforsecurity=False).hexdigest()


def _corrupt(partition: int, text: str) -> StateCorrupt:
    return StateCorrupt(
        f"Redis has lost keys of partition {partition}: {text}. Stop ingest and run `streamtopic rebuild`, which "
        "counts the log again"
    )


def check_settings(model: str, number: int, have: ModelSettings, want: ModelSettings) -> None:
    """Raise StateMismatch if a state has another format, or was made with other settings.

    number: its format.
    """
    if number != STATE.number:
        raise StateMismatch(refusal(STATE, number, name=f"the state of {model}"))
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
    limits = dict(limit.partition("=")[::2] for limit in settings.limits.split(","))
    return settings.fields() | {"limits": "", "schema": "", **limits}
