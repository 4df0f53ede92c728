"""Reading a model while its writers work: positions, deletions that wait, and the counts of all partitions."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, compress
from typing import TypeVar

import numpy as np

from streamtopic.counts import statistics
from streamtopic.counts.arrays import Int64, Mask
from streamtopic.errors import NegativeCounts, StateCorrupt
from streamtopic.state.change_log import CutGone, read_statistics
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forgets
from streamtopic.state.document_counts import DocumentCounts, PartitionCut, WordTable, changed_documents, followed
from streamtopic.state.document_records import decode_records
from streamtopic.state.flush import by_bucket
from streamtopic.state.meta import Meta, read_meta, require_keys
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.word_ids import word_text

__all__ = ["Reader"]

T = TypeVar("T")
_ATTEMPTS = 5
# New words are sorted in among the known ones, as long as there are so many times as many of those.
_FEW = 8


class Reader:
    """Reads a model's documents and counts while its writers work, without disturbing them.

    partitions: number of partitions of the model.
    """

    def __init__(self, connection: Connection, model: str, partitions: int) -> None:
        self.connection = connection
        self._keys = [ModelKeys(model).partition(p) for p in range(partitions)]
        self._table = WordTable(partitions)
        self._last: DocumentCounts | None = None

    def positions(self) -> dict[int, Meta]:
        """Return the meta of each partition, without its counts. Raises StateMismatch if there is no state."""
        return {partition: self.position(partition) for partition in range(len(self._keys))}

    def position(self, partition: int) -> Meta:
        """Return the meta of one partition. Raises as `positions`."""
        return read_meta(self.connection, self._keys[partition])

    def forgets(self, partition: int) -> Forgets:
        """Return the deletions of a partition that wait for their receipts."""
        return Forgets(self.connection, self._keys[partition])

    def added_at(self, partition: int, documents: Sequence[bytes]) -> dict[bytes, int]:
        """Return the offset of the add of each of these documents that is live in a partition.

        Raises StateCorrupt if Redis has lost keys of it: a document that is lost would look deleted.
        """
        keys = self._keys[partition]
        buckets = by_bucket(documents, keys)
        found = self.connection.batch([("HMGET", keys.documents(bucket), *ids) for bucket, ids in buckets.items()])
        require_keys(self.connection, keys)
        pairs = zip(chain.from_iterable(buckets.values()), chain.from_iterable(found), strict=True)
        live = {document: record for document, record in pairs if record is not None}
        return {document: one.offset for document, one in zip(live, decode_records(list(live.values())), strict=True)}

    def counts(
        self, *, before: Mapping[int, int] | None = None, at: Mapping[int, Meta] | None = None
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

    def _cuts(self, at: Mapping[int, Meta] | None) -> list[PartitionCut]:
        """Return the present cut, or that of these positions."""
        metas = self.positions() if at is None else at
        numbered = enumerate(self._keys)
        return [PartitionCut(p, keys, metas[p], metas[p].next_offset) for p, keys in numbered]

    def _followed(self, cuts: list[PartitionCut]) -> DocumentCounts:
        """Return counts of all documents at a cut, from what is known of an earlier one."""
        for known in (self._carried, self._begun):
            with suppress(CutGone):
                return known(cuts)
        # The statistics in Redis are newer than the cut, or changes after them are gone: the documents tell them too.
        return self._counted(cuts)

    def _carried(self, cuts: list[PartitionCut]) -> DocumentCounts:
        """Return the last counts with the changes since then. Raises CutGone if these are not all known."""
        last = self._last
        if last is None:
            raise CutGone("there are no earlier counts")
        change = changed_documents(self.connection, self._table, last.places, cuts)
        totals = np.zeros((3, len(self._table)), np.int64)
        totals[:, last.numbers] = last.frequency, last.tokens, last.heavy
        totals[:, change.numbers] += change.frequency, change.tokens, change.heavy
        counts = self._named(totals, last.documents + change.documents, cuts)
        # An update of the last model asks for the same changes: they are read and decoded once.
        return replace(counts, _carried={last.places: change})

    def _begun(self, cuts: list[PartitionCut]) -> DocumentCounts:
        """Return counts of the word statistics in Redis and of the changes since they were written. Raises CutGone."""
        known = [read_statistics(self.connection, keys) for keys in self._keys]
        for cut in cuts:
            self._learn(cut)
        change = changed_documents(self.connection, self._table, [one.place for one in known], cuts)
        totals = np.zeros((3, len(self._table)), np.int64)
        for cut, one in zip(cuts, known, strict=True):
            held = np.flatnonzero(one.totals[0])
            numbers = self._table.numbers(cut.partition)
            if len(held) and (held[-1] >= len(numbers) or (numbers[held] < 0).any()):
                raise StateCorrupt(f"partition {cut.partition} counts a word without a name: run `streamtopic rebuild`")
            # A partition may have two ids of one word, of which one has gone since.
            for total, part in zip(totals, one.totals, strict=True):
                np.add.at(total, numbers[held], part[held])
        totals[:, change.numbers] += change.frequency, change.tokens, change.heavy
        return self._named(totals, sum(cut.meta.documents for cut in cuts), cuts)

    def _counted(self, cuts: list[PartitionCut]) -> DocumentCounts:
        """Return counts whose statistics are made of the documents themselves. Raises CutGone."""
        for cut in cuts:
            self._learn(cut)
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
        fresh = held.copy()
        if last is not None:
            fresh[last.numbers] = False
        born = np.flatnonzero(fresh)
        if last is None or _FEW * len(born) > len(last.numbers):
            numbers = table.ascending(np.flatnonzero(held))
            return numbers, [table.texts[number] for number in numbers.tolist()]
        # Most words stay as they were, and sorting all of them would take longer than all else in a small update.
        numbers, words = last.numbers, last.words
        stays = held[numbers]
        if not stays.all():
            numbers, words = numbers[stays], list(compress(words, stays.tolist()))
        born = table.ascending(born)
        places = [bisect_left(words, table.texts[number]) for number in born.tolist()]
        joined, before = list[str](), 0
        for place, number in zip(places, born.tolist(), strict=True):
            joined += words[before:place]
            joined.append(table.texts[number])
            before = place
        return np.insert(numbers, places, born), joined + list(words[before:]) if places else words

    def _learn(self, cut: PartitionCut) -> None:
        """Take up the words of a partition at a cut: those that are there, and those that have gone since."""
        scanned = self.connection.scan(cut.keys.words)
        self._table.learn(cut.partition, {word_text(word): int(number) for word, number in scanned})
        now = read_meta(self.connection, cut.keys)
        for _ in followed(self.connection, self._table, cut, cut.meta.place, now.place):
            pass
