"""Taking a model's counts out of Redis, so that they can be made again from the log."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice

from streamtopic.errors import StateCorrupt, StateMismatch, StateMissing
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forget
from streamtopic.state.meta import ModelSettings, read_meta
from streamtopic.state.model_state import Lease, acquired
from streamtopic.state.redis_keys import BUCKETS, ModelKeys
from streamtopic.state.scripts import PUT_FORGETS, REMOVE_POSITION

__all__ = [
    "counted_documents",
    "hold_lease",
    "kept_forgets",
    "lead",
    "leader",
    "note_removed",
    "put_forgets",
    "record",
    "remove_base",
    "remove_model",
    "remove_partition",
]

_FIRST_LEASE_MS = 86_400_000

_AT_ONCE = 500
_PASSES = 5


def leader(connection: Connection, model: str) -> str | None:
    """Return the name of the scheduler that leads now; None if no lease runs."""
    holder = connection.call("GET", ModelKeys(model).named("lease"))
    return None if holder is None else str(holder.decode(errors="replace"))


def record(connection: Connection, model: str, settings: ModelSettings, moved: int) -> None:
    """Write the settings of a model over those that were fixed before.

    moved: the last version made before documents were moved to other partitions, 0 without one.
    """
    fields = chain.from_iterable(settings.fields().items())
    connection.call("HSET", ModelKeys(model).named("settings"), "moved", moved, *fields)


def counted_documents(connection: Connection, model: str, partition: int) -> int:
    """Return the number of documents that a partition's state counts; 0 without a state that this program can read."""
    with suppress(StateMissing, StateMismatch, StateCorrupt):
        return read_meta(connection, ModelKeys(model).partition(partition)).documents
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


def remove_partition(connection: Connection, model: str, partition: int, *, rearranged: bool = False) -> None:
    """Remove a partition's counts, documents and words. Its writer, if there is one, is Stale from now on.

    rearranged: whether records will belong to other partitions than before.

    Deletions that wait for their receipt are put aside, for `kept_forgets`. May be repeated after any error.
    """
    keys = ModelKeys(model).partition(partition)
    # The position first: without it a writer cannot commit between the removals that follow.
    position = [keys.forgets, keys.kept_forgets, keys.meta, keys.subject_secret]
    connection.script(REMOVE_POSITION, position, [int(rearranged)])
    # The secret of subjects stays.
    names = [keys.statistics, *keys.changes]
    names += [name(bucket) for name in (keys.documents, keys.subjects) for bucket in range(BUCKETS)]
    for start in range(0, len(names), _AT_ONCE):
        # UNLINK frees the memory in another thread: DEL of a large hash would block Redis.
        some = names[start : start + _AT_ONCE]
        connection.call("UNLINK", *some)


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
    meta = read_meta(connection, keys)
    noted = replace(meta, removed=meta.next_offset, removals=1, trimmed=0, summed_next=0)
    connection.call("HSET", keys.meta, "facts", noted.pack())


def remove_base(connection: Connection, model: str) -> None:
    """Remove the base model and counts, which may have been made by other rules, and are of another history."""
    keys = ModelKeys(model)
    # By their names: a base model whose head is lost, or of another format, must not leave its bytes behind.
    parts = [("UNLINK", part) for part in connection.names(keys.named("base:*"))]
    connection.batch([("UNLINK", keys.named("base")), ("UNLINK", keys.named("counts")), *parts])


def kept_forgets(connection: Connection, model: str, partition: int) -> list[Forget]:
    """Return the deletions that `remove_partition` put aside, oldest first. Raises StateCorrupt if they are gone."""
    keys = ModelKeys(model).partition(partition)
    reads = [("EXISTS", keys.kept_forgets), ("XRANGE", keys.kept_forgets, "-", "+")]
    there, rows = connection.batch(reads)
    if not there:
        raise StateCorrupt(
            f"Redis has lost the deletions of partition {partition} that a rebuild put aside: run `streamtopic "
            "rebuild` again, and their receipts say what the log still tells"
        )
    return [Forget.unpack(fields[b"forget"]) for _, fields in rows]


def put_forgets(connection: Connection, model: str, partition: int, forgets: Iterable[Forget]) -> None:
    """Replace the deletions that wait for their receipt, and remove those that were put aside.

    forgets: ascending by offset and part.
    """
    keys = ModelKeys(model).partition(partition)
    written = f"{keys.tag}:forgets:written"
    connection.call("DEL", written)
    todo = list(forgets)
    for start in range(0, len(todo), _AT_ONCE):
        # A repetition after a lost answer fails on its first id, which the stream has; `rebuild` is then run again.
        some = todo[start : start + _AT_ONCE]
        connection.batch(("XADD", written, forget.entry, "forget", forget.pack()) for forget in some)
    connection.script(PUT_FORGETS, [keys.forgets, keys.kept_forgets, written], [len(todo)])
