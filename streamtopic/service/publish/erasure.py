"""Erasure removes the traces that deletions leave in logs, in Redis and in Redis's file, and notes when they are gone.

The process of the leading scheduler does it. It reads the log to learn whether a document is still there: only a broker
knows when it compacts.
"""

from __future__ import annotations

import logging
import time
from copy import deepcopy
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.documents.events import HEARTBEAT_KEY
from streamtopic.errors import SettingsError, StateError, StateMismatch
from streamtopic.service.publish.ledger_writer import cut_of
from streamtopic.signed import tombstones, version_of
from streamtopic.state.deletions import Residue, ResidueState, Rewrite, Stage
from streamtopic.state.model_state import NEWEST
from streamtopic.state.reader import remaining_noted
from streamtopic.state.stored_counts import CountsStore
from streamtopic.streams import TopicNames, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from streamtopic.settings import Settings
    from streamtopic.state import ModelState, PartitionPosition, Reader
    from streamtopic.streams import EventLog

__all__ = ["ResidueKeeper", "superseded_from"]

logger = logging.getLogger(__name__)

# A pass through a log takes minutes; the scheduler decides and renews its lease between two slices.
_SLICE_SECONDS = 0.5
# A pass reads a whole topic, so there are at most this many of them in `max_age`.
_PARTS_OF_AGE = 4
# A record of the log: 17 bytes.
_ROW = np.dtype([("key", np.uint64), ("offset", np.int64), ("valued", np.bool_)])


class ResidueKeeper:
    """Observes which stages deletions have reached, and removes the traces that are left.

    settings: of the model. Logs are read, and Redis's file is rewritten, at most four times in `residue_max_age`.
    clock: seconds since 1970.

    If it is killed anywhere, the next one goes on from the marks in Redis, and observes again.
    """

    def __init__(
        self,
        state: ModelState,
        reader: Reader,
        log: EventLog,
        settings: Settings,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._reader = reader
        self._log = log
        self._max_age = settings.residue_max_age
        self._backups_kept = settings.backups_kept
        self._clock = clock
        self._names = TopicNames(state.model)
        self._store = ResidueState(state.connection, state.model)
        self._sums = CountsStore(state.connection, state.model)
        self._look: Generator[None, None, dict[int, int]] | None = None
        self._next = 0.0

    def step(self, *, whole: bool = False, again: bool = False) -> bool:
        """Do a slice of the work as the leader; return whether marks have moved. It may be called as often as you like.

        whole: read the logs to their ends at once.
        again: begin to read them now: records were erased from them a moment ago.

        Raises StateMissing before all partitions are counted, ComponentUnreachable, StateError.
        """
        now = self._clock()
        if again:
            self._look = None
        elif now < self._next and self._look is None and not whole:
            return False
        self._next = now + min(self._max_age / (4 * _PARTS_OF_AGE), 60.0)
        positions = self._reader.positions()
        if not any(meta.removals for meta in positions.values()):
            return False
        residue = self._store.read()
        before = deepcopy(residue)
        self._count(residue, positions)
        self._look_through(residue, positions, whole=whole, again=again)
        # In this order: Redis's file may hold all that Redis held, so its mark follows from that of the state.
        residue.move(Stage.STATE, self._free_in_state(residue, positions), self._now())
        self._rewrite(residue)
        until = residue.attested.get(Stage.BACKUPS, 0)
        if self._backups_kept is not None:
            until = max(until, self._now() - int(self._backups_kept * 1000))
        earlier = residue.passed(*(stage for stage in Stage if stage is not Stage.BACKUPS), by_ms=until)
        residue.move(Stage.BACKUPS, earlier, self._now())
        if residue == before:
            return False
        self._store.write(residue)
        return True

    def _now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self._clock() * 1000)

    def _count(self, residue: Residue, positions: Mapping[int, PartitionPosition]) -> None:
        """Date the deletions that were counted, and note how many there are."""
        for partition, meta in positions.items():
            traces = residue.of(partition)
            if meta.removals > (traces.left.steps[-1][1] if traces.left.steps else 0):
                traces.left = traces.left.moved(meta.removed, meta.removals)
                traces.counted = traces.counted.moved(meta.next_offset, self._now())
                residue.traces[partition] = traces

    def _published(self) -> Mapping[int, int]:
        """Return, by partition, the offset before which the newest published version reflects deletions."""
        newest = self._state.releases(1)
        # A staged version is in Redis before it is in the log: only an empty outbox says that it was published.
        return cut_of(newest[0][1]) if newest and not self._state.waiting() else {}

    def _look_through(
        self, residue: Residue, positions: Mapping[int, PartitionPosition], *, whole: bool, again: bool
    ) -> None:
        """Read through the logs, a slice at a time, for all waiting deletions at once; move the marks at the end."""
        if self._look is None:
            due = again or self._now() - residue.looked >= self._pause_ms
            if not due or not residue.behind(Stage.LOG):
                return
            self._look = self._pass(positions)
        until = time.monotonic() + _SLICE_SECONDS
        try:
            while whole or time.monotonic() < until:
                next(self._look)
        except StopIteration as done:
            self._look = None
            # A pass that had raised is at its end without an answer: the next step begins another one.
            if done.value is not None:
                residue.move(Stage.LOG, done.value, self._now())
                residue.looked = self._now()
        except StateMismatch:
            # Retention erased records that this pass had before it: the next step begins another one.
            self._look = None

    def _pass(self, positions: Mapping[int, PartitionPosition]) -> Generator[None, None, dict[int, int]]:
        """Return, by partition, the offset before which both topics are free of deleted documents."""
        found = dict[int, int]()
        there = yield from standing_versions(self._log, self._names.releases)
        # A version is withdrawn by a later one: no record of one before these speaks of them.
        since = self._state.releases_among([(min(there), NEWEST)] if there else [])
        records = dict(since) | dict(self._state.releases(1))
        standing = there & self._state.withdrawn(list(records.items()))
        if standing:
            # Only a closed file is compacted, and only a further record closes it: the next version may take months.
            self._log.append_many(self._names.releases, tombstones(max(standing), 0))
        # A version was withdrawn, but its bytes are still there: it may hold documents deleted after it was made.
        cuts = [cut_of(records.get(version, {})) for version in [*standing, max(records, default=0)]]
        for partition, meta in positions.items():
            if not meta.removals:
                continue
            superseded = yield from superseded_from(self._log, self._names.documents, partition)
            found[partition] = min(superseded, *(cut.get(partition, 0) for cut in cuts))
        return found

    def _free_in_state(self, residue: Residue, positions: Mapping[int, PartitionPosition]) -> dict[int, int]:
        """Return, by partition, the offset before which nothing in Redis holds a document that was deleted."""
        published = self._published()
        base = self._base(positions)
        cut = self._sums.cut()
        found = {}
        for partition in residue.traces.keys() & positions.keys():
            meta = positions[partition]
            # If no deletion follows, changes are clean up to the last record that was counted.
            changes = meta.trimmed if meta.holds_removed else meta.next_offset
            summed = meta.next_offset if cut is None else cut.offsets.get(partition, 0)
            if summed >= meta.removed:
                summed = meta.next_offset
            found[partition] = min(published.get(partition, 0), base.get(partition, 0), changes, summed)
        return found

    def _base(self, positions: Mapping[int, PartitionPosition]) -> Mapping[int, int]:
        """Return, by partition, the offset before which the base model holds no deleted document."""
        counted = {partition: meta.next_offset for partition, meta in positions.items()}
        head = self._state.base_head()
        # Certified mode keeps no bytes of a model.
        if head is None or head.guarantee == "certified":
            return counted
        left = remaining_noted(self._state.connection, self._state.model, head.version, head.start)
        if left.documents < head.start.documents:
            return cut_of(dict(self._state.releases_among([(head.version, head.version)])).get(head.version, {}))
        # What was deleted after the leader looked may be in the base, too.
        return left.offsets

    def _rewrite(self, residue: Residue) -> None:
        """Let Redis rewrite its file if it may hold more than Redis itself; move the marks when that is done."""
        covers = residue.passed(Stage.STATE)
        info = self._state.connection.information()
        # Without an append-only file, Redis has nothing on disk that it must rewrite.
        if not info.get("aof_enabled"):
            residue.move(Stage.FILE, covers, self._now())
            return
        busy = info.get("aof_rewrite_in_progress") or info.get("aof_rewrite_scheduled")
        asked, server = residue.rewrite, str(info["run_id"])
        if asked is not None:
            if busy and asked.server == server:
                return
            residue.rewrite = None
            # A server that was started again has forgotten the request, and its status is of another rewrite.
            if asked.server == server and info.get("aof_last_bgrewrite_status") == "ok":
                residue.move(Stage.FILE, asked.covers, self._now())
            else:
                logger.warning(
                    "Redis has not rewritten its append-only file and is asked again later: see its log, and free "
                    "space on its disk",
                    extra={"event": "rewrite_failed"},
                )
        attested = residue.attested.get(Stage.FILE)
        if attested is not None:
            residue.move(Stage.FILE, residue.passed(Stage.STATE, by_ms=attested), self._now())
        due = self._now() - residue.asked >= self._pause_ms
        if due and not busy and residue.behind(Stage.FILE, covers):
            self._ask(residue, Rewrite(server, covers))

    def _ask(self, residue: Residue, rewrite: Rewrite) -> None:
        """Ask Redis to rewrite its append-only file."""
        try:
            self._state.connection.everywhere("BGREWRITEAOF")
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
            residue.forbidden = str(error)
        else:
            residue.forbidden, residue.rewrite = "", rewrite
        residue.asked = self._now()

    @property
    def _pause_ms(self) -> float:
        """The least time between two passes through the logs, and between two rewrites of Redis's file."""
        return self._max_age * 1000 / _PARTS_OF_AGE


def superseded_from(log: EventLog, topic: str, partition: int) -> Generator[None, None, int]:
    """Return the offset of the first record that supersedes a value which the log still holds; else the log's end.

    A deletion before it has left no trace in the log: all earlier values of its key have been erased. Yields after each
    page, so that the caller can do other things meanwhile. Needs 17 bytes of memory for each record of the partition.
    """
    # An empty first part: concatenate needs at least one array, and a log may be empty.
    parts = [np.zeros(0, _ROW)]
    end = log.end(topic, partition)
    for records in pages(log, topic, partition, log.begin(topic, partition), end):
        rows = []
        for record in records:
            if record.key is not None and record.key != HEARTBEAT_KEY:
                # Two keys of one hash only make the answer later: an erased record seems to be there.
                key = int.from_bytes(blake2b(record.key, digest_size=8).digest())
                rows.append((key, record.offset, record.value is not None))
        parts.append(np.array(rows, _ROW))
        yield
    whole = np.concatenate(parts)
    # By key, and by offset within a key: then the record that supersedes another one comes right after it.
    whole = whole[np.lexsort((whole["offset"], whole["key"]))]
    superseded = whole["valued"][:-1] & (whole["key"][1:] == whole["key"][:-1])
    # `initial`, since there may be none.
    return min(end, int(whole["offset"][1:][superseded].min(initial=end)))


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
