"""The cost of an update through the service's state: counts in a real Redis, the change read from two snapshots."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts import Counts
from streamtopic.lab.bench.figures import Figure
from streamtopic.lab.bench.forgetting import Point, clocked, learned, tried
from streamtopic.state import (
    MAX_FLUSH_DOCUMENTS,
    AddedDocument,
    Applied,
    Changes,
    Compactor,
    PartitionWriter,
    Reader,
    RemovedDocument,
    Rows,
    RowSpan,
    compact,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from streamtopic.counts import SignedPassages
    from streamtopic.lab.bench.material import Material
    from streamtopic.state import Connection, Snapshot
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions
    from streamtopic.topics.update import NeedsRetrain, Updated

__all__ = ["Stored"]


@dataclass
class Stored:
    """Documents of a `Material` in one partition.

    held: how many of them are stored; these are the first ones.
    offset: offset of the next record.
    """

    material: Material
    connection: Connection
    options: LearnerOptions
    held: int = 0
    offset: int = 0
    reading: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        weighting = self.options.weighting
        self.state = PartitionWriter.open(self.connection, "bench", 0, partitions=1, weighting=weighting)
        self.compactor = Compactor(self.state)
        self.reader = Reader(self.connection, "bench", 1)
        self.entries = self.state.lexicon.number([name.encode() for name in self.material.names])

    def grow(self, size: int) -> None:
        """Count documents until the first `size` are stored, and merge their segments."""
        step = min(MAX_FLUSH_DOCUMENTS, 2_000)
        for first in range(self.held, size, step):
            self.add(np.arange(first, min(first + step, size)))
            while self.compactor.step(None):
                pass
        self.held = size
        self.state.reload()
        compact(self.state, everything=True, grace=1.0)

    def add(self, documents: npt.NDArray[np.intp]) -> None:
        """Count documents, ascending."""
        first, stop = int(documents[0]), int(documents[-1]) + 1
        batch = self.material.batch.span(first, stop).take(documents - first)
        starts, stops = batch.indptr[:-1], batch.indptr[1:]
        rows = Rows(batch.lengths, starts, stops, self.entries[batch.words], batch.counts)
        added = [
            AddedDocument(b"d-%08d" % document, self.offset + k, RowSpan(rows, k, k + 1))
            for k, document in enumerate(documents.tolist())
        ]
        self._commit(Changes(self.offset + len(added), added=added))

    def remove(self, documents: npt.NDArray[np.intp]) -> None:
        """Take documents out again."""
        stored = self.state.documents([b"d-%08d" % document for document in documents.tolist()])
        removed = [RemovedDocument(name, document) for name, document in stored.items()]
        self._commit(Changes(self.offset + len(removed), removed=removed))

    def _commit(self, changes: Changes) -> None:
        outcome = self.state.commit(self.state.plan(changes))
        assert isinstance(outcome, Applied), outcome  # noqa: S101  there is no other writer
        self.offset = changes.next_offset

    def forgotten(self, gone: Sequence[npt.NDArray[np.intp]]) -> tuple[Point, list[Figure]]:
        """Forget each set and store it again; return the costs of updates and the seconds of reading."""
        before = self.reader.snapshot()
        fit, retrain = learned(before, self.options)
        point = Point(retrain, fit.q.entries)
        self.reading = []
        for documents in gone:
            self.remove(documents)
            tried(point, partial(self._update, point, copy.deepcopy(fit), before))
            self.add(documents)
            before = self.reader.snapshot()
        figures = [
            Figure("of it snapshot and delta", float(np.median(self.reading)), "CPU s"),
            Figure("Redis memory", int(self.connection.information()["used_memory"]) / 1e6, "MB"),
        ]
        return point, figures

    def _update(self, point: Point, fit: TopicFit, before: Snapshot) -> Updated | NeedsRetrain:
        from streamtopic.topics.update import update

        cost, (now, delta, passages) = clocked(lambda: self._change(before))
        self.reading.append(cost.cpu)
        point.pairs.append(len(delta.cooccurrence.values))
        return update(fit, now, delta, passages)

    def _change(self, before: Snapshot) -> tuple[Snapshot, Counts, SignedPassages | None]:
        """Return the counts now, and the whole change since, read once."""
        now = self.reader.snapshot()
        delta = now.since(before)
        return now, Counts(delta.words, delta.restrict(np.arange(len(delta.words)))), delta.passages()
