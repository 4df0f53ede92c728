"""Where a partition stands: position, epochs, versions and counters as one Redis hash, and its list of segments."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamtopic.errors import StateCorrupt, StateMismatch, StateMissing
from streamtopic.state.connection import Connection
from streamtopic.state.redis_keys import ModelKeys, PartitionKeys
from streamtopic.state.scripts import BEGIN_EPOCH, Outcome, outcome

__all__ = ["MURMUR2", "SCHEMA", "ManifestEntry", "Meta", "changed_limits", "cut", "fixed", "mismatch", "read_position"]

SCHEMA = 3
"""Layout version of everything under a partition's tag, and of what its numbers mean: weights of pairs included."""


MURMUR2 = "murmur2"
"""The hash that partitions go by unless settings say otherwise, and that of states which name none."""

Fixed = tuple[int, int, int, str, str]
"""Layout, cap, partitions, partitioner and limits: fixed when a model is created."""


@dataclass(frozen=True, slots=True)
class Meta:
    """A partition's meta hash.

    partitions, cap: settings of the model. next_offset: the first record not yet counted. version: of the manifest.
    commit: id of the last change, by which this very history is known. fence: token of the newest writer.
    time_ms: newest time of a counted record, 0 before the first; moved_ms: time of the last commit, by Redis's clock.
    next_word: first id never given. words: of live documents; 0 until the first commit by this release.
    live, counted: documents per epoch.
    totals: events by outcome since the state was created. cuts: offsets at which the epochs after `folded` begin.
    through: records before this offset had been dealt with where they belong elsewhere, before the state was made anew.
    removed: offset behind the last flush that a document left with, at removed_ms the oldest such flush since `erased`.
    removals: how many documents ever left. erased: offset before which no segment holds what a document that left had
    brought; erased_ms: when it came to that.
    All times but time_ms are Redis's. State from before these fields counts as one whose last flush removed something.
    """

    partitions: int
    cap: int
    next_offset: int
    version: int
    commit: str
    fence: int
    time_ms: int
    moved_ms: int
    folded: int
    cuts: tuple[int, ...]
    next_word: int
    words: int
    live: Mapping[int, int]
    counted: Mapping[int, int]
    totals: Mapping[str, int]
    removed: int
    removed_ms: int
    removals: int
    erased: int
    erased_ms: int
    through: int = 0

    @classmethod
    def parse(cls, fields: Mapping[bytes, bytes]) -> "Meta":
        """Read the hash. Raises StateMismatch for another schema and StateCorrupt for a hash that is damaged."""
        text = {key.decode(): value.decode("ascii", "replace") for key, value in fields.items()}
        if text.get("schema") != str(SCHEMA):
            raise StateMismatch(_other_layout("the state in Redis", str(text.get("schema"))))
        try:
            return cls(
                partitions=int(text["partitions"]),
                cap=int(text["cap"]),
                next_offset=int(text["next"]),
                version=int(text["version"]),
                commit=text["commit"],
                fence=int(text["fence"]),
                time_ms=int(text["time"]),
                moved_ms=int(text["moved"]),
                folded=int(text["folded"]),
                cuts=tuple(int(cut) for cut in text["cuts"].split(",") if cut),
                next_word=int(text["next_word"]),
                words=int(text.get("words", 0)),
                live={int(epoch): number for epoch, number in _counters(text, "live:").items()},
                counted={int(epoch): number for epoch, number in _counters(text, "counted:").items()},
                totals=_counters(text, "total:"),
                removed=int(text.get("removed", text["next"])),
                removed_ms=int(text.get("removed_at", 0)),
                removals=int(text.get("removals", 0)),
                erased=int(text.get("erased", 0)),
                erased_ms=int(text.get("erased_at", 0)),
                through=int(text.get("through", 0)),
            )
        except (KeyError, ValueError) as error:
            raise StateCorrupt(f"partition state cannot be read ({error}): run `streamtopic rebuild`") from None

    @property
    def epoch(self) -> int:
        """The epoch that a document added now belongs to."""
        return self.folded + len(self.cuts)

    @property
    def documents(self) -> int:
        """Live documents."""
        return sum(self.live.values())

    @property
    def holds_removed(self) -> bool:
        """Whether segments may hold what documents that left had brought."""
        return self.removed > self.erased

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of a document added at this offset."""
        return self.folded + bisect_right(self.cuts, offset)

    def end_of(self, through: int | None) -> int:
        """Return the offset behind the last add of epochs up to `through`; of all for None."""
        if through is None or through >= self.epoch:
            return self.next_offset
        return min(self.next_offset, self.cuts[through - self.folded])

    def live_through(self, epoch: int) -> int:
        """Return how many live documents belong to this epoch or an earlier one."""
        return sum(number for of, number in self.live.items() if of <= epoch)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One segment in the manifest; keys is the number of its Redis strings, the head included."""

    name: str
    order: int
    epoch: int
    keys: int
    pairs: int
    size: int

    @classmethod
    def parse(cls, name: bytes, value: bytes) -> "ManifestEntry":
        """Read one field of the manifest hash. Raises StateCorrupt."""
        try:
            return cls(name.decode("ascii"), *map(int, value.split(b":")))
        except (TypeError, ValueError):
            raise StateCorrupt(f"manifest entry {name!r} cannot be read: run `streamtopic rebuild`") from None

    def pack(self) -> str:
        """Return the value of its field."""
        return f"{self.order}:{self.epoch}:{self.keys}:{self.pairs}:{self.size}"


def read_position(connection: Connection, keys: PartitionKeys) -> tuple[Meta, tuple[ManifestEntry, ...]]:
    """Return meta and manifest of one instant, the manifest in the order of its commits.

    Raises StateMismatch where there is no state or one of another layout, StateCorrupt.
    """
    fields, entries = connection.batch([("HGETALL", keys.meta), ("HGETALL", keys.manifest)], atomic=True)
    if not fields:
        raise StateMissing(
            f"there is no state under {keys.tag}: start `streamtopic ingest`, or check model and address"
        )
    manifest = [ManifestEntry.parse(name, value) for name, value in entries.items()]
    return Meta.parse(fields), tuple(sorted(manifest, key=lambda entry: (entry.order, entry.name)))


def cut(connection: Connection, model: str, partition: int, *, epoch: int, leader: int) -> Outcome:
    """Begin epochs up to `epoch` at the partition's next offset; for the scheduler, beside the partition's writer.

    leader: fencing token of the scheduler's lease. Already there: AlreadyApplied. The writer's next commit, if it was
    planned before, answers Stale, so that no document is counted in the wrong epoch.
    """
    keys = ModelKeys(model).partition(partition)
    return outcome(connection.script(BEGIN_EPOCH, [keys.meta], [epoch, leader]))


def fixed(answer: Sequence[bytes | None]) -> Fixed:
    """Return layout, cap, partitions, partitioner and limits as Redis holds them.

    A state without a partitioner is of murmur2; one without limits is of a program that kept none, "".
    """
    schema, cap, partitions, partitioner, limits = answer
    hashed = "crc32" if partitioner == b"crc32" else MURMUR2
    return int(schema or 0), int(cap or 0), int(partitions or 0), hashed, (limits or b"").decode(errors="replace")


def mismatch(model: str, have: Fixed, want: Fixed) -> str:
    """Return what to tell a user whose settings differ from those the state was made with."""
    schema, cap, partitions, partitioner, limits = have
    _, want_cap, want_partitions, want_partitioner, want_limits = want
    if schema != SCHEMA:
        return _other_layout(f"the state of {model}", str(schema))
    remedy = "or rebuild the state from the log under the new setting (`streamtopic rebuild`)"
    if partitions != want_partitions:
        differs = (
            f"was made for {partitions} partitions, not {want_partitions}, and documents would be looked for where "
            f"they are not: go back to {partitions} partitions"
        )
    elif partitioner != want_partitioner:
        differs = (
            f"was made for partitioner {partitioner}, not {want_partitioner}, and documents would be looked for where "
            f"they are not: set partitioner = {partitioner}"
        )
    elif cap != want_cap:
        differs = f"was counted with document mass cap {cap}, not {want_cap}: go back to cap {cap}"
    else:
        changed = changed_limits(limits, want_limits)
        differs = (
            f"was counted under other limits of records ({changed}), which decide what is refused: go back to the "
            "program that counted it"
        )
        remedy = "or count it anew from the log (`streamtopic rebuild`)"
    return f"the state of {model} {differs}, {remedy}"


def changed_limits(found: str, wanted: str) -> str:
    """Return what to say of limits of records that are not those that a state was counted under, "" for the same."""
    if not found:
        return "limits that it does not name"
    before = dict(limit.partition("=")[::2] for limit in found.split(","))
    now = dict(limit.partition("=")[::2] for limit in wanted.split(","))
    names = [name for name in (now | before) if now.get(name) != before.get(name)]
    return ", ".join(f"{name} {before.get(name, 'none')} and not {now.get(name, 'none')}" for name in names)


def _other_layout(state: str, schema: str) -> str:
    """Return what to tell a user whose state was written by a program of another layout."""
    return (
        f"{state} has layout {schema}, this program reads {SCHEMA}: count it anew from the log "
        "(`streamtopic rebuild`), or use the version of the program that wrote it"
    )


def _counters(text: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): int(value) for key, value in text.items() if key.startswith(prefix)}
