"""A downstream task: its topics, its labelled documents, and how the head is fitted.

Source: the paper, section "Downstream Adaptation" (topic classification task, tau-head tuning). Topics are declared by
their anchor word, since their positions change at a retrain. A label is a part of its document, so a document that is
deleted is deleted from the task as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamtopic.counts import DocumentBatch
from streamtopic.counts.arrays import Float, Mask, Positions
from streamtopic.errors import CannotLearn, UsageError

__all__ = ["HeadTask", "LabelledDocuments", "TopicMatrix"]


# A class costs a fit of its own and a column of B, and whoever may add documents may add classes.
MOST_CLASSES = 500


@dataclass(frozen=True, slots=True)
class HeadTask:
    """How a head is fitted.

    topics: anchor words of the topics that the task depends on; empty for all.
    ridge: lambda, the strong convexity of the loss.
    tolerance: ||grad|| / lambda that a head must reach, an upper bound on its distance to the optimum.
    tau: the loss above the optimum that is allowed; it counts in place of `tolerance` where it allows more.

    Features A^T x are about 1e-3, so a ridge much above their squares hides them. Weights are about 1e4.
    Raises UsageError for numbers that are not possible.
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
            raise UsageError(f"tau is {self.tau}: use 0 for exact heads, or a number above 0 for the loss to allow")
        if len(set(self.topics)) < len(self.topics):
            raise UsageError(f"a topic is declared twice among {', '.join(self.topics)}: name each anchor word once")

    @property
    def distance(self) -> float:
        """Bound on ||w - w*||_F at which a head may stop: sqrt(2 tau / lambda), or the tolerance."""
        by_loss = math.sqrt(2 * self.tau / self.ridge)
        return max(self.tolerance, by_loss)


@dataclass(frozen=True, slots=True, eq=False)
class TopicMatrix:
    """A topic model as a task sees it.

    A: (n, r) columns on the simplex.
    words: (n,) the words of its rows.
    anchors: (r,) one anchor word a topic.

    Where A is withheld, this is the exact one (`TopicFit.A`). Where A is published, it is the one that was released: a
    head fitted on it is post-processing (the paper's naive setting, theorem 2).
    Raises UsageError where the shapes do not fit or A holds numbers that are not finite.
    """

    A: Float
    words: tuple[str, ...]
    anchors: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.A.shape != (len(self.words), len(self.anchors)):
            raise UsageError(
                f"A is {self.A.shape} for {len(self.words)} words and {len(self.anchors)} anchors: "
                "give one row for each word and one column for each anchor"
            )
        if not np.isfinite(self.A).all():
            raise UsageError("A holds numbers that are not finite: fit the model again")

    def positions(self, task: HeadTask) -> Positions:
        """Return the columns of the task's topics, (k,), in the order declared.

        Raises CannotLearn where an anchor word of the task is not an anchor of this model.
        """
        place = {anchor: k for k, anchor in enumerate(self.anchors)}
        lost = [topic for topic in task.topics if topic not in place]
        if lost:
            there = ", ".join(self.anchors[:10])
            if len(self.anchors) > 10:
                there += " ..."
            raise CannotLearn(
                "task topics",
                f"the task depends on topics that are gone, with anchor words {', '.join(lost)}: "
                f"declare others among {there}",
            )
        declared = task.topics or self.anchors
        return np.array([place[topic] for topic in declared], np.intp)

    def columns(self, task: HeadTask) -> Float:
        """Return the task's columns of A, (n, k). Raises CannotLearn as `positions`."""
        return np.ascontiguousarray(self.A[:, self.positions(task)], np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class LabelledDocuments:
    """Documents with a class each.

    words: (n,) the words that are counted.
    counts: (documents, n) of each word in each document.
    labels: (documents,) the class of each document.
    A model keeps some of these words only, and other ones after a deletion. `frequencies` looks at those that it keeps.
    """

    words: tuple[str, ...]
    counts: csr_array
    labels: tuple[str, ...]

    @classmethod
    def of(cls, batch: DocumentBatch, words: Sequence[str], labels: Sequence[str]) -> "LabelledDocuments":
        """Take documents over some words. Raises UsageError unless there is one label for each document."""
        if len(labels) != batch.documents:
            raise UsageError(f"{len(labels)} labels for {batch.documents} documents: give one label for each document")
        owners = np.repeat(batch.owners, np.diff(batch.indptr))
        entries = (batch.counts.astype(np.float64), (owners, batch.words))
        counts = csr_array(entries, shape=(batch.documents, len(words)))
        # A task looks at whole documents: their passages are added up.
        counts.sum_duplicates()
        return cls(tuple(words), counts, tuple(labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the documents, ascending, (C,). A class whose last document is gone leaves no trace."""
        return tuple(sorted(set(self.labels)))

    @property
    def membership(self) -> Mask:
        """Whether a document is of a class, (documents, C)."""
        place = {name: c for c, name in enumerate(self.classes)}
        classes = np.array([place[label] for label in self.labels], np.intp)
        return np.asarray(classes[:, None] == np.arange(len(place)))

    def take(self, documents: Positions) -> "LabelledDocuments":
        """Return the documents at these positions, in the order given."""
        labels = tuple(self.labels[k] for k in documents)
        return LabelledDocuments(self.words, self.counts[documents], labels)

    def without(self, forgotten: npt.ArrayLike) -> "LabelledDocuments":
        """Return all documents but those at these positions."""
        gone = np.asarray(forgotten, np.intp)
        return self.take(np.setdiff1d(np.arange(len(self)), gone))

    def over(self, words: Sequence[str]) -> "LabelledDocuments":
        """Return the same documents over other words. A word that was not counted has 0."""
        if self.words == tuple(words):
            return self
        place = {word: k for k, word in enumerate(words)}
        ids = np.array([place.get(word, -1) for word in self.words], np.intp)
        kept = np.flatnonzero(ids >= 0)
        some = self.counts[:, kept].tocoo()
        rows, columns = some.coords
        new_columns = ids[kept][columns]
        counts = csr_array((some.data, (rows, new_columns)), shape=(len(self), len(words)))
        # In a fixed order, since sums over a row go in the order of its entries.
        counts.sort_indices()
        return LabelledDocuments(tuple(words), counts, self.labels)

    def frequencies(self, words: Sequence[str]) -> csr_array:
        """Return x (documents, len(words)): the shares of some words in each document.

        Rows sum to 1, or to 0 for a document without one of the words.
        Raises CannotLearn unless there are 2 to 500 classes and some document holds one of the words.
        """
        classes = self.classes
        if len(classes) > MOST_CLASSES:
            raise CannotLearn(
                "classes",
                f"there are {len(classes)} classes, more than {MOST_CLASSES}: if each document has a label of its own, "
                "take a coarser label",
            )
        if len(classes) < 2:
            left = f"only {classes[0]!r} is" if classes else "no labelled document is"
            raise CannotLearn("classes", f"{left} left, and a head tells classes apart: label documents of two classes")
        counts = self.over(words).counts.tocoo()
        rows, columns = counts.coords
        totals = np.bincount(rows, counts.data, len(self))
        if not totals.any():
            raise CannotLearn("words", "no labelled document holds a word of the model: label documents of its kind")
        return csr_array((counts.data / totals[rows], (rows, columns)), shape=counts.shape)
