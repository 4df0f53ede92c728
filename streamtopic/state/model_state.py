"""State that a model has once: settings, the scheduler's lease, base model, releases and outbox."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgpack

from streamtopic.counts import Weighting
from streamtopic.documents.events import LIMITS
from streamtopic.errors import StateCorrupt, StateMismatch
from streamtopic.formats import STATE
from streamtopic.state import scripts
from streamtopic.state.base_documents import RemainingBase, StoredBase
from streamtopic.state.connection import Connection
from streamtopic.state.meta import MURMUR2, fixed, mismatch
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.scripts import UPLOAD_SECONDS, Outcome, outcome

__all__ = [
    "BASE_GRACE_SECONDS",
    "Lease",
    "ModelSettings",
    "ModelState",
    "OutboxEntry",
    "OutboxRecord",
    "pack_record",
    "unpack_record",
]

_FIXED = ("schema", "cap", "partitions", "partitioner", "limits")
# Bytes of one string of the base model. Redis takes 512 MB at most, and is busy with one command at a time.
BASE_GRACE_SECONDS = 600.0
"""Life of the strings of a base model once it was replaced, for readers that took its head before; in
`stage_version.lua`."""

_CHUNK = 8 << 20

Headers = tuple[tuple[str, bytes], ...]


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


@dataclass(frozen=True, slots=True)
class Lease:
    """Leadership of the scheduler.

    holder: name of the leader.
    token: grows with every new leader; a commit with an older one is Stale.
    """

    holder: str
    token: int


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """A record to publish: its bytes are fixed. A value of None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A record that waits in the outbox.

    id: of the entry.
    record: the record to publish.
    key: name of the string in Redis that holds the record.
    """

    id: str
    record: OutboxRecord
    key: str


class ModelState:
    """A model's own keys, besides those of its partitions. Writes of the leading scheduler take its lease."""

    def __init__(
        self, connection: Connection, model: str, settings: ModelSettings, new_id: Callable[[], str] | None = None
    ) -> None:
        self.connection = connection
        self.model = model
        self.settings = settings
        self._keys = ModelKeys(model)
        self._new_id = new_id or (lambda: secrets.token_hex(12))

    @classmethod
    def open(cls, connection: Connection, model: str, settings: ModelSettings) -> "ModelState":
        """Return the model's state; a model that does not exist is created.

        Raises StateMismatch, with the remedy, if the model was created with other settings.
        """
        key = ModelKeys(model).named("settings")
        wanted = STATE.number, settings.cap, settings.partitions, settings.partitioner, settings.limits
        answer = connection.call("HMGET", key, *_FIXED)
        if answer[0] is None:
            # Read first, so that only a user who creates models needs the right to run scripts.
            answer = connection.script(scripts.CREATE_MODEL, [key], wanted)
        have = fixed(answer)
        if have != wanted:
            raise StateMismatch(mismatch(model, have, wanted))
        return cls(connection, model, settings)

    @classmethod
    def find(cls, connection: Connection, model: str) -> "ModelState | None":
        """Return the state of a model with the settings that it has; None if there is no such model.

        Raises StateMismatch if its state has another format.
        """
        key = ModelKeys(model).named("settings")
        answer = connection.call("HMGET", key, *_FIXED)
        if answer[0] is None:
            return None
        have = fixed(answer)
        number, cap, partitions, partitioner, limits = have
        if number != STATE.number:
            raise StateMismatch(mismatch(model, have, have))
        settings = ModelSettings(partitions, cap, partitioner, limits)
        return cls(connection, model, settings)

    def acquire(self, holder: str, ttl_ms: int) -> Lease | None:
        """Become or stay leader; None while another holder's lease runs.

        holder: name of this scheduler.
        ttl_ms: life of the lease by Redis's clock, milliseconds.
        """
        keys = self._named("lease", "fence")
        answer = self.connection.script(scripts.ACQUIRE_LEASE, keys, [holder, ttl_ms])
        token = int(answer)
        return Lease(holder, token) if token else None

    def release(self, lease: Lease) -> None:
        """Give leadership up. Nothing happens if another scheduler leads by now."""
        self.connection.script(scripts.RELEASE_LEASE, self._named("lease"), [lease.holder])

    def stage(
        self,
        lease: Lease,
        version: int,
        *,
        release: Mapping[str, Any],
        records: Sequence[OutboxRecord],
        base: StoredBase | None = None,
        before: int | None = None,
    ) -> Outcome:
        """Commit one version, all or nothing.

        version: its number.
        release: its release record, msgpack values.
        records: its records for the releases topic.
        base: the new base model, if the version has one.
        before: number of the version before it; None for the number before its own.

        AlreadyApplied if this version is stored with the same bytes. Stale if it is stored with others, if it
        does not follow the last one, or if another scheduler leads.
        """
        # A retry of the same version finds its own uploads by this name, and cannot mix with those of another attempt.
        identity = _digest(records, dict(release), _base_head(base, ()))
        uploads = self._upload_records(identity, records)
        new: list[str] = []
        old: list[str] = []
        if base:
            parts = _cut(base.blob)
            new = [self._upload(f"base:{identity}:{k}", part) for k, part in enumerate(parts)]
            # A repetition after a commit finds the new parts as those of the current base: they must not expire.
            old = [key for key in self._base_parts() if key not in new]
        keys = self._named("fence", "releases", "outbox", "base", "lease")
        plan = {
            "token": str(lease.token),
            "holder": lease.holder,
            "version": version,
            "before": version - 1 if before is None else before,
            "identity": identity,
            "records": len(records),
            "new": len(new),
        }
        arguments = [msgpack.packb(plan), msgpack.packb(dict(release)), _base_head(base, new)]
        keys += [*uploads, *new, *old]
        answer = self.connection.script(scripts.STAGE_VERSION, keys, arguments)
        return outcome(answer)

    def adopt(self, lease: Lease, version: int, release: Mapping[str, Any]) -> Outcome:
        """Record a version as the ledger has it, after Redis was set back.

        It takes the place of another one that was staged under its number, and of the base model that came with that.

        release: its release record, msgpack values, with the `digest` of its bytes.

        AlreadyApplied for a version that was recorded so, and for all before the newest. Stale if another scheduler
        leads.
        """
        head = self.base_head()
        gone = [self._keys.named("base"), *self._base_parts()] if head is not None and head.version == version else []
        keys = [*self._named("fence", "releases", "lease"), *gone]
        arguments = [lease.token, lease.holder, version, release["digest"], msgpack.packb(dict(release))]
        answer = self.connection.script(scripts.ADOPT_VERSION, keys, arguments)
        return outcome(answer)

    def withdraw(self, lease: Lease, versions: Iterable[int], records: Sequence[OutboxRecord]) -> Outcome:
        """Mark versions as withdrawn without a new one in their place.

        records: the tombstones that erase their chunks from the releases topic.
        """
        todo = list(versions)
        identity = _digest(records, todo)
        uploads = self._upload_records(identity, records)
        keys = [*self._named("fence", "withdrawn", "outbox", "lease"), *uploads]
        arguments: list[str | int] = [lease.token, lease.holder, len(records), *todo]
        answer = self.connection.script(scripts.WITHDRAW_VERSIONS, keys, arguments)
        return outcome(answer)

    def withdrawn(self, records: Sequence[tuple[int, Mapping[str, Any]]] | None = None) -> set[int]:
        """Return all withdrawn versions, whether a later version names them or not.

        records: of all versions, as `releases` gave them a moment ago; None: they are read, however many they are.
        """
        found = self.withdrawn_alone()
        made = self.releases() if records is None else records
        for _, record in made:
            found.update(record["withdrawn"])
        return found

    def withdrawn_alone(self) -> set[int]:
        """Return the versions that `withdraw` marked: no later version names them."""
        return {int(version) for version in self._call("SMEMBERS", "withdrawn")}

    def request(self, kind: str) -> None:
        """Ask the scheduler for `unlearn` or `retrain`; the last request counts."""
        # The id tells a second request of the same kind from the one that the scheduler is acting on.
        self._call("SET", "request", f"{kind}:{self._new_id()}")

    def requested(self) -> str | None:
        """Return the request that waits, for `fulfil`; None without one. Its part before the colon is the kind."""
        value = self._call("GET", "request")
        return None if value is None else str(value.decode())

    def fulfil(self, request: str) -> None:
        """Remove a request, unless another took its place."""
        self.connection.script(scripts.FULFIL_REQUEST, self._named("request"), [request])

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
        outbox = self._keys.named("outbox")
        rows = self.connection.call("XRANGE", outbox, "-", "+", "COUNT", count)
        reads = [("GET", fields[b"key"]) for _, fields in rows]
        found = self.connection.batch(reads)
        entries = []
        for (entry, fields), data in zip(rows, found, strict=True):
            if data is None:
                # Another publisher may have confirmed the entry between the two reads; then both are gone.
                if self.connection.call("XRANGE", outbox, entry, entry):
                    raise StateCorrupt(f"outbox entry {entry.decode()} of {self.model} has lost its bytes: retrain")
                continue
            key = fields[b"key"].decode()
            record = unpack_record(data)
            entries.append(OutboxEntry(entry.decode(), record, key))
        return entries

    def waiting(self) -> int:
        """Return how many records wait to be published."""
        outbox = self._keys.named("outbox")
        return int(self.connection.call("XLEN", outbox))

    def confirm(self, entries: Iterable[OutboxEntry]) -> None:
        """Remove published records from the outbox. May be repeated."""
        outbox = self._keys.named("outbox")
        commands: list[tuple[str, ...]] = []
        for entry in entries:
            commands += [("XDEL", outbox, entry.id), ("DEL", entry.key)]
        # Atomic: an entry whose bytes are gone looks like damage.
        self.connection.batch(commands, atomic=True)

    def base(self) -> StoredBase | None:
        """Return the current base model; None before the first. Raises StateCorrupt."""
        head = self._call("HGETALL", "base")
        if not head:
            return None
        fields = msgpack.unpackb(head[b"head"])
        reads = [("GET", key) for key in fields["parts"]]
        parts = self.connection.batch(reads)
        # A part that has expired leaves a gap, which the checksum finds.
        blob = b"".join(part or b"" for part in parts)
        digest = hashlib.sha256(blob).digest()
        if digest != fields["sha256"]:
            raise StateCorrupt(
                f"the base model of {self.model} fails its checksum: run `streamtopic unlearn --retrain`"
            )
        return StoredBase(fields["version"], RemainingBase.unpack(fields["start"]), fields["fields"], blob)

    def has_base_bytes(self) -> bool:
        """Whether the bytes of the base model are stored."""
        return bool(self._base_parts())

    def base_head(self) -> StoredBase | None:
        """Return the current base model without its bytes; None before the first."""
        head = self._call("HGET", "base", "head")
        if head is None:
            return None
        fields = msgpack.unpackb(head)
        return StoredBase(fields["version"], RemainingBase.unpack(fields["start"]), fields["fields"], b"")

    def releases(self, count: int | None = None) -> list[tuple[int, dict[str, Any]]]:
        """Return (version, release record), oldest first; only the last `count`, if given."""
        limit = () if count is None else ("COUNT", count)
        return self._release_records([("XREVRANGE", self._keys.named("releases"), "+", "-", *limit)])

    def releases_among(self, spans: Iterable[tuple[int, int]]) -> list[tuple[int, dict[str, Any]]]:
        """Return (version, release record) of the versions within some spans that Redis has, oldest first.

        spans: first and last number of each. A service may have made a million versions: who needs some reads these.
        """
        key = self._keys.named("releases")
        return self._release_records([("XREVRANGE", key, str(last), str(first)) for first, last in spans])

    def _release_records(self, reads: Sequence[tuple[str | int, ...]]) -> list[tuple[int, dict[str, Any]]]:
        if not reads:
            return []
        number, *answers = self.connection.batch([("HGET", self._keys.named("settings"), "moved"), *reads])
        moved = int(number or 0)
        found = []
        for entry, fields in sorted(chain.from_iterable(answers), key=_version_of):
            version = _version_of((entry, fields))[0]
            record = msgpack.unpackb(fields[b"release"])
            if version <= moved:
                # Its offsets are of other partitions than those of today: it may hold any document.
                record |= {"cut": {}}
            found.append((version, record))
        return found

    def moved(self) -> int:
        """Return the last version made before documents were moved to other partitions, 0 without one."""
        version = self._call("HGET", "settings", "moved")
        return int(version or 0)

    def _call(self, command: str, name: str, *arguments: str | bytes | int) -> Any:  # noqa: ANN401 - as Connection.call
        """Send one command about the global key `name`."""
        return self.connection.call(command, self._keys.named(name), *arguments)

    def _named(self, *names: str) -> list[str]:
        return [self._keys.named(name) for name in names]

    def _upload(self, name: str, data: bytes) -> str:
        key = self._keys.named(name)
        # NX: a repetition must not give an end to a string that a commit has kept meanwhile.
        self.connection.call("SET", key, data, "NX", "EX", UPLOAD_SECONDS)
        return key

    def _upload_records(self, identity: str, records: Sequence[OutboxRecord]) -> list[str]:
        return [self._upload(f"out:{identity}:{k}", pack_record(record)) for k, record in enumerate(records)]

    def _base_parts(self) -> list[str]:
        head = self._call("HGET", "base", "head")
        return [] if head is None else list(msgpack.unpackb(head)["parts"])


def _version_of(row: tuple[bytes, object]) -> tuple[int, int]:
    """Return the number of the version that an entry of the releases is about, and which of its records it is."""
    number, _, part = row[0].partition(b"-")
    return int(number), int(part)


def _cut(blob: bytes) -> list[bytes]:
    starts = range(0, len(blob), _CHUNK)
    return [blob[start : start + _CHUNK] for start in starts]


def _base_head(base: StoredBase | None, parts: Sequence[str]) -> bytes:
    if base is None:
        return b""
    digest = hashlib.sha256(base.blob).digest()
    fields = {
        "version": base.version,
        "start": base.start.pack(),
        "fields": dict(base.fields),
        "parts": list(parts),
        "sha256": digest,
    }
    return bytes(msgpack.packb(fields))


def _digest(records: Sequence[OutboxRecord], *parts: object) -> str:
    """Return a name for staged parts that follows from their content. parts: values that msgpack can write."""
    packed = msgpack.packb([*map(pack_record, records), *parts])
    return hashlib.sha256(packed).hexdigest()[:32]


def pack_record(record: OutboxRecord) -> bytes:
    """Return the bytes of a record in the outbox."""
    headers = [list(header) for header in record.headers]
    return bytes(msgpack.packb([record.topic, record.key, record.value, headers]))


def unpack_record(data: bytes) -> OutboxRecord:
    """Undo `pack_record`."""
    topic, key, value, headers = msgpack.unpackb(data)
    named = tuple((name, content) for name, content in headers)
    return OutboxRecord(topic, key, value, named)
