"""A downstream task: which topics, which labelled documents, how the head is fitted.

Source: the paper, section "Downstream Adaptation" (topic classification task, tau-head tuning). Topics are declared by
their anchor word, since their positions change at a retrain; labels ride on documents, so a document that is deleted
is deleted from the task as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamtopic.counts import DocumentBatch
from streamtopic.errors import CannotLearn, UsageError

__all__ = ["HeadTask", "LabelledDocuments", "TopicMatrix"]

Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

# A class costs a fit of its own and a column of B; anybody who may add documents may add classes.
MOST_CLASSES = 500


@dataclass(frozen=True, slots=True)
class HeadTask:
    """How a head is fitted.

    topics: anchor words of the topics that the task depends on; empty for all.
    ridge: lambda, the strong convexity of the loss.
    tolerance: ||grad|| / lambda that a head must reach, an upper bound on its distance to the optimum.
    tau: the loss above the optimum that is allowed, in place of `tolerance` where it allows more.

    Features A^T x are about 1e-3, so a ridge much above their squares hides them; weights are about 1e4.
    """

    topics: tuple[str, ...] = ()
    ridge: float = 1e-9
    tolerance: float = 1e-4
    tau: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("ridge", self.ridge), ("tolerance", self.tolerance)):
            if not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{name} is {value}: use a number above 0")
        if not (self.tau >= 0 and math.isfinite(self.tau)):
            raise UsageError(f"tau is {self.tau}: use 0 for exact heads, or the loss that may be left")
        if len(set(self.topics)) < len(self.topics):
            raise UsageError(f"a topic is declared twice among {', '.join(self.topics)}: name each anchor word once")

    @property
    def distance(self) -> float:
        """Bound on ||w - w*||_F of a head that stops when it may: sqrt(2 tau / lambda), or the tolerance."""
        return max(self.tolerance, math.sqrt(2 * self.tau / self.ridge))


@dataclass(frozen=True, slots=True, eq=False)
class TopicMatrix:
    """A topic model as a task sees it.

    A: (n, r) columns on the simplex.
    words: (n,) the words of its rows.
    anchors: (r,) one anchor word a topic.

    A is exact (`TopicFit.A`) where A is withheld; as released where it is published, and then a head fitted on it is
    post-processing (the paper's naive setting, theorem 2).
    """

    A: Float
    words: tuple[str, ...]
    anchors: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.A.shape != (len(self.words), len(self.anchors)):
            raise UsageError(f"A is {self.A.shape} for {len(self.words)} words and {len(self.anchors)} anchors")
        if not np.isfinite(self.A).all():
            raise UsageError("A holds numbers that are not finite: fit the model again")

    def positions(self, task: HeadTask) -> Positions:
        """Return the columns of the task's topics, (k,), in the order declared.

        Raises CannotLearn where an anchor word of the task is not an anchor of this model.
        """
        place = {anchor: k for k, anchor in enumerate(self.anchors)}
        lost = [topic for topic in task.topics if topic not in place]
        if lost:
            raise CannotLearn(
                "task topics",
                f"the task depends on topics that are gone, with anchor words {', '.join(lost)}: declare others among "
                f"{', '.join(self.anchors[:10])}{' ...' if len(self.anchors) > 10 else ''}",
            )
        return np.array([place[topic] for topic in task.topics or self.anchors], np.intp)

    def columns(self, task: HeadTask) -> Float:
        """Return the task's columns of A, (n, k)."""
        return np.ascontiguousarray(self.A[:, self.positions(task)], np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class LabelledDocuments:
    """Documents with a class each: counts (documents, len(words)) over `words`, labels (documents,).

    A model keeps some of these words only, others after a deletion; `frequencies` looks at those it keeps.
    """

    words: tuple[str, ...]
    counts: csr_array
    labels: tuple[str, ...]

    @classmethod
    def of(cls, batch: DocumentBatch, words: Sequence[str], labels: Sequence[str]) -> "LabelledDocuments":
        """Passages of one document are added up. Raises UsageError unless there is one label a document."""
        if len(labels) != batch.documents:
            raise UsageError(f"{len(labels)} labels for {batch.documents} documents: give one each")
        owners = np.repeat(batch.owners, np.diff(batch.indptr))
        entries = (batch.counts.astype(np.float64), (owners, batch.words))
        counts = csr_array(entries, shape=(batch.documents, len(words)))
        counts.sum_duplicates()
        return cls(tuple(words), counts, tuple(labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that a document still has, ascending, (C,): a class without one leaves no trace."""
        return tuple(sorted(set(self.labels)))

    @property
    def membership(self) -> npt.NDArray[np.bool_]:
        """Which documents are of which class, (documents, C)."""
        place = {name: c for c, name in enumerate(self.classes)}
        of = np.array([place[label] for label in self.labels], np.intp)
        return np.asarray(of[:, None] == np.arange(len(place)))

    def take(self, documents: Positions) -> "LabelledDocuments":
        """Return these documents, in the order given."""
        return LabelledDocuments(self.words, self.counts[documents], tuple(self.labels[k] for k in documents))

    def without(self, forgotten: npt.ArrayLike) -> "LabelledDocuments":
        """Return all documents but those at these positions."""
        return self.take(np.setdiff1d(np.arange(len(self)), np.asarray(forgotten, np.intp)))

    def over(self, words: Sequence[str]) -> "LabelledDocuments":
        """Return the same documents over other words: counts of those that are among its own, 0 for the rest."""
        if self.words == tuple(words):
            return self
        place = {word: k for k, word in enumerate(words)}
        ids = np.array([place.get(word, -1) for word in self.words], np.intp)
        kept = np.flatnonzero(ids >= 0)
        some = self.counts[:, kept].tocoo()
        rows, columns = some.coords
        counts = csr_array((some.data, (rows, ids[kept][columns])), shape=(len(self), len(words)))
        counts.sort_indices()
        return LabelledDocuments(tuple(words), counts, self.labels)

    def frequencies(self, words: Sequence[str]) -> csr_array:
        """Return x (documents, len(words)): shares of these words in a document, rows summing to 1, or 0 with none.

        Raises CannotLearn unless there are 2 to 500 classes and some document holds one of the words.
        """
        if len(self.classes) > MOST_CLASSES:
            raise CannotLearn(
                "classes",
                f"there are {len(self.classes)} classes, more than {MOST_CLASSES}: is the label one of a kind for each "
                "document? take a coarser one",
            )
        if len(self.classes) < 2:
            left = f"only {self.classes[0]!r} is" if self.labels else "no labelled document is"
            raise CannotLearn("classes", f"{left} left, and a head tells classes apart: label documents of two classes")
        counts = self.over(words).counts.tocoo()
        rows, columns = counts.coords
        totals = np.bincount(rows, counts.data, len(self))
        if not totals.any():
            raise CannotLearn("words", "no labelled document holds a word of the model: label documents of its kind")
        return csr_array((counts.data / totals[rows], (rows, columns)), shape=counts.shape)
