"""The traces that deletions leave, and how long: the ledger of each deletion follows from a few marks.

A mark belongs to a partition and a stage. It says that every deletion before an offset had reached the stage at a time.
So the size of the ledger depends on the number of partitions, and not on the number of deleted documents.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from streamtopic.state.connection import Codec, Connection
from streamtopic.state.redis_keys import ModelKeys

__all__ = ["Marks", "Outstanding", "Residue", "ResidueState", "Rewrite", "Stage", "Traces"]

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

    def since(self, offset: int) -> "Marks":
        """Return the marks without steps that date only deletions before `offset`; the last step always stays."""
        kept = tuple(step for step in self.steps if step[0] > offset)
        return Marks(kept or self.steps[-1:])


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

    def prune(self, completed: int) -> None:
        """Leave out the steps of marks that date only deletions before this offset."""
        self.counted = self.counted.since(completed)
        self.stages = {stage: marks.since(completed) for stage, marks in self.stages.items()}


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
        self._codec = Codec(Residue, told, use_list=False)

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
