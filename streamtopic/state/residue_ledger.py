"""What deletions leave behind, and until when: a few marks a partition, from which the ledger of each deletion follows.

A mark says that every deletion before an offset had reached a stage at a time. So the ledger costs as much as there are
partitions, however many documents were deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgpack

from streamtopic.errors import StateCorrupt
from streamtopic.state.connection import Connection
from streamtopic.state.redis_keys import ModelKeys

__all__ = ["Marks", "Outstanding", "Residue", "ResidueState", "Rewrite", "Stage"]

_MOST_STEPS = 64


class Stage(StrEnum):
    """How far a deletion has come, in the order in which its traces can go.

    SUBTRACTED: out of the counts. RELEASED: a version without the document is staged. WITHDRAWN: the versions that hold
    it are withdrawn, and their chunks have left the releases topic. LOG: the documents topic no longer holds it. BASE:
    nor does the base model, before noise, in Redis. SEGMENTS: nor does any segment. AOF: Redis's append-only file was
    written anew after that. SNAPSHOTS: all backups from before that are destroyed.
    """

    SUBTRACTED = "subtracted"
    RELEASED = "released"
    WITHDRAWN = "withdrawn"
    LOG = "log"
    BASE = "base"
    SEGMENTS = "segments"
    AOF = "aof"
    SNAPSHOTS = "snapshots"


@dataclass(frozen=True, slots=True)
class Marks:
    """When a stage of one partition had reached which offsets.

    steps: (offset, milliseconds since 1970), both ascending: deletions before the offset were there at that time.
    """

    steps: tuple[tuple[int, int], ...] = ()

    @property
    def offset(self) -> int:
        """Every deletion before this offset has reached the stage."""
        return self.steps[-1][0] if self.steps else 0

    def reached(self, offset: int) -> int | None:
        """Return when the deletion at this offset had reached the stage at the latest, None while it has not."""
        return next((time_ms for before, time_ms in self.steps if offset < before), None)

    def by(self, time_ms: int) -> int:
        """Return the offset before which all deletions had reached the stage at this time."""
        return max((before for before, at in self.steps if at <= time_ms), default=0)

    def moved(self, offset: int, time_ms: int) -> "Marks":
        """Return the marks with one more step, unless it is not ahead of the last; a mark never goes back.

        Of too many steps every other one goes: the deletions that it dates are dated by the next one, so later.
        """
        if offset <= self.offset:
            return self
        last = self.steps[-1][1] if self.steps else 0
        kept = self.steps if len(self.steps) < _MOST_STEPS else self.steps[::2]
        return Marks((*kept, (offset, max(time_ms, last))))

    def since(self, offset: int) -> "Marks":
        """Return the marks without the steps that date only deletions before `offset`, but for the last."""
        kept = tuple(step for step in self.steps if step[0] > offset)
        return Marks(kept or self.steps[-1:])


@dataclass(frozen=True, slots=True)
class Outstanding:
    """What has not reached a stage yet.

    documents: how many at most, replaced ones included. since_ms: when the oldest was counted out, at the latest; None
    without one.
    """

    documents: int = 0
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of the append-only file that was asked for.

    issued: milliseconds since 1970; server: the run id of the Redis that was asked, since a restart forgets it; covers:
    partition to the offset before which Redis held nothing of any deleted document when it began.
    """

    issued: int
    server: str
    covers: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Residue:
    """The marks of all partitions and stages.

    totals: partition to how many documents had left before an offset, as pairs of both. cleared: partition to when its
    segments were merged, by Redis's clock. looked: when the logs were looked through last. asked: when Redis was asked
    last to write its file anew; rewrite: while that is under way. forbidden: why the service may not have it written
    anew, "" where it may. attested: stage to the time up to which the operator attests it. completed: partition to the
    offset before which completions are signed.
    """

    marks: Mapping[tuple[int, Stage], Marks] = field(default_factory=dict)
    totals: Mapping[int, Marks] = field(default_factory=dict)
    cleared: Mapping[int, Marks] = field(default_factory=dict)
    looked: int = 0
    asked: int = 0
    rewrite: Rewrite | None = None
    forbidden: str = ""
    attested: Mapping[Stage, int] = field(default_factory=dict)
    completed: Mapping[int, int] = field(default_factory=dict)

    def of(self, partition: int, stage: Stage) -> Marks:
        """Return the marks of a partition."""
        return self.marks.get((partition, stage), Marks())

    def before(self, partition: int, stage: Stage) -> int:
        """Return the offset before which every deletion has reached all stages before this one."""
        earlier = list(Stage)[: list(Stage).index(stage)]
        return min(self.of(partition, one).offset for one in earlier)

    def waiting(self, partition: int, stage: Stage) -> Outstanding:
        """Return how many documents of a partition have not reached a stage yet, and since when."""
        at, totals = self.of(partition, stage).offset, self.totals.get(partition, Marks()).steps
        if not totals or at >= totals[-1][0]:
            return Outstanding()
        before = max((total for offset, total in totals if offset <= at), default=0)
        return Outstanding(totals[-1][1] - before, self.of(partition, Stage.SUBTRACTED).reached(at))

    def done(self, partition: int) -> int:
        """Return the offset before which nothing is left of any deleted document."""
        return min(self.of(partition, stage).offset for stage in Stage)

    def reached(self, partition: int, offset: int) -> dict[Stage, int | None]:
        """Return when a deletion had reached each stage at the latest; None for stages still ahead."""
        return {stage: self.of(partition, stage).reached(offset) for stage in Stage}


class ResidueState:
    """The marks in Redis, one hash. The leading scheduler writes them; the operator what is attested."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._key = ModelKeys(model).named("residue")

    def read(self) -> Residue:
        """Return what is known. Raises StateCorrupt."""
        try:
            fields = {name.decode(): value for name, value in self._connection.call("HGETALL", self._key).items()}
            return Residue(
                marks={_place(name): _marks(value) for name, value in fields.items() if name.startswith("mark:")},
                totals={int(n[6:]): _marks(value) for n, value in fields.items() if n.startswith("total:")},
                cleared={int(n[8:]): _marks(value) for n, value in fields.items() if n.startswith("cleared:")},
                asked=int(fields.get("asked", 0)),
                looked=int(fields.get("looked", 0)),
                rewrite=_rewrite(fields.get("rewrite", b"")),
                forbidden=fields.get("forbidden", b"").decode(),
                attested={Stage(n[9:]): int(v) for n, v in fields.items() if n.startswith("attested:")},
                completed={int(n[10:]): int(v) for n, v in fields.items() if n.startswith("completed:")},
            )
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(
                f"what is left of deletions cannot be read ({error}): delete key {self._key}, it is made anew"
            ) from None

    def write(self, residue: Residue) -> None:
        """Keep marks, looks and the rewrite under way; what is attested and completed is others'."""
        fields: list[str | bytes | int] = ["looked", residue.looked, "asked", residue.asked]
        fields += ["forbidden", residue.forbidden]
        rewrite = residue.rewrite
        packed = b"" if rewrite is None else msgpack.packb([rewrite.issued, rewrite.server, dict(rewrite.covers)])
        fields += ["rewrite", packed]
        for (partition, stage), marks in residue.marks.items():
            fields += [f"mark:{partition}:{stage}", msgpack.packb(marks.steps)]
        for partition, totals in residue.totals.items():
            fields += [f"total:{partition}", msgpack.packb(totals.steps)]
        for partition, cleared in residue.cleared.items():
            fields += [f"cleared:{partition}", msgpack.packb(cleared.steps)]
        self._connection.call("HSET", self._key, *fields)

    def attest(self, stage: Stage, time_ms: int) -> None:
        """Note that the operator attests a stage for all that Redis or the log held before this time."""
        self._connection.call("HSET", self._key, f"attested:{stage}", time_ms)

    def complete(self, offsets: Mapping[int, int]) -> None:
        """Note up to which offsets completions are in the receipts topic."""
        fields: Iterable[tuple[str, int]] = [(f"completed:{p}", offset) for p, offset in offsets.items()]
        for name, offset in fields:
            self._connection.call("HSET", self._key, name, offset)

    def reset(self) -> None:
        """Forget all marks: the counts are made anew from the log, which may bring back what had gone."""
        self._connection.call("DEL", self._key)


def _place(name: str) -> tuple[int, Stage]:
    _, partition, stage = name.split(":")
    return int(partition), Stage(stage)


def _marks(value: bytes) -> Marks:
    return Marks(tuple((int(offset), int(time_ms)) for offset, time_ms in msgpack.unpackb(value)))


def _rewrite(value: bytes) -> Rewrite | None:
    if not value:
        return None
    issued, server, covers = msgpack.unpackb(value, strict_map_key=False)
    return Rewrite(int(issued), str(server), {int(p): int(offset) for p, offset in covers.items()})
