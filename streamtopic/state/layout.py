"""Finds the number of the layout in which a model's state is written, raises it by one, and takes it back by one.

A state says itself which layout its writers write (`formats.STATE`). Readers take each entry as it is, whatever the
number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamtopic.formats import ROWS_FROM, program
from streamtopic.state.compaction import merge, swap
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forget
from streamtopic.state.partition_writer import PartitionWriter
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.removal import put_forgets
from streamtopic.state.scripts import SET_LAYOUT, Outcome, Stale, outcome

__all__ = ["Layouts", "announce_layout", "layouts", "remove_rows", "remove_traces", "set_layout"]


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts of a model.

    model: the layout that new partitions get.
    partitions: that of each partition; 0 for one without a state.
    program: version of the program that set the model's, "" for one that did not say.
    """

    model: int
    partitions: Sequence[int]
    program: str

    @property
    def all(self) -> frozenset[int]:
        """Every layout that is written somewhere in the model."""
        return frozenset(layout for layout in (self.model, *self.partitions) if layout)


def layouts(connection: Connection, model: str, partitions: int) -> Layouts:
    """Return the layouts of a model that exists, whatever their numbers."""
    keys = ModelKeys(model)
    own, writer = connection.call("HMGET", keys.named("settings"), "schema", "program")
    found = [connection.call("HGET", keys.partition(partition).meta, "schema") for partition in range(partitions)]
    return Layouts(int(own or 0), [int(layout or 0) for layout in found], (writer or b"").decode(errors="replace"))


def announce_layout(connection: Connection, model: str, layout: int) -> None:
    """Note the layout that new partitions get, and that programs ask for before they open the model."""
    connection.call("HSET", ModelKeys(model).named("settings"), "schema", layout, "program", program())


def set_layout(connection: Connection, model: str, partition: int, layout: int) -> Outcome:
    """Change the layout of a partition beside its writer, which goes on in it.

    AlreadyApplied where it has this layout. Stale where there is no state yet, or where segments hold rows and the
    layout does not allow any.
    """
    keys = ModelKeys(model).partition(partition)
    arguments: list[str | bytes | int] = [layout, program(), int(layout >= ROWS_FROM)]
    return outcome(connection.script(SET_LAYOUT, [keys.meta, keys.manifest], arguments))


def remove_rows(state: PartitionWriter) -> int:
    """Put pairs in the place of the rows of all segments; return how many segments were changed.

    It may be repeated. Raises as `merge`, and TakenOver where another process took ownership of the partition.
    """
    changed = 0
    while rows := [entry for entry in state.manifest if entry.rows]:
        # One at a time: several together would have to fit into memory as pairs of one segment.
        merged = merge(state, rows[:1])
        result = merged if isinstance(merged, Stale) else swap(state, merged)
        if isinstance(result, Stale):
            state.reload()
        else:
            changed += 1
    return changed


def remove_traces(state: PartitionWriter, model: str) -> int:
    """Take the traces of requests out of the deletions that wait for their receipt; return how many had one.

    Nobody may publish receipts meanwhile. It may be repeated.
    """
    waiting = list[Forget]()
    while page := state.forgets.read(waiting[-1].offset + 1 if waiting else 0):
        waiting += page
    traced = sum(bool(forget.trace) for forget in waiting)
    if traced:
        plain = [replace(forget, trace=b"") for forget in waiting]
        put_forgets(state.connection, model, state.partition, plain)
    return traced
