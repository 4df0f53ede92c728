"""Erasure removes the traces that deletions leave in logs, in Redis and in Redis's file, and notes when they are gone.

The process of the leading scheduler does it. It reads the log to learn whether a document is still there: only a broker
knows when it compacts.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.documents.events import HEARTBEAT_KEY
from streamtopic.errors import SettingsError, StateError, StateMismatch
from streamtopic.service.publish.ledger_writer import cut_of
from streamtopic.service.watching import Watch
from streamtopic.signed import tombstones, version_of
from streamtopic.state.model_state import BASE_GRACE_SECONDS
from streamtopic.state.reader import remaining_noted
from streamtopic.state.residue_ledger import Marks, Outstanding, Residue, ResidueState, Rewrite, Stage
from streamtopic.state.stored_counts import CountsStore
from streamtopic.streams import TopicNames, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from streamtopic.state import Meta, ModelState, Reader
    from streamtopic.streams import EventLog, Record

__all__ = ["ResidueKeeper", "residue_fields", "superseded_from", "waiting_by_stage"]

logger = logging.getLogger(__name__)

# Redis removes an expired string some time after it expired, so the grace of a replaced base model is not enough.
_GRACE_SECONDS = BASE_GRACE_SECONDS + 60.0
# A pass through a log takes minutes; the scheduler decides and renews its lease between two slices.
_SLICE_SECONDS = 0.5
# A pass reads a whole topic, so there are at most this many of them in `max_age`.
_PARTS_OF_AGE = 4


@dataclass(slots=True, eq=False)
class _Progress:
    """The marks while one step moves them.

    residue: the marks, and the facts that are kept with them.
    positions: partition to its meta.
    clock: seconds since 1970.
    """

    residue: Residue
    positions: Mapping[int, Meta]
    clock: Callable[[], float]

    def now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self.clock() * 1000)

    def move(self, partition: int, stage: Stage, offset: int) -> None:
        """Move the mark of a partition and stage to an offset, where a deletion waits for it."""
        marks = self.residue.of(partition, stage)
        # A step without a deletion would date nothing, and only 64 steps are kept.
        if self.positions[partition].removed <= marks.offset or offset <= marks.offset:
            return
        moved = marks.moved(offset, self.now())
        self.residue = replace(self.residue, marks={**self.residue.marks, (partition, stage): moved})

    def move_all(self, stage: Stage, offsets: Mapping[int, int]) -> None:
        """Move the marks of a stage. offsets: by partition."""
        for partition in offsets.keys() & self.positions.keys():
            self.move(partition, stage, offsets[partition])

    def passed(self, stage: Stage) -> dict[int, int]:
        """Return, by partition, the offset before which deletions have passed this stage."""
        return {partition: self.residue.of(partition, stage).offset for partition in self.positions}

    def passed_by(self, time_ms: int, *stages: Stage) -> dict[int, int]:
        """Return, by partition, the offset before which deletions had passed all of these stages at a time."""
        found = {}
        for partition in self.positions:
            marks = [self.residue.of(partition, stage) for stage in stages]
            found[partition] = min(mark.by(time_ms) for mark in marks)
        return found


class ResidueKeeper:
    """Observes which stages deletions have reached, and removes the traces that are left.

    max_age: seconds. Logs are read, and Redis's file is rewritten, at most four times in that time.
    backups_kept: seconds until backups are destroyed; None if the operator attests it.
    clock: seconds since 1970.
    watch: is told when deletions have reached a stage.

    If it is killed anywhere, the next one goes on from the marks in Redis, and observes again.
    """

    def __init__(
        self,
        state: ModelState,
        reader: Reader,
        log: EventLog,
        max_age: float,
        backups_kept: float | None = None,
        *,
        clock: Callable[[], float],
        watch: Watch | None = None,
    ) -> None:
        self._state = state
        self._reader = reader
        self._log = log
        self._max_age = max_age
        self._backups_kept = backups_kept
        self._clock = clock
        self._watch = watch or Watch()
        self._names = TopicNames(state.model)
        self._store = ResidueState(state.connection, state.model)
        self._sums = CountsStore(state.connection, state.model)
        self._look: Generator[None, None, dict[int, int]] | None = None
        self._look_again = False
        self._next = 0.0

    def look_again(self) -> None:
        """Read the logs at the next step: records were erased from them just now."""
        self._look_again = True

    def step(self, *, whole: bool = False) -> bool:
        """Do a slice of the work as the leader; return whether marks have moved. It may be called as often as you like.

        whole: read the logs to their ends at once.

        Raises StateMissing before all partitions are counted, ComponentUnreachable, StateError.
        """
        now = self._clock()
        if now < self._next and self._look is None and not whole:
            return False
        self._next = now + min(self._max_age / (4 * _PARTS_OF_AGE), 60.0)
        positions = self._reader.positions()
        if not any(meta.removals for meta in positions.values()):
            return False
        before = self._store.read()
        progress = _Progress(before, positions, self._clock)
        self._counted(progress)
        self._looked_through(progress, whole=whole)
        # In this order: Redis's file may hold all that Redis held, so its mark follows from that of the state.
        self._out_of_state(progress)
        self._rewritten(progress)
        self._backups(progress)
        after = _pruned(progress.residue)
        if after == before:
            return False
        self._store.write(after)
        for stage, seconds in _reached(before, after, progress.now()):
            self._watch.reached(stage.value, seconds)
        return True

    def _counted(self, progress: _Progress) -> None:
        """Date the deletions that were counted, and note how many there are."""
        for partition, meta in progress.positions.items():
            residue = progress.residue
            totals = residue.totals.get(partition, Marks())
            if totals.steps and meta.removals <= totals.steps[-1][1]:
                continue
            totals = totals.moved(meta.removed, meta.removals)
            dates = residue.counted.get(partition, Marks()).moved(meta.next_offset, progress.now())
            progress.residue = replace(
                residue,
                totals={**residue.totals, partition: totals},
                counted={**residue.counted, partition: dates},
            )

    def _published(self) -> Mapping[int, int]:
        """Return, by partition, the offset before which the newest published version reflects deletions."""
        newest = self._state.releases(1)
        # A staged version is in Redis before it is in the log: only an empty outbox says that it was published.
        return cut_of(newest[0][1]) if newest and not self._state.outbox(1) else {}

    def _looked_through(self, progress: _Progress, *, whole: bool) -> None:
        """Read through the logs, a slice at a time, for all waiting deletions at once; move the marks at the end."""
        if self._look is None:
            if not self._look_due(progress):
                return
            self._look_again = False
            self._look = self._pass(progress.positions)
        until = time.monotonic() + _SLICE_SECONDS
        while whole or time.monotonic() < until:
            try:
                next(self._look)
            except StopIteration as done:
                self._look = None
                progress.move_all(Stage.LOG, done.value)
                progress.residue = replace(progress.residue, looked=progress.now())
                return
            except BaseException:
                # A generator that raised is at its end: the next step begins a new pass.
                self._look = None
                raise

    def _look_due(self, progress: _Progress) -> bool:
        """Return whether a deletion waits for the logs, and the last pass is long enough ago."""
        passed = progress.passed(Stage.LOG)
        positions = progress.positions.items()
        if all(meta.removed <= passed[partition] for partition, meta in positions):
            return False
        return self._look_again or progress.now() - progress.residue.looked >= self._pause_ms

    def _pass(self, positions: Mapping[int, Meta]) -> Generator[None, None, dict[int, int]]:
        """Return, by partition, the offset before which both topics are free of deleted documents."""
        found = dict[int, int]()
        there = yield from standing_versions(self._log, self._names.releases)
        newest = self._state.releases(1)
        # A version is withdrawn by a later one: no record of one before these speaks of them.
        since = [(min(there), newest[0][0])] if there and newest else []
        records = dict(self._state.releases_among(since)) | dict(newest)
        standing = there & self._state.withdrawn(list(records.items()))
        if standing:
            # Only a closed file is compacted, and only a further record closes it: the next version may take months.
            self._log.append_many(self._names.releases, tombstones(max(standing), 0))
        cuts = [cut_of(records.get(version, {})) for version in standing]
        last = cut_of(newest[0][1]) if newest else {}
        for partition, meta in positions.items():
            if not meta.removals:
                continue
            # A version was withdrawn, but its bytes are still there: it may hold documents deleted after it was made.
            reflected = [cut.get(partition, 0) for cut in cuts]
            released = min(reflected, default=last.get(partition, 0))
            superseded = yield from superseded_from(self._log, self._names.documents, partition)
            found[partition] = min(released, superseded)
        return found

    def _out_of_state(self, progress: _Progress) -> None:
        """Move the marks of the state to where nothing in Redis holds a document that left before."""
        published = self._published()
        base = self._base(progress)
        about = self._sums.about()
        for partition, meta in progress.positions.items():
            # If no deletion follows, changes are clean up to the last record that was counted.
            changes = meta.trimmed if meta.holds_removed else meta.next_offset
            summed = meta.next_offset if about is None else about.offsets.get(partition, 0)
            if summed >= meta.removed:
                summed = meta.next_offset
            offsets = (published.get(partition, 0), base.get(partition, 0), changes, summed)
            progress.move(partition, Stage.STATE, min(offsets))

    def _base(self, progress: _Progress) -> Mapping[int, int]:
        """Return, by partition, the offset before which the base model holds no deleted document."""
        counted = {partition: meta.next_offset for partition, meta in progress.positions.items()}
        head = self._state.base_head()
        if head is None:
            return counted
        record = dict(self._state.releases_among([(head.version, head.version)])).get(head.version, {})
        # The base model before this one stays in Redis for a while.
        if progress.now() < record.get("created", 0) + _GRACE_SECONDS * 1000:
            return {}
        # Certified mode keeps no bytes of a model.
        if not self._state.has_base_bytes():
            return counted
        left = remaining_noted(self._state.connection, self._state.model, head.version, head.start)
        if left.documents < head.start.documents:
            return cut_of(record)
        # What was deleted after the leader looked may be in the base, too.
        return {partition: left.offsets.get(partition, 0) for partition in counted}

    def _rewritten(self, progress: _Progress) -> None:
        """Let Redis rewrite its file where the file may hold more than Redis itself; move the marks when it is done."""
        covers = progress.passed(Stage.STATE)
        info = self._state.connection.information()
        # Without an append-only file, Redis has nothing on disk that it must rewrite.
        if not info.get("aof_enabled"):
            progress.move_all(Stage.FILE, covers)
            return
        busy = info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")
        asked = progress.residue.rewrite
        if asked is not None:
            if busy and asked.server == info["run_id"]:
                return
            progress.residue = replace(progress.residue, rewrite=None)
            # A server that was started again has forgotten the request, and its status is of another rewrite.
            if asked.server != info["run_id"]:
                extra = {"event": "rewrite_interrupted"}
                logger.warning(
                    "Redis was restarted before it had rewritten its append-only file: it is asked later", extra=extra
                )
            elif info.get("aof_last_bgrewrite_status") == "ok":
                progress.move_all(Stage.FILE, asked.covers)
            else:
                logger.error(
                    "Redis could not rewrite its append-only file: see its log, and free space on its disk",
                    extra={"event": "rewrite_failed"},
                )
        attested = progress.residue.attested.get(Stage.FILE)
        if attested is not None:
            progress.move_all(Stage.FILE, progress.passed_by(attested, Stage.STATE))
        reached = progress.passed(Stage.FILE)
        positions = progress.positions.items()
        behind = any(min(covers[p], meta.removed) > reached[p] for p, meta in positions)
        due = progress.now() - progress.residue.asked >= self._pause_ms
        if behind and due and not busy:
            self._ask(progress, covers, str(info["run_id"]))

    def _ask(self, progress: _Progress, covers: Mapping[int, int], server: str) -> None:
        """Ask Redis to rewrite its append-only file.

        covers: partition to the offset before which the new file holds nothing of deleted documents.
        server: the run id of the server.
        """
        connection = self._state.connection
        now = progress.now()
        residue = progress.residue
        try:
            connection.everywhere("BGREWRITEAOF")
        except (SettingsError, StateError) as error:
            # A rewrite of somebody else: it may have begun before the last deletion, so it proves nothing.
            if "in progress" in str(error):
                return
            if not residue.forbidden:
                logger.warning(
                    "%s; rewrite Redis's append-only file at intervals, and attest it with "
                    "`streamtopic deletions attest --stage file --until TIME`",
                    error,
                    extra={"event": "rewrite_refused"},
                )
            progress.residue = replace(residue, forbidden=str(error), asked=now)
        else:
            progress.residue = replace(residue, forbidden="", asked=now, rewrite=Rewrite(now, server, covers))

    def _backups(self, progress: _Progress) -> None:
        """Move the marks of backups: deletions that had passed all other stages when the oldest backup was made."""
        until = progress.residue.attested.get(Stage.BACKUPS, 0)
        if self._backups_kept is not None:
            until = max(until, progress.now() - int(self._backups_kept * 1000))
        earlier = [stage for stage in Stage if stage is not Stage.BACKUPS]
        progress.move_all(Stage.BACKUPS, progress.passed_by(until, *earlier))

    @property
    def _pause_ms(self) -> float:
        """The least time between two passes through the logs, and between two rewrites of Redis's file."""
        return self._max_age * 1000 / _PARTS_OF_AGE


def superseded_from(log: EventLog, topic: str, partition: int) -> Generator[None, None, int]:
    """Return the offset of the first record that supersedes a value which the log still holds; else the log's end.

    A deletion before it has left no trace in the log: all earlier values of its key have been erased. Yields after each
    page, so that the caller can do other things meanwhile. Needs 17 bytes of memory for each record of the partition.
    """
    # An empty first part each: concatenate needs at least one array, and a log may be empty.
    hashes = [np.zeros(0, np.uint64)]
    places = [np.zeros(0, np.int64)]
    valued = [np.zeros(0, np.bool_)]
    offset = log.begin(topic, partition)
    end = log.end(topic, partition)
    for records in _still_there(log, topic, partition, offset, end):
        held = [record for record in records if record.key is not None and record.key != HEARTBEAT_KEY]
        # Two keys of one hash only make the answer later: an erased record seems to be there.
        keys = (blake2b(record.key or b"", digest_size=8) for record in held)
        digests = b"".join(key.digest() for key in keys)
        hashes.append(np.frombuffer(digests, np.uint64))
        offsets = [record.offset for record in held]
        places.append(np.array(offsets, np.int64))
        has_value = [record.value is not None for record in held]
        valued.append(np.array(has_value, np.bool_))
        yield
    key = np.concatenate(hashes)
    place = np.concatenate(places)
    whole = np.concatenate(valued)
    # By key, and by offset within a key: then the record that supersedes another one comes right after it.
    order = np.lexsort((place, key))
    key = key[order]
    place = place[order]
    whole = whole[order]
    same_key = key[1:] == key[:-1]
    superseded = whole[:-1] & same_key
    # `initial`, since there may be none.
    later = place[1:][superseded]
    first = later.min(initial=end)
    return min(end, int(first))


def _still_there(log: EventLog, topic: str, partition: int, offset: int, end: int) -> Iterator[list[Record]]:
    """Yield the records of a partition from `offset` to `end`, without those that retention erases meanwhile."""
    while offset < end:
        try:
            for records in pages(log, topic, partition, offset, end):
                yield records
                offset = records[-1].next_offset
        except StateMismatch:
            begin = log.begin(topic, partition)
            if begin <= offset:
                raise
            offset = begin
        else:
            return


def standing_versions(log: EventLog, topic: str) -> Generator[None, None, set[int]]:
    """Return the versions whose bytes the releases topic still holds. Yields after each page."""
    found = set[int]()
    offset = log.begin(topic, 0)
    end = log.end(topic, 0)
    for records in pages(log, topic, 0, offset, end):
        found |= {version_of(record.key) for record in records if record.value is not None}
        yield
    # Whatever is no chunk of a version.
    return found - {0}


def waiting_by_stage(residue: Residue) -> dict[Stage, Outstanding]:
    """Return, for each stage, how many documents have not reached it, and since when the oldest of them waits."""
    found = {}
    for stage in Stage:
        each = [residue.waiting(partition, stage) for partition in residue.totals]
        documents = sum(one.documents for one in each)
        since = [one.since_ms for one in each if one.since_ms is not None]
        found[stage] = Outstanding(documents, min(since, default=None))
    return found


def _reached(before: Residue, after: Residue, now_ms: int) -> Iterator[tuple[Stage, float]]:
    """Yield each mark that moved: its stage, and the seconds that its oldest deletion took to get there."""
    for (partition, stage), marks in after.marks.items():
        passed = before.of(partition, stage).offset
        if marks.offset > passed:
            since = after.counted.get(partition, Marks()).reached(passed)
            if since is not None:
                yield stage, max(now_ms - since, 0) / 1000


def residue_fields(residue: Residue) -> dict[str, Any]:
    """Return the traces that are left of deletions, as `status --json` and `residue --json` show them."""
    waiting = {}
    for stage, one in waiting_by_stage(residue).items():
        waiting[stage.value] = {"documents": one.documents, "since": one.since_ms}
    attested = {stage.value: time_ms for stage, time_ms in residue.attested.items()}
    completed = {str(partition): offset for partition, offset in residue.completed.items()}
    return {
        "waiting": waiting,
        "attested": attested,
        "file_forbidden": residue.forbidden,
        "looked": residue.looked or None,
        "completed": completed,
    }


def _pruned(residue: Residue) -> Residue:
    """Leave out the steps of marks that date only complete deletions."""
    kept = {}
    for (partition, stage), marks in residue.marks.items():
        kept[partition, stage] = marks.since(residue.completed.get(partition, 0))
    counted = {p: marks.since(residue.completed.get(p, 0)) for p, marks in residue.counted.items()}
    return replace(residue, marks=kept, counted=counted)
