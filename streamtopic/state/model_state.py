"""State that a model has once: settings, the scheduler's lease, base model, releases and outbox; and its removal.

`rebuild` takes counts out of Redis, so that they are made again from the log.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import msgpack

from streamtopic.errors import StateCorrupt, StateMismatch, StateMissing
from streamtopic.state.connection import (
    ACQUIRE_LEASE,
    BUCKETS,
    AlreadyApplied,
    Check,
    Codec,
    Command,
    Connection,
    ModelKeys,
    Outcome,
    PartitionKeys,
    Stale,
)
from streamtopic.state.deletions import Forgets
from streamtopic.state.meta import (
    POSITIONS,
    SETTINGS,
    STATE_FORMAT,
    ModelSettings,
    check_format,
    check_settings,
    read_position,
    stored_settings,
)
from streamtopic.state.reader import RemainingBase
from streamtopic.streams import Message

__all__ = [
    "NEWEST",
    "Base",
    "Lease",
    "ModelState",
    "OutboxEntry",
    "acquired",
    "counted_documents",
    "hold_lease",
    "lead",
    "leader",
    "note_removed",
    "record",
    "remove_base",
    "remove_model",
    "remove_partition",
]

NEWEST = 1 << 53
"""A number above those of all versions."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Leadership of the scheduler.

    holder: name of the leader.
    token: grows with every new leader; a commit with an older one is Stale.
    """

    holder: str
    token: int

    def guards(self, keys: ModelKeys) -> list[Check]:
        """Return what must be so for a write of the leading scheduler."""
        # Both: a Redis that was set back may give one token twice, and a name alone may lead again after somebody else.
        reason = "another scheduler leads, or the lease ended"
        fence, holder = ("GET", keys.named("fence")), ("GET", keys.named("lease"))
        return [(fence, str(self.token), reason), (holder, self.holder, reason)]


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A record that waits in the outbox.

    id: of the entry.
    record: the record to publish.
    """

    id: str
    record: Message


@dataclass(frozen=True, slots=True)
class Base:
    """The base model, before noise, so subscribers never get it. `serve` may read its facts, but not its bytes.

    version: of the release that was made with it.
    start: the documents that it was learned from, as of the cut that they were read at.
    anchors: (r,), the anchor word of each topic.
    capacity: number of deletions that it bears.
    counted: documents that had ever been accepted by then.
    capacity_rule: the rule that set it.
    guarantee: the mode that it was learned in.
    rules: the settings that it was learned by, which an update has in common with it.
    blob: bytes of the model, b"" if only the facts were read, or its mode keeps none.
    """

    version: int
    start: RemainingBase
    anchors: tuple[str, ...] = ()
    capacity: int = 0
    counted: int = 0
    capacity_rule: str = ""
    guarantee: str = ""
    rules: Mapping[str, Any] = field(default_factory=dict)
    blob: bytes = b""

    @property
    def documents(self) -> int:
        """Number of documents that it was trained on."""
        return self.start.documents


_BASES = Codec(Base, "the base model cannot be read: run `streamtopic unlearn --retrain`")
_RECORDS = Codec(Message, "a record in the outbox cannot be read: run `streamtopic unlearn --retrain`")


class ModelState:
    """A model's own keys, besides those of its partitions. Writes of the leading scheduler take its lease."""

    def __init__(self, connection: Connection, model: str, settings: ModelSettings) -> None:
        self.connection = connection
        self.model = model
        self.settings = settings
        self._keys = ModelKeys(model)

    @classmethod
    def open(cls, connection: Connection, model: str, settings: ModelSettings) -> "ModelState":
        """Return the model's state; a model that does not exist is created.

        Raises StateMismatch, with the remedy, if the model was created with other settings.
        """
        # Read first, so that only a user who creates models needs the right to run scripts. Of two processes that
        # create a model, one decides; the other compares its settings with the answer.
        while (found := cls.find(connection, model)) is None:
            key = ModelKeys(model).named("settings")
            made: list[Command] = [("HSET", key, "schema", STATE_FORMAT, "settings", SETTINGS.pack(settings))]
            connection.change(made, guards=[(("EXISTS", key), "0", "it is there")])
        check_settings(model, found.settings, settings)
        return found

    @classmethod
    def find(cls, connection: Connection, model: str) -> "ModelState | None":
        """Return the state of a model with the settings that it has; None if there is no such model.

        Raises StateMismatch if its state has another format, StateCorrupt.
        """
        number, settings = stored_settings(connection, model)
        if number is None:
            return None
        check_format(number, f"the state of {model}")
        if settings is None:
            raise StateCorrupt(f"the settings of {model} in Redis cannot be read: run `streamtopic rebuild`")
        return cls(connection, model, settings)

    def acquire(self, holder: str, ttl_ms: int) -> Lease | None:
        """Become or stay leader; None while another holder's lease runs.

        holder: name of this scheduler.
        ttl_ms: life of the lease by Redis's clock, milliseconds.
        """
        token = acquired(self.connection, self._keys, holder, ttl_ms)
        return Lease(holder, token) if token else None

    def release(self, lease: Lease) -> None:
        """Give leadership up. Nothing happens if another scheduler leads by now."""
        # Compared and deleted in one step: between two commands the lease could end and be taken by another.
        self._remove("lease", lease.holder)

    def stage(
        self,
        lease: Lease,
        version: int,
        *,
        before: int,
        release: Mapping[str, Any],
        records: Sequence[Message],
        base: Base | None = None,
    ) -> Outcome:
        """Commit one version, all or nothing.

        version: its number.
        before: number of the version before it.
        release: its release record, msgpack values; `entry` is its line in the ledger.
        records: its records for the releases topic.
        base: the new base model, if the version has one.

        AlreadyApplied if this version is stored with the same bytes. Stale if it is stored with others, if it
        does not follow the last one, or if another scheduler leads.
        """
        identity = _identity(release)
        last, known, _ = self._newest()
        if known != identity and last != before:
            return Stale(f"version {last} is the last one")
        releases, head, blob = self._named("releases", "base", "base:model")
        steps: list[Command] = [("XADD", releases, f"{version}-0", "release", _packed(release), "identity", identity)]
        steps += self._sent(records)
        if base is not None:
            steps.append(("HSET", head, "head", _BASES.pack(replace(base, blob=b""))))
            steps.append(("SET", blob, base.blob))
        newest = self._last_identity()
        follows: Check = (newest, known, f"version {last} is not the last one any more")
        return self.connection.change(steps, guards=[*lease.guards(self._keys), follows], done=(newest, identity))

    def adopt(self, lease: Lease, version: int, release: Mapping[str, Any]) -> Outcome:
        """Record a version as the ledger has it, after Redis was set back.

        It takes the place of another one that was staged under its number, and of the base model that came with that.

        release: its release record, as of `stage`.

        AlreadyApplied for a version that was recorded so, and for all before the newest. Stale if another scheduler
        leads.
        """
        identity = _identity(release)
        last, known, part = self._newest()
        if last > version or (last == version and known == identity):
            return AlreadyApplied()
        head = self.base_head()
        gone = self._named("base", "base:model") if head is not None and head.version == version else []
        releases = self._keys.named("releases")
        # A stream takes ascending ids only.
        entry = f"{version}-{part + 1 if last == version else 0}"
        steps: list[Command] = [("XDEL", releases, f"{last}-{part}")] if last == version else []
        steps.append(("XADD", releases, entry, "release", _packed(release), "identity", identity))
        steps += [("DEL", key) for key in gone]
        newest = self._last_identity()
        follows: Check = (newest, known, f"version {last} is not the last one any more")
        return self.connection.change(steps, guards=[*lease.guards(self._keys), follows], done=(newest, identity))

    def withdraw(self, lease: Lease, versions: Iterable[int], records: Sequence[Message]) -> Outcome:
        """Mark versions as withdrawn without a new one in their place.

        records: the tombstones that erase their chunks from the releases topic.
        """
        todo = list(versions)
        withdrawn = self._keys.named("withdrawn")
        steps: list[Command] = [("SADD", withdrawn, *todo), *self._sent(records)]
        # The first version stands for all, since they are added by one command.
        done = ("SISMEMBER", withdrawn, todo[0]), "1"
        return self.connection.change(steps, guards=lease.guards(self._keys), done=done)

    def _sent(self, records: Sequence[Message]) -> list[Command]:
        """Return the commands that put records into the outbox."""
        return [("XADD", self._keys.named("outbox"), "*", "record", _RECORDS.pack(record)) for record in records]

    def _last_identity(self) -> Command:
        """Return the command whose answer ends with the identity of the newest version."""
        return "XREVRANGE", self._keys.named("releases"), "+", "-", "COUNT", 1

    def _newest(self) -> tuple[int, str, int]:
        """Return the newest version, its identity, and which of its records it is; 0, "" and 0 before the first."""
        for row in self.connection.call(*self._last_identity()):
            version, part = _version_of(row)
            return version, row[1][b"identity"].decode(), part
        return 0, "", 0

    def _remove(self, name: str, value: str) -> None:
        """Remove the global key `name`, unless it has another value by now."""
        key = self._keys.named(name)
        self.connection.change([("DEL", key)], guards=[(("GET", key), value, "it has another value")])

    def withdrawn(self, records: Sequence[tuple[int, Mapping[str, Any]]] | None = None) -> set[int]:
        """Return all withdrawn versions, whether a later version names them or not.

        records: of all versions, as `releases` gave them a moment ago; None: they are read, however many they are.
        """
        made = self.releases() if records is None else records
        return self.withdrawn_alone().union(*(record["withdrawn"] for _, record in made))

    def withdrawn_alone(self) -> set[int]:
        """Return the versions that `withdraw` marked: no later version names them."""
        return {int(version) for version in self._call("SMEMBERS", "withdrawn")}

    def request(self, kind: str) -> None:
        """Ask the scheduler for `unlearn` or `retrain`; the last request counts."""
        # The id tells a second request of the same kind from the one that the scheduler is acting on.
        self._call("SET", "request", f"{kind}:{secrets.token_hex(12)}")

    def requested(self) -> str | None:
        """Return the request that waits, for `fulfil`; None without one. Its part before the colon is the kind."""
        value = self._call("GET", "request")
        return None if value is None else str(value.decode())

    def fulfil(self, request: str) -> None:
        """Remove a request, unless another took its place."""
        # Values are unique, so a request that came while this one was acted on stays.
        self._remove("request", request)

    def note_decision(self, text: str, now_ms: int) -> None:
        """Store the leader's last decision for `streamtopic status`.

        text: the decision in words.
        now_ms: its time, milliseconds since 1970.
        """
        self._call("SET", "decision", msgpack.packb([text, now_ms]))

    def decision(self) -> tuple[str, int] | None:
        """Return the leader's last decision and its time, milliseconds since 1970; None before the first."""
        value = self._call("GET", "decision")
        return None if value is None else tuple(msgpack.unpackb(value))

    def note_check(self, fields: Mapping[str, Any]) -> None:
        """Store the result of the service's last check of itself (msgpack values)."""
        self._call("SET", "check", msgpack.packb(dict(fields)))

    def checked(self) -> dict[str, Any] | None:
        """Return the result of the service's last check of itself; None before the first."""
        value = self._call("GET", "check")
        return None if value is None else dict(msgpack.unpackb(value))

    def outbox(self, count: int = 100) -> list[OutboxEntry]:
        """Return the oldest records that wait to be published, at most `count`. Raises StateCorrupt."""
        rows = self._call("XRANGE", "outbox", "-", "+", "COUNT", count)
        return [OutboxEntry(entry.decode(), _RECORDS.unpack(fields[b"record"])) for entry, fields in rows]

    def waiting(self) -> int:
        """Return how many records wait to be published."""
        return int(self._call("XLEN", "outbox"))

    def confirm(self, entries: Iterable[OutboxEntry]) -> None:
        """Remove published records from the outbox. May be repeated."""
        if names := [entry.id for entry in entries]:
            self._call("XDEL", "outbox", *names)

    def base(self) -> Base | None:
        """Return the current base model; None before the first. Raises StateCorrupt."""
        while (head := self.base_head()) is not None:
            blob = self._call("GET", "base:model")
            # Else it was replaced between the two reads.
            if self.base_head() == head:
                return replace(head, blob=blob or b"")
        return None

    def base_head(self) -> Base | None:
        """Return the current base model without its bytes; None before the first."""
        head = self._call("HGET", "base", "head")
        return None if head is None else _BASES.unpack(head)

    def releases(self, count: int | None = None) -> list[tuple[int, dict[str, Any]]]:
        """Return (version, release record), oldest first; only the last `count`, if given.

        A record has the facts of its `entry`, too, as JSON has them.
        """
        return self.releases_among([(0, NEWEST)], count)

    def releases_among(
        self, spans: Iterable[tuple[int, int]], count: int | None = None
    ) -> list[tuple[int, dict[str, Any]]]:
        """Return (version, release record) of the versions within some spans that Redis has, oldest first.

        spans: first and last number of each. A service may have made a million versions: who needs some reads these.
        count: number of versions of each span, the last ones; None for all.
        """
        limit = () if count is None else ("COUNT", count)
        reads = [("XREVRANGE", self._keys.named("releases"), last, first, *limit) for first, last in spans]
        found = []
        for entry, fields in sorted(chain.from_iterable(self.connection.batch(reads)), key=_version_of):
            kept = msgpack.unpackb(fields[b"release"])
            found.append((_version_of((entry, fields))[0], json.loads(kept["entry"]) | kept))
        return found

    def _call(self, command: str, name: str, *arguments: str | bytes | int) -> Any:  # noqa: ANN401 - as Connection.call
        """Send one command about the global key `name`."""
        return self.connection.call(command, self._keys.named(name), *arguments)

    def _named(self, *names: str) -> list[str]:
        return [self._keys.named(name) for name in names]


def acquired(connection: Connection, keys: ModelKeys, holder: str, ttl_ms: int, *, seize: bool = False) -> int:
    """Take or renew the scheduler's lease; return its token, 0 while another holder's lease runs.

    seize: whether to take it from its holder.
    """
    names = [keys.named("lease"), keys.named("fence")]
    return int(connection.script(ACQUIRE_LEASE, names, [holder, ttl_ms, int(seize)]))


def _packed(release: Mapping[str, Any]) -> bytes:
    return bytes(msgpack.packb(dict(release)))


def _version_of(row: tuple[bytes, object]) -> tuple[int, int]:
    """Return the number of the version that an entry of the releases is about, and which of its records it is."""
    number, _, part = row[0].partition(b"-")
    return int(number), int(part)


def _identity(release: Mapping[str, Any]) -> str:
    """Return what tells a version from another one of its number: the digest of its bytes, as the ledger has it."""
    return str(json.loads(release["entry"])["release"])


_FIRST_LEASE_MS = 86_400_000

_AT_ONCE = 500
_PASSES = 5


def leader(connection: Connection, model: str) -> str | None:
    """Return the name of the scheduler that leads now; None if no lease runs."""
    holder = connection.call("GET", ModelKeys(model).named("lease"))
    return None if holder is None else str(holder.decode(errors="replace"))


def record(connection: Connection, model: str, settings: ModelSettings) -> None:
    """Write the settings of a model over those that were fixed before."""
    fixed = "schema", STATE_FORMAT, "settings", SETTINGS.pack(settings)
    connection.call("HSET", ModelKeys(model).named("settings"), *fixed)


def counted_documents(connection: Connection, model: str, partition: int) -> int:
    """Return the number of documents that a partition's state counts; 0 without a state that this program can read."""
    with suppress(StateMissing, StateMismatch, StateCorrupt):
        return read_position(connection, ModelKeys(model).partition(partition)).documents
    return 0


def lead(connection: Connection, model: str, holder: str, ttl_ms: int) -> Lease:
    """Take the scheduler's lease from its holder. No earlier leader can stage a version any more.

    holder: name of the new leader.
    ttl_ms: life of the lease, milliseconds.
    """
    return Lease(holder, acquired(connection, ModelKeys(model), holder, ttl_ms, seize=True))


def hold_lease(connection: Connection, model: str, holder: str) -> None:
    """Take the scheduler's lease without an end: nobody leads any more, also if this process is killed."""
    lead(connection, model, holder, _FIRST_LEASE_MS)
    connection.call("PERSIST", ModelKeys(model).named("lease"))


def remove_partition(connection: Connection, model: str, partition: int) -> None:
    """Remove a partition's counts, documents and words. Its writer, if there is one, is Stale from now on.

    Deletions that wait for their receipts stay, and so does the secret of subjects. May be repeated after any error.
    """
    keys = ModelKeys(model).partition(partition)
    # The position first: without it a writer cannot commit between the removals that follow.
    while isinstance(_remove_position(connection, keys), Stale):
        pass
    Forgets(connection, keys).mend()
    names = [keys.statistics, *keys.changes]
    names += [name(bucket) for name in (keys.documents, keys.subjects) for bucket in range(BUCKETS)]
    for start in range(0, len(names), _AT_ONCE):
        # UNLINK frees the memory in another thread: DEL of a large hash would block Redis.
        some = names[start : start + _AT_ONCE]
        connection.call("UNLINK", *some)


def _remove_position(connection: Connection, keys: PartitionKeys) -> Outcome:
    """Remove a position, and note for the next state how far it was. Stale if the writer has written meanwhile."""
    facts = connection.call("HGET", keys.meta, "facts")
    reached = 0
    with suppress(StateCorrupt):
        reached = POSITIONS.unpack(facts or b"").next_offset
    through = connection.call("HGET", keys.subject_secret, "through")
    # It only grows: a removal that was broken off and repeated finds the position where the new counting began.
    noted = max(reached, int(through or 0))
    steps: list[Command] = [("HSET", keys.subject_secret, "through", noted), ("DEL", keys.meta)]
    return connection.change(steps, guards=[(("HGET", keys.meta, "facts"), facts or b"", "it is written still")])


def remove_model(connection: Connection, model: str, update: Callable[[int, int | None], None]) -> int:
    """Remove every key of a model; return how many. It may be repeated after any error.

    The settings and the lease go last, so that no scheduler can lead meanwhile, and a repetition finds the model.

    update: told how many keys are gone.
    """
    keys = ModelKeys(model)
    last = [keys.named("settings"), keys.named("lease")]
    # Both forms of its hash tags: {st:MODEL} and {st:MODEL:PARTITION}. No letter of a name is a sign of a pattern.
    pattern = f"{{st:{model}[:}}]*"
    removed = 0
    # Twice at least: a scan may pass over a key that moves to another node of a cluster meanwhile.
    for _ in range(_PASSES):
        names = (name for name in connection.names(pattern) if name.decode() not in last)
        found = 0
        while some := list(islice(names, _AT_ONCE)):
            # One command a key: keys of two partitions may lie on two nodes, and UNLINK frees them in another thread.
            connection.batch(("UNLINK", name) for name in some)
            found += len(some)
            update(removed + found, None)
        removed += found
        if not found:
            break
    # One by one, the lease at the very end.
    return removed + sum(int(connection.call("UNLINK", name)) for name in last)


def note_removed(connection: Connection, model: str, partition: int) -> None:
    """Note that the changes of a partition, counted again, may hold traces of any earlier deletion."""
    # A compacted log does not name those deletions any more, so the mark is at the end of the counted log.
    keys = ModelKeys(model).partition(partition)
    meta = read_position(connection, keys)
    noted = replace(meta, removed=meta.next_offset, removals=1, trimmed=0, summed_next=0)
    connection.call("HSET", keys.meta, "facts", POSITIONS.pack(noted))


def remove_base(connection: Connection, model: str) -> None:
    """Remove the base model and counts, which may have been made by other rules, and are of another history."""
    keys = ModelKeys(model)
    connection.call("UNLINK", keys.named("base"), keys.named("base:model"), keys.named("counts"))
