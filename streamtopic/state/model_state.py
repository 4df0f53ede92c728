"""What a model has once: settings, the scheduler's lease, the base model, releases, outbox and privacy ledger."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from streamtopic.counts import Weighting
from streamtopic.errors import StateCorrupt, StateMismatch
from streamtopic.events import LIMITS
from streamtopic.state import scripts
from streamtopic.state.connection import Connection
from streamtopic.state.meta import MURMUR2, SCHEMA, fixed, mismatch
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.scripts import AlreadyApplied, Outcome, outcome

__all__ = [
    "Lease",
    "ModelSettings",
    "ModelState",
    "OutboxEntry",
    "OutboxRecord",
    "StoredBase",
    "pack_record",
    "unpack_record",
]


_UPLOAD_SECONDS = 600
_FIXED = ("schema", "cap", "partitions", "partitioner", "limits")
_CHUNK = 8 << 20

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What is fixed when a model is created: partitions of the documents topic, their partitioner, the cap of f(L).

    limits: each limit that refuses a record, as `events.LIMITS`; what is refused ends what its id held.
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
    """Leadership of the scheduler. token: grows with every new leader; a commit with an older one is Stale."""

    holder: str
    token: int


@dataclass(frozen=True, slots=True)
class StoredBase:
    """The current base model: epoch, fields for the scheduler (msgpack values), and the model's own bytes."""

    epoch: int
    version: int
    fields: Mapping[str, Any]
    blob: bytes


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """A record to publish, already signed: its bytes are fixed. value None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """A record that waits in the outbox. id: of the entry; key: of the string that holds the record."""

    id: str
    record: OutboxRecord
    key: str


class ModelState:
    """A model's global keys. Writes that only a leader may make take its fencing token."""

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
        """Return the model's state, creating its record if there is none.

        Raises StateMismatch, with the remedy, where it was created with other partitions, cap or limits.
        """
        keys = ModelKeys(model)
        wanted = SCHEMA, settings.cap, settings.partitions, settings.partitioner, settings.limits
        answer = connection.call(
            "HMGET", keys.named("settings"), "schema", "cap", "partitions", "partitioner", "limits"
        )
        if answer[0] is None:
            # Only who creates it needs the right to run scripts.
            answer = connection.script(scripts.CREATE_MODEL, [keys.named("settings")], wanted)
        have = fixed(answer)
        if have != wanted:
            raise StateMismatch(mismatch(model, have, wanted))
        return cls(connection, model, settings)

    @classmethod
    def find(cls, connection: Connection, model: str) -> "ModelState | None":
        """Return the state of a model that exists, whatever its settings, or None. Raises StateMismatch."""
        key = ModelKeys(model).named("settings")
        answer = connection.call("HMGET", key, *_FIXED)
        if answer[0] is None:
            return None
        have = fixed(answer)
        schema, cap, partitions, partitioner, limits = have
        if schema != SCHEMA:
            raise StateMismatch(mismatch(model, have, have))
        return cls(connection, model, ModelSettings(partitions, cap, partitioner, limits))

    def acquire(self, holder: str, ttl_ms: int) -> Lease | None:
        """Become or stay leader for ttl_ms by Redis's clock; None while another holder's lease runs."""
        keys = [self._keys.named("lease"), self._keys.named("fence")]
        token = int(self.connection.script(scripts.ACQUIRE_LEASE, keys, [holder, ttl_ms]))
        return Lease(holder, token) if token else None

    def release(self, lease: Lease) -> None:
        """Give leadership up; nothing happens where the lease is another's by now."""
        self.connection.script(scripts.RELEASE_LEASE, [self._keys.named("lease")], [lease.holder])

    def stage(
        self,
        lease: Lease,
        version: int,
        *,
        release: Mapping[str, Any],
        ledger: Mapping[str, Any],
        records: Sequence[OutboxRecord],
        base: StoredBase | None = None,
    ) -> Outcome:
        """Commit one version, all or nothing: its release record, ledger entry, outbox records and, if given, new base.

        release, ledger: msgpack values. Versions count up from 1 without gaps. AlreadyApplied where this version is
        there with the same bytes; Stale where it is there with others, where it does not follow the last one, or where
        another scheduler leads.
        """
        identity = _digest(release, ledger, records, base)
        keys = [self._keys.named(name) for name in ("fence", "releases", "ledger", "outbox", "base", "lease")]
        keys += [self._upload(f"out:{identity}:{k}", pack_record(record)) for k, record in enumerate(records)]
        parts = _cut(base.blob) if base else []
        new = [self._upload(f"base:{identity}:{k}", part) for k, part in enumerate(parts)]
        old = [key for key in self._base_parts() if key not in new] if base else []
        plan = {
            "token": str(lease.token),
            "holder": lease.holder,
            "version": version,
            "identity": identity,
            "records": len(records),
            "new": len(new),
        }
        arguments = [
            msgpack.packb(plan),
            msgpack.packb(dict(release)),
            msgpack.packb(dict(ledger)),
            _base_head(base, new),
        ]
        return outcome(self.connection.script(scripts.STAGE_VERSION, [*keys, *new, *old], arguments))

    def adopt(self, lease: Lease, version: int, *, release: Mapping[str, Any], ledger: Mapping[str, Any]) -> Outcome:
        """Record a version that was published before this Redis was set back. AlreadyApplied where a later one is."""
        keys = [self._keys.named(name) for name in ("fence", "releases", "ledger", "lease")]
        arguments = [lease.token, lease.holder, version, msgpack.packb(dict(release)), msgpack.packb(dict(ledger))]
        return outcome(self.connection.script(scripts.ADOPT_VERSION, keys, arguments))

    def withdraw(self, lease: Lease, versions: Iterable[int], records: Sequence[OutboxRecord]) -> Outcome:
        """Mark versions as withdrawn where no new one takes their place, with the tombstones that erase them."""
        todo = list(versions)
        identity = _digest(todo, records)
        keys = [self._keys.named(name) for name in ("fence", "withdrawn", "outbox", "lease")]
        keys += [self._upload(f"out:{identity}:{k}", pack_record(record)) for k, record in enumerate(records)]
        return outcome(
            self.connection.script(scripts.WITHDRAW_VERSIONS, keys, [lease.token, lease.holder, len(records), *todo])
        )

    def withdrawn(self) -> set[int]:
        """Return the versions that are withdrawn, by later ones or without one."""
        return self.withdrawn_alone().union(*(record["withdrawn"] for _, record in self.releases()))

    def next_statement(self, least: int) -> int:
        """Return a number for a statement, beyond `least` and all that were given out before."""
        return int(self.connection.script(scripts.NEXT_STATEMENT, [self._keys.named("statement")], [least]))

    def withdrawn_alone(self) -> set[int]:
        """Return the versions that are withdrawn without a later one that says so."""
        return {int(version) for version in self.connection.call("SMEMBERS", self._keys.named("withdrawn"))}

    def request(self, kind: str) -> None:
        """Ask the scheduler for `unlearn` or `retrain`; the last request counts."""
        self.connection.call("SET", self._keys.named("request"), f"{kind}:{self._new_id()}")

    def requested(self) -> str | None:
        """Return the request that waits, for `fulfil`, or None; its part before the colon is what was asked for."""
        value = self.connection.call("GET", self._keys.named("request"))
        return None if value is None else str(value.decode())

    def fulfil(self, request: str) -> None:
        """Remove a request, unless another took its place."""
        self.connection.script(scripts.FULFIL_REQUEST, [self._keys.named("request")], [request])

    def note_decision(self, text: str, now_ms: int) -> None:
        """Keep what the leader decided last, for people; now_ms: when, since 1970."""
        self.connection.call("SET", self._keys.named("decision"), msgpack.packb([text, now_ms]))

    def decision(self) -> tuple[str, int] | None:
        """Return what the leader decided last, and when; None before the first."""
        value = self.connection.call("GET", self._keys.named("decision"))
        return None if value is None else tuple(msgpack.unpackb(value))

    def note_check(self, fields: Mapping[str, Any]) -> None:
        """Keep what came of the service's last check of itself (msgpack values)."""
        self.connection.call("SET", self._keys.named("check"), msgpack.packb(dict(fields)))

    def checked(self) -> dict[str, Any] | None:
        """Return what came of the service's last check of itself; None before the first."""
        value = self.connection.call("GET", self._keys.named("check"))
        return None if value is None else dict(msgpack.unpackb(value))

    def outbox(self, count: int = 100) -> list[OutboxEntry]:
        """Return the oldest records that wait to be published. Raises StateCorrupt."""
        outbox = self._keys.named("outbox")
        rows = self.connection.call("XRANGE", outbox, "-", "+", "COUNT", count)
        found = self.connection.batch([("GET", fields[b"key"]) for _, fields in rows])
        entries = []
        for (entry, fields), data in zip(rows, found, strict=True):
            if data is not None:
                record = unpack_record(data)
                entries.append(OutboxEntry(entry.decode(), record, fields[b"key"].decode()))
            elif self.connection.call("XRANGE", outbox, entry, entry):  # else another publisher was faster
                raise StateCorrupt(f"outbox entry {entry.decode()} of {self.model} has lost its bytes: retrain")
        return entries

    def waiting(self) -> int:
        """Return how many records wait to be published."""
        return int(self.connection.call("XLEN", self._keys.named("outbox")))

    def confirm(self, entries: Iterable[OutboxEntry]) -> None:
        """Remove published records from the outbox. May be repeated."""
        outbox = self._keys.named("outbox")
        commands = [command for entry in entries for command in (("XDEL", outbox, entry.id), ("DEL", entry.key))]
        self.connection.batch(commands, atomic=True)

    def base(self) -> StoredBase | None:
        """Return the current base model, or None before the first. Raises StateCorrupt."""
        head = self.connection.call("HGETALL", self._keys.named("base"))
        if not head:
            return None
        fields = msgpack.unpackb(head[b"head"])
        parts = self.connection.batch([("GET", key) for key in fields["parts"]])
        blob = b"".join(part or b"" for part in parts)
        if hashlib.sha256(blob).digest() != fields["sha256"]:
            raise StateCorrupt(f"the base model of {self.model} fails its checksum: run `streamtopic retrain`")
        return StoredBase(fields["epoch"], fields["version"], fields["fields"], blob)

    def has_base_bytes(self) -> bool:
        """Whether the base model's bytes are kept."""
        return bool(self._base_parts())

    def drop_base_bytes(self, lease: Lease) -> Outcome:
        """Remove the base model's bytes, and keep what decisions need of it. AlreadyApplied where they are gone."""
        head = self.base_head()
        if head is None or not self._base_parts():
            return AlreadyApplied()
        keys = [self._keys.named(name) for name in ("fence", "base", "lease")]
        before = self.connection.call("HGET", self._keys.named("base"), "head")
        arguments = [lease.token, lease.holder, before, _base_head(head, [])]
        return outcome(self.connection.script(scripts.DROP_BASE, [*keys, *self._base_parts()], arguments))

    def base_head(self) -> StoredBase | None:
        """Return the current base model without its bytes, or None before the first."""
        head = self.connection.call("HGET", self._keys.named("base"), "head")
        if head is None:
            return None
        fields = msgpack.unpackb(head)
        return StoredBase(fields["epoch"], fields["version"], fields["fields"], b"")

    def base_epoch(self) -> int | None:
        """Return the base model's epoch, or None before the first."""
        head = self.base_head()
        return None if head is None else head.epoch

    def releases(self, count: int | None = None) -> list[tuple[int, dict[str, Any]]]:
        """Return (version, release record), oldest first; the last `count` only, if given.

        Without a cut where documents were moved to other partitions since: such a version may hold any of them.
        """
        moved = self.moved()
        limit = () if count is None else ("COUNT", count)
        rows = self.connection.call("XREVRANGE", self._keys.named("releases"), "+", "-", *limit)
        found = [(int(entry.split(b"-")[0]), msgpack.unpackb(fields[b"release"])) for entry, fields in reversed(rows)]
        return [(version, record | {"cut": {}} if version <= moved else record) for version, record in found]

    def moved(self) -> int:
        """Return the last version that was made before documents were moved to other partitions, 0 without one."""
        return int(self.connection.call("HGET", self._keys.named("settings"), "moved") or 0)

    def ledger(self) -> dict[int, dict[str, Any]]:
        """Return the ledger: version to what was spent on it."""
        rows = self.connection.call("HGETALL", self._keys.named("ledger"))
        versions = sorted((int(name), entry) for name, entry in rows.items() if name.isdigit())
        return {version: msgpack.unpackb(entry) for version, entry in versions}

    def spent(self) -> list[dict[str, Any]]:
        """Return what was spent on all releases, also on those of `account`."""
        return [
            msgpack.unpackb(entry) for entry in self.connection.call("HGETALL", self._keys.named("ledger")).values()
        ]

    def account(self, version: int, name: str, ledger: Mapping[str, Any]) -> None:
        """Note what was spent on a release that has no record here, since its number is another's. May be repeated."""
        self.connection.call("HSET", self._keys.named("ledger"), f"{version}:{name}", msgpack.packb(dict(ledger)))

    def _upload(self, name: str, data: bytes) -> str:
        key = self._keys.named(name)
        self.connection.call("SET", key, data, "NX", "EX", _UPLOAD_SECONDS)
        return key

    def _base_parts(self) -> list[str]:
        head = self.connection.call("HGET", self._keys.named("base"), "head")
        return [] if head is None else list(msgpack.unpackb(head)["parts"])


def _cut(blob: bytes) -> list[bytes]:
    return [blob[start : start + _CHUNK] for start in range(0, len(blob), _CHUNK)]


def _base_head(base: StoredBase | None, parts: Sequence[str]) -> bytes:
    if base is None:
        return b""
    fields = {"epoch": base.epoch, "version": base.version, "fields": dict(base.fields), "parts": list(parts)}
    return bytes(msgpack.packb({**fields, "sha256": hashlib.sha256(base.blob).digest()}))


def _digest(*parts: object) -> str:
    """Name staged bytes by what they are, so that a repetition finds its own."""

    def plain(part: object) -> object:
        if isinstance(part, StoredBase):
            return [part.epoch, part.version, dict(part.fields), hashlib.sha256(part.blob).digest()]
        if isinstance(part, OutboxRecord):
            return hashlib.sha256(pack_record(part)).digest()
        if isinstance(part, Mapping):
            return dict(part)
        return [plain(item) for item in part] if isinstance(part, Sequence) else part

    return hashlib.sha256(msgpack.packb([plain(part) for part in parts])).hexdigest()[:32]


def pack_record(record: OutboxRecord) -> bytes:
    """Return a record as the outbox keeps it."""
    return bytes(msgpack.packb([record.topic, record.key, record.value, [list(header) for header in record.headers]]))


def unpack_record(data: bytes) -> OutboxRecord:
    """Undo `pack_record`."""
    topic, key, value, headers = msgpack.unpackb(data)
    return OutboxRecord(topic, key, value, tuple((name, content) for name, content in headers))
