"""A model's keys as Redis dumps them, and putting them back: the part of a backup that speaks to Redis."""

from collections.abc import Iterator, Sequence

import msgpack

from streamtopic.errors import StateCorrupt, StateError, StateMismatch
from streamtopic.state.change_log import CutGone
from streamtopic.state.connection import Connection
from streamtopic.state.meta import Meta
from streamtopic.state.redis_keys import BUCKETS, ModelKeys
from streamtopic.state.removal import lead, remove_base, remove_partition

__all__ = [
    "base_head",
    "clear",
    "dump_model",
    "dump_partition",
    "hold_lease",
    "put_key",
    "release_lease",
]

# Without lease and fence, which belong to running processes; without `residue`, whose marks would promise too much of
# a state that came back; without `links`, whose keys are destroyed by month and must then be nowhere; and without the
# index of the ledger, which follows its topic.
_MODEL_KEYS = (
    "settings",
    "base",
    "releases",
    "outbox",
    "withdrawn",
    "decision",
    "check",
)
_FIRST_LEASE_MS = 86_400_000


def dump_partition(connection: Connection, model: str, partition: int) -> tuple[Meta, Iterator[tuple[str, bytes]]]:
    """Return a partition as of one instant: its position, and name and DUMP of its keys.

    Redis does nothing else during that instant.

    Raises StateError if a rebuild was broken off, StateMismatch for another format, StateCorrupt.
    """
    keys = ModelKeys(model).partition(partition)
    names = [keys.meta, keys.words, keys.statistics, *keys.changes, keys.forgets]
    names += [keys.forwards, keys.subject_requests, keys.suppressed]
    for bucket in range(BUCKETS):
        names += [keys.documents(bucket), keys.subjects(bucket)]
    asked = [("HGETALL", keys.meta), ("EXISTS", keys.kept_forgets)]
    # Atomic, and no copies under other names: a copy would hold a deleted document for longer than the marks of its
    # traces say.
    dumps = [("DUMP", name) for name in names]
    fields, broken_off, *values = connection.batch([*asked, *dumps], atomic=True)
    if broken_off:
        raise StateError(f"a rebuild of partition {partition} was broken off: run `streamtopic rebuild` again")
    if not fields:
        raise StateError(f"partition {partition} of {model} has no state yet: start `streamtopic ingest` once")
    return Meta.parse(fields), _dumped(connection, names, values, ())


def dump_model(connection: Connection, model: str) -> Iterator[tuple[str, bytes]]:
    """Return name and DUMP of the keys that a model has once, as of one instant, then of strings that they refer to.

    The iterator raises CutGone if one of the strings was replaced since.
    """
    keys = ModelKeys(model)
    names = [keys.named(name) for name in _MODEL_KEYS]
    asked = [("HGET", keys.named("base"), "head"), ("XRANGE", keys.named("outbox"), "-", "+")]
    dumps = [("DUMP", name) for name in names]
    head, outbox, *values = connection.batch([*asked, *dumps], atomic=True)
    strings = list(msgpack.unpackb(head)["parts"]) if head else []
    strings += [fields[b"key"].decode() for _, fields in outbox]
    return _dumped(connection, names, values, strings)


def _dumped(
    connection: Connection, names: Sequence[str], values: Sequence[bytes | None], strings: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the keys that exist, then strings, which are read one by one."""
    for name, value in zip(names, values, strict=True):
        if value is not None:
            yield name, value
    for name in strings:
        value = connection.call("DUMP", name)
        if value is None:
            raise CutGone(f"{name} was replaced while it was read: begin the backup again")
        yield name, value


def base_head(connection: Connection, model: str) -> bytes | None:
    """Return the head of the base model, which names its epoch and its bytes; None before the first."""
    key = ModelKeys(model).named("base")
    head: bytes | None = connection.call("HGET", key, "head")
    return head


def hold_lease(connection: Connection, model: str, holder: str) -> None:
    """Take the scheduler's lease without an end: nobody leads until `release_lease`, also if this process is killed."""
    lead(connection, model, holder, _FIRST_LEASE_MS)
    connection.call("PERSIST", ModelKeys(model).named("lease"))


def release_lease(connection: Connection, model: str) -> None:
    """Undo `hold_lease`."""
    connection.call("DEL", ModelKeys(model).named("lease"))


def clear(connection: Connection, model: str, partitions: int) -> None:
    """Remove the rests of a state, such as a restore that was killed leaves them. May be repeated after any error."""
    for partition in range(partitions):
        keys = ModelKeys(model).partition(partition)
        remove_partition(connection, model, partition)
        connection.call("UNLINK", keys.kept_forgets, keys.forwards, keys.subject_requests)
    remove_base(connection, model)


def put_key(connection: Connection, model: str, name: str, value: bytes) -> None:
    """Write a key from its DUMP.

    Raises StateCorrupt for a key of another model, StateMismatch if this Redis is older than that of the backup.
    """
    if not name.startswith((f"{{st:{model}}}:", f"{{st:{model}:")):
        raise StateCorrupt(f"the backup has key {name!r}, which is not of model {model}: it was not made by `backup`")
    try:
        connection.call("RESTORE", name, 0, value, "REPLACE")
    except StateError as error:
        if "payload version" not in str(error):
            raise
        raise StateMismatch(
            f"Redis at {connection.address} cannot read the values of the backup: restore into a Redis that is not "
            "older than the one that they came from"
        ) from None
