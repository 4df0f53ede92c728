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
from dataclasses import dataclass
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
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.partition_writer import PartitionWriter
from streamtopic.state.scripts import AlreadyApplied, Applied, Outcome, Stale, outcome
from streamtopic.state.segments import CHUNK_PAIRS, PairChunk, SegmentHead, decode_chunk, decode_head, encode_chunk
from streamtopic.state.segments import encode_head as encoded_head

__all__ = ["GRACE_SECONDS", "Compactor", "Group", "Merged", "compact", "due", "fold", "merge", "overdue", "swap"]


GRACE_SECONDS = 600.0
"""How long replaced segments stay for readers that took their manifest before."""

SHORT_GRACE_SECONDS = 10.0
"""The same where they take more room than the segments that count."""

_TIER = MOST
_SMALLEST_TIER = 1 << 16
# Packing takes longer than all else in a merge, so only what will not soon be merged again is packed.
_PACKED_FROM = 1 << 27

Group = Sequence[ManifestEntry]

# Pairs that are merged at once, in about a tenth of a second.
_AT_ONCE = 1 << 21
# Beyond so many segments, ingest waits for the merge: otherwise Redis would fill up with what is not yet merged.
_MOST_SEGMENTS = 64
_LEAST_ROOM = 256 << 20
_JOIN_SECONDS = 3.0
_DAY = 86_400.0
# Between looks at Redis's clock while something waits to be merged for its age.
_LOOK_SECONDS = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Merged:
    """A segment that is in Redis, to expire unless it takes the place of `group`."""

    group: Group
    entry: ManifestEntry


def compact(
    state: PartitionWriter, *, base_epoch: int | None = None, everything: bool = False, grace: float = GRACE_SECONDS
) -> Outcome:
    """Merge segments of a partition; counts stay what they are, bit for bit.

    Size-tiered: eight segments of an epoch whose pairs are within a factor of four become one; `everything`: all of an
    epoch. base_epoch: as in `fold`. Returns AlreadyApplied where there is nothing to do, Stale where the partition
    moved on meanwhile (try again later). Raises StateCorrupt, ComponentUnreachable.
    """
    result = fold(state, base_epoch)
    while not isinstance(result, Stale) and (groups := _groups(state.manifest, everything=everything)):
        merged = merge(state, groups[0])
        result = merged if isinstance(merged, Stale) else swap(state, merged, grace)
    return result


def fold(state: PartitionWriter, base_epoch: int | None) -> Outcome:
    """Make epochs up to that of the base model one, which is final: the base must not go back."""
    to = _fold_to(state.meta, base_epoch)
    if to == state.meta.folded:
        return AlreadyApplied()
    put = [ManifestEntry(e.name, e.order, to, e.keys, e.pairs, e.size) for e in state.manifest if e.epoch < to]
    return _swap(state, [], put, [], to, GRACE_SECONDS)


def due(state: PartitionWriter) -> Group | None:
    """Return segments that ought to become one, the smallest first, None where there are none."""
    return min(_groups(state.manifest, everything=False), key=lambda group: sum(e.pairs for e in group), default=None)


def overdue(state: PartitionWriter, order: int) -> Group | None:
    """Return segments to merge so that each epoch has one of those up to `order`, None where it has.

    What came with a document and what left with it cancel out only in one segment. The smallest go first, so that the
    largest is written once.
    """
    epochs: dict[int, list[ManifestEntry]] = {}
    for entry in state.manifest:
        if entry.order <= order:
            epochs.setdefault(entry.epoch, []).append(entry)
    groups = [sorted(entries, key=lambda entry: entry.pairs) for entries in epochs.values() if len(entries) > 1]
    return sorted(groups[0][:_TIER], key=lambda entry: entry.order) if groups else None


def merge(state: PartitionWriter, group: Group, stopped: Callable[[], bool] = lambda: False) -> Merged | Stale:
    """Add segments up into one, which goes to Redis chunk by chunk; nothing else changes, so any thread may do it.

    Stale where the partition moved on and they are gone, or once `stopped` says so. Raises StateCorrupt,
    ComponentUnreachable, CountsOverflow.
    """
    try:
        return _merge(state, group, stopped)
    except StateCorrupt:
        if not state.is_current():
            return Stale("the manifest has changed")
        raise


def swap(state: PartitionWriter, merged: Merged, grace: float = GRACE_SECONDS, early: Group = ()) -> Outcome:
    """Put a merged segment in the place of those it was made of, which stay for `grace` seconds.

    early: segments replaced before, which are to go in a few seconds. Stale where one of the group is no longer there,
    or the partition has changed since it was read.
    """
    here = {entry.name: entry for entry in state.manifest}
    if any(entry.name not in here for entry in merged.group):
        return Stale("the manifest has changed")
    have = merged.entry
    # Epochs may have been folded meanwhile, but only all of the group's into one.
    epoch = here[merged.group[0].name].epoch
    entry = ManifestEntry(have.name, have.order, epoch, have.keys, have.pairs, have.size)
    return _swap(state, merged.group, [entry], [entry], state.meta.folded, grace, early)


def _fold_to(meta: Meta, base_epoch: int | None) -> int:
    return meta.folded if base_epoch is None else max(meta.folded, min(base_epoch, meta.epoch))


def _groups(manifest: Sequence[ManifestEntry], *, everything: bool) -> list[list[ManifestEntry]]:
    """Choose which segments become one: at most eight at a time, the oldest."""
    tiers: dict[tuple[int, int], list[ManifestEntry]] = {}
    for entry in manifest:
        tier = 0 if everything else max(entry.pairs, _SMALLEST_TIER).bit_length() // 2
        tiers.setdefault((entry.epoch, tier), []).append(entry)
    least = 2 if everything else _TIER
    return [group[:_TIER] for group in tiers.values() if len(group) >= least]


def _merge(state: PartitionWriter, group: Group, stopped: Callable[[], bool]) -> Merged | Stale:
    heads = [decode_head(_string(state, entry, 0)) for entry in group]
    head, places = fused_head(heads)
    kept = _kept(state, group, head, heads, places)
    name, chunks, pairs, size = state.new_id(), 1, 0, 0
    packed = sum(entry.pairs for entry in group) >= _PACKED_FROM
    for block in _final(fused_rows(_sources(state, group, heads, places), len(head.ids)), kept):
        for string, number in _strings(block, packed=packed):
            if stopped():
                return Stale("stopped")
            upload(state.connection, state.keys, name, [string], first=chunks)
            chunks, pairs, size = chunks + 1, pairs + number, size + len(string)
    frequency, tokens, heavy = head.frequency[kept], head.tokens[kept], head.heavy[kept]
    part = SegmentHead(head.ids[kept], frequency, tokens, heavy, head.added, head.removed)
    string = encoded_head(part, packed=packed)
    upload(state.connection, state.keys, name, [string])
    return Merged(group, ManifestEntry(name, group[0].order, group[0].epoch, chunks, pairs, size + len(string)))


def _sources(
    state: PartitionWriter,
    group: Group,
    heads: Sequence[SegmentHead],
    places: Sequence[npt.NDArray[np.int64]],
) -> list[Source]:
    def source(entry: ManifestEntry, n_words: int, place: npt.NDArray[np.int64]) -> Source:
        def read(chunk: int) -> PairChunk:
            return decode_chunk(_string(state, entry, chunk + 1), n_words)

        return Source(place, entry.keys - 1, read)

    return [source(e, len(h.ids), p) for e, h, p in zip(group, heads, places, strict=True)]


def _kept(
    state: PartitionWriter,
    group: Group,
    head: SegmentHead,
    heads: Sequence[SegmentHead],
    places: Sequence[npt.NDArray[np.int64]],
) -> npt.NDArray[np.intp]:
    """Return the words that keep a count or a pair: those of documents that came and went do not.

    Where every word has a count, as without deletions, no pair need be looked at.
    """
    used = (head.frequency != 0) | (head.tokens != 0) | (head.heavy != 0)
    if not used.all():
        for block in fused_rows(_sources(state, group, heads, places), len(head.ids)):
            used[block.columns] = True
            used[block.first : block.first + len(block.sizes)] |= block.sizes > 0
    return np.flatnonzero(used)


def _final(blocks: Iterator[PairBlock], kept: npt.NDArray[np.intp]) -> Iterator[PairBlock]:
    """Yield blocks over the words that are kept; what is dropped has no pair."""
    for block in blocks:
        stop = block.first + len(block.sizes)
        first, behind = np.searchsorted(kept, [block.first, stop]).tolist()
        sizes = block.sizes[kept[first:behind] - block.first]
        columns = np.searchsorted(kept, block.columns) if len(kept) < _last(kept) + 1 else block.columns
        yield PairBlock(first, sizes, columns.astype(np.int32, copy=False), block.values)


def _last(kept: npt.NDArray[np.intp]) -> int:
    return int(kept[-1]) if len(kept) else -1


def _strings(block: PairBlock, *, packed: bool) -> Iterator[tuple[bytes, int]]:
    """Yield chunks of a block, and how many pairs each holds."""
    edges = np.concatenate([[0], np.cumsum(block.sizes)])
    for start in range(0, len(block.values), CHUNK_PAIRS):
        stop = min(start + CHUNK_PAIRS, len(block.values))
        sizes = np.diff(np.clip(edges, start, stop)).astype(np.int64)
        columns, values = block.columns[start:stop], block.values[start:stop]
        yield encode_chunk(block.first, sizes, columns, values, packed=packed), stop - start


def _string(state: PartitionWriter, entry: ManifestEntry, chunk: int) -> bytes:
    data: bytes | None = state.connection.call("GET", state.keys.segment(entry.name, chunk))
    if data is None:
        raise StateCorrupt(f"segment {entry.name} is missing: rebuild the state (`streamtopic rebuild`)")
    return data


def _swap(
    state: PartitionWriter, gone: Group, put: Group, new: Group, to: int, grace: float, early: Group = ()
) -> Outcome:
    """Write the manifest anew: `gone` go, `put` come or change, of which `new` have strings that would expire."""
    keys = [state.keys.meta, state.keys.manifest]
    keys += [state.keys.segment(e.name, k) for e in new for k in range(e.keys)]
    old = len(keys) + 1
    keys += [state.keys.segment(e.name, k) for e in gone for k in range(e.keys)]
    older = len(keys) + 1
    keys += [state.keys.segment(e.name, k) for e in early for k in range(e.keys)]
    names = [e.name for e in gone]
    fields = list(chain.from_iterable((e.name, e.pack()) for e in put))
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
        "put": [2 + len(names), 1 + len(names) + len(fields)],
        "grace": int(grace * 1000),
        "short": int(SHORT_GRACE_SECONDS * 1000),
    }
    if to > state.meta.folded:
        plan["folded"] = to
        plan["cuts"] = ",".join(map(str, state.meta.cuts[to - state.meta.folded :]))
    result = outcome(state.connection.script(scripts.SWAP_SEGMENTS, keys, [msgpack.packb(plan), *names, *fields]))
    if isinstance(result, Stale):
        return result
    state.follow(commit_id)
    return Applied()


@dataclass(frozen=True, slots=True)
class _Clearing:
    """A merge of all segments up to `order`, begun at since_ms of Redis's clock, when `offset` was the next.

    loads: of the state then. Behind a state that was read anew an order may be another segment's.
    """

    offset: int
    order: int
    since_ms: int
    loads: int


class Compactor:
    """Keeps the segments of a partition few, and what was replaced small, for its one writer.

    max_age: seconds that segments may hold what a deleted document had brought; then they become one, whatever their
    sizes. grace: seconds that replaced segments stay for readers.
    """

    def __init__(self, state: PartitionWriter, *, max_age: float = _DAY, grace: float = GRACE_SECONDS) -> None:
        self._state = state
        self.max_age = max_age
        self._grace = grace
        self._clearing: _Clearing | None = None
        self._look_at = 0.0
        # In a list, so that a thread that adds to it does not keep this object alive.
        self._spent = [0.0]
        self._stopped = Event()
        self._threads: list[Thread] = []
        # A merge in the background ends early with the program, and when the partition is given up.
        weakref.finalize(self, _stop, self._stopped, self._threads)
        self._running: Future[Merged | Stale] | None = None
        self._replaced: deque[ManifestEntry] = deque()

    @property
    def spent(self) -> float:
        """Processor seconds that merges have taken so far, in any thread."""
        return self._spent[0]

    def step(self, base_epoch: int | None) -> bool:
        """Fold, merge or take over what was merged, at most one of them; return whether anything was changed.

        base_epoch: epoch of the base model, None before the first; epochs up to it become one. Raises as `merge`, and
        TakenOver where another writer has the partition.
        """
        result = self._advance(base_epoch)
        if isinstance(result, Stale):
            self._state.reload()
        return isinstance(result, Applied)

    def _advance(self, base_epoch: int | None) -> Outcome:
        folded = fold(self._state, base_epoch)
        if not isinstance(folded, AlreadyApplied):
            return folded
        self._begin_clearing()
        merged = self._next()
        if merged is None or isinstance(merged, Stale):
            return merged or self._end_clearing()
        result = swap(self._state, merged, self._grace, early=self._early(merged))
        if isinstance(result, Applied):
            self._replaced.extend(merged.group)
        return result

    def _next(self) -> Merged | Stale | None:
        """Return a merge that is done, None where there is none yet."""
        if self._running is None:
            group = due(self._state)
            if group is None and self._clearing is not None:
                group = overdue(self._state, self._clearing.order)
            if group is None:
                return None
            if sum(entry.pairs for entry in group) <= _AT_ONCE:
                return _timed(self._spent, lambda: merge(self._state, group))
            self._running = self._start(group)
        if not self._running.done() and len(self._state.manifest) < _MOST_SEGMENTS:
            return None
        running, self._running = self._running, None
        return running.result()

    def _begin_clearing(self) -> None:
        """Plan to merge everything once what deleted documents had brought has lain in segments for too long."""
        state, now = self._state, time.monotonic()
        if self._clearing is not None and self._clearing.loads != state.loads:
            self._clearing = None
        if self._clearing is not None or not state.meta.holds_removed or now < self._look_at:
            return
        if state.meta.erased >= state.meta.next_offset:
            return  # merged already; what was missed counts as before a record that is still to come
        now_ms = state.connection.time_ms(state.keys.meta)
        waited = (now_ms - state.meta.removed_ms) / 1000
        if waited < self.max_age:
            self._look_at = now + min(self.max_age - waited, _LOOK_SECONDS)
            return
        newest = max((entry.order for entry in state.manifest), default=-1)
        self._clearing = _Clearing(state.meta.next_offset, newest, now_ms, state.loads)

    def _end_clearing(self) -> Outcome:
        """Note that everything was merged, where it is."""
        clearing = self._clearing
        if clearing is None or self._running is not None or overdue(self._state, clearing.order) is not None:
            return AlreadyApplied()
        result = self._state.erased(clearing.offset, clearing.since_ms)
        if not isinstance(result, Stale):
            self._clearing = None
            logger.info("partition %d: segments hold no deleted document", self._state.partition)
        return AlreadyApplied() if not isinstance(result, Stale) else result

    def _start(self, group: Group) -> Future[Merged | Stale]:
        found = Future[Merged | Stale]()
        state, stopped, spent = self._state, self._stopped, self._spent
        work = partial(_timed, spent, lambda: merge(state, group, stopped.is_set))
        thread = Thread(target=_settle, args=(found, work), daemon=True)
        self._threads[:] = [thread]
        thread.start()
        return found

    def _early(self, merged: Merged) -> list[ManifestEntry]:
        """Return replaced segments, the oldest, that take room which those that count would not."""
        here = {entry.name for entry in self._state.manifest}
        room = max(_LEAST_ROOM, sum(entry.size for entry in self._state.manifest))
        size = sum(entry.size for entry in (*self._replaced, *merged.group))
        early = []
        while self._replaced and (size > room or len(self._replaced) > 16 * _MOST_SEGMENTS):
            entry = self._replaced.popleft()
            size -= entry.size
            # One that was replaced counts again where Redis was set back to before.
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
    except BaseException as error:  # noqa: BLE001 -- whoever asks for the result gets it
        found.set_exception(error)


def _stop(stopped: Event, threads: list[Thread]) -> None:
    stopped.set()
    for thread in threads:
        thread.join(_JOIN_SECONDS)
