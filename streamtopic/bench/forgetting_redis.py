"""The cost of an update through the service's state: documents in a real Redis, and the changes since."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure
from streamtopic.bench.forgetting import Point, clocked, learned, tried
from streamtopic.counts import Counts
from streamtopic.state import (
    MAX_FLUSH_DOCUMENTS,
    AddedDocuments,
    Applied,
    Changes,
    ModelSettings,
    PartitionWriter,
    Reader,
    Rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from streamtopic.bench.material import Material
    from streamtopic.state import Connection, DocumentCounts
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions
    from streamtopic.topics.update import NeedsRetrain, Updated

__all__ = ["Stored"]

# As the setting `residue_max_age` has it.
_RESIDUE_SECONDS = 86_400.0


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
        self.state = PartitionWriter.open(self.connection, "bench", 0, ModelSettings(1, self.options.weighting.cap))
        self.reader = Reader(self.connection, "bench", 1)
        self.entries = self.state.lexicon.number([name.encode() for name in self.material.names])

    def grow(self, size: int) -> None:
        """Count documents until the first `size` are stored, and sum their changes up."""
        step = min(MAX_FLUSH_DOCUMENTS, 2_000)
        for first in range(self.held, size, step):
            self.add(np.arange(first, min(first + step, size)))
            self.state.keep_summed(_RESIDUE_SECONDS)
        self.held = size
        self.state.sum_changes()

    def add(self, documents: npt.NDArray[np.intp]) -> None:
        """Count documents, ascending."""
        batch = self.material.batch.take(documents)
        starts, stops = batch.indptr[:-1], batch.indptr[1:]
        rows = Rows(batch.lengths, starts, stops, self.entries[batch.words], batch.counts)
        number = len(documents)
        added = AddedDocuments(
            ids=[b"d-%08d" % document for document in documents.tolist()],
            offsets=self.offset + np.arange(number),
            rows=rows,
            firsts=np.arange(number),
            stops=np.arange(1, number + 1),
            labels=[{}] * number,
            subjects=[()] * number,
        )
        self._commit(Changes(self.offset + number, added))

    def remove(self, documents: npt.NDArray[np.intp]) -> None:
        """Take documents out again."""
        stored = self.state.documents([b"d-%08d" % document for document in documents.tolist()])
        self._commit(Changes(self.offset + len(stored), removed=stored))

    def _commit(self, changes: Changes) -> None:
        outcome = self.state.commit(self.state.plan(changes))
        assert isinstance(outcome, Applied), outcome  # noqa: S101  there is no other writer
        self.offset = changes.next_offset

    def forgotten(self, gone: Sequence[npt.NDArray[np.intp]]) -> tuple[Point, list[Figure]]:
        """Forget each set and store it again; return the costs of updates and the seconds of reading."""
        before = self.reader.counts()
        fit, retrain = learned(before, self.options)
        point = Point(retrain, fit.q.entries)
        self.reading = []
        for documents in gone:
            self.remove(documents)
            tried(point, partial(self._update, point, fit, before))
            self.add(documents)
            before = self.reader.counts()
        figures = [
            Figure("of it reading the change", float(np.median(self.reading)), "CPU s"),
            Figure("Redis memory", int(self.connection.information()["used_memory"]) / 1e6, "MB"),
        ]
        return point, figures

    def _update(self, point: Point, fit: TopicFit, before: DocumentCounts) -> Updated | NeedsRetrain:
        from streamtopic.topics.update import update

        cost, (now, change) = clocked(lambda: self._change(before))
        self.reading.append(cost.cpu)
        point.pairs.append(len(change.cooccurrence.values))
        return update(fit, now, change)

    def _change(self, before: DocumentCounts) -> tuple[DocumentCounts, Counts]:
        """Return the counts now, and the whole change since, counted once."""
        now = self.reader.counts()
        change = now.since(before)
        return now, Counts(change.words, change.restrict(np.arange(len(change.words))))
