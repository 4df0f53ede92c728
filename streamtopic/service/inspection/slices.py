"""Topics over time and by class in a service: one pass over the documents that are stored now.

Nothing is kept for it: a slice is counted when it is asked for, so a document that was deleted is in none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from streamtopic.counts import DocumentBatch
from streamtopic.documents.events import DAY
from streamtopic.errors import UsageError
from streamtopic.signed import Release
from streamtopic.state import DocumentCounts, Reader
from streamtopic.state.documents import document_parts
from streamtopic.topics.over_time import ShareEstimator, SliceKeys, SliceReport, SliceSums, Unit, periods

__all__ = ["SliceView", "read_slices", "slice_sums"]

_NO_DAY = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class SliceView:
    """How documents are sliced.

    unit: length of a period, None for slices of classes alone.
    task: the label whose classes make slices, None for periods alone.
    """

    unit: Unit | None
    task: str | None

    def keys(self, labels: Sequence[Mapping[str, str]]) -> SliceKeys:
        """Return the slice of each document. labels: of each document, with its day."""
        times = classes = None
        if self.unit is not None:
            days = [int(of_one[DAY]) if DAY in of_one else _NO_DAY for of_one in labels]
            times = periods(np.array(days, np.int64), self.unit)
        if self.task is not None:
            classes = [of_one.get(self.task, "") for of_one in labels]
        return SliceKeys.made(times, classes)


def read_slices(reader: Reader, release: Release, view: SliceView, top: int) -> SliceReport:
    """Return the slices of all documents that are stored now, through a version.

    top: words of a topic in a slice.

    Raises UsageError if no document has the time or class asked for, or the version's topics cannot be told apart,
    InvalidRelease if the version withholds its topics, StateCorrupt, ComponentUnreachable.
    """
    estimator = ShareEstimator.of(np.ascontiguousarray(release.A), release.shares)
    keys, sums = reader.read(lambda counts: slice_sums(counts, release.words, estimator, view))
    if not keys.times:
        _refuse(view)
    found = estimator.slices(keys, sums, top=top)
    return SliceReport(release.version, release.words, view.unit, view.task, found)


def slice_sums(
    counts: DocumentCounts, words: Sequence[str], estimator: ShareEstimator, view: SliceView
) -> tuple[SliceKeys, SliceSums]:
    """Return the slices of the documents that are counted, and the sums over them.

    words: of the estimator's model. The bits depend on the documents alone, and not on the service's history.

    Raises CutGone, StateCorrupt, ComponentUnreachable.
    """
    keys = []
    sums = []
    for batch, labels in document_parts(counts, words):
        here = view.keys(labels)
        keys.append(here)
        sums.append(estimator.sums(_matrix(batch, len(words)), here.of, len(here.times)))
    joined, places = SliceKeys.joined(keys)
    return joined, SliceSums.gathered(sums, places, len(joined.times))


def _matrix(batch: DocumentBatch, words: int) -> csr_array:
    """Return the counts of the documents of a batch, (documents, words): the passages of a document in one row."""
    rows = np.searchsorted(batch.owners, np.arange(batch.documents + 1))
    parts = (batch.counts.astype(np.int64), batch.words, batch.indptr[rows])
    made = csr_array(parts, shape=(batch.documents, words))
    made.sum_duplicates()
    return made


def _refuse(view: SliceView) -> None:
    """Raise UsageError: no document is in a slice."""
    if view.unit is not None:
        raise UsageError(
            "no document has a day"
            + ("" if view.task is None else f" and a label {view.task!r}")
            + ": set keep_days = true before the model is created or rebuilt, and send documents with `ts`"
        )
    raise UsageError(f"no document has a label {view.task!r}: send documents with `labels`")
