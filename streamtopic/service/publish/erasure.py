"""Erasure removes the traces that deletions leave in logs, in Redis and in Redis's file, and notes when they are gone.

The process of the leading scheduler does it. It reads the log to learn whether a document is still there: only a broker
knows when it compacts.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import SettingsError, StateError
from streamtopic.events import HEARTBEAT_KEY
from streamtopic.service.schedule.situation import Base, base_forget_set
from streamtopic.signed import version_of
from streamtopic.state import Stale
from streamtopic.state.compaction import GRACE_SECONDS
from streamtopic.state.residue_ledger import Marks, Outstanding, Residue, ResidueState, Rewrite, Stage
from streamtopic.streams import TopicNames, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from streamtopic.state import Lease, Meta, ModelState, Reader
    from streamtopic.streams import EventLog

__all__ = ["ResidueKeeper", "ResidueOptions", "residue_fields", "superseded_from", "waiting_by_stage"]

logger = logging.getLogger(__name__)

# Redis's file may hold all that Redis held, so a rewrite of the file must come after these stages.
_IN_REDIS = (Stage.SUBTRACTED, Stage.RELEASED, Stage.BASE, Stage.SEGMENTS)
# Redis removes an expired string some time after it expired, so the grace of replaced strings is not enough.
_MARGIN_SECONDS = 60.0
# A pass through a log takes minutes; the scheduler decides and renews its lease between two slices.
_SLICE_SECONDS = 0.5
# A pass reads a whole topic, so there are at most this many of them in `max_age`.
_PARTS_OF_AGE = 4


@dataclass(frozen=True, slots=True)
class ResidueOptions:
    """How soon traces are removed.

    max_age: seconds. Logs are read, and Redis's file is rewritten, at most four times in that time.
    backups_kept: seconds until backups are destroyed; None where the operator attests it.
    base_needed: whether updates start from the bytes of the base model.
    grace: seconds that a string stays in Redis once it was replaced.
    """

    max_age: float = 86_400.0
    backups_kept: float | None = None
    base_needed: bool = False
    grace: float = GRACE_SECONDS + _MARGIN_SECONDS


class ResidueKeeper:
    """Observes which stages deletions have reached, and removes the traces that are left.

    clock: seconds since 1970.

    If it is killed anywhere, the next one goes on from the marks in Redis, and observes again.
    """

    def __init__(
        self, state: ModelState, reader: Reader, log: EventLog, options: ResidueOptions, clock: Callable[[], float]
    ) -> None:
        self._state = state
        self._reader = reader
        self._log = log
        self._options = options
        self._clock = clock
        self._names = TopicNames(state.model)
        self._store = ResidueState(state.connection, state.model)
        self._look: Generator[None, None, Residue] | None = None
        self._look_again = False
        self._next = 0.0

    def look_again(self) -> None:
        """Read the logs at the next step: records were erased from them just now."""
        self._look_again = True

    def step(self, lease: Lease, *, whole: bool = False) -> bool:
        """Do a slice of the work; return whether marks have moved. It may be called as often as you like.

        lease: shows that the caller leads.
        whole: read the logs to their ends at once.

        Raises StateMissing before all partitions are counted, ComponentUnreachable, StateError.
        """
        now = self._clock()
        if now < self._next and self._look is None and not whole:
            return False
        self._next = now + min(self._options.max_age / (4 * _PARTS_OF_AGE), 60.0)
        positions = self._reader.positions()
        if not any(meta.removals for meta in positions.values()):
            return False
        before = residue = self._store.read()
        # In this order: the mark of a later stage is derived from the marks of earlier ones.
        residue = self._own(residue, positions)
        residue = self._looked_through(residue, positions, whole=whole)
        residue = self._base(residue, positions, lease)
        residue = self._segments(residue, positions)
        residue = self._rewritten(residue, positions)
        residue = self._backups(residue, positions)
        residue = _pruned(residue)
        if residue != before:
            self._store.write(residue)
        return residue != before

    def _own(self, residue: Residue, positions: Mapping[int, Meta]) -> Residue:
        """Move the marks of counts, and those of the newest version once the outbox is empty."""
        for partition, meta in positions.items():
            residue = self._moved(residue, positions, partition, Stage.SUBTRACTED, meta.next_offset)
            totals = residue.totals.get(partition, Marks())
            if not totals.steps or meta.removals > totals.steps[-1][1]:
                moved = totals.moved(meta.removed, meta.removals)
                residue = replace(residue, totals={**residue.totals, partition: moved})
        newest = self._state.releases(1)
        # A staged version is in Redis before it is in the log: only an empty outbox says that it was published.
        if newest and not self._state.outbox(1):
            for partition, offset in _cut(newest[0][1]).items():
                if partition in positions:
                    residue = self._moved(residue, positions, partition, Stage.RELEASED, offset)
        return residue

    def _looked_through(self, residue: Residue, positions: Mapping[int, Meta], *, whole: bool) -> Residue:
        """Read through the logs, a slice at a time, for all waiting deletions at once; move the marks at the end."""
        if self._look is None:
            if not self._look_due(residue, positions):
                return residue
            self._look_again = False
            self._look = self._pass(positions)
        until = time.monotonic() + _SLICE_SECONDS
        while whole or time.monotonic() < until:
            try:
                next(self._look)
            except StopIteration as done:
                self._look = None
                for (partition, stage), marks in done.value.marks.items():
                    residue = self._moved(residue, positions, partition, stage, marks.offset)
                return replace(residue, looked=self._now())
            except BaseException:
                self._look = None
                raise
        return residue

    def _look_due(self, residue: Residue, positions: Mapping[int, Meta]) -> bool:
        """Return whether a deletion waits for the logs, and the last pass is long enough ago."""
        in_logs = (Stage.WITHDRAWN, Stage.LOG)
        if not any(meta.removed > _through(residue, p, in_logs) for p, meta in positions.items()):
            return False
        return self._look_again or self._now() - residue.looked >= self._pause_ms

    def _pass(self, positions: Mapping[int, Meta]) -> Generator[None, None, Residue]:
        """Return the offsets before which both topics are free of deleted documents, as marks without a time."""
        marks = dict[tuple[int, Stage], Marks]()
        records = dict(self._state.releases())
        standing = yield from standing_versions(self._log, self._names.releases, self._state.withdrawn())
        cuts = [_cut(records.get(version, {})) for version in standing]
        newest = _cut(records[max(records)]) if records else {}
        for partition, meta in positions.items():
            # A version was withdrawn, but its bytes are still there: it may hold documents deleted after it was made.
            clean = min((cut.get(partition, 0) for cut in cuts), default=newest.get(partition, 0))
            marks[partition, Stage.WITHDRAWN] = Marks(((clean, 0),))
            if meta.removals:
                offset = yield from superseded_from(self._log, self._names.documents, partition)
                marks[partition, Stage.LOG] = Marks(((offset, 0),))
        return Residue(marks)

    def _base(self, residue: Residue, positions: Mapping[int, Meta], lease: Lease) -> Residue:
        """Move the marks of the base model; drop its bytes once the log cannot make them again."""
        head = self._state.base_head()
        record = dict(self._state.releases()).get(head.version, {}) if head else {}
        cut = _cut(record)
        # The base model before this one stays in Redis for the grace of a replaced string.
        if head is not None and self._now() < record.get("created", 0) + self._grace_ms:
            return residue
        holds = False
        if head is not None and self._state.has_base_bytes():
            base = Base.parse(head)
            holds = base_forget_set(positions, base.documents, base.epoch) > 0
        if holds and not self._options.base_needed:
            erased = any(residue.of(p, Stage.LOG).offset > cut.get(p, 0) for p in positions)
            # Stale: another process leads by now, and drops them itself.
            holds = not erased or isinstance(self._state.drop_base_bytes(lease), Stale)
        for partition, meta in positions.items():
            offset = cut.get(partition, 0) if holds else meta.next_offset
            residue = self._moved(residue, positions, partition, Stage.BASE, offset)
        return residue

    def _segments(self, residue: Residue, positions: Mapping[int, Meta]) -> Residue:
        """Move the marks of segments, once the segments that they replaced have left Redis too."""
        # Redis's own clock: segments expire by it.
        now_ms = self._state.connection.time_ms()
        for partition, meta in positions.items():
            cleared = residue.cleared.get(partition, Marks()).moved(meta.erased, meta.erased_ms)
            if cleared != residue.cleared.get(partition):
                residue = replace(residue, cleared={**residue.cleared, partition: cleared})
            offset = cleared.by(int(now_ms - self._grace_ms))
            # No deletion lies behind it, so segments are clean up to the last record that was counted.
            if offset >= meta.removed:
                offset = meta.next_offset
            residue = self._moved(residue, positions, partition, Stage.SEGMENTS, offset)
        return residue

    def _rewritten(self, residue: Residue, positions: Mapping[int, Meta]) -> Residue:
        """Let Redis rewrite its file where the file may hold more than Redis itself; move the marks when it is done."""
        covers = {p: _through(residue, p, _IN_REDIS) for p in positions}
        info = self._state.connection.information()
        # Without an append-only file, Redis has nothing on disk that it must rewrite.
        if not info.get("aof_enabled"):
            return self._all_moved(residue, positions, Stage.AOF, covers)
        busy = info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")
        if residue.rewrite is not None:
            if busy and residue.rewrite.server == info["run_id"]:
                return residue
            residue = self._rewrite_ended(residue, residue.rewrite, positions, info)
        if Stage.AOF in residue.attested:
            attested = {p: _through_by(residue, p, _IN_REDIS, residue.attested[Stage.AOF]) for p in positions}
            residue = self._all_moved(residue, positions, Stage.AOF, attested)
        behind = any(min(covers[p], meta.removed) > residue.of(p, Stage.AOF).offset for p, meta in positions.items())
        if not behind or busy or self._now() - residue.asked < self._pause_ms:
            return residue
        return self._ask(residue, covers, info)

    def _rewrite_ended(
        self, residue: Residue, asked: Rewrite, positions: Mapping[int, Meta], info: Mapping[str, Any]
    ) -> Residue:
        """Move the marks if the rewrite that was asked for has succeeded."""
        residue = replace(residue, rewrite=None)
        # A server that was started again has forgotten the request, and its status is of another rewrite.
        if asked.server != info["run_id"]:
            logger.warning("Redis was started again before it had rewritten its append-only file: it is asked later")
        elif info.get("aof_last_bgrewrite_status") == "ok":
            return self._all_moved(residue, positions, Stage.AOF, asked.covers)
        else:
            logger.error("Redis could not rewrite its append-only file: see its log, and the free space on its disk")
        return residue

    def _ask(self, residue: Residue, covers: Mapping[int, int], info: Mapping[str, Any]) -> Residue:
        """Ask Redis to rewrite its append-only file. covers: partition to the offset that the new file is clean of."""
        connection, now = self._state.connection, self._now()
        # Redis would write expired strings into the new file as well, unless somebody reads their names. Redis itself
        # comes by some time within the margin, so a user who may not look at keys does without.
        with suppress(SettingsError, StateError):
            deque(connection.names(f"{{st:{self._state.model}*}}:seg:*"), maxlen=0)
        try:
            connection.call("BGREWRITEAOF")
        except (SettingsError, StateError) as error:
            if "in progress" in str(error):
                return residue
            if not residue.forbidden:
                logger.warning(
                    "%s; rewrite Redis's append-only file at intervals, and attest it with `streamtopic residue attest "
                    "--stage aof --until TIME`",
                    error,
                )
            return replace(residue, forbidden=str(error), asked=now)
        return replace(residue, forbidden="", asked=now, rewrite=Rewrite(now, str(info["run_id"]), covers))

    def _backups(self, residue: Residue, positions: Mapping[int, Meta]) -> Residue:
        """Move the marks of backups: deletions that had passed all other stages when the oldest backup was made."""
        until = residue.attested.get(Stage.SNAPSHOTS, 0)
        if self._options.backups_kept is not None:
            until = max(until, self._now() - int(self._options.backups_kept * 1000))
        earlier = [stage for stage in Stage if stage is not Stage.SNAPSHOTS]
        reached = {p: _through_by(residue, p, earlier, until) for p in positions}
        return self._all_moved(residue, positions, Stage.SNAPSHOTS, reached)

    def _all_moved(
        self, residue: Residue, positions: Mapping[int, Meta], stage: Stage, offsets: Mapping[int, int]
    ) -> Residue:
        """Move the marks of a stage. offsets: by partition."""
        for partition, offset in offsets.items():
            if partition in positions:
                residue = self._moved(residue, positions, partition, stage, offset)
        return residue

    def _moved(
        self, residue: Residue, positions: Mapping[int, Meta], partition: int, stage: Stage, offset: int
    ) -> Residue:
        """Move the mark of a partition and stage to an offset, where a deletion waits for it."""
        marks = residue.of(partition, stage)
        # A step without a deletion would date nothing, and only 64 steps are kept.
        if positions[partition].removed <= marks.offset or offset <= marks.offset:
            return residue
        moved = marks.moved(offset, self._now())
        return replace(residue, marks={**residue.marks, (partition, stage): moved})

    def _now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._clock() * 1000)

    @property
    def _pause_ms(self) -> float:
        """The least time between two passes through the logs, and between two rewrites of Redis's file."""
        return self._options.max_age * 1000 / _PARTS_OF_AGE

    @property
    def _grace_ms(self) -> float:
        """The time that a replaced string stays in Redis."""
        return self._options.grace * 1000


def superseded_from(log: EventLog, topic: str, partition: int) -> Generator[None, None, int]:
    """Return the offset of the first record that supersedes a value which the log still holds; else the log's end.

    A deletion before it has left no trace in the log: all earlier values of its key have been erased. Yields after each
    page, so that the caller can do other things meanwhile. Needs 17 bytes of memory for each record of the partition.
    """
    # An empty first part each: concatenate needs at least one array, and a log may be empty.
    hashes, places, valued = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
    offset, end = log.begin(topic, partition), log.end(topic, partition)
    for records in pages(log, topic, partition, offset, end):
        held = [record for record in records if record.key is not None and record.key != HEARTBEAT_KEY]
        # Two keys of one hash only make the answer later: an erased record seems to be there.
        digests = b"".join(blake2b(record.key or b"", digest_size=8).digest() for record in held)
        hashes.append(np.frombuffer(digests, np.uint64))
        places.append(np.array([record.offset for record in held], np.int64))
        valued.append(np.array([record.value is not None for record in held], np.bool_))
        yield
    key, place, whole = np.concatenate(hashes), np.concatenate(places), np.concatenate(valued)
    # By key, and by offset within a key: then the record that supersedes another one comes right behind it.
    order = np.lexsort((place, key))
    key, place, whole = key[order], place[order], whole[order]
    superseded = whole[:-1] & (key[1:] == key[:-1])
    return min(end, int(place[1:][superseded].min(initial=end)))


def standing_versions(log: EventLog, topic: str, versions: AbstractSet[int]) -> Generator[None, None, set[int]]:
    """Return the versions among these whose bytes the releases topic still holds. Yields after each page."""
    found = set[int]()
    if not versions:
        return found
    offset, end = log.begin(topic, 0), log.end(topic, 0)
    for records in pages(log, topic, 0, offset, end):
        there = {version_of(record.key) for record in records if record.value is not None}
        found |= there & versions
        yield
    return found


def waiting_by_stage(residue: Residue) -> dict[Stage, Outstanding]:
    """Return, for each stage, how many documents have not reached it, and since when the oldest of them waits."""
    found = {}
    for stage in Stage:
        each = [residue.waiting(partition, stage) for partition in residue.totals]
        since = [one.since_ms for one in each if one.since_ms is not None]
        found[stage] = Outstanding(sum(one.documents for one in each), min(since, default=None))
    return found


def residue_fields(residue: Residue) -> dict[str, Any]:
    """Return the traces that are left of deletions, as `status --json` and `residue --json` show them."""
    waiting = {}
    for stage, one in waiting_by_stage(residue).items():
        waiting[stage.value] = {"documents": one.documents, "since": one.since_ms}
    return {
        "waiting": waiting,
        "attested": {stage.value: time_ms for stage, time_ms in residue.attested.items()},
        "aof_forbidden": residue.forbidden,
        "looked": residue.looked or None,
        "completed": {str(partition): offset for partition, offset in residue.completed.items()},
    }


def _cut(record: Mapping[str, Any]) -> dict[int, int]:
    """Return, by partition, the offset up to which a recorded version reflects deletions; {} without a record."""
    return {int(partition): int(offset) for partition, offset in record.get("cut", {}).items()}


def _through(residue: Residue, partition: int, stages: Iterable[Stage]) -> int:
    """Return the offset before which deletions have passed all of these stages."""
    return min(residue.of(partition, stage).offset for stage in stages)


def _through_by(residue: Residue, partition: int, stages: Iterable[Stage], time_ms: int) -> int:
    """Return the offset before which deletions had passed all of these stages at a time."""
    return min(residue.of(partition, stage).by(time_ms) for stage in stages)


def _pruned(residue: Residue) -> Residue:
    """Leave out the steps of marks that date only complete deletions."""
    kept = {}
    for (partition, stage), marks in residue.marks.items():
        kept[partition, stage] = marks.since(residue.completed.get(partition, 0))
    return replace(residue, marks=kept)
