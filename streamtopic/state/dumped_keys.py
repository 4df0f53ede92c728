"""A model's keys as Redis dumps them, and putting them back: the part of a backup that speaks to Redis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgpack

from streamtopic.errors import StateCorrupt, StateError, StateMismatch
from streamtopic.state.connection import Connection
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.reader import SnapshotExpired
from streamtopic.state.redis_keys import BUCKETS, ModelKeys, PartitionKeys
from streamtopic.state.removal import lead, remove_partition

__all__ = [
    "DumpedKey",
    "DumpedPartition",
    "base_head",
    "dump_model",
    "dump_partition",
    "dump_strings",
    "hold_lease",
    "put_aside",
    "release_lease",
    "replace_model",
    "replace_partition",
]

# Without lease and fence, which belong to running processes; without `residue`, whose marks would promise too much of
# a state that came back; and without `links`, whose keys are destroyed by month and must then be nowhere.
_MODEL_KEYS = (
    "settings",
    "base",
    "releases",
    "ledger",
    "outbox",
    "statement",
    "withdrawn",
    "decision",
    "check",
    "chain",
)
_ASIDE_MS = 86_400_000
_MARK = ":restore:"


@dataclass(frozen=True, slots=True)
class DumpedKey:
    """One key.

    name: its name in Redis.
    value: its content, as DUMP gives it.
    """

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class DumpedPartition:
    """The keys of a partition as of one instant.

    next_offset: the first record that they do not count.
    documents: number of live documents.
    keys: all keys but the segments.
    segments: names of the strings of its segments, which never change but may expire.
    """

    next_offset: int
    documents: int
    keys: Sequence[DumpedKey]
    segments: Sequence[str]


def dump_partition(connection: Connection, model: str, partition: int) -> DumpedPartition:
    """Return the keys of a partition beside its writer. Redis does nothing else meanwhile.

    Raises StateError where a rebuild was broken off, StateMismatch for another layout, StateCorrupt.
    """
    keys = ModelKeys(model).partition(partition)
    documents = [keys.documents(bucket) for bucket in range(BUCKETS)]
    subjects = [keys.subjects(bucket) for bucket in range(BUCKETS)]
    names = [keys.meta, keys.manifest, keys.words, keys.forgets, keys.forwards, keys.subject_requests]
    names += [keys.suppressed, *documents, *subjects]
    dumps = [("DUMP", name) for name in names]
    asked = [("HGETALL", keys.meta), ("HGETALL", keys.manifest), ("EXISTS", keys.kept_forgets)]
    # Atomic, and no copies under other names: a copy would hold a deleted document for longer than the marks of its
    # traces say.
    fields, entries, broken_off, *values = connection.batch([*asked, *dumps], atomic=True)
    if broken_off:
        raise StateError(f"a rebuild of partition {partition} was broken off: run `streamtopic rebuild` again")
    if not fields:
        raise StateError(f"partition {partition} of {model} has no state yet: start `streamtopic ingest` once")
    meta = Meta.parse(fields)
    present = _present(names, values)
    strings = _strings(keys, entries)
    return DumpedPartition(meta.next_offset, meta.documents, present, strings)


def _strings(keys: PartitionKeys, manifest: dict[bytes, bytes]) -> list[str]:
    """Return the names of all strings of the segments in a manifest."""
    names = []
    for name, value in manifest.items():
        entry = ManifestEntry.parse(name, value)
        names += [keys.segment(entry.name, k) for k in range(entry.keys)]
    return names


def dump_strings(connection: Connection, names: Sequence[str]) -> Iterator[DumpedKey]:
    """Yield strings one by one. Raises SnapshotExpired where one was replaced since the names were read."""
    for name in names:
        value = connection.call("DUMP", name)
        if value is None:
            raise SnapshotExpired(f"{name} was replaced while it was read: begin the backup again")
        yield DumpedKey(name, value)


def dump_model(connection: Connection, model: str) -> tuple[list[DumpedKey], list[str]]:
    """Return the keys that a model has once, as of one instant, and the names of the strings that they refer to."""
    keys = ModelKeys(model)
    names = [keys.named(name) for name in _MODEL_KEYS]
    dumps = [("DUMP", name) for name in names]
    asked = [("HGET", keys.named("base"), "head"), ("XRANGE", keys.named("outbox"), "-", "+")]
    head, outbox, *values = connection.batch([*asked, *dumps], atomic=True)
    strings = list(msgpack.unpackb(head)["parts"]) if head else []
    strings += [fields[b"key"].decode() for _, fields in outbox]
    return _present(names, values), strings


def base_head(connection: Connection, model: str) -> bytes | None:
    """Return the head of the base model, which names its epoch and its bytes; None before the first."""
    key = ModelKeys(model).named("base")
    head: bytes | None = connection.call("HGET", key, "head")
    return head


def _present(names: Sequence[str], values: Sequence[bytes | None]) -> list[DumpedKey]:
    return [DumpedKey(name, value) for name, value in zip(names, values, strict=True) if value is not None]


def hold_lease(connection: Connection, model: str, holder: str) -> None:
    """Take the scheduler's lease without an end: nobody leads until `release_lease`, also if this process is killed."""
    lead(connection, model, holder, _ASIDE_MS)
    connection.call("PERSIST", ModelKeys(model).named("lease"))


def release_lease(connection: Connection, model: str) -> None:
    """Undo `hold_lease`."""
    connection.call("DEL", ModelKeys(model).named("lease"))


def put_aside(connection: Connection, model: str, key: DumpedKey) -> None:
    """Write a key under another name, where it expires after a day unless it is put in its place.

    Raises StateCorrupt for a key of another model, StateMismatch where this Redis is older than that of the backup.
    """
    try:
        connection.call("RESTORE", _aside(model, key.name), _ASIDE_MS, key.value, "REPLACE")
    except StateError as error:
        if "payload version" not in str(error):
            raise
        raise StateMismatch(
            f"Redis at {connection.address} cannot read the values of the backup: restore into a Redis that is not "
            "older than the one that they came from"
        ) from None


def replace_partition(connection: Connection, model: str, partition: int, names: Sequence[str]) -> None:
    """Remove a partition's state, and put the keys in its place that were put aside, all at once."""
    keys = ModelKeys(model).partition(partition)
    remove_partition(connection, model, partition)
    connection.call("UNLINK", keys.kept_forgets, keys.forwards, keys.subject_requests)
    _into_place(connection, model, names)


def replace_model(connection: Connection, model: str, names: Sequence[str]) -> None:
    """Put the keys that a model has once in their place, all at once."""
    _into_place(connection, model, names)


def _into_place(connection: Connection, model: str, names: Sequence[str]) -> None:
    commands: list[tuple[str, ...]] = []
    for name in names:
        commands += [("RENAME", _aside(model, name), name), ("PERSIST", name)]
    connection.batch(commands, atomic=True)


def _aside(model: str, name: str) -> str:
    """Return the name under which a key waits, in the same slot."""
    tag, closed, rest = name.partition("}:")
    own = tag == f"{{st:{model}" or tag.startswith(f"{{st:{model}:")
    if not own or not closed:
        raise StateCorrupt(f"the backup has key {name!r}, which is not of model {model}: it was not made by `backup`")
    return f"{tag}}}{_MARK}{rest}"
