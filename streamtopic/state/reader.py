"""Reading a model while its writers work: positions, deletions that wait, and the counts of all partitions.

How many documents of the base model are still there follows from the documents: one belongs to the base if the record
that added it lies before the cut that the base was learned from. So no fault can refund a deletion. The leading
scheduler follows the changes and notes the number; if changes are gone, it looks through the documents once.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

import numpy as np

from streamtopic.counts import statistics
from streamtopic.counts.arrays import Int64, Mask
from streamtopic.errors import NegativeCounts, StateCorrupt
from streamtopic.state.connection import Codec, Connection, ModelKeys
from streamtopic.state.deletions import Forgets
from streamtopic.state.document_counts import DocumentCounts, PartitionCut, WordTable, changed_documents, followed
from streamtopic.state.document_records import record_offset
from streamtopic.state.meta import (
    Cut,
    CutGone,
    PartitionPosition,
    Place,
    WordStatistics,
    read_changes,
    read_position,
    read_statistics,
    require_keys,
)

__all__ = ["Reader", "RemainingBase", "remaining_noted"]

T = TypeVar("T")
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class RemainingBase(Cut):
    """The documents of a base model that are live at a cut. documents: how many there are."""

    documents: int

    @classmethod
    def at(cls, positions: Mapping[int, PartitionPosition], documents: int) -> "RemainingBase":
        """Return what there is at these positions. documents: how many."""
        offsets = {partition: meta.next_offset for partition, meta in positions.items()}
        places = {partition: meta.place for partition, meta in positions.items()}
        return cls(offsets, places, documents)


# With the version that the base model was published as.
_NOTED = Codec(tuple[int, RemainingBase], "what is left of the base model cannot be read")


def remaining_noted(connection: Connection, model: str, version: int, start: RemainingBase) -> RemainingBase:
    """Return what is left of a base model as the leader noted it last, usually a moment ago.

    version: that the base model was published as.
    start: the documents that it was learned from: what is left if there is no note yet.
    """
    packed = connection.call("HGET", ModelKeys(model).named("base"), "left")
    with suppress(StateCorrupt):
        of, left = _NOTED.unpack(packed or b"")
        return left if of == version else start
    return start


class Reader:
    """Reads a model's documents and counts while its writers work, without disturbing them.

    partitions: number of partitions of the model.
    """

    def __init__(self, connection: Connection, model: str, partitions: int) -> None:
        self.connection = connection
        self._model = ModelKeys(model)
        self._keys = [self._model.partition(p) for p in range(partitions)]
        self._table = WordTable(partitions)
        self._last: DocumentCounts | None = None

    def positions(self) -> dict[int, PartitionPosition]:
        """Return the meta of each partition, without its counts. Raises StateMismatch if there is no state."""
        return {partition: self.position(partition) for partition in range(len(self._keys))}

    def position(self, partition: int) -> PartitionPosition:
        """Return the meta of one partition. Raises as `positions`."""
        return read_position(self.connection, self._keys[partition])

    def forgets(self, partition: int) -> Forgets:
        """Return the deletions of a partition that wait for their receipts."""
        return Forgets(self.connection, self._keys[partition])

    def added_at(self, partition: int, documents: Sequence[bytes]) -> dict[bytes, int]:
        """Return the offset of the add of each of these documents that is live in a partition.

        Raises StateCorrupt if Redis has lost keys of it: a document that is lost would look deleted.
        """
        keys = self._keys[partition]
        buckets = keys.by_bucket(documents)
        found = self.connection.batch([("HMGET", keys.documents(bucket), *ids) for bucket, ids in buckets.items()])
        require_keys(self.connection, keys)
        pairs = zip(chain.from_iterable(buckets.values()), chain.from_iterable(found), strict=True)
        return {document: record_offset(record) for document, record in pairs if record is not None}

    def counts(
        self, *, before: Mapping[int, int] | None = None, at: Mapping[int, PartitionPosition] | None = None
    ) -> DocumentCounts:
        """Return the counts of all partitions.

        before: partition to the offset before which a document must have been added to count; None for all documents.
        at: partition to its position at the moment to count as of; None for now.

        Raises CutGone if partitions change faster than they can be read; StateCorrupt, StateMismatch, NegativeCounts.
        """
        cuts = self._cuts(at)
        try:
            if before is None:
                counts = self._followed(cuts)
            else:
                counts = self._counted(
                    [replace(cut, before=min(cut.before, before.get(cut.partition, 0))) for cut in cuts]
                )
        finally:
            # After the reading: what was lost before it is noticed, and named if it made the reading fail.
            for keys in self._keys:
                require_keys(self.connection, keys)
        if before is None:
            # Only now: the next counts are these and the changes since.
            self._last = counts
        return counts

    def read(self, use: Callable[[DocumentCounts], T], *, before: Mapping[int, int] | None = None) -> T:
        """Return `use(counts)`; if changes that it needs go meanwhile, it is called again with newer counts."""
        for _ in range(_ATTEMPTS - 1):
            with suppress(CutGone):
                return use(self.counts(before=before))
        return use(self.counts(before=before))

    def left(self, version: int, start: RemainingBase, positions: Mapping[int, PartitionPosition]) -> RemainingBase:
        """Return what is left of a base model at these positions, and note it for others: the leading scheduler does.

        version: that the base model was published as.
        start: the documents that it was learned from.

        Raises CutGone if documents change faster than they can be read, StateCorrupt, ComponentUnreachable.
        """
        known = remaining_noted(self.connection, self._model.model, version, start)
        try:
            change = sum(self._change(start, known, partition, meta) for partition, meta in positions.items())
            documents = known.documents + change
        except CutGone:
            documents = self.counts(before=start.offsets, at=positions).documents
        found = RemainingBase.at(positions, documents)
        if found != known:
            self.connection.call("HSET", self._model.named("base"), "left", _NOTED.pack((version, found)))
        return found

    def _change(self, start: RemainingBase, known: RemainingBase, partition: int, meta: PartitionPosition) -> int:
        """Return by how many the base's documents of a partition have changed since a moment. Raises CutGone."""
        if partition not in known.places:
            raise CutGone(f"nothing is known of partition {partition}")
        keys = self._keys[partition]
        before = start.offsets.get(partition, 0)
        found = 0
        for _, change in read_changes(self.connection, keys, known.places[partition], meta.place):
            # One whose subjects change goes, and comes back under the offset that it had.
            found += sum(record_offset(record) < before for record in change.came)
            found -= sum(record_offset(record) < before for record in change.went)
        return found

    def _cuts(self, at: Mapping[int, PartitionPosition] | None) -> list[PartitionCut]:
        """Return the present cut, or that of these positions."""
        metas = self.positions() if at is None else at
        numbered = enumerate(self._keys)
        return [PartitionCut(p, keys, metas[p], metas[p].next_offset) for p, keys in numbered]

    def _followed(self, cuts: list[PartitionCut]) -> DocumentCounts:
        """Return counts of all documents at a cut: the last counts, or the statistics in Redis, and what came since."""
        for known in (self._carried, self._begun):
            with suppress(CutGone):
                places, totals = known(cuts)
                change = changed_documents(self.connection, self._table, places, cuts)
                wide = np.zeros((3, len(self._table)), np.int64)
                wide[:, : totals.shape[1]] = totals
                wide[:, change.numbers] += change.frequency, change.tokens, change.heavy
                return self._named(wide, sum(cut.meta.documents for cut in cuts), cuts)
        # The statistics in Redis are newer than the cut, or changes after them are gone: the documents tell them too.
        return self._counted(cuts)

    def _carried(self, _cuts: list[PartitionCut]) -> tuple[tuple[Place, ...], Int64]:
        """Return the moment of the last counts, and their statistics, (3, words of the table). Raises CutGone."""
        last = self._last
        if last is None:
            raise CutGone("there are no earlier counts")
        totals = np.zeros((3, len(self._table)), np.int64)
        totals[:, last.numbers] = last.frequency, last.tokens, last.heavy
        return last.places, totals

    def _begun(self, cuts: list[PartitionCut]) -> tuple[tuple[Place, ...], Int64]:
        """Return the moment of the word statistics in Redis, and their sums, (3, words of the table)."""
        known = [self._statistics(cut) for cut in cuts]
        totals = np.zeros((3, len(self._table)), np.int64)
        for cut, one in zip(cuts, known, strict=True):
            totals[:, self._table.numbers(cut.partition)[one.ids]] += one.totals
        return tuple(one.place for one in known), totals

    def _counted(self, cuts: list[PartitionCut]) -> DocumentCounts:
        """Return counts whose statistics are made of the documents themselves. Raises CutGone."""
        for cut in cuts:
            # Words that have come since the statistics, or since the cut.
            first = min(self._statistics(cut).place, cut.meta.place, key=lambda place: place.version)
            for _ in followed(self.connection, self._table, cut, first, read_position(self.connection, cut.keys).place):
                pass
        words = len(self._table)
        every = np.arange(words)
        nothing = np.zeros(words, np.int64)
        unknown = DocumentCounts(self.connection, self._table, (), every, nothing, nothing, nothing, 0, tuple(cuts))
        totals = np.zeros((3, words), np.int64)
        documents = 0
        for parts in unknown.buckets(every):
            for part in parts:
                batch = part.found.batch
                totals += np.stack(statistics(batch, words, np.ones(batch.documents, np.int64)))
                documents += batch.documents
        return self._named(totals, documents, cuts)

    def _named(self, totals: Int64, documents: int, cuts: list[PartitionCut]) -> DocumentCounts:
        """Return counts of these statistics, (3, words of the table). Raises NegativeCounts, StateCorrupt."""
        frequency, tokens, heavy = totals
        if (totals < 0).any() or ((frequency > 0) != (tokens > 0)).any() or documents < 0:
            raise NegativeCounts("a word count in Redis is not positive: run `streamtopic verify`, then `rebuild`")
        numbers, words = self._ordered(frequency > 0)
        of_words = frequency[numbers], tokens[numbers], heavy[numbers]
        counts = DocumentCounts(self.connection, self._table, words, numbers, *of_words, documents, tuple(cuts))
        expected = sum(cut.meta.documents for cut in cuts)
        if documents != expected and not counts.partial:
            raise StateCorrupt(
                f"Redis has {documents} documents, and its positions count {expected}: stop ingest and run "
                "`streamtopic rebuild`"
            )
        return counts

    def _ordered(self, held: Mask) -> tuple[Int64, Sequence[str]]:
        """Return the numbers of words in the order of the words, and the words.

        held: (words of the table,) whether documents hold a word.
        """
        table, last = self._table, self._last
        before = np.zeros(0, np.int64) if last is None else last.numbers
        born = held.copy()
        born[before] = False
        if last is not None and not born.any() and held[before].all():
            return before, last.words
        # Most words stay as they were. Python sorts what is nearly sorted in little time, where a sort of all words
        # would be longer than all else in a small update.
        numbers = table.ascending(np.concatenate([before[held[before]], np.flatnonzero(born)]))
        return numbers, [table.texts[number] for number in numbers.tolist()]

    def _statistics(self, cut: PartitionCut) -> WordStatistics:
        """Return the word statistics of a partition, and take up its words."""
        found = read_statistics(self.connection, cut.keys)
        self._table.learn(cut.partition, dict(zip(found.words, found.ids.tolist(), strict=True)))
        return found
