"""Reading a model's counts: segments of all partitions added up, as of one instant of each partition."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence, SignedPassages, SymmetricCounts
from streamtopic.counts.compact import UpperRows, mirrored
from streamtopic.documents.suppression import Suppression
from streamtopic.errors import NegativeCounts, StateCorrupt, StateError
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forgets, Forward
from streamtopic.state.meta import (
    ManifestEntry,
    Meta,
    head_strings,
    read_position,
    require_documents,
    require_keys,
    segment_lost,
)
from streamtopic.state.redis_keys import ModelKeys, PartitionKeys
from streamtopic.state.segments import MOST_PASSAGES, SegmentHead, decode_head, decode_passages
from streamtopic.state.sum_pairs import SignedSegment, joined, merged_pairs
from streamtopic.state.word_ids import word_text

__all__ = ["Delta", "PartitionView", "Reader", "Snapshot", "SnapshotExpired"]


Int64 = npt.NDArray[np.int64]

MOST_JOINED = 1024
"""Passages, and documents, of a difference that is given as passages. They take a few megabytes at the length of news,
and 200 where each is as long as possible. A larger change is hardly small beside the model."""

T = TypeVar("T")
_ATTEMPTS = 5
_DIGESTS = 1_000


class SnapshotExpired(StateError):
    """Segments of a snapshot were merged and their grace period is over: take a new snapshot."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionView:
    """One partition of a snapshot.

    entries: name of a segment to its manifest entry, for the epochs of the snapshot.
    heads: name of a segment to its head.
    names: word id to word, for the ids with a count in these segments.
    """

    keys: PartitionKeys
    partition: int
    meta: Meta
    entries: Mapping[str, ManifestEntry]
    heads: Mapping[str, SegmentHead]
    names: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """Word statistics and pairs of signed segments: the common part of a snapshot and a delta."""

    reader: "Reader"
    words: Sequence[str]
    frequency: Int64
    tokens: Int64
    heavy: Int64
    documents: int
    segments: Sequence[SignedSegment]

    def restrict(self, keep: npt.NDArray[np.intp]) -> Cooccurrence:
        """Return the pair counts of some words, in their order.

        keep: ascending positions in `words`.

        Reads every segment once. Raises SnapshotExpired where a segment is gone, StateCorrupt.
        """
        all_chosen = np.ones(len(keep), bool)
        return self.touching(keep, all_chosen)

    def touching(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> Cooccurrence:
        """Return the pair counts of kept words with a chosen word. Reads and raises as `restrict` does.

        keep: ascending positions in `words`.
        chosen: (len(keep),) bool, one for each kept word.
        """
        indptr, columns, values = joined(self._panels(keep, chosen))
        return Cooccurrence(
            n_words=len(keep),
            indptr=indptr,
            columns=columns,
            values=values,
            frequency=self.frequency[keep],
            tokens=self.tokens[keep],
            heavy=self.heavy[keep],
            documents=self.documents,
        )

    def symmetric(self, keep: npt.NDArray[np.intp]) -> SymmetricCounts:
        """Return the pair counts of some words as a working matrix. Takes, reads and raises as `restrict` does.

        Beside the matrix it holds a bounded number of bytes (docs/decisions/0022).
        """
        all_chosen = np.ones(len(keep), bool)
        panels = self._panels(keep, all_chosen)
        rows = mirrored(len(keep), panels)
        return SymmetricCounts(len(keep), rows)

    def _panels(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> list[UpperRows]:
        where = np.full(len(self.words), -1, np.int64)
        where[keep] = np.arange(len(keep))
        return merged_pairs(self.segments, where, chosen, self.reader.string)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(_Counted):
    """Counts of the documents that were live at one offset of each partition. Pairs are read only by `restrict`.

    words: words of the counted documents, ascending by code point.
    frequency, tokens, heavy: (words,) int64, documents, occurrences and heavy documents of each word.
    documents: number of counted documents.
    views: one for each partition.
    through: the newest epoch whose documents count; None for all.
    """

    views: tuple[PartitionView, ...]
    through: int | None

    @property
    def offsets(self) -> dict[int, int]:
        """The cut: partition to the first offset that is not counted."""
        return {view.partition: view.meta.next_offset for view in self.views}

    def live_through(self, epoch: int) -> int:
        """Return how many live documents belong to this epoch or an earlier one."""
        return sum(view.meta.live_through(epoch) for view in self.views)

    def since(self, old: "Snapshot") -> "Delta":
        """Return this snapshot's counts less those of an older one. Only segments of one of the two are read.

        Raises SnapshotExpired where a segment of the older one was merged and is gone: compare full counts then.
        """
        return self.reader.difference(self, old)


@dataclass(frozen=True, slots=True, eq=False)
class Delta(_Counted):
    """The difference of two snapshots: documents that came count 1, documents that went count -1.

    words: ascending; words of documents that came or went, so that a difference may be zero.
    frequency, tokens, heavy, documents: as in a snapshot, signed.
    """

    def passages(self) -> SignedPassages | None:
        """Return the passages of the difference, over `words`: those that went have negative weights.

        Their outer products add up to the pair counts of the difference. A passage that came and went since may be
        there twice. None where segments were merged, which drops passages, or where the passages are too many. Reads
        one string of each segment; raises as `restrict` does.
        """

        def last(segment: SignedSegment) -> bytes:
            number = segment.entry.keys - 1
            return self.reader.string(segment, number)

        return _joined_passages(self.segments, last)


class Reader:
    """Reads a model's counts, beside its writers and without disturbing them.

    partitions: number of partitions of the model.
    """

    def __init__(self, connection: Connection, model: str, partitions: int) -> None:
        self.connection = connection
        self._keys = [ModelKeys(model).partition(p) for p in range(partitions)]
        # Heads of the last snapshot serve the next one: a segment never changes.
        self._heads: dict[str, SegmentHead] = {}

    def positions(self) -> dict[int, Meta]:
        """Return the meta of each partition, without its counts. Raises StateMismatch where there is no state."""
        found = {}
        for partition, keys in enumerate(self._keys):
            found[partition], _ = read_position(self.connection, keys)
        return found

    def forgets(self, partition: int) -> Forgets:
        """Return the deletions of a partition that wait for their receipts."""
        return Forgets(self.connection, self._keys[partition])

    def forwards(self, partition: int) -> int:
        """Return the number of deletions in a partition that are still to be sent to the partition of their key."""
        # HGETALL, since readers have no right to HKEYS.
        names = self.connection.call("HGETALL", self._keys[partition].forwards)
        return sum(map(Forward.is_name, names))

    def said_ms(self, digests: Iterable[bytes]) -> int:
        """Return when something was said last about ids or subjects, as far as the partitions have counted.

        digests: of the ids and subjects.

        Milliseconds since 1970; 0 where nothing was ever said. Raises StateCorrupt.
        """
        asked = list(digests)
        newest = 0
        for start in range(0, len(asked), _DIGESTS):
            some = asked[start : start + _DIGESTS]
            answers = self.connection.batch([("HMGET", keys.suppressed, *some) for keys in self._keys])
            for values in answers:
                said = [Suppression.unpack(one, value) for one, value in zip(some, values, strict=True) if value]
                newest = max(newest, *(one.made_ms for one in said), 0)
        return newest

    def snapshot(self, *, through: int | None = None) -> Snapshot:
        """Take a snapshot of all partitions.

        through: the newest epoch whose documents count; None for all.

        Raises SnapshotExpired where later epochs were folded into these, StateCorrupt, StateMismatch, NegativeCounts.
        """
        partitions = enumerate(self._keys)
        views = tuple(self._view(p, keys, through) for p, keys in partitions)
        # Only these: heads of segments that were merged meanwhile are not needed again.
        self._heads = {}
        met = set[str]()
        for view in views:
            self._heads.update(view.heads)
            met.update(view.names.values())
        words = sorted(met)
        segments = []
        for view in views:
            placed = _place(view.names, words, view.meta.next_word)
            segments += _signed(view.keys, view.entries, view.heads, placed, 1)
        frequency, tokens, heavy = _statistics(segments, len(words))
        documents = _documents(segments)
        # Words without a document were left out by `_view`, so 0 is as wrong as a number below it.
        counted = (frequency > 0).all() and (tokens > 0).all()
        positive = counted and (heavy >= 0).all()
        if not positive or documents < 0:
            raise NegativeCounts("a word count in Redis is not positive: run `streamtopic verify`, then `rebuild`")
        return Snapshot(self, words, frequency, tokens, heavy, documents, segments, views, through)

    def read(self, use: Callable[[Snapshot], T], *, through: int | None = None) -> T:
        """Return `use(snapshot)`; where segments expire meanwhile, it is called again with a newer snapshot."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return use(self.snapshot(through=through))
            except SnapshotExpired:
                self._heads.clear()
        return use(self.snapshot(through=through))

    def difference(self, new: Snapshot, old: Snapshot) -> Delta:
        """Return the counts of `new` less those of `old`; see Snapshot.since."""
        changes: list[_Change] = []
        for after, before in zip(new.views, old.views, strict=True):
            changes += [_Change(after, before, 1), _Change(before, after, -1)]
        named = (change.words() for change in changes)
        met = set[str]().union(*named)
        words = sorted(met)
        segments = []
        for change in changes:
            view = change.view
            other = change.other
            size = max(view.meta.next_word, other.meta.next_word)
            placed = _place(change.names, words, size)
            segments += _signed(view.keys, change.entries, view.heads, placed, change.sign)
        frequency, tokens, heavy = _statistics(segments, len(words))
        documents = _documents(segments)
        return Delta(self, words, frequency, tokens, heavy, documents, segments)

    def string(self, segment: SignedSegment, k: int) -> bytes:
        """Return the k-th string of a segment. Raises SnapshotExpired, and StateCorrupt where Redis has lost it."""
        key = segment.keys.segment(segment.entry.name, k)
        data: bytes | None = self.connection.call("GET", key)
        if data is None:
            _, manifest = read_position(self.connection, segment.keys)
            if any(entry.name == segment.entry.name for entry in manifest):
                raise segment_lost(segment.entry, segment.keys)
            raise SnapshotExpired(f"segment {segment.entry.name} was merged into another: take a new snapshot")
        return data

    def _view(self, partition: int, keys: PartitionKeys, through: int | None) -> PartitionView:
        """Read manifest, heads and words of one state; again where a writer came between.

        Words stand in a hash that no snapshot keeps: one that vanished after the manifest was read has no name.
        """
        for attempt in range(_ATTEMPTS):
            meta, manifest = read_position(self.connection, keys)
            if through is not None and meta.folded > through:
                raise SnapshotExpired(f"epoch {through} of partition {partition} was folded into {meta.folded}")
            heads = self._read_heads(keys, manifest)
            if heads is None:
                # Damage only if nothing has changed: a merge may have come between the two reads.
                if self._is_unchanged(keys, meta):
                    raise StateCorrupt(
                        f"Redis has lost a segment of partition {partition}: stop ingest and run `streamtopic rebuild`"
                    )
                continue
            ids = self._read_words(keys)
            chosen = [entry for entry in manifest if through is None or entry.epoch <= through]
            entries = {entry.name: entry for entry in chosen}
            used = {name: heads[name] for name in entries}
            counted = sum(head.documents for head in used.values())
            require_documents(partition, meta, counted, through)
            live = _live_words(partition, meta, used.values())
            if all(number in ids for number in live):
                names = {number: ids[number] for number in live}
                # Behind the reading of the position: what was lost before it is noticed.
                require_keys(self.connection, keys)
                return PartitionView(keys, partition, meta, entries, used, names)
            # Damage only if nothing has changed, and not at once: the word may have gone between the two reads.
            if attempt and self._is_unchanged(keys, meta):
                raise StateCorrupt(f"partition {partition} counts a word without a name: run `streamtopic rebuild`")
        raise SnapshotExpired(f"partition {partition} changes faster than it can be read: try again")

    def _is_unchanged(self, keys: PartitionKeys, meta: Meta) -> bool:
        now, _ = read_position(self.connection, keys)
        return now.version == meta.version

    def _read_heads(self, keys: PartitionKeys, manifest: Sequence[ManifestEntry]) -> dict[str, SegmentHead] | None:
        """Return all heads by name of their segments; None where one was merged since the manifest was read."""
        names = [entry.name for entry in manifest]
        heads = {name: self._heads[name] for name in names if name in self._heads}
        missing = [name for name in names if name not in heads]
        answers = head_strings(self.connection, keys, missing)
        for name, data in zip(missing, answers, strict=True):
            if data is None:
                return None
            heads[name] = decode_head(data)
        return heads

    def _read_words(self, keys: PartitionKeys) -> dict[int, str]:
        scanned = self.connection.scan(keys.words)
        return {int(number): word_text(word) for word, number in scanned}


class _Change:
    """The segments of one partition that only one of two snapshots has.

    view: that snapshot's view of the partition; other: the other's.
    sign: 1 where it is the newer one, else -1.
    """

    def __init__(self, view: PartitionView, other: PartitionView, sign: int) -> None:
        self.view = view
        self.other = other
        self.sign = sign
        self.entries = {name: entry for name, entry in view.entries.items() if name not in other.entries}
        # Words of both, since a word that vanished has its name in the older view only.
        self.names = {**other.names, **view.names}

    def words(self) -> Iterable[str]:
        """Yield the words of these segments."""
        for name in self.entries:
            for number in self.view.heads[name].ids.tolist():
                # One without a name came and went between the snapshots, so its differences are zero.
                if number in self.names:
                    yield self.names[number]


def _live_words(partition: int, meta: Meta, heads: Iterable[SegmentHead]) -> list[int]:
    """Return the ids of all words that a document of these segments holds. Raises StateCorrupt."""
    total = np.zeros(meta.next_word, np.int64)
    for head in heads:
        largest = head.ids.max(initial=-1)
        if largest >= meta.next_word:
            raise StateCorrupt(f"partition {partition} counts a word it never met: run `streamtopic rebuild`")
        total[head.ids] += head.frequency
    live: list[int] = np.flatnonzero(total).tolist()
    return live


def _joined_passages(
    segments: Sequence[SignedSegment], last: Callable[[SignedSegment], bytes]
) -> SignedPassages | None:
    """Return the passages of all segments, over the words of their positions.

    last: reads the last string of a segment.

    None where a segment has only pairs, where there are more than MOST_JOINED passages, or where one has a word without
    a position. Raises as `last` does, and StateCorrupt.
    """
    # Passages of a segment without pairs are too short for a pair, or cancel out.
    counted = [segment for segment in segments if segment.entry.pairs]
    # Told by manifest and heads: a string may have 16 MiB.
    rows = sum(segment.entry.rows for segment in counted)
    if rows > MOST_JOINED:
        return None
    if any(_is_bulk_of_pairs(segment) for segment in counted):
        return None
    parts = list[SignedPassages]()
    number = 0
    for segment in counted:
        string = last(segment)
        found = decode_passages(string, len(segment.head.ids))
        if found is None or number + found.passages > MOST_JOINED:
            return None
        number += found.passages
        words = segment.positions[found.words]
        if (words < 0).any():
            return None
        passages = _renamed(found, words, segment.sign)
        parts.append(passages)
    return SignedPassages.joined(parts)


def _is_bulk_of_pairs(segment: SignedSegment) -> bool:
    """Return whether a segment of pairs is too large for an older program to have kept its passages."""
    documents = segment.head.added + segment.head.removed
    return not segment.entry.rows and documents > MOST_PASSAGES


def _renamed(passages: SignedPassages, words: Int64, sign: int) -> SignedPassages:
    """Return passages with other words, which ascend anew: ids are in the order of arrival, positions are not."""
    order = np.lexsort((words, passages.owners))
    words = words[order]
    counts = passages.counts[order]
    weights = sign * passages.weights
    return SignedPassages(passages.indptr, words, counts, weights)


def _place(names: Mapping[int, str], words: Sequence[str], size: int) -> Int64:
    """Return the position of each word id in `words`, (size,) int64; -1 for a word that is not there."""
    position = {word: k for k, word in enumerate(words)}
    placed = np.full(size, -1, np.int64)
    for number, word in names.items():
        placed[number] = position.get(word, -1)
    return placed


def _signed(
    keys: PartitionKeys,
    entries: Mapping[str, ManifestEntry],
    heads: Mapping[str, SegmentHead],
    placed: Int64,
    sign: int,
) -> list[SignedSegment]:
    found = []
    for name, entry in entries.items():
        head = heads[name]
        positions = placed[head.ids]
        found.append(SignedSegment(keys, entry, head, positions, sign))
    return found


def _statistics(segments: Sequence[SignedSegment], n_words: int) -> tuple[Int64, Int64, Int64]:
    """Return documents, occurrences and heavy documents of each word, (n_words,) int64 each."""
    frequency, tokens, heavy = np.zeros((3, n_words), np.int64)
    for segment in segments:
        head = segment.head
        known = segment.positions >= 0
        places = segment.positions[known]
        # `add.at`: a word that vanished and came back has two ids at one position.
        for total, part in ((frequency, head.frequency), (tokens, head.tokens), (heavy, head.heavy)):
            signed = segment.sign * part[known]
            np.add.at(total, places, signed)
    return frequency, tokens, heavy


def _documents(segments: Sequence[SignedSegment]) -> int:
    return sum(segment.sign * segment.head.documents for segment in segments)
