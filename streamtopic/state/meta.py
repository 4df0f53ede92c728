"""The position of a partition: offset, epochs, versions and counters in one Redis hash. Its segments and other keys."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.documents.events import keeps_days, suppression_in
from streamtopic.errors import StateCorrupt, StateMismatch, StateMissing
from streamtopic.formats import STATE, refusal
from streamtopic.state.connection import Connection
from streamtopic.state.redis_keys import BUCKETS, MARK, ModelKeys, PartitionKeys
from streamtopic.state.scripts import BEGIN_EPOCH, Outcome, outcome

__all__ = [
    "MURMUR2",
    "Fixed",
    "ManifestEntry",
    "Meta",
    "changed_limits",
    "claimed_keys",
    "cut",
    "fixed",
    "head_strings",
    "mismatch",
    "read_position",
    "require_documents",
    "require_keys",
    "segment_lost",
]

Int64 = npt.NDArray[np.int64]

MURMUR2 = "murmur2"
"""The default partitioner. A state that names no partitioner is older than the setting, and was made with this one."""

_VOID = "or run `streamtopic rebuild`, which ends all suppressions of the other key"

_Read = tuple[str | bytes, ...]

Fixed = tuple[int, int, int, str, str]
"""Layout, cap, partitions, partitioner and limits: fixed when a model is created."""


@dataclass(frozen=True, slots=True)
class Meta:
    """A partition's meta hash. Times are milliseconds since 1970 by Redis's clock, unless a line says otherwise.

    partitions: number of partitions of the model.
    cap: the model's cap of a document's weight f(L).
    next_offset: the first record that is not counted yet.
    version: grows with every commit, merge and cut.
    commit: id of the last change; it names this history of the partition and no other.
    fence: fencing token of the newest writer.
    time_ms: newest time of a counted record, by the log's clock; 0 before the first.
    moved_ms: time of the last commit.
    folded: the oldest epoch; earlier ones were folded into it.
    cuts: offsets at which the epochs after `folded` begin, ascending.
    next_word: the first word id that was never given.
    words: number of words of live documents; 0 in older states until their next commit.
    live: epoch to the number of its live documents.
    counted: epoch to the number of documents that were ever added in it.
    totals: outcome of a record to the number of records, since the state was created.
    removed: offset after the last flush with a deletion.
    removed_ms: time of the oldest flush with a deletion whose traces segments may hold.
    removals: number of documents that ever left.
    erased: no segment holds a trace of a document that left before this offset.
    erased_ms: time since which `erased` holds.
    through: records of other partitions' keys before this offset were dealt with before the state was last rebuilt.
    layout: number of `formats.STATE`: what a writer may write here. Readers take each entry as it is.
    suppressed: number of ids and subjects that are suppressed.
    marked: SHA-1 of the secret of the partition, in hex; "" where keys have no marks yet (`require_keys`).
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
    layout: int = STATE.written
    suppressed: int = 0
    marked: str = ""

    @classmethod
    def parse(cls, fields: Mapping[bytes, bytes]) -> "Meta":
        """Read the hash. Raises StateMismatch for another layout and StateCorrupt for a hash that is damaged."""
        text = {key.decode(): value.decode("ascii", "replace") for key, value in fields.items()}
        # Before any field is read: those of another layout may be missing, which is not damage.
        layout = text.get("schema", "")
        if layout not in map(str, STATE.read):
            raise StateMismatch(refusal(STATE, layout, writer=text.get("program", "")))

        def number(name: str, otherwise: str | None = None) -> int:
            return int(text[name] if otherwise is None else text.get(name, otherwise))

        try:
            live = _counters(text, "live:")
            counted = _counters(text, "counted:")
            cuts = tuple(int(cut) for cut in text["cuts"].split(",") if cut)
            return cls(
                partitions=number("partitions"),
                cap=number("cap"),
                next_offset=number("next"),
                version=number("version"),
                commit=text["commit"],
                fence=number("fence"),
                time_ms=number("time"),
                moved_ms=number("moved"),
                folded=number("folded"),
                cuts=cuts,
                next_word=number("next_word"),
                live={int(epoch): documents for epoch, documents in live.items()},
                counted={int(epoch): documents for epoch, documents in counted.items()},
                totals=_counters(text, "total:"),
                # The rest came later. A state without these fields counts as one whose last flush deleted something.
                words=number("words", "0"),
                removed=number("removed", text["next"]),
                removed_ms=number("removed_at", "0"),
                removals=number("removals", "0"),
                erased=number("erased", "0"),
                erased_ms=number("erased_at", "0"),
                through=number("through", "0"),
                layout=int(layout),
                suppressed=number("suppressed", "0"),
                marked=text.get("marked", ""),
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
        """Whether segments may hold traces of deleted documents."""
        return self.removed > self.erased

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of a document added at this offset."""
        return self.folded + bisect_right(self.cuts, offset)

    def epochs_of(self, offsets: Int64) -> Int64:
        """Return the epoch of the document added at each of these offsets."""
        cuts = np.array(self.cuts, np.int64)
        found: Int64 = self.folded + np.searchsorted(cuts, offsets, side="right")
        return found

    def by_epoch(self, offsets: Int64) -> dict[int, int]:
        """Return each epoch of documents added at these offsets, and how many of them belong to it."""
        epochs, numbers = np.unique(self.epochs_of(offsets), return_counts=True)
        return dict(zip(epochs.tolist(), numbers.tolist(), strict=True))

    def end_of(self, through: int | None) -> int:
        """Return the offset before which all adds of epochs up to `through` lie. None: of all epochs."""
        if through is None or through >= self.epoch:
            return self.next_offset
        return min(self.next_offset, self.cuts[through - self.folded])

    def live_through(self, epoch: int) -> int:
        """Return how many live documents belong to this epoch or an earlier one."""
        return sum(number for one, number in self.live.items() if one <= epoch)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One segment in the manifest.

    name: unique id, part of the names of its Redis strings.
    order: manifest version of the commit that wrote it; a merged segment has that of the oldest it was made of.
    epoch: epoch of its documents.
    keys: number of its Redis strings, the head included.
    pairs: number of stored pairs; of a segment that holds rows, the most that they can make.
    size: bytes of its strings.
    rows: number of passages that it holds in the place of their pairs, 0 for a segment of pairs.
    """

    name: str
    order: int
    epoch: int
    keys: int
    pairs: int
    size: int
    rows: int = 0

    @classmethod
    def parse(cls, name: bytes, value: bytes) -> "ManifestEntry":
        """Read one field of the manifest hash. Raises StateCorrupt."""
        try:
            return cls(name.decode("ascii"), *map(int, value.split(b":")))
        except (TypeError, ValueError):
            raise StateCorrupt(f"manifest entry {name!r} cannot be read: run `streamtopic rebuild`") from None

    def pack(self) -> str:
        """Return the value of its field."""
        value = f"{self.order}:{self.epoch}:{self.keys}:{self.pairs}:{self.size}"
        # Only where there are rows: a program of layout 3 refuses such an entry, and must read all others.
        return f"{value}:{self.rows}" if self.rows else value


def read_position(connection: Connection, keys: PartitionKeys) -> tuple[Meta, tuple[ManifestEntry, ...]]:
    """Return meta and manifest as of one instant, the manifest in the order of its commits.

    Raises StateMissing where there is no state, StateMismatch for one of another layout, StateCorrupt.
    """
    # Atomic: between two reads a merge could take segments out of the manifest that the old version of meta counts.
    reads = [("HGETALL", keys.meta), ("HGETALL", keys.manifest)]
    fields, entries = connection.batch(reads, atomic=True)
    if not fields:
        raise StateMissing(
            f"there is no state under {keys.tag}: start `streamtopic ingest`, or check model and address"
        )
    manifest = [ManifestEntry.parse(name, value) for name, value in entries.items()]
    # By name as well: the segments of one flush, one for each epoch, have the same order.
    manifest.sort(key=lambda entry: (entry.order, entry.name))
    return Meta.parse(fields), tuple(manifest)


def head_strings(connection: Connection, keys: PartitionKeys, names: Iterable[str]) -> list[bytes | None]:
    """Return the heads of segments as bytes; None for a segment that was merged and has expired."""
    reads = [("GET", keys.segment(name, 0)) for name in names]
    return connection.batch(reads)


def cut(connection: Connection, model: str, partition: int, *, epoch: int, leader: int) -> Outcome:
    """Begin all epochs up to `epoch` at the partition's next offset. The scheduler does this beside the writer.

    epoch: the newest epoch afterwards.
    leader: fencing token of the scheduler's lease.

    AlreadyApplied where the epoch has begun. A commit that the writer has planned before is Stale, so that no document
    is counted in the wrong epoch.
    """
    keys = ModelKeys(model).partition(partition)
    answer = connection.script(BEGIN_EPOCH, [keys.meta], [epoch, leader])
    return outcome(answer)


def claimed_keys(keys: PartitionKeys) -> list[str]:
    """Return the keys that a claim looks at, in the order of `claim_partition.lua`."""
    subjects = [keys.subjects(bucket) for bucket in range(BUCKETS)]
    documents = [keys.documents(bucket) for bucket in range(BUCKETS)]
    first = [keys.meta, keys.forwards, keys.subject_requests, keys.forgets, keys.suppressed]
    return [*first, *subjects, keys.words, keys.manifest, *documents]


def require_keys(connection: Connection, keys: PartitionKeys) -> None:
    """Raise StateCorrupt where keys of a partition are gone.

    Redis may lose some keys and keep others: a master that a slot was moved to loses the end of its append-only file,
    somebody deletes a key, a server evicts. A key that is gone looks like one that has nothing in it, so each kind is
    compared with something that another key says:

        documents, words            the numbers of live documents and of words in the position
        segments                    their documents, added up, are the live documents of the position
        suppressions, the index of subjects, deletions to send elsewhere
                                    each has a mark in it from the claim on: an entry with an empty name
        requests to forget a subject the digest of the secret among them is in the position
        deletions that wait         the stream is there from the claim on, also without entries
        the position itself         a claim without one refuses a partition whose other keys are there

    A key that is lost and then written again stays noticed. Numbers that differ keep their difference, a mark is
    written by a claim only, and a commit is refused where the stream or the mark of the suppressions is gone.

    Programs of before the marks pass over them. A state without marks gets them with its next claim; until then only
    the numbers are compared.

    Without a position nothing is compared. Raises StateMismatch for another layout, ComponentUnreachable.
    """
    marked: list[_Read] = [("HGET", key, MARK) for key in (keys.suppressed, keys.forwards)]
    documents: list[_Read] = [("HLEN", keys.documents(bucket)) for bucket in range(BUCKETS)]
    # From the first of all members up to the mark, which sorts before all others.
    subjects: list[_Read] = [("ZLEXCOUNT", keys.subjects(bucket), "-", b"[" + MARK) for bucket in range(BUCKETS)]
    reads: list[_Read] = [
        ("HGETALL", keys.meta),
        ("EXISTS", keys.forgets),
        ("HGET", keys.subject_requests, "secret"),
        ("HLEN", keys.words),
    ]
    # Atomic: a commit between two of them would look like a loss.
    answers = connection.batch([*reads, *marked, *documents, *subjects], atomic=True)
    fields, stream, secret, words, suppressed, forwards, *numbers = answers
    if not fields:
        return
    meta = Meta.parse(fields)
    held = sum(numbers[:BUCKETS])
    lost = []
    if held != meta.documents:
        lost.append(f"{held} documents are there, {meta.documents} are counted")
    # An older state says 0 until its next commit.
    if words < meta.words:
        lost.append(f"{words} words of {meta.words}")
    if meta.marked:
        whole = {
            "the deletions that wait for receipts": bool(stream),
            "the suppressions": suppressed is not None,
            "the deletions to send to other partitions": forwards is not None,
            "the requests to forget a subject": _digest(secret) == meta.marked,
            "a part of the index of subjects": all(numbers[BUCKETS:]),
        }
        lost += [f"{kind} are gone" for kind, there in whole.items() if not there]
    if lost:
        raise _corrupt(keys.number, "; ".join(lost))


def require_documents(partition: int, meta: Meta, counted: int, through: int | None = None) -> None:
    """Raise StateCorrupt where segments count another number of documents than the position of the same instant.

    counted: documents of all segments of the epochs up to `through`.
    through: the newest epoch; None for all.
    """
    live = meta.live_through(meta.epoch if through is None else through)
    if counted != live:
        raise _corrupt(partition, f"its segments count {counted} documents, not {live}")


def segment_lost(entry: ManifestEntry, keys: PartitionKeys) -> StateCorrupt:
    """Return the error for a segment of which Redis has lost a string."""
    return StateCorrupt(
        f"Redis has lost a part of segment {entry.name} of partition {keys.number}: stop ingest and run `streamtopic "
        "rebuild`"
    )


def _digest(secret: bytes | None) -> str:
    # As Lua has it, for `claim_partition.lua`. The secret is 32 random bytes, which no digest gives away.
    return hashlib.sha1(secret or b"", usedforsecurity=False).hexdigest()


def _corrupt(partition: int, text: str) -> StateCorrupt:
    return StateCorrupt(
        f"Redis has lost keys of partition {partition}: {text}. Stop ingest and run `streamtopic rebuild`, which "
        "counts the log anew"
    )


def fixed(answer: Sequence[bytes | None]) -> Fixed:
    """Return layout, cap, partitions, partitioner and limits from the fields of Redis, in this order.

    A state of an older program may lack the partitioner, which is murmur2 then, and the limits, which are "" then.
    """
    layout, cap, partitions, partitioner, limits = answer
    hashed = "crc32" if partitioner == b"crc32" else MURMUR2
    text = (limits or b"").decode(errors="replace")
    return int(layout or 0), int(cap or 0), int(partitions or 0), hashed, text


def mismatch(model: str, have: Fixed, want: Fixed, writer: str = "") -> str:
    """Return the error text for settings that differ from those that the state was made with.

    writer: version of the program that gave the state its layout, "" where the state does not name it.
    """
    layout, cap, partitions, partitioner, limits = have
    _, want_cap, want_partitions, want_partitioner, want_limits = want
    if layout not in STATE.read:
        return refusal(STATE, layout, name=f"the state of {model}", writer=writer)
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
    elif suppression_in(limits) != suppression_in(want_limits):
        return f"the state of {model} {_other_suppressions(suppression_in(limits), suppression_in(want_limits))}"
    elif keeps_days(limits) != keeps_days(want_limits):
        had, wants = ("with", "without") if keeps_days(limits) else ("without", "with")
        back = "month" if keeps_days(limits) else "off"
        differs = f"was counted {had} the days of documents, not {wants} them: go back to slices = {back}"
    else:
        changed = changed_limits(limits, want_limits)
        differs = (
            f"was counted under other limits of records ({changed}), which decide on refusals: go back to the "
            "program, and to the setting `input`, that counted it"
        )
        remedy = "or count it anew from the log (`streamtopic rebuild`)"
    return f"the state of {model} {differs}, {remedy}"


def _other_suppressions(had: str, wants: str) -> str:
    """Return what differs between two keys of suppressions, with the remedy. had, wants: fingerprints, "" for none."""
    if not had:
        return (
            f"was counted without suppressions, and the setting `suppression_key` names key {wants}: run `streamtopic "
            "rebuild` once, which counts the log with it, or take the setting away"
        )
    remedy = f"name the file of key {had} in the setting `suppression_key`"
    if wants:
        return f"was counted with suppressions of key {had}, not {wants}: {remedy}, {_VOID}"
    return f"was counted with suppressions of key {had}, and no key is set here: {remedy}"


def changed_limits(found: str, wanted: str) -> str:
    """Return the names and values of the limits of records that differ, for an error text; "" where none does.

    found: limits that a state was counted under, as `events.LIMITS`.
    wanted: limits of this program.
    """
    if not found:
        return "limits that it does not name"
    before = dict(limit.partition("=")[::2] for limit in found.split(","))
    now = dict(limit.partition("=")[::2] for limit in wanted.split(","))
    changed = []
    for name in now | before:
        old = before.get(name, "none")
        new = now.get(name, "none")
        if old != new:
            changed.append(f"{name} {old} and not {new}")
    return ", ".join(changed)


def _counters(text: Mapping[str, str], prefix: str) -> dict[str, int]:
    found = {}
    for key, value in text.items():
        if key.startswith(prefix):
            found[key.removeprefix(prefix)] = int(value)
    return found
