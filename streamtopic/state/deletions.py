"""Deletions in Redis: those that wait for their receipts, and the traces that all leave.

    Forget, Forgets     applied deletions, which wait for their receipts
    SubjectIndex        the live documents of people
    Suppressed          what was said about suppressed ids and subjects, besides the log
    LinkKeys            the keys that tie receipts to request ids
    Residue             where traces of deleted documents are left, and how long

Deletions are written with the counts, by the script that commits a flush. The keys are the publisher's. The ledger of
traces follows from a few marks. A mark belongs to a partition and a stage. It says that every deletion before an offset
had reached the stage at a time. So its size depends on the number of partitions, and not on that of deleted documents.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from streamtopic.documents.events import subject_digest
from streamtopic.errors import StateCorrupt
from streamtopic.state.connection import Codec, Command, Connection, ModelKeys, PartitionKeys
from streamtopic.state.meta import require_keys

__all__ = [
    "Forget",
    "ForgetKind",
    "Forgets",
    "LinkKeys",
    "Marks",
    "Outstanding",
    "Residue",
    "ResidueState",
    "Rewrite",
    "Stage",
    "SubjectIndex",
    "Suppressed",
    "Traces",
    "month_of",
    "months_before",
]

_KEY_BYTES = 32
# Name of the field; no record has it.
_FINGERPRINT = b""
_SECRET = b"secret"
# Subjects that are counted in one batch, and documents of one that are read at a time.
_SUBJECTS = 1_000
_MEMBERS = 1_000


class ForgetKind(StrEnum):
    """Why a document was taken out of the counts."""

    DELETED = "deleted"
    NOT_FOUND = "not_found"
    REPLACED = "replaced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Forget:
    """One deletion, with all facts of its receipt. Times are milliseconds since 1970.

    offset: of the delete's own record.
    document: id of the document, kept only until the receipt is published.
    kind: why the document was taken out.
    request: request id of the producer.
    salt: random bytes of the requester, who checks the receipt with them; b"" without one.
    document_offset: of the record that had added the document, -1 if not found.
    received_ms: time of the delete's record.
    applied_ms: time at which the document was counted out.
    trace: W3C `traceparent` of the request; b"" without one.

    Entries without a receipt: a replacement, which is kept so that its age is seen; a document that a refused change
    removed, unless its record names a request.
    """

    offset: int
    document: bytes
    kind: ForgetKind
    request: str
    salt: bytes
    document_offset: int
    received_ms: int
    applied_ms: int
    trace: bytes = b""

    @property
    def found(self) -> bool:
        """Whether there was a document to forget."""
        return self.kind is not ForgetKind.NOT_FOUND

    @property
    def wants_receipt(self) -> bool:
        """Whether somebody asked for the deletion."""
        if self.kind is ForgetKind.REFUSED:
            return bool(self.request)
        return self.kind in {ForgetKind.DELETED, ForgetKind.NOT_FOUND}


_FORGETS = Codec(
    Forget,
    "a deletion that waits for its receipt cannot be read: stop ingest, delete the keys in Redis that end with "
    ":forgets and :forgets:facts, and run `streamtopic rebuild`, which finds them in the log",
)


class Forgets:
    """A partition's deletions that wait, by the offsets of their records. Its writer adds some with each flush.

    One that is there stays as it is: a log that is counted again may know less of it than when it was counted first.
    """

    def __init__(self, connection: Connection, keys: PartitionKeys) -> None:
        self._connection = connection
        self._order, self._facts = keys.forgets, keys.forget_facts

    def __len__(self) -> int:
        return max(int(self._connection.call("ZCARD", self._order)) - 1, 0)

    def made(self) -> list[Command]:
        """Return the commands that make both keys, which are there without deletions as well (`meta.require_keys`)."""
        return [("ZADD", self._order, "-1", ""), ("HSET", self._facts, "", "")]

    def added(self, forgets: Iterable[Forget]) -> list[Command]:
        """Return the commands that add deletions."""
        steps: list[Command] = []
        for forget in forgets:
            steps.append(("ZADD", self._order, forget.offset, forget.offset))
            steps.append(("HSETNX", self._facts, forget.offset, _FORGETS.pack(forget)))
        return steps

    def _is_whole(self) -> bool:
        """Return whether both keys are there, and have as many entries."""
        known, there = self._connection.batch([("ZCARD", self._order), ("HLEN", self._facts)])
        return bool(known) and bool(known == there)

    def mend(self) -> None:
        """Let the offsets be those of the facts that are there. The log names the other deletions without a receipt."""
        if not self._is_whole():
            offsets = self._connection.call("HKEYS", self._facts)
            scored = [part for offset in offsets for part in (offset or -1, offset)]
            added: list[Command] = [("ZADD", self._order, *scored)] if scored else []
            self._connection.change([("DEL", self._order), *added])

    def require(self) -> None:
        """Raise StateCorrupt if Redis has lost one of the keys. For those who may not read all of `require_keys`."""
        if not self._is_whole():
            raise StateCorrupt(
                f"Redis has lost deletions that wait for receipts ({self._order} and {self._facts}): stop ingest and "
                "run `streamtopic rebuild`, which finds them in the log"
            )

    def read(self, from_offset: int = 0, count: int = 1000) -> list[Forget]:
        """Return the deletions of records from `from_offset` on, oldest first. count: most of them."""
        offsets = self._connection.call("ZRANGEBYSCORE", self._order, from_offset, "+inf", "LIMIT", 0, count)
        found = self._connection.call("HMGET", self._facts, *offsets) if offsets else ()
        # Some may have got their receipt between the two.
        return [_FORGETS.unpack(packed) for packed in found if packed is not None]

    def each(self, from_offset: int = 0) -> Iterator[Forget]:
        """Yield the deletions of records from `from_offset` on, oldest first, as many as there are."""
        while page := self.read(from_offset):
            yield from page
            from_offset = page[-1].offset + 1

    def oldest(self) -> Forget | None:
        """Return the deletion of the first record, None if none waits."""
        return next(iter(self.read(0, 1)), None)

    def mark(self) -> tuple[int, bytes]:
        """Return the number of deletions and the offset of the newest; equal if nothing has changed."""
        newest = self._connection.call("ZRANGE", self._order, -1, -1)
        return len(self), b"".join(newest)

    def drop(self, forgets: Iterable[Forget]) -> None:
        """Remove deletions whose receipts are published."""
        offsets = [forget.offset for forget in forgets]
        for start in range(0, len(offsets), 1000):
            some = offsets[start : start + 1000]
            # Both or none: a difference looks like damage.
            self._connection.change([("ZREM", self._order, *some), ("HDEL", self._facts, *some)])


class SubjectIndex:
    """The live documents of people, as far as the partitions have counted, for those who do not write the partitions.

    partitions: number of partitions of the model.
    """

    def __init__(self, connection: Connection, model: str, partitions: int) -> None:
        self._connection = connection
        keys = ModelKeys(model)
        self._partitions = [keys.partition(partition) for partition in range(partitions)]

    def count(self, subjects: Iterable[str]) -> dict[str, int]:
        """Return the number of live documents of each subject."""
        found = dict.fromkeys(subjects, 0)
        names = list(found)
        for start in range(0, len(names), _SUBJECTS):
            some = names[start : start + _SUBJECTS]
            for keys, secret in self._known():
                digests = [subject_digest(subject, secret) for subject in some]
                answers = self._connection.batch([_count_of(keys, digest) for digest in digests])
                for subject, documents in zip(some, answers, strict=True):
                    found[subject] += int(documents)
        return found

    def documents(self, subjects: Iterable[str], partition: int) -> list[bytes]:
        """Return the keys of the live documents of these subjects in one partition, each once.

        Raises StateCorrupt if Redis has lost keys of the partition: documents that a lost index no longer names would
        count as forgotten.
        """
        keys = self._partitions[partition]
        secret = self._connection.call("HGET", keys.subject_secret, _SECRET)
        if secret is None:
            require_keys(self._connection, keys)
            return []
        found: dict[bytes, None] = {}
        for subject in subjects:
            for page in self._pages(keys, subject_digest(subject, secret)):
                found.update(dict.fromkeys(page))
        require_keys(self._connection, keys)
        return list(found)

    def _pages(self, keys: PartitionKeys, digest: bytes) -> Iterator[list[bytes]]:
        """Yield the keys of a subject's documents, some at a time: no call may hold Redis up."""
        key, (first, last) = keys.subjects(keys.bucket(digest)), _span(digest)
        while members := self._connection.call("ZRANGEBYLEX", key, first, last, "LIMIT", 0, _MEMBERS):
            yield [member[len(digest) :] for member in members]
            first = b"(" + members[-1]

    def _known(self) -> list[tuple[PartitionKeys, bytes]]:
        """Return the partitions that have a state, each with its secret."""
        secrets_found = self._connection.batch([("HGET", keys.subject_secret, _SECRET) for keys in self._partitions])
        return [(keys, secret) for keys, secret in zip(self._partitions, secrets_found, strict=True) if secret]


def _span(digest: bytes) -> tuple[bytes, bytes]:
    """Return the ends of a subject's range in the index."""
    # No id has a byte that sorts after 0xff, since ids are UTF-8.
    return b"[" + digest, b"(" + digest + b"\xff"


def _count_of(partition: PartitionKeys, digest: bytes) -> tuple[str | bytes, ...]:
    """Return the command that counts the documents of a subject in the index of a partition."""
    return "ZLEXCOUNT", partition.subjects(partition.bucket(digest)), *_span(digest)


class Suppressed:
    """A copy of the records about suppressions: whoever writes over them in the log must not lift any.

    The fingerprint of the key that they were made with is in it as well.
    """

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("suppressed")

    def fingerprint(self, own: str = "") -> str:
        """Return the fingerprint of the model's key, "" without one. own: becomes it if there is none."""
        if own:
            self._connection.call("HSETNX", self._key, _FINGERPRINT, own)
        return (self._connection.call("HGET", self._key, _FINGERPRINT) or b"").decode(errors="replace")

    def records(self) -> dict[bytes, bytes]:
        """Return key and value of each record."""
        found: dict[bytes, bytes] = self._connection.call("HGETALL", self._key)
        return {key: value for key, value in found.items() if key != _FINGERPRINT}

    def keep(self, key: bytes, value: bytes) -> None:
        """Keep a record in place of the one with the same key."""
        self._connection.call("HSET", self._key, key, value)

    def clear(self) -> None:
        """Forget all of it, the fingerprint too."""
        self._connection.call("DEL", self._key)


def month_of(seconds: float) -> str:
    """Return the month of a time, as "2026-11"; such names sort by time. seconds: since 1970."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m")


def months_before(month: str, count: int) -> str:
    """Return the month that lies `count` months before another one."""
    year, number = (int(part) for part in month.split("-"))
    months = year * 12 + number - 1 - count
    years, rest = divmod(months, 12)
    return f"{years:04d}-{rest + 1:02d}"


class LinkKeys:
    """A model's keys by month, which tie receipts to request ids."""

    # Random, and only in Redis: a key that is destroyed there cannot be derived again from anything.

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("links")

    def all(self) -> dict[str, bytes]:
        """Return all keys: month to key."""
        fields = self._connection.call("HGETALL", self._key)
        return {month.decode(): key for month, key in fields.items()}

    def of(self, month: str) -> bytes:
        """Return the key of a month, made on first use."""
        # Of two processes that make one, one decides: both read the same key afterwards.
        drawn = secrets.token_bytes(_KEY_BYTES)
        # Together: a Redis that is set back between the two would have none.
        _, found = self._connection.batch([("HSETNX", self._key, month, drawn), ("HGET", self._key, month)])
        return bytes(found)

    def destroy(self, before: str) -> int:
        """Destroy the keys of the months before this one; return their number."""
        names = self._connection.call("HKEYS", self._key)
        months = [name for name in names if name.decode() < before]
        if months:
            self._connection.call("HDEL", self._key, *months)
        return len(months)


# Bounds the bytes of a mark, for deletions that never stop (docs/decisions/0021).
_MOST_STEPS = 64


class Stage(StrEnum):
    """How far a deletion has come. The service sees the first three by itself; the operator attests the last.

    STATE: nothing in Redis has a trace of the document: documents, changes, counts, the base model, which has no noise,
        versions that wait to be published.
    LOG: nor have the documents topic and the releases topic; versions with the document are withdrawn.
    FILE: Redis has rewritten its append-only file since the document was out of the state.
    BACKUPS: all backups from before are destroyed.
    """

    STATE = "state"
    LOG = "log"
    FILE = "file"
    BACKUPS = "backups"


@dataclass(frozen=True, slots=True)
class Marks:
    """The progress of one partition to one stage.

    steps: (offset, milliseconds since 1970), both ascending; deletions before the offset had reached the stage then.
    """

    steps: tuple[tuple[int, int], ...] = ()

    @property
    def offset(self) -> int:
        """Every deletion before this offset has reached the stage."""
        return self.steps[-1][0] if self.steps else 0

    def reached(self, offset: int) -> int | None:
        """Return by when the deletion at this offset had reached the stage; None while it has not."""
        times = (time_ms for before, time_ms in self.steps if offset < before)
        return next(times, None)

    def by(self, time_ms: int) -> int:
        """Return the offset before which all deletions had reached the stage at this time."""
        offsets = (before for before, at in self.steps if at <= time_ms)
        return max(offsets, default=0)

    def moved(self, offset: int, time_ms: int) -> "Marks":
        """Return the marks with one more step. A step that is not ahead of the last changes nothing."""
        if offset <= self.offset:
            return self
        last = self.steps[-1][1] if self.steps else 0
        # The next step then dates the deletions of one that went: later than it was, and never earlier.
        kept = self.steps if len(self.steps) < _MOST_STEPS else self.steps[::2]
        # `by` and `reached` need ascending times, and a clock may have been set back.
        step = offset, max(time_ms, last)
        return Marks((*kept, step))


@dataclass(frozen=True, slots=True)
class Outstanding:
    """The deletions that have not reached a stage yet.

    documents: their number at most, replaced documents included.
    since_ms: time by which the oldest was counted out, milliseconds since 1970; None without one.
    """

    documents: int = 0
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of the append-only file that Redis was asked for.

    server: run id of the Redis that was asked; a restart forgets the request and changes the id.
    covers: partition to the offset before which Redis held no trace of a deleted document at that time.
    """

    server: str
    covers: Mapping[int, int]


@dataclass(slots=True)
class Traces:
    """The traces of the deletions of one partition.

    counted: the marks of deletions that were counted, by which they are dated.
    left: steps of (offset, number of documents that had left before it).
    stages: stage to its marks.
    """

    counted: Marks = field(default_factory=Marks)
    left: Marks = field(default_factory=Marks)
    stages: dict[Stage, Marks] = field(default_factory=dict)

    def of(self, stage: Stage) -> Marks:
        """Return the marks of a stage."""
        return self.stages.get(stage, Marks())

    @property
    def done(self) -> int:
        """The offset before which no trace of a deleted document is left."""
        return min(self.of(stage).offset for stage in Stage)


@dataclass(slots=True)
class Residue:
    """The traces of all partitions. Times are milliseconds since 1970.

    traces: by partition.
    looked: time of the last look through the logs.
    asked: time of the last request to Redis to rewrite its file.
    rewrite: the rewrite that is under way, None without one.
    forbidden: why the service may not ask for a rewrite, "" if it may.
    attested: stage to the time up to which the operator attests it.
    completed: partition to the offset before which completions are signed.
    """

    traces: dict[int, Traces] = field(default_factory=dict)
    looked: int = 0
    asked: int = 0
    rewrite: Rewrite | None = None
    forbidden: str = ""
    attested: Mapping[Stage, int] = field(default_factory=dict)
    completed: Mapping[int, int] = field(default_factory=dict)

    def of(self, partition: int) -> Traces:
        """Return the traces of a partition, none before its first deletion."""
        return self.traces.get(partition, Traces())

    def move(self, stage: Stage, offsets: Mapping[int, int], now_ms: int) -> None:
        """Move the marks of a stage, where a deletion waits for it. offsets: by partition."""
        for partition, traces in self.traces.items():
            marks = traces.of(stage)
            # A step without a deletion would date nothing, and only a few steps are kept.
            if marks.offset < traces.left.offset:
                traces.stages[stage] = marks.moved(offsets.get(partition, 0), now_ms)

    def passed(self, *stages: Stage, by_ms: int | None = None) -> dict[int, int]:
        """Return, by partition, the offset before which deletions had passed all of these stages.

        by_ms: at which time; None for now.
        """
        found = {}
        for partition, traces in self.traces.items():
            marks = map(traces.of, stages)
            found[partition] = min(one.offset if by_ms is None else one.by(by_ms) for one in marks)
        return found

    def behind(self, stage: Stage, offsets: Mapping[int, int] | None = None) -> bool:
        """Return whether a deletion waits for a stage. offsets: by partition, counts only deletions before them."""
        for partition, traces in self.traces.items():
            end = traces.left.offset
            if traces.of(stage).offset < (end if offsets is None else min(end, offsets[partition])):
                return True
        return False

    def waiting(self) -> dict[Stage, Outstanding]:
        """Return, for each stage, the deletions that have not reached it."""
        found = {}
        for stage in Stage:
            documents, since = 0, list[int]()
            for traces in self.traces.values():
                at = traces.of(stage).offset
                if at < traces.left.offset:
                    # The number before the mark is known for some offsets only: with an older one it is too large.
                    earlier = (total for offset, total in traces.left.steps if offset <= at)
                    documents += traces.left.steps[-1][1] - max(earlier, default=0)
                    since += [dated] if (dated := traces.counted.reached(at)) is not None else []
            found[stage] = Outstanding(documents, min(since, default=None))
        return found

    def reached(self, partition: int, offset: int) -> dict[Stage, int | None]:
        """Return by when a deletion had reached each stage; None for a stage that is still ahead."""
        return {stage: self.of(partition).of(stage).reached(offset) for stage in Stage}


class ResidueState:
    """The ledger in Redis, one hash. The leading scheduler writes marks, an operator's command attested times."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("residue")
        told = f"the ledger of deletions cannot be read: delete key {self._key}, the service makes a new one"
        self._codec = Codec(Residue, told)

    def read(self) -> Residue:
        """Return the ledger, empty if there is none yet. Raises StateCorrupt."""
        stored = {name.decode(): value for name, value in self._connection.call("HGETALL", self._key).items()}
        packed = stored.pop("observed", None)
        observed = Residue() if packed is None else self._codec.unpack(packed)
        times = {name: int(value) for name, value in stored.items()}
        attested = {stage: times[stage] for stage in Stage if stage in times}
        completed = {int(name): offset for name, offset in times.items() if name.isdecimal()}
        return replace(observed, attested=attested, completed=completed)

    def write(self, residue: Residue) -> None:
        """Store marks, times and the rewrite under way. Attested times and completions stay as they are in Redis."""
        # They have fields of their own: the operator may attest, and a publisher complete, at the same time.
        observed = replace(residue, attested={}, completed={})
        self._connection.call("HSET", self._key, "observed", self._codec.pack(observed))

    def attest(self, stage: Stage, time_ms: int) -> None:
        """Note that the operator attests a stage for everything that Redis or the log held before this time."""
        self._connection.call("HSET", self._key, stage.value, time_ms)

    def complete(self, offsets: Mapping[int, int]) -> None:
        """Note the offset of each partition before which completions are in the receipts topic."""
        for partition, offset in offsets.items():
            self._connection.call("HSET", self._key, partition, offset)

    def reset(self) -> None:
        """Remove the ledger. For a rebuild: counting the log again may bring back traces that had gone."""
        self._connection.call("DEL", self._key)
