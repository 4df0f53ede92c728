"""Merging a partition's segments, so that readers read less and what cancels out disappears."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.counts import PairBlock
from streamtopic.errors import StateCorrupt
from streamtopic.state import scripts
from streamtopic.state.fusion import MOST, Source, fused_head, fused_rows
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.outcomes import AlreadyApplied, Applied, Outcome, Stale, outcome
from streamtopic.state.partition import PartitionState
from streamtopic.state.segments import CHUNK_PAIRS, PairChunk, SegmentHead, decode_chunk, decode_head, encode_chunk
from streamtopic.state.segments import encode_head as encoded_head
from streamtopic.state.upload import upload

__all__ = ["GRACE_SECONDS", "Group", "Merged", "compact", "due", "fold", "merge", "swap"]

GRACE_SECONDS = 600.0
"""How long replaced segments stay for readers that took their manifest before."""

SHORT_GRACE_SECONDS = 10.0
"""The same where they take more room than the segments that count."""

_TIER = MOST
_SMALLEST_TIER = 1 << 16
# Packing takes longer than all else in a merge, so only what will not soon be merged again is packed.
_PACKED_FROM = 1 << 27

Group = Sequence[ManifestEntry]


@dataclass(frozen=True, slots=True)
class Merged:
    """A segment that is in Redis, to expire unless it takes the place of `group`."""

    group: Group
    entry: ManifestEntry


def compact(
    state: PartitionState, *, base_epoch: int | None = None, everything: bool = False, grace: float = GRACE_SECONDS
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


def fold(state: PartitionState, base_epoch: int | None) -> Outcome:
    """Make epochs up to that of the base model one, which is final: the base must not go back."""
    to = _fold_to(state.meta, base_epoch)
    if to == state.meta.folded:
        return AlreadyApplied()
    put = [ManifestEntry(e.name, e.order, to, e.keys, e.pairs, e.size) for e in state.manifest if e.epoch < to]
    return _swap(state, [], put, [], to, GRACE_SECONDS)


def due(state: PartitionState) -> Group | None:
    """Return segments that ought to become one, the smallest first, None where there are none."""
    return min(_groups(state.manifest, everything=False), key=lambda group: sum(e.pairs for e in group), default=None)


def merge(state: PartitionState, group: Group, stopped: Callable[[], bool] = lambda: False) -> Merged | Stale:
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


def swap(state: PartitionState, merged: Merged, grace: float = GRACE_SECONDS, early: Group = ()) -> Outcome:
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


def _merge(state: PartitionState, group: Group, stopped: Callable[[], bool]) -> Merged | Stale:
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
    part = SegmentHead(head.ids[kept], head.frequency[kept], head.tokens[kept], head.added, head.removed)
    string = encoded_head(part, packed=packed)
    upload(state.connection, state.keys, name, [string])
    return Merged(group, ManifestEntry(name, group[0].order, group[0].epoch, chunks, pairs, size + len(string)))


def _sources(
    state: PartitionState,
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
    state: PartitionState,
    group: Group,
    head: SegmentHead,
    heads: Sequence[SegmentHead],
    places: Sequence[npt.NDArray[np.int64]],
) -> npt.NDArray[np.intp]:
    """Return the words that keep a count or a pair: those of documents that came and went do not.

    Where every word has a count, as without deletions, no pair need be looked at.
    """
    used = (head.frequency != 0) | (head.tokens != 0)
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


def _string(state: PartitionState, entry: ManifestEntry, chunk: int) -> bytes:
    data: bytes | None = state.connection.call("GET", state.keys.segment(entry.name, chunk))
    if data is None:
        raise StateCorrupt(f"segment {entry.name} is missing: rebuild the state (`streamtopic rebuild`)")
    return data


def _swap(
    state: PartitionState, gone: Group, put: Group, new: Group, to: int, grace: float, early: Group = ()
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
    result = outcome(state.connection.script(scripts.SWAP, keys, [msgpack.packb(plan), *names, *fields]))
    if isinstance(result, Stale):
        return result
    state.follow(commit_id)
    return Applied()
