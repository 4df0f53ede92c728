"""The position of a partition: offset, versions and counters in one hash; and whether its keys are there."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamtopic.documents.events import keeps_days
from streamtopic.errors import StateCorrupt, StateMismatch, StateMissing
from streamtopic.formats import STATE, refusal
from streamtopic.state.change_log import Place
from streamtopic.state.connection import Connection
from streamtopic.state.redis_keys import BUCKETS, MARK, PartitionKeys

__all__ = [
    "MURMUR2",
    "Fixed",
    "LastRecord",
    "Meta",
    "changed_limits",
    "claimed_keys",
    "fixed",
    "mismatch",
    "read_meta",
    "require_keys",
]

MURMUR2 = "murmur2"
"""The default partitioner."""

_Read = tuple[str | bytes, ...]

Fixed = tuple[int, int, int, str, str]
"""Format, cap, partitions, partitioner and limits: fixed when a model is created."""


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

    @classmethod
    def parse(cls, text: str) -> "LastRecord | None":
        """Read the field; None for "", before the first record. Raises ValueError."""
        if not text:
            return None
        topic, offset, digest = text.split(":")
        return cls(topic, int(offset), digest)

    def pack(self) -> str:
        """Return the field."""
        return f"{self.topic}:{self.offset}:{self.digest}"


@dataclass(frozen=True, slots=True)
class Meta:
    """A partition's meta hash. Times are milliseconds since 1970 by Redis's clock, unless a line says otherwise.

    partitions: number of partitions of the model.
    cap: the model's cap of a document's weight f(L).
    next_offset: the first record that is not counted yet.
    version: grows with every commit.
    commit: id of the last change; it names this history of the partition and no other.
    fence: fencing token of the newest writer.
    time_ms: newest time of a counted record, by the log's clock; 0 before the first.
    moved_ms: time of the last commit.
    next_word: the first word id that was never given.
    words: number of words of live documents.
    documents: number of live documents.
    totals: outcome of a record to the number of records, since the state was created.
    removed: offset after the last flush with a deletion.
    removals: number of documents that ever left.
    generation: number of generations of changes before this one.
    summed: version that the word statistics are of.
    summed_ms: time at which they were written.
    unsummed: bytes of the changes since then.
    trimmed: the changes hold no document that left before this offset.
    through: records of other partitions' keys before this offset were dealt with before the state was last rebuilt.
    marked: SHA-1 of the secret of the partition, in hex (`require_keys`).
    last: the record that was counted last; None before the first.
    """

    partitions: int
    cap: int
    next_offset: int
    version: int
    commit: str
    fence: int
    time_ms: int
    moved_ms: int
    next_word: int
    words: int
    documents: int
    totals: Mapping[str, int]
    removed: int
    removals: int
    generation: int
    summed: int
    summed_ms: int
    unsummed: int
    trimmed: int
    through: int
    marked: str
    last: LastRecord | None = None

    @classmethod
    def parse(cls, fields: Mapping[bytes, bytes]) -> "Meta":
        """Read the hash. Raises StateMismatch for another format and StateCorrupt for a hash that is damaged."""
        text = {key.decode(): value.decode("ascii", "replace") for key, value in fields.items()}
        # Before any field is read: those of another format may be missing, which is not damage.
        found = text.get("schema", "")
        if found != str(STATE.number):
            raise StateMismatch(refusal(STATE, found))

        def number(name: str) -> int:
            return int(text[name])

        try:
            return cls(
                partitions=number("partitions"),
                cap=number("cap"),
                next_offset=number("next"),
                version=number("version"),
                commit=text["commit"],
                fence=number("fence"),
                time_ms=number("time"),
                moved_ms=number("moved"),
                next_word=number("next_word"),
                documents=number("documents"),
                totals=_counters(text, "total:"),
                words=number("words"),
                removed=number("removed"),
                removals=number("removals"),
                generation=number("generation"),
                summed=number("summed"),
                summed_ms=number("summed_at"),
                unsummed=number("unsummed"),
                trimmed=number("trimmed"),
                through=number("through"),
                marked=text["marked"],
                last=LastRecord.parse(text.get("last", "")),
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
    fields = connection.call("HGETALL", keys.meta)
    if not fields:
        raise StateMissing(
            f"there is no state under {keys.tag}: start `streamtopic ingest`, or check model and address"
        )
    return Meta.parse(fields)


def claimed_keys(keys: PartitionKeys) -> list[str]:
    """Return the keys that a claim looks at, in the order of `claim_partition.lua`."""
    subjects = [keys.subjects(bucket) for bucket in range(BUCKETS)]
    documents = [keys.documents(bucket) for bucket in range(BUCKETS)]
    first = [keys.meta, keys.subject_secret, keys.forgets]
    return [*first, *subjects, keys.words, keys.statistics, *keys.changes, *documents]


def require_keys(connection: Connection, keys: PartitionKeys) -> None:
    """Raise StateCorrupt if keys of a partition are gone.

    Redis may lose some keys and keep others: a master that a slot was moved to loses the end of its append-only file,
    somebody deletes a key, a server evicts. A key that is gone looks like one that has nothing in it, so each kind is
    compared with something that another key says:

        documents, words            the numbers of live documents and of words in the position
        word statistics             they are there from the second generation of changes on
        the index of subjects       each part has a mark in it from the claim on: an entry with an empty name
        secret of subjects          its digest is in the position
        deletions that wait         the stream is there from the claim on, also without entries
        the position itself         a claim without one refuses a partition whose other keys are there

    A key that is lost and then written again stays noticed. Numbers that differ keep their difference, a mark is
    written by a claim only, and a commit is refused if the stream is gone.

    Without a position nothing is compared. Raises StateMismatch for another format, ComponentUnreachable.
    """
    documents: list[_Read] = [("HLEN", keys.documents(bucket)) for bucket in range(BUCKETS)]
    # From the first of all members up to the mark, which sorts before all others.
    subjects: list[_Read] = [("ZLEXCOUNT", keys.subjects(bucket), "-", b"[" + MARK) for bucket in range(BUCKETS)]
    reads: list[_Read] = [
        ("HGETALL", keys.meta),
        ("EXISTS", keys.forgets),
        ("HGET", keys.subject_secret, "secret"),
        ("HLEN", keys.words),
        ("EXISTS", keys.statistics),
    ]
    # Atomic: a commit between two of them would look like a loss.
    answers = connection.batch([*reads, *documents, *subjects], atomic=True)
    fields, stream, secret, words, statistics, *numbers = answers
    if not fields:
        return
    meta = Meta.parse(fields)
    held = sum(numbers[:BUCKETS])
    lost = []
    if held != meta.documents:
        lost.append(f"{held} documents are there, {meta.documents} are counted")
    if words < meta.words:
        lost.append(f"{words} words of {meta.words}")
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


def fixed(answer: Sequence[bytes | None]) -> Fixed:
    """Return format, cap, partitions, partitioner and limits from the fields of Redis, in this order.

    Fields that are missing, as a state of another format may have them, are 0 or "".
    """
    number, cap, partitions, partitioner, limits = answer
    hashed, text = ((field or b"").decode(errors="replace") for field in (partitioner, limits))
    return int(number or 0), int(cap or 0), int(partitions or 0), hashed, text


def mismatch(model: str, have: Fixed, want: Fixed) -> str:
    """Return the error text for settings that differ from those that the state was made with."""
    number, cap, partitions, partitioner, limits = have
    _, want_cap, want_partitions, want_partitioner, want_limits = want
    if number != STATE.number:
        return refusal(STATE, number, name=f"the state of {model}")
    remedy = "or rebuild the state from the log under the new setting (`streamtopic rebuild`)"
    if partitions != want_partitions:
        differs = (
            f"was made for {partitions} partitions, not {want_partitions}, and documents would be looked for where "
            f"they are not: go back to {partitions} partitions"
        )
    elif partitioner != want_partitioner:
        differs = (
            f"was made for partitioner {partitioner}, not {want_partitioner}, and documents would be looked for where "
            f"they are not: set partitioner = {partitioner}"
        )
    elif cap != want_cap:
        differs = f"was counted with document mass cap {cap}, not {want_cap}: go back to cap {cap}"
    elif keeps_days(limits) != keeps_days(want_limits):
        had, wants = ("with", "without") if keeps_days(limits) else ("without", "with")
        back = "true" if keeps_days(limits) else "false"
        differs = f"was counted {had} the days of documents, not {wants} them: go back to keep_days = {back}"
    else:
        changed = changed_limits(limits, want_limits)
        differs = (
            f"was counted under other limits of records ({changed}), which decide on refusals: go back to the "
            "program, and to the setting `input`, that counted it"
        )
        remedy = "or count it again from the log (`streamtopic rebuild`)"
    return f"the state of {model} {differs}, {remedy}"


def changed_limits(found: str, wanted: str) -> str:
    """Return the names and values of the limits of records that differ, for an error text; "" if none does.

    found: limits that a state was counted under, as `events.LIMITS`.
    wanted: limits of this program.
    """
    before = dict(limit.partition("=")[::2] for limit in found.split(","))
    now = dict(limit.partition("=")[::2] for limit in wanted.split(","))
    changed = []
    for name in now | before:
        old = before.get(name, "none")
        new = now.get(name, "none")
        if old != new:
            changed.append(f"{name} {old} and not {new}")
    return ", ".join(changed)


def _counters(text: Mapping[str, str], prefix: str) -> dict[str, int]:
    found = {}
    for key, value in text.items():
        if key.startswith(prefix):
            found[key.removeprefix(prefix)] = int(value)
    return found
