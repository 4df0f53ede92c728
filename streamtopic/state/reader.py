"""Reading a model's counts: partitions and segments merged into one count source, at one instant a partition."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence, SignedPassages, SymmetricCounts
from streamtopic.counts.compact import UpperRows, mirrored
from streamtopic.errors import NegativeCounts, StateCorrupt, StateError
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forgets
from streamtopic.state.meta import ManifestEntry, Meta, read_position
from streamtopic.state.redis_keys import ModelKeys, PartitionKeys
from streamtopic.state.segments import MOST_PASSAGES, PairChunk, SegmentHead, decode_chunk, decode_head, decode_passages
from streamtopic.state.sum_pairs import SignedSegment, joined, merged_pairs

__all__ = ["Delta", "PartitionView", "Reader", "Snapshot", "SnapshotExpired"]


Int64 = npt.NDArray[np.int64]

MOST_JOINED = 1024
"""Passages, and documents, of a difference that is given as passages: a bound on what these take, a few megabytes at
the length of news, 200 where all are as long as may be. A change that is larger is hardly small beside the model."""

T = TypeVar("T")
_ATTEMPTS = 5


class SnapshotExpired(StateError):
    """Segments of a snapshot were compacted away and their grace period is over: take a new snapshot."""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionView:
    """One partition of a snapshot. names: word id to word, for the ids with a count in these segments."""

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
        """Return the pair counts of the words at these ascending positions, in their order.

        Reads every segment once, chunk by chunk. Raises SnapshotExpired where one is gone, StateCorrupt.
        """
        return self.touching(keep, np.ones(len(keep), bool))

    def touching(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> Cooccurrence:
        """Return the pair counts of kept words with a chosen word, as `restrict` reads them.

        keep: ascending positions in `words`. chosen: (len(keep),) bool, one for each kept word.
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
        """Return the same as a working matrix, with a bounded room beside it; reads and raises as `restrict` does."""
        return SymmetricCounts(len(keep), mirrored(len(keep), self._panels(keep, np.ones(len(keep), bool))))

    def _panels(self, keep: npt.NDArray[np.intp], chosen: npt.NDArray[np.bool_]) -> list[UpperRows]:
        where = np.full(len(self.words), -1, np.int64)
        where[keep] = np.arange(len(keep))
        return merged_pairs(self.segments, where, chosen, self.reader.chunks)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(_Counted):
    """Counts of the documents that were live at one offset of each partition, of epochs up to `through` if that is set.

    words: ascending by code point, those that a counted document holds; frequency, tokens, heavy: (n,) int64.
    Pairs are read when `restrict` asks for them.
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
        """Return this snapshot's counts less those of an older one, reading only segments that are in one of the two.

        Raises SnapshotExpired where a segment of the older one was compacted and is gone by now: compare full counts.
        """
        return self.reader.difference(self, old)


@dataclass(frozen=True, slots=True, eq=False)
class Delta(_Counted):
    """Signed difference of two snapshots: what came less what went.

    words: ascending, those that a document which came or went may hold; differences may be zero.
    """

    def passages(self) -> SignedPassages | None:
        """Return the passages that came, and with negative weights those that went: they make the pair counts exactly.

        Over `words`; one that came and went since may be in it twice. None where some are not known any more, since
        segments were merged, or are too many. Reads one string a segment; raises as `restrict` does.
        """
        return _joined_passages(self.segments, lambda segment: self.reader.string(segment, segment.entry.keys - 1))


class Reader:
    """Reads a model's counts, beside its writers and without disturbing them.

    partitions: how many the model has. Heads are kept for the next snapshot, since segments never change.
    """

    def __init__(self, connection: Connection, model: str, partitions: int) -> None:
        self.connection = connection
        self._keys = [ModelKeys(model).partition(p) for p in range(partitions)]
        self._heads: dict[str, SegmentHead] = {}

    def positions(self) -> dict[int, Meta]:
        """Return each partition's meta: cheap, for status and decisions. Raises StateMismatch where there is none."""
        return {p: read_position(self.connection, keys)[0] for p, keys in enumerate(self._keys)}

    def forgets(self, partition: int) -> Forgets:
        """Return a partition's deletions that wait for their receipts."""
        return Forgets(self.connection, self._keys[partition])

    def forwards(self, partition: int) -> int:
        """Return how many deletions came to this partition that belong to another one and are not there yet."""
        return sum(name.isdigit() for name in self.connection.call("HGETALL", self._keys[partition].forwards))

    def snapshot(self, *, through: int | None = None) -> Snapshot:
        """Take a snapshot of all partitions.

        through: count only documents of epochs up to this one. Raises SnapshotExpired where later epochs were folded
        into these, StateCorrupt, StateMismatch, NegativeCounts.
        """
        views = tuple(self._view(p, keys, through) for p, keys in enumerate(self._keys))
        self._heads = {name: head for view in views for name, head in view.heads.items()}
        words = sorted({word for view in views for word in view.names.values()})
        segments = []
        for view in views:
            placed = _place(view.names, words, view.meta.next_word)
            segments += _signed(view.keys, view.entries, view.heads, placed, 1)
        frequency, tokens, heavy = _statistics(segments, len(words))
        documents = _documents(segments)
        if (frequency <= 0).any() or (tokens <= 0).any() or (heavy < 0).any() or documents < 0:
            raise NegativeCounts("a word count in Redis is not positive: run `streamtopic verify`, then `rebuild`")
        return Snapshot(self, words, frequency, tokens, heavy, documents, segments, views, through)

    def read(self, use: Callable[[Snapshot], T], *, through: int | None = None) -> T:
        """Return `use(snapshot)`, with a newer snapshot whenever segments expire meanwhile."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return use(self.snapshot(through=through))
            except SnapshotExpired:
                self._heads.clear()
        return use(self.snapshot(through=through))

    def difference(self, new: Snapshot, old: Snapshot) -> Delta:
        """Return the counts of `new` less those of `old`; see Snapshot.since."""
        signed: list[tuple[PartitionKeys, PartitionView, PartitionView, int]] = []
        for after, before in zip(new.views, old.views, strict=True):
            signed += [(after.keys, after, before, 1), (after.keys, before, after, -1)]
        changes = []
        for keys, have, other, sign in signed:
            entries = {name: entry for name, entry in have.entries.items() if name not in other.entries}
            changes.append((keys, have, other, entries, sign))
        words = sorted(
            {
                word
                for _, have, other, entries, _ in changes
                for name in entries
                for word in _named(have.heads[name].ids, {**other.names, **have.names})
            }
        )
        segments = []
        for keys, have, other, entries, sign in changes:
            placed = _place({**other.names, **have.names}, words, max(have.meta.next_word, other.meta.next_word))
            segments += _signed(keys, entries, have.heads, placed, sign)
        return Delta(self, words, *_statistics(segments, len(words)), _documents(segments), segments)

    def chunks(self, segment: SignedSegment) -> Iterable[PairChunk]:
        """Yield a segment's row chunks. Raises SnapshotExpired, StateCorrupt."""
        for k in range(1, segment.entry.keys):
            chunk = decode_chunk(self.string(segment, k), len(segment.head.ids))
            if len(chunk.rows):
                yield chunk

    def string(self, segment: SignedSegment, k: int) -> bytes:
        """Return a segment's k-th string. Raises SnapshotExpired."""
        data: bytes | None = self.connection.call("GET", segment.keys.segment(segment.entry.name, k))
        if data is None:
            raise SnapshotExpired(f"segment {segment.entry.name} was compacted: take a new snapshot")
        return data

    def _view(self, partition: int, keys: PartitionKeys, through: int | None) -> PartitionView:
        """Read manifest, heads and words that belong together, again if a writer came between."""
        for attempt in range(_ATTEMPTS):
            meta, manifest = read_position(self.connection, keys)
            if through is not None and meta.folded > through:
                raise SnapshotExpired(f"epoch {through} of partition {partition} was folded into {meta.folded}")
            heads = self._read_heads(keys, manifest)
            if heads is None:
                continue
            ids = self._read_words(keys)
            chosen = [entry for entry in manifest if through is None or entry.epoch <= through]
            total = np.zeros(meta.next_word, np.int64)
            for head in (heads[entry.name] for entry in chosen):
                if head.ids.max(initial=-1) >= meta.next_word:
                    raise StateCorrupt(f"partition {partition} counts a word it never met: run `streamtopic rebuild`")
                total[head.ids] += head.frequency
            live = np.flatnonzero(total).tolist()
            if all(number in ids for number in live):
                names = {number: ids[number] for number in live}
                entries = {entry.name: entry for entry in chosen}
                return PartitionView(keys, partition, meta, entries, {name: heads[name] for name in entries}, names)
            if attempt and read_position(self.connection, keys)[0].version == meta.version:
                raise StateCorrupt(f"partition {partition} counts a word without a name: run `streamtopic rebuild`")
        raise SnapshotExpired(f"partition {partition} changes faster than it can be read: try again")

    def _read_heads(self, keys: PartitionKeys, manifest: Sequence[ManifestEntry]) -> dict[str, SegmentHead] | None:
        """Return all heads, or None where one has been compacted away since the manifest was read."""
        heads = {entry.name: self._heads[entry.name] for entry in manifest if entry.name in self._heads}
        missing = [entry.name for entry in manifest if entry.name not in heads]
        for name, data in zip(
            missing, self.connection.batch(("GET", keys.segment(n, 0)) for n in missing), strict=True
        ):
            if data is None:
                return None
            heads[name] = decode_head(data)
        return heads

    def _read_words(self, keys: PartitionKeys) -> dict[int, str]:
        scanned = self.connection.scan(keys.words)
        return {int(number): word.decode("utf-8", "surrogatepass") for word, number in scanned}


def _named(ids: Int64, names: Mapping[int, str]) -> Iterable[str]:
    """Yield names of ids. One without a name came and went between the snapshots, so its differences are zero."""
    return (names[number] for number in ids.tolist() if number in names)


def _joined_passages(
    segments: Sequence[SignedSegment], last: Callable[[SignedSegment], bytes]
) -> SignedPassages | None:
    """Return the passages of all segments, over the words of their positions; last: reads a segment's last string.

    None where a segment has none, where there are more than MOST_JOINED, or where one has a word without a position.
    Raises what `last` does, StateCorrupt.
    """
    # A segment without pairs changes none: its passages are too short or cancel out.
    counted = [segment for segment in segments if segment.entry.pairs]
    documents = [segment.head.added + segment.head.removed for segment in counted]
    if max(documents, default=0) > MOST_PASSAGES or sum(documents) > MOST_JOINED:
        return None
    parts, number = list[SignedPassages](), 0
    for segment in counted:
        found = decode_passages(last(segment), len(segment.head.ids))
        if found is None or number + found.passages > MOST_JOINED:
            return None
        number += found.passages
        words = segment.positions[found.words]
        if (words < 0).any():
            return None
        parts.append(_renamed(found, words, segment.sign))
    return SignedPassages.joined(parts)


def _renamed(passages: SignedPassages, words: Int64, sign: int) -> SignedPassages:
    """Return passages with other words, which ascend anew: ids are in the order of arrival, positions are not."""
    order = np.lexsort((words, passages.owners))
    return SignedPassages(passages.indptr, words[order], passages.counts[order], sign * passages.weights)


def _place(names: Mapping[int, str], words: Sequence[str], size: int) -> Int64:
    """Return each word id's position in `words`, -1 for those that are not there."""
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
    return [SignedSegment(keys, entry, heads[name], placed[heads[name].ids], sign) for name, entry in entries.items()]


def _statistics(segments: Sequence[SignedSegment], n_words: int) -> tuple[Int64, Int64, Int64]:
    """Return documents, occurrences and heavy documents of each word, (n_words,) each."""
    frequency, tokens, heavy = np.zeros((3, n_words), np.int64)
    for segment in segments:
        known, head = segment.positions >= 0, segment.head
        # `add.at`: a word that died and came back has two ids at one position.
        for total, part in ((frequency, head.frequency), (tokens, head.tokens), (heavy, head.heavy)):
            np.add.at(total, segment.positions[known], segment.sign * part[known])
    return frequency, tokens, heavy


def _documents(segments: Sequence[SignedSegment]) -> int:
    return sum(segment.sign * segment.head.documents for segment in segments)
