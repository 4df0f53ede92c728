"""Merging a partition's segments, so that readers read less and what cancels out disappears."""

from collections.abc import Sequence
from itertools import chain

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence
from streamtopic.errors import StateCorrupt
from streamtopic.state import scripts
from streamtopic.state.merge import SignedSegment, merged_pairs
from streamtopic.state.meta import ManifestEntry, Meta
from streamtopic.state.outcomes import AlreadyApplied, Applied, Outcome, Stale, outcome
from streamtopic.state.partition import PartitionState
from streamtopic.state.segments import PairChunk, Segment, SegmentHead, decode_chunk, decode_head, encode
from streamtopic.state.upload import upload

__all__ = ["GRACE_SECONDS", "compact"]

GRACE_SECONDS = 600.0
"""How long replaced segments stay for readers that took their manifest before."""

_TIER = 4
_SMALLEST_TIER = 1 << 16


def compact(
    state: PartitionState, *, base_epoch: int | None = None, everything: bool = False, grace: float = GRACE_SECONDS
) -> Outcome:
    """Merge segments of a partition; counts stay what they are, bit for bit.

    Size-tiered: four segments of an epoch whose pairs are within a factor of four become one; `everything`: all of an
    epoch. base_epoch: epochs up to that of the base model are folded into one first, which is final: the base must not
    go back. Returns AlreadyApplied where there is nothing to merge, Stale where the partition moved on meanwhile
    (try again later; nothing was written). Raises StateCorrupt, ComponentUnreachable.
    """
    fold = _fold_to(state.meta, base_epoch)
    groups = _groups(state.manifest, fold, everything=everything)
    if not groups and fold == state.meta.folded:
        return AlreadyApplied()
    relabelled = [e for e in state.manifest if e.epoch < fold and all(e not in group for group in groups)]
    try:
        merged = [_merge(state, group, max(group[0].epoch, fold)) for group in groups]
    except StateCorrupt:
        if not state.is_current():
            return Stale("the manifest has changed")
        raise
    for entry, strings in merged:
        upload(state.connection, state.keys, entry.name, strings)
    gone = list(chain.from_iterable(groups))
    put = [entry for entry, _ in merged]
    put += [ManifestEntry(e.name, e.order, fold, e.keys, e.pairs, e.size) for e in relabelled]
    commit_id = state.new_id()
    arguments = _swap_arguments(state, commit_id, gone, put, merged, fold, grace)
    result = outcome(state.connection.script(scripts.SWAP, *arguments))
    if isinstance(result, Stale):
        return result
    state.follow(commit_id)
    return Applied()


def _fold_to(meta: Meta, base_epoch: int | None) -> int:
    return meta.folded if base_epoch is None else max(meta.folded, min(base_epoch, meta.epoch))


def _groups(manifest: Sequence[ManifestEntry], fold: int, *, everything: bool) -> list[list[ManifestEntry]]:
    """Choose which segments become one. A segment of folded epochs counts for the epoch that they are folded into."""
    tiers: dict[tuple[int, int], list[ManifestEntry]] = {}
    for entry in manifest:
        tier = 0 if everything else max(entry.pairs, _SMALLEST_TIER).bit_length() // 2
        tiers.setdefault((max(entry.epoch, fold), tier), []).append(entry)
    least = 2 if everything else _TIER
    return [group for group in tiers.values() if len(group) >= least]


def _merge(state: PartitionState, group: Sequence[ManifestEntry], epoch: int) -> tuple[ManifestEntry, list[bytes]]:
    heads = [decode_head(_string(state, entry, 0)) for entry in group]
    ids = np.unique(np.concatenate([head.ids for head in heads]))
    places = [np.searchsorted(ids, head.ids) for head in heads]
    signed = [SignedSegment(state.keys, e, h, p, 1) for e, h, p in zip(group, heads, places, strict=True)]

    def chunks(segment: SignedSegment) -> list[PairChunk]:
        n_words = len(segment.head.ids)
        return [decode_chunk(_string(state, segment.entry, k), n_words) for k in range(1, segment.entry.keys)]

    pairs = merged_pairs(signed, np.arange(len(ids)), len(ids), chunks)
    segment = _without_zeros(ids, pairs, heads, places)
    strings = encode(segment)
    size = sum(map(len, strings))
    name = state.new_id()
    return ManifestEntry(name, group[0].order, epoch, len(strings), segment.counts.pairs, size), strings


def _without_zeros(
    ids: npt.NDArray[np.int64],
    pairs: Cooccurrence,
    heads: Sequence[SegmentHead],
    places: Sequence[npt.NDArray[np.int64]],
) -> Segment:
    """Drop words whose counts have all cancelled, as those of documents that came and went do."""
    frequency, tokens = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    for head, place in zip(heads, places, strict=True):
        frequency[place] += head.frequency
        tokens[place] += head.tokens
    used = (frequency != 0) | (tokens != 0) | (np.diff(pairs.indptr) > 0)
    used[pairs.columns] = True
    keep = np.flatnonzero(used)
    added, removed = sum(head.added for head in heads), sum(head.removed for head in heads)
    whole = Cooccurrence(
        len(ids), pairs.indptr, pairs.columns, pairs.values, frequency, tokens, documents=added - removed
    )
    return Segment(ids[keep], whole.restrict(keep), added, removed)


def _string(state: PartitionState, entry: ManifestEntry, chunk: int) -> bytes:
    data: bytes | None = state.connection.call("GET", state.keys.segment(entry.name, chunk))
    if data is None:
        raise StateCorrupt(f"segment {entry.name} is missing: rebuild the state (`streamtopic rebuild`)")
    return data


def _swap_arguments(
    state: PartitionState,
    commit_id: str,
    gone: Sequence[ManifestEntry],
    put: Sequence[ManifestEntry],
    merged: Sequence[tuple[ManifestEntry, Sequence[bytes]]],
    fold: int,
    grace: float,
) -> tuple[list[str], list[str | bytes]]:
    keys = [state.keys.meta, state.keys.manifest]
    keys += [state.keys.segment(e.name, k) for e, strings in merged for k in range(len(strings))]
    old = len(keys) + 1
    keys += [state.keys.segment(e.name, k) for e in gone for k in range(e.keys)]
    names = [e.name for e in gone]
    fields = list(chain.from_iterable((e.name, e.pack()) for e in put))
    plan = {
        "commit": commit_id,
        "base": state.meta.commit,
        "version": str(state.meta.version),
        "fence": str(state.fence),
        "chunks": 3,
        "old": old,
        "gone": [2, 1 + len(names)],
        "put": [2 + len(names), 1 + len(names) + len(fields)],
        "grace": int(grace * 1000),
    }
    if fold > state.meta.folded:
        plan["folded"] = fold
        plan["cuts"] = ",".join(map(str, state.meta.cuts[fold - state.meta.folded :]))
    return keys, [msgpack.packb(plan), *names, *fields]
