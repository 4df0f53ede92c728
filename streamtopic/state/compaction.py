"""Size-tiered merges: a partition's segments become few, and pairs that cancel out disappear.

`compact` merges until nothing is due; a Compactor merges a little at a time beside ingest, the larger merges in a
thread of their own.
"""

import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from threading import Event, Thread

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.counts import PairBlock
from streamtopic.errors import StateCorrupt
from streamtopic.state import scripts
from streamtopic.state.flush import upload
from streamtopic.state.merge_segments import MOST, Source, fused_head, fused_rows
from streamtopic.state.meta import ManifestEntry, Meta, segment_lost
from streamtopic.state.partition_writer import PartitionWriter
from streamtopic.state.scripts import AlreadyApplied, Applied, Outcome, Stale, outcome
from streamtopic.state.segments import (
    CHUNK_PAIRS,
    MOST_PASSAGES,
    FlushRows,
    PairChunk,
    SegmentHead,
    decode_head,
    decode_rows,
    encode_chunk,
    encode_head,
    pair_chunks,
)

__all__ = ["GRACE_SECONDS", "Compactor", "Group", "Merged", "compact", "due", "fold", "merge", "overdue", "swap"]


GRACE_SECONDS = 600.0
"""Life of replaced segments, for readers that took their manifest before."""

SHORT_GRACE_SECONDS = 10.0
"""Life of replaced segments where they take more memory than the segments that count."""

Group = Sequence[ManifestEntry]
Int64 = npt.NDArray[np.int64]

_TIER = MOST
# Small flushes, of few documents each, are a tier of their own, and so are those of a bulk load.
_SMALL_TIER = -1
_BULK_TIER = -2
# The more flushes of a bulk load are counted at once, the fewer pairs are written, and read again, for a document.
_BULK_FLUSHES = 32
# Bytes of rows that are counted at once: they are held as arrays of twelve times as many bytes.
_MOST_ROW_BYTES = 12 << 20
# Rows of a bulk load wait so long at most: a reader that comes before counts them itself.
_ROWS_SECONDS = 60.0
# Below this many pairs segments are of one tier: they are so small that their sizes do not matter.
_SMALLEST_TIER = 1 << 16
# Packing takes longer than all else in a merge, so only a segment that will not soon be merged again is packed.
_PACKED_FROM = 1 << 27
# Pairs that are merged at once, in about a tenth of a second.
_AT_ONCE = 1 << 21
# Beyond so many segments ingest waits for the merge: otherwise Redis would fill up with segments.
_MOST_SEGMENTS = 128
# Replaced segments may take so many bytes in any case (docs/decisions/0013).
_LEAST_ROOM = 256 << 20
_JOIN_SECONDS = 3.0
_DAY = 86_400.0
# Between looks at Redis's clock while segments wait to be merged for their age.
_LOOK_SECONDS = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged segment in Redis. It expires unless it takes the place of the group.

    group: the segments that it was made of.
    entry: its manifest entry.
    """

    group: Group
    entry: ManifestEntry


def compact(
    state: PartitionWriter, *, base_epoch: int | None = None, everything: bool = False, grace: float = GRACE_SECONDS
) -> Outcome:
    """Merge segments of a partition; counts stay the same, bit for bit.

    Size-tiered: eight segments of an epoch whose numbers of pairs are within a factor of four become one, so do eight
    small flushes that hold rows, and so do 32 larger ones.

    base_epoch: as in `fold`.
    everything: all segments of an epoch become one.
    grace: life of the replaced segments, seconds.

    AlreadyApplied where nothing is due. Stale where the partition moved on meanwhile: try again later. Raises
    StateCorrupt, ComponentUnreachable.
    """
    result = fold(state, base_epoch)
    while not isinstance(result, Stale):
        groups = _groups(state.manifest, everything=everything)
        if not groups:
            break
        merged = merge(state, groups[0])
        result = merged if isinstance(merged, Stale) else swap(state, merged, grace)
    return result


def fold(state: PartitionWriter, base_epoch: int | None) -> Outcome:
    """Fold the epochs up to that of the base model into one. This is final: no base model may go back before it.

    base_epoch: epoch of the base model, None before the first.
    """
    to = _fold_to(state.meta, base_epoch)
    if to == state.meta.folded:
        return AlreadyApplied()
    put = [replace(entry, epoch=to) for entry in state.manifest if entry.epoch < to]
    return _swap(state, [], put, [], to, GRACE_SECONDS)


def due(state: PartitionWriter) -> Group | None:
    """Return the smallest group of segments that ought to become one; None where nothing is due."""
    return min(_groups(state.manifest, everything=False), key=_pairs, default=None)


def overdue(state: PartitionWriter, order: int) -> Group | None:
    """Return segments to merge so that each epoch has one of those up to `order`; None where each has.

    order: as in the manifest.
    """
    epochs: dict[int, list[ManifestEntry]] = {}
    for entry in state.manifest:
        if entry.order <= order:
            epochs.setdefault(entry.epoch, []).append(entry)
    # The counts of a document and those of its deletion cancel out only in one segment.
    waiting = next((entries for entries in epochs.values() if len(entries) > 1), None)
    if waiting is None:
        return None
    # The smallest go first, so that the largest is written once.
    smallest = sorted(waiting, key=lambda entry: entry.pairs)
    return sorted(_affordable(smallest, 2), key=lambda entry: entry.order)


def merge(state: PartitionWriter, group: Group, stopped: Callable[[], bool] = lambda: False) -> Merged | Stale:
    """Add segments up into one, which goes to Redis chunk by chunk. Nothing else changes, so any thread may do it.

    group: segments of one epoch, at most eight of pairs and 32 of rows.
    stopped: asked before each chunk; True ends the merge.

    Stale where the partition moved on and the segments are gone, or where `stopped` ended the merge. Raises
    StateCorrupt, ComponentUnreachable, CountsOverflow.
    """
    try:
        return _merge(state, group, stopped)
    except StateCorrupt:
        if not state.is_current():
            return Stale("the manifest has changed")
        raise


def swap(state: PartitionWriter, merged: Merged, grace: float = GRACE_SECONDS, early: Group = ()) -> Outcome:
    """Put a merged segment in the place of its group.

    grace: life of the segments of the group, seconds.
    early: segments that were replaced before, and now expire in a few seconds.

    Stale where a segment of the group is no longer in the manifest, or the partition has changed since it was read.
    """
    here = {entry.name: entry for entry in state.manifest}
    if any(entry.name not in here for entry in merged.group):
        return Stale("the manifest has changed")
    # The epoch of the group may have been folded into a later one since the merge was begun.
    epoch = here[merged.group[0].name].epoch
    entry = replace(merged.entry, epoch=epoch)
    return _swap(state, merged.group, [entry], [entry], state.meta.folded, grace, early)


def _fold_to(meta: Meta, base_epoch: int | None) -> int:
    """Return the epoch up to which all are folded, for a base model of this epoch; it never goes back."""
    if base_epoch is None:
        return meta.folded
    # A partition that was set back may not have begun that epoch.
    return max(meta.folded, min(base_epoch, meta.epoch))


def _pairs(group: Group) -> int:
    return sum(entry.pairs for entry in group)


def bulk_rows(state: PartitionWriter, order: int) -> Group | None:
    """Return segments of one epoch up to `order` with the rows of a bulk load; None where there are none.

    order: as in the manifest.
    """
    epochs: dict[int, list[ManifestEntry]] = {}
    for entry in state.manifest:
        if entry.order <= order and entry.rows > MOST_PASSAGES:
            epochs.setdefault(entry.epoch, []).append(entry)
    oldest = next(iter(epochs.values()), None)
    return None if oldest is None else _affordable(oldest, 1)


def _groups(manifest: Sequence[ManifestEntry], *, everything: bool) -> list[list[ManifestEntry]]:
    """Return the groups of segments that ought to become one: of each tier the oldest, as many as a merge takes."""
    tiers: dict[tuple[int, int], list[ManifestEntry]] = {}
    for entry in manifest:
        tier = 0 if everything else _tier(entry)
        tiers.setdefault((entry.epoch, tier), []).append(entry)
    groups = []
    for (_, tier), entries in tiers.items():
        group = _affordable(entries, 2 if everything else 1)
        full = _BULK_FLUSHES if tier == _BULK_TIER else _TIER
        more_wait = tier in (_SMALL_TIER, _BULK_TIER) and len(group) < min(len(entries), full)
        if more_wait or len(group) >= full or (everything and len(group) > 1):
            groups.append(group if everything else group[:full])
    return groups


def _tier(entry: ManifestEntry) -> int:
    if entry.rows:
        return _BULK_TIER if entry.rows > MOST_PASSAGES else _SMALL_TIER
    # Two bits of the number of pairs: sizes within a factor of four.
    return max(entry.pairs, _SMALLEST_TIER).bit_length() // 2


def _affordable(entries: Group, least: int) -> list[ManifestEntry]:
    """Return the first segments that one merge takes: at most eight arrays of pairs, and so many rows as can be held.

    least: how many segments to return in any case.
    """
    held = 0
    rows = 0
    for number, entry in enumerate(entries):
        rows += bool(entry.rows)
        held += entry.size if entry.rows else 0
        # Rows are counted together, and their pairs are one array beside those of the other segments.
        arrays = number + 1 - rows + (rows > 0)
        if arrays > MOST or rows > _BULK_FLUSHES or (number >= least and held > _MOST_ROW_BYTES):
            return [*entries[:number]]
    return [*entries]


def _merge(state: PartitionWriter, group: Group, stopped: Callable[[], bool]) -> Merged | Stale:
    heads = [decode_head(_string(state, entry, 0)) for entry in group]
    head, places = fused_head(heads)
    kept = _kept(state, group, head, heads, places)
    name = state.new_id()
    # The pairs that rows may make say little: most of them meet in one sum.
    packed = _pairs([entry for entry in group if not entry.rows]) >= _PACKED_FROM
    chunks, pairs, size = 1, 0, 0
    for block in _final(_blocks(state, group, heads, places, len(head.ids)), kept):
        for string, number in _strings(block, packed=packed):
            if stopped():
                return Stale("stopped")
            upload(state.connection, state.keys, name, [string], first=chunks)
            chunks += 1
            pairs += number
            size += len(string)
    # The head last: only the rows have shown how many chunks there are.
    frequency = head.frequency[kept]
    tokens = head.tokens[kept]
    heavy = head.heavy[kept]
    part = SegmentHead(head.ids[kept], frequency, tokens, heavy, head.added, head.removed)
    string = encode_head(part, packed=packed)
    upload(state.connection, state.keys, name, [string])
    # The order of the oldest: `overdue` asks for all segments up to an order, and this one must be among them.
    oldest = group[0]
    total = size + len(string)
    entry = ManifestEntry(name, oldest.order, oldest.epoch, chunks, pairs, total)
    return Merged(group, entry)


def _blocks(
    state: PartitionWriter, group: Group, heads: Sequence[SegmentHead], places: Sequence[Int64], n_words: int
) -> Iterator[PairBlock]:
    """Yield the sums of all pairs of the group. Rows are counted here, those of all its segments in one pass.

    places: for each segment, the positions of its ids among the n_words ids of the result.
    """
    rows = list[FlushRows]()
    sources = list[Source]()
    for entry, head, place in zip(group, heads, places, strict=True):
        string = partial(_string, state, entry)
        size = len(head.ids)
        if entry.rows:
            found = decode_rows(string(1), size)
            rows.append(found.renamed(place.astype(np.int32)))
        else:
            sources.append(Source(place, pair_chunks(entry, size, string)))
    if not rows:
        return fused_rows(sources, n_words)
    counted = FlushRows.joined(rows).blocks(n_words)
    if not sources:
        return counted
    sources.append(Source(np.arange(n_words), map(PairChunk.of, counted)))
    return fused_rows(sources, n_words)


def _kept(
    state: PartitionWriter,
    group: Group,
    head: SegmentHead,
    heads: Sequence[SegmentHead],
    places: Sequence[Int64],
) -> npt.NDArray[np.intp]:
    """Return the positions of words that keep a count or a pair; words of documents that came and went do not."""
    counted = (head.frequency != 0) | (head.tokens != 0)
    used = counted | (head.heavy != 0)
    if not used.all():
        # Pairs are read a second time for this. Without deletions every word has a count, and it is not needed.
        for block in _blocks(state, group, heads, places, len(head.ids)):
            stop = block.first + len(block.sizes)
            used[block.columns] = True
            used[block.first : stop] |= block.sizes > 0
    return np.flatnonzero(used)


def _final(blocks: Iterator[PairBlock], kept: npt.NDArray[np.intp]) -> Iterator[PairBlock]:
    """Yield blocks over the positions of the kept words. Dropped words have no pairs."""
    # Where the first k words are kept, each keeps its position.
    moved = len(kept) > 0 and kept[-1] >= len(kept)
    for block in blocks:
        stop = block.first + len(block.sizes)
        first, behind = np.searchsorted(kept, [block.first, stop]).tolist()
        sizes = block.sizes[kept[first:behind] - block.first]
        columns = np.searchsorted(kept, block.columns) if moved else block.columns
        yield PairBlock(first, sizes, columns.astype(np.int32, copy=False), block.values)


def _strings(block: PairBlock, *, packed: bool) -> Iterator[tuple[bytes, int]]:
    """Yield the row chunks of a block as bytes, with the number of pairs of each."""
    edges = np.concatenate([[0], np.cumsum(block.sizes)])
    for start in range(0, len(block.values), CHUNK_PAIRS):
        stop = min(start + CHUNK_PAIRS, len(block.values))
        sizes = np.diff(np.clip(edges, start, stop)).astype(np.int64)
        columns = block.columns[start:stop]
        values = block.values[start:stop]
        yield encode_chunk(block.first, sizes, columns, values, packed=packed), stop - start


def _string(state: PartitionWriter, entry: ManifestEntry, chunk: int) -> bytes:
    key = state.keys.segment(entry.name, chunk)
    data: bytes | None = state.connection.call("GET", key)
    if data is None:
        raise segment_lost(entry, state.keys)
    return data


def _swap(
    state: PartitionWriter, gone: Group, put: Group, new: Group, to: int, grace: float, early: Group = ()
) -> Outcome:
    """Change the manifest, all or nothing.

    gone: entries to remove; their strings expire after `grace` seconds.
    put: entries to add or change.
    new: those of `put` with strings that were just uploaded.
    to: the epoch up to which all are folded.
    early: segments that were replaced before, and now expire soon.
    """
    keys = [state.keys.meta, state.keys.manifest, *_string_keys(state, new)]
    old = len(keys) + 1
    keys += _string_keys(state, gone)
    older = len(keys) + 1
    keys += _string_keys(state, early)
    names = [e.name for e in gone]
    pairs = ((e.name, e.pack()) for e in put)
    fields = list(chain.from_iterable(pairs))
    first = 2 + len(names)
    last = 1 + len(names) + len(fields)
    commit_id = state.new_id()
    plan = {
        "commit": commit_id,
        "base": state.meta.commit,
        "version": str(state.meta.version),
        "fence": str(state.fence),
        "chunks": 3,
        "old": old,
        "early": older,
        "gone": [2, 1 + len(names)],
        "put": [first, last],
        "grace": int(grace * 1000),
        "short": int(SHORT_GRACE_SECONDS * 1000),
    }
    if to > state.meta.folded:
        later = state.meta.cuts[to - state.meta.folded :]
        plan["folded"] = to
        plan["cuts"] = ",".join(map(str, later))
    arguments = [msgpack.packb(plan), *names, *fields]
    result = outcome(state.connection.script(scripts.SWAP_SEGMENTS, keys, arguments))
    if isinstance(result, Stale):
        return result
    # Also behind AlreadyApplied: only a repetition after a lost answer says so.
    state.follow(commit_id)
    return Applied()


def _string_keys(state: PartitionWriter, group: Group) -> list[str]:
    keys: list[str] = []
    segment = state.keys.segment
    for entry in group:
        keys += [segment(entry.name, k) for k in range(entry.keys)]
    return keys


@dataclass(frozen=True, slots=True)
class _Clearing:
    """A merge of all segments, so that no trace of a deleted document is left in them.

    offset: next offset of the partition when it was begun.
    order: newest order in the manifest then.
    since_ms: that time by Redis's clock, milliseconds since 1970.
    loads: `loads` of the writer then.
    """

    offset: int
    order: int
    since_ms: int
    loads: int


@dataclass(frozen=True, slots=True)
class _RowsWait:
    """Rows of a bulk load that wait until a time of the monotonic clock, and are merged then.

    order: the newest of them in the manifest at that time, None before.
    """

    until: float
    order: int | None = None


class Compactor:
    """Merges the segments of a partition a little at a time, for its one writer.

    max_age: seconds that segments may hold traces of a deleted document; then they become one, whatever their sizes.
    rows_age: seconds that rows of a bulk load wait to be merged.
    grace: life of replaced segments, seconds.
    """

    def __init__(
        self,
        state: PartitionWriter,
        *,
        max_age: float = _DAY,
        rows_age: float = _ROWS_SECONDS,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._state = state
        self.max_age = max_age
        self._grace = grace
        self._rows_age = rows_age
        self._rows_wait: _RowsWait | None = None
        self._clearing: _Clearing | None = None
        self._look_at = 0.0
        # In a list: a thread that adds to it must not keep this object alive.
        self._spent = [0.0]
        self._stopped = Event()
        self._threads: list[Thread] = []
        # A merge in the background ends early with the program, and when the partition is given up.
        weakref.finalize(self, _stop, self._stopped, self._threads)
        self._running: Future[Merged | Stale] | None = None
        self._replaced: deque[ManifestEntry] = deque()

    @property
    def spent(self) -> float:
        """Processor seconds that merges have taken so far, in all threads."""
        return self._spent[0]

    def step(self, base_epoch: int | None) -> bool:
        """Fold, merge, or swap a finished merge in, at most one of these; return whether the manifest was changed.

        base_epoch: as in `fold`.

        Raises as `merge`, and TakenOver where another process took ownership of the partition.
        """
        result = self._advance(base_epoch)
        if isinstance(result, Stale):
            self._state.reload()
        return isinstance(result, Applied)

    def _advance(self, base_epoch: int | None) -> Outcome:
        folded = fold(self._state, base_epoch)
        if not isinstance(folded, AlreadyApplied):
            return folded
        self._look_for_rows()
        self._begin_clearing()
        merged = self._next()
        if merged is None:
            return self._end_clearing()
        if isinstance(merged, Stale):
            return merged
        result = swap(self._state, merged, self._grace, early=self._early(merged))
        if isinstance(result, Applied):
            self._replaced.extend(merged.group)
        return result

    def _next(self) -> Merged | Stale | None:
        """Return a finished merge; None where nothing is due or the merge still runs."""
        if self._running is None:
            group = due(self._state)
            if group is None:
                group = self._waiting_rows()
            if group is None and self._clearing is not None:
                group = overdue(self._state, self._clearing.order)
            if group is None:
                return None
            if _pairs(group) <= _AT_ONCE:
                return _timed(self._spent, lambda: merge(self._state, group))
            self._running = self._start(group)
        if not self._running.done() and len(self._state.manifest) < _MOST_SEGMENTS:
            return None
        running, self._running = self._running, None
        return running.result()

    def _look_for_rows(self) -> None:
        """Note from when on rows of a bulk load wait: a reader counts them, and they spell out each document."""
        rows = [entry for entry in self._state.manifest if entry.rows > MOST_PASSAGES]
        if not rows:
            self._rows_wait = None
            return
        now = time.monotonic()
        wait = self._rows_wait or _RowsWait(now + self._rows_age)
        if wait.order is None and now >= wait.until:
            # Rows that came meanwhile are merged as well, so that none waits for longer.
            wait = replace(wait, order=rows[-1].order)
        self._rows_wait = wait

    def _waiting_rows(self) -> Group | None:
        """Return rows of a bulk load that have waited for too long."""
        wait = self._rows_wait
        if wait is None or wait.order is None:
            return None
        group = bulk_rows(self._state, wait.order)
        if group is None:
            self._rows_wait = None
        return group

    def _begin_clearing(self) -> None:
        """Plan to merge everything once traces of deleted documents have been in segments for too long."""
        state = self._state
        now = time.monotonic()
        if self._clearing is not None and self._clearing.loads != state.loads:
            # After the state was read again, an order may be that of another segment.
            self._clearing = None
        if self._clearing is not None or not state.meta.holds_removed or now < self._look_at:
            return
        if state.meta.erased >= state.meta.next_offset:
            # All is merged. A missed deletion counts as before the next record, and that one must come first.
            return
        now_ms = state.connection.time_ms(state.keys.meta)
        waited = (now_ms - state.meta.removed_ms) / 1000
        if waited < self.max_age:
            self._look_at = now + min(self.max_age - waited, _LOOK_SECONDS)
            return
        newest = max((entry.order for entry in state.manifest), default=-1)
        self._clearing = _Clearing(state.meta.next_offset, newest, now_ms, state.loads)

    def _end_clearing(self) -> Outcome:
        """Note the end of the merge of everything, once no segment is left to merge."""
        clearing = self._clearing
        if clearing is None or self._running is not None:
            return AlreadyApplied()
        if overdue(self._state, clearing.order) is not None:
            return AlreadyApplied()
        result = self._state.erased(clearing.offset, clearing.since_ms)
        if isinstance(result, Stale):
            return result
        self._clearing = None
        extra = {"event": "segments_cleared", "partition": self._state.partition}
        logger.info("partition %d: segments hold no deleted document", self._state.partition, extra=extra)
        return AlreadyApplied()

    def _start(self, group: Group) -> Future[Merged | Stale]:
        found = Future[Merged | Stale]()
        # The thread must not keep this object alive, whose end stops the merge: it gets parts of it only.
        state = self._state
        stopped = self._stopped
        spent = self._spent
        work = partial(_timed, spent, lambda: merge(state, group, stopped.is_set))
        # A daemon: a process that ends must not wait for a merge of minutes, whose strings expire by themselves.
        thread = Thread(target=_settle, args=(found, work), daemon=True)
        self._threads[:] = [thread]
        thread.start()
        return found

    def _early(self, merged: Merged) -> list[ManifestEntry]:
        """Return the oldest replaced segments, so many that the others are not larger than the segments that count."""
        here = {entry.name for entry in self._state.manifest}
        counting = sum(entry.size for entry in self._state.manifest)
        room = max(_LEAST_ROOM, counting)
        replaced = (*self._replaced, *merged.group)
        size = sum(entry.size for entry in replaced)
        early = []
        while self._replaced and (size > room or len(self._replaced) > 16 * _MOST_SEGMENTS):
            entry = self._replaced.popleft()
            size -= entry.size
            # After Redis was set back, a segment that had been replaced may count again.
            if entry.name not in here:
                early.append(entry)
        return early


def _timed(spent: list[float], work: Callable[[], Merged | Stale]) -> Merged | Stale:
    start = time.thread_time()
    try:
        return work()
    finally:
        spent[0] += time.thread_time() - start


def _settle(found: Future[Merged | Stale], work: Callable[[], Merged | Stale]) -> None:
    try:
        found.set_result(work())
    except BaseException as error:  # noqa: BLE001 -- the caller of `result` gets it
        found.set_exception(error)


def _stop(stopped: Event, threads: list[Thread]) -> None:
    stopped.set()
    for thread in threads:
        thread.join(_JOIN_SECONDS)
