"""Erasure: traces that a deletion leaves in logs, Redis and its file are removed, and noted once they are gone.

The leading scheduler does it. Whether a log still holds a document is read from the log: only a broker knows when it
compacts.
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
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.residue_ledger import Marks, Outstanding, Residue, ResidueState, Rewrite, Stage
from streamtopic.streams import TopicNames, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    import numpy.typing as npt

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

    max_age: seconds; logs are read through and Redis's file is written anew at most four times in that time.
    backups_kept: seconds until backups are destroyed, None where the operator attests it.
    base_needed: whether updates start from the bytes of the base model.
    grace: seconds that strings stay in Redis once they were replaced.
    """

    max_age: float = 86_400.0
    backups_kept: float | None = None
    base_needed: bool = False
    grace: float = GRACE_SECONDS + _MARGIN_SECONDS


class ResidueKeeper:
    """Observes how far deletions have come, and removes the traces that are left.

    clock: seconds since 1970. Killed anywhere, the next one goes on from the marks in Redis, and observes again.
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
        """Do a little, as often as you like; return whether marks have moved.

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
        """Note how far is counted, and how far the newest version reflects once the outbox is empty."""
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
        """Read through the logs, a slice at a time: one pass serves all deletions that wait."""
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
        late = [p for p, meta in positions.items() if meta.removed > _through(residue, p, (Stage.WITHDRAWN, Stage.LOG))]
        if not late:
            return False
        return self._look_again or self._now() - residue.looked >= self._pause_ms

    def _pass(self, positions: Mapping[int, Meta]) -> Generator[None, None, Residue]:
        """Return marks up to which neither topic holds anything of a deleted document."""
        marks = dict[tuple[int, Stage], Marks]()
        records = dict(self._state.releases())
        standing = yield from standing_versions(self._log, self._names.releases, self._state.withdrawn())
        cuts = [_cut(records.get(version, {})) for version in standing]
        newest = _cut(records[max(records)]) if records else {}
        for partition, meta in positions.items():
            # A version whose bytes are there although it was withdrawn may hold documents deleted after it was made.
            clean = min((cut.get(partition, 0) for cut in cuts), default=newest.get(partition, 0))
            marks[partition, Stage.WITHDRAWN] = Marks(((clean, 0),))
            if meta.removals:
                offset = yield from superseded_from(self._log, self._names.documents, partition)
                marks[partition, Stage.LOG] = Marks(((offset, 0),))
        return Residue(marks)

    def _base(self, residue: Residue, positions: Mapping[int, Meta], lease: Lease) -> Residue:
        """Note which documents the base model no longer holds; drop its bytes once the log cannot make them again."""
        head = self._state.base_head()
        record = dict(self._state.releases()).get(head.version, {}) if head else {}
        cut = _cut(record)
        # The base model before this one stays in Redis for the grace of a replaced string.
        if head is not None and self._now() < record.get("created", 0) + self._grace_ms:
            return residue
        base = None if head is None else Base.parse(head)
        holds = base is not None and self._state.has_base_bytes()
        holds = holds and base_forget_set(positions, base.documents, base.epoch) > 0 if base else False
        if holds and not self._options.base_needed:
            erased = any(residue.of(p, Stage.LOG).offset > cut.get(p, 0) for p in positions)
            # Stale: another process leads by now, and drops them itself.
            holds = not erased or isinstance(self._state.drop_base_bytes(lease), Stale)
        for partition, meta in positions.items():
            offset = cut.get(partition, 0) if holds else meta.next_offset
            residue = self._moved(residue, positions, partition, Stage.BASE, offset)
        return residue

    def _segments(self, residue: Residue, positions: Mapping[int, Meta]) -> Residue:
        """Note which documents segments no longer hold, once the segments that they replaced have left Redis too."""
        keys = ModelKeys(self._state.model)
        for partition, meta in positions.items():
            # The time is compared with one that the same server wrote: masters of a cluster have clocks of their own.
            now_ms = self._state.connection.time_ms(keys.partition(partition).meta)
            cleared = residue.cleared.get(partition, Marks()).moved(meta.erased, meta.erased_ms)
            if cleared != residue.cleared.get(partition):
                residue = replace(residue, cleared={**residue.cleared, partition: cleared})
            offset = cleared.by(int(now_ms - self._grace_ms))
            if offset >= meta.removed:
                offset = meta.next_offset
            residue = self._moved(residue, positions, partition, Stage.SEGMENTS, offset)
        return residue

    def _rewritten(self, residue: Residue, positions: Mapping[int, Meta]) -> Residue:
        """Let Redis write its file anew where the file may hold more than Redis itself, and note when it is done."""
        covers = {p: _through(residue, p, _IN_REDIS) for p in positions}
        info = self._state.connection.information()
        # Without an append-only file there is nothing that Redis could have written down.
        if not info.get("aof_enabled"):
            return self._all_moved(residue, positions, Stage.AOF, covers)
        busy = info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")
        asked = residue.rewrite
        if asked is not None:
            if busy and asked.server == info["run_id"]:
                return residue
            residue = replace(residue, rewrite=None)
            # A server that was started again has forgotten that it was asked.
            if asked.server != info["run_id"]:
                logger.warning("Redis was started again before it had written its append-only file anew")
            elif info.get("aof_last_bgrewrite_status") == "ok":
                residue = self._all_moved(residue, positions, Stage.AOF, asked.covers)
            else:
                logger.error("Redis could not write its append-only file anew: see its log, and the room on its disk")
        if Stage.AOF in residue.attested:
            attested = {p: _through_by(residue, p, _IN_REDIS, residue.attested[Stage.AOF]) for p in positions}
            residue = self._all_moved(residue, positions, Stage.AOF, attested)
        behind = any(min(covers[p], meta.removed) > residue.of(p, Stage.AOF).offset for p, meta in positions.items())
        if not behind or busy or self._now() - residue.asked < self._pause_ms:
            return residue
        return self._ask(residue, covers, info)

    def _ask(self, residue: Residue, covers: Mapping[int, int], info: Mapping[str, Any]) -> Residue:
        connection, now = self._state.connection, self._now()
        # Redis would write expired strings into the new file as well, unless somebody reads their names. Redis itself
        # comes by some time within the margin, so a user who may not look at keys does without.
        with suppress(SettingsError, StateError):
            deque(connection.names(f"{{st:{self._state.model}*}}:seg:*"), maxlen=0)
        try:
            connection.everywhere("BGREWRITEAOF")
        except (SettingsError, StateError) as error:
            if "in progress" in str(error):
                return residue
            if not residue.forbidden:
                logger.warning(
                    "%s; have Redis's file written anew now and then, and say so with `streamtopic residue attest "
                    "--stage aof --until TIME`",
                    error,
                )
            return replace(residue, forbidden=str(error), asked=now)
        return replace(residue, forbidden="", asked=now, rewrite=Rewrite(now, str(info["run_id"]), covers))

    def _backups(self, residue: Residue, positions: Mapping[int, Meta]) -> Residue:
        """Note how far every backup that is left is younger than all other stages."""
        until = residue.attested.get(Stage.SNAPSHOTS, 0)
        if self._options.backups_kept is not None:
            until = max(until, self._now() - int(self._options.backups_kept * 1000))
        earlier = [stage for stage in Stage if stage is not Stage.SNAPSHOTS]
        reached = {p: _through_by(residue, p, earlier, until) for p in positions}
        return self._all_moved(residue, positions, Stage.SNAPSHOTS, reached)

    def _all_moved(
        self, residue: Residue, positions: Mapping[int, Meta], stage: Stage, offsets: Mapping[int, int]
    ) -> Residue:
        for partition, offset in offsets.items():
            if partition in positions:
                residue = self._moved(residue, positions, partition, stage, offset)
        return residue

    def _moved(
        self, residue: Residue, positions: Mapping[int, Meta], partition: int, stage: Stage, offset: int
    ) -> Residue:
        """Move a mark where a deletion waits for it; a mark without a deletion would date nothing."""
        marks = residue.of(partition, stage)
        if positions[partition].removed <= marks.offset or offset <= marks.offset:
            return residue
        return replace(residue, marks={**residue.marks, (partition, stage): marks.moved(offset, self._now())})

    def _now(self) -> int:
        return int(self._clock() * 1000)

    @property
    def _pause_ms(self) -> float:
        return self._options.max_age * 1000 / _PARTS_OF_AGE

    @property
    def _grace_ms(self) -> float:
        return self._options.grace * 1000


def superseded_from(log: EventLog, topic: str, partition: int) -> Generator[None, None, int]:
    """Return the offset before which no record has superseded one whose value the log still holds.

    A deletion before it is out of the log: every value that its key held before has gone. Yields after each page, so
    that the caller can do other things meanwhile. Takes 17 bytes of memory for each record of the partition.
    """
    keys, offsets, valued = list[int](), list[int](), list[bool]()
    parts = [_columns(keys, offsets, valued)]
    offset, end = log.begin(topic, partition), log.end(topic, partition)
    for records in pages(log, topic, partition, offset, end):
        held = [record for record in records if record.key is not None and record.key != HEARTBEAT_KEY]
        # Two keys of one hash only make the answer later: an erased record seems to be there.
        keys = [int.from_bytes(blake2b(record.key or b"", digest_size=8).digest()) for record in held]
        parts.append(_columns(keys, [record.offset for record in held], [record.value is not None for record in held]))
        yield
    hashes, places, whole = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((places, hashes))
    hashes, places, whole = hashes[order], places[order], whole[order]
    stale = whole[:-1] & (hashes[1:] == hashes[:-1])
    return min(end, int(places[1:][stale].min(initial=end)))


def standing_versions(log: EventLog, topic: str, versions: AbstractSet[int]) -> Generator[None, None, set[int]]:
    """Return those of these versions of which the releases topic still holds bytes. Yields after each page."""
    found = set[int]()
    if not versions:
        return found
    offset, end = log.begin(topic, 0), log.end(topic, 0)
    for records in pages(log, topic, 0, offset, end):
        found |= {version_of(record.key) for record in records if record.value is not None} & versions
        yield
    return found


def _columns(
    keys: list[int], offsets: list[int], valued: list[bool]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    return np.array(keys, np.uint64), np.array(offsets, np.int64), np.array(valued, np.bool_)


def waiting_by_stage(residue: Residue) -> dict[Stage, Outstanding]:
    """Return for each stage how many documents have not reached it, and since when the oldest of them waits."""
    found = {}
    for stage in Stage:
        each = [residue.waiting(partition, stage) for partition in residue.totals]
        since = [one.since_ms for one in each if one.since_ms is not None]
        found[stage] = Outstanding(sum(one.documents for one in each), min(since, default=None))
    return found


def residue_fields(residue: Residue) -> dict[str, Any]:
    """Return what is left of deletions as `status --json` and `residue --json` show it."""
    waiting = {
        stage.value: {"documents": one.documents, "since": one.since_ms}
        for stage, one in waiting_by_stage(residue).items()
    }
    return {
        "waiting": waiting,
        "attested": {stage.value: time_ms for stage, time_ms in residue.attested.items()},
        "aof_forbidden": residue.forbidden,
        "looked": residue.looked or None,
        "completed": {str(partition): offset for partition, offset in residue.completed.items()},
    }


def _cut(record: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in record.get("cut", {}).items()}


def _through(residue: Residue, partition: int, stages: Iterable[Stage]) -> int:
    """Return the offset before which deletions have passed all of these stages."""
    return min(residue.of(partition, stage).offset for stage in stages)


def _through_by(residue: Residue, partition: int, stages: Iterable[Stage], time_ms: int) -> int:
    """Return the offset before which deletions had passed all of these stages at a time."""
    return min(residue.of(partition, stage).by(time_ms) for stage in stages)


def _pruned(residue: Residue) -> Residue:
    """Leave out marks that date only deletions that are complete."""
    marks = {
        (partition, stage): marks.since(residue.completed.get(partition, 0))
        for (partition, stage), marks in residue.marks.items()
    }
    return replace(residue, marks=marks)
