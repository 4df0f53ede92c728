"""Downstream tasks of a service: their labelled documents, and a head for each from what is published.

Where topics are published, a head is fitted from zero on the noised A and the labelled documents that are left: the
paper's naive setting (theorem 2), post-processing, so it costs no epsilon and needs no bound. Where they are withheld:
`streamtopic.service.withheld`. Labels ride on documents, so a deleted document is in neither.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streamtopic.counts import DocumentBatch
from streamtopic.errors import CannotLearn
from streamtopic.release import Head
from streamtopic.state import Connection, Snapshot
from streamtopic.state.documents import read_documents
from streamtopic.topics.heads import TopicHead, fit_head
from streamtopic.topics.tasks import HeadTask, LabelledDocuments, TopicMatrix

__all__ = [
    "Labelled",
    "TaskData",
    "TaskOptions",
    "head_of",
    "labelled_by_task",
    "labelled_digest",
    "published_heads",
    "read_labelled",
]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What is asked of heads. tasks: by name, which label a document must have; withheld: heads go out without A."""

    tasks: Mapping[str, HeadTask] = field(default_factory=dict)
    withheld: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """The labelled documents of each task, in the order of their ids; a document may be of several tasks.

    whole: whether none was deleted between the cut of a version and this reading. Such a document is in no head.
    """

    by_task: Mapping[str, LabelledDocuments] = field(default_factory=dict)
    whole: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class TaskData:
    """What heads of a version are made of, besides its model.

    before: heads of the last version where topics are withheld, to start from; cold: whether the model was learned from
    counts, so that it is the same bits on every path.
    """

    options: TaskOptions = field(default_factory=TaskOptions)
    labelled: Labelled = field(default_factory=Labelled)
    before: Mapping[str, TopicHead] = field(default_factory=dict)
    cold: bool = True


def read_labelled(connection: Connection, snapshot: Snapshot, words: Sequence[str], options: TaskOptions) -> Labelled:
    """Read a snapshot's labelled documents, over `words`: a function of the documents that are left.

    Raises StateCorrupt, ComponentUnreachable.
    """
    if not options.tasks:
        return Labelled()
    stored = read_documents(connection, snapshot, words, labelled=options.tasks)
    return Labelled(labelled_by_task(stored.batch, stored.labels, words, options), stored.whole)


def labelled_by_task(
    batch: DocumentBatch, labels: Sequence[Mapping[str, str]], words: Sequence[str], options: TaskOptions
) -> dict[str, LabelledDocuments]:
    """Part documents by task. batch: over `words`, in the order of document ids; labels: task to class, of each."""
    counts = LabelledDocuments.of(batch, words, [""] * batch.documents).counts
    found = {}
    for task in options.tasks:
        rows = np.array([row for row, classes in enumerate(labels) if task in classes], np.intp)
        found[task] = LabelledDocuments(tuple(words), counts[rows], tuple(labels[row][task] for row in rows))
    return found


def labelled_digest(counted: str, data: TaskData) -> str:
    """Return a hex digest of all that a release of heads is a function of.

    counted: digest of the retained counts and settings. Which document has which label is not in the counts, and the
    noise of two different heads must not be the same.
    """
    state = hashlib.sha256(b"streamtopic heads 1\0" + counted.encode())
    for task in sorted(data.options.tasks):
        documents = data.labelled.by_task[task]
        for text in (task, repr(data.options.tasks[task]), *documents.labels):
            state.update(hashlib.sha256(text.encode()).digest())
        for array in (documents.counts.indptr, documents.counts.indices, documents.counts.data):
            state.update(np.asarray(array).astype("<i8").tobytes() + b"\0")
    return state.hexdigest()


def published_heads(
    A: npt.NDArray[np.float32], words: tuple[str, ...], anchors: tuple[str, ...], data: TaskData
) -> tuple[dict[str, Head], dict[str, str]]:
    """Fit a head for each task on A (n, r) as published; also tasks without one, and why.

    From zero, so the same bits whatever was learned before: a function of A and the labelled documents alone.
    """
    model = TopicMatrix(A.astype(np.float64), words, anchors)
    heads, unfitted = {}, {}
    for name, task in data.options.tasks.items():
        documents = data.labelled.by_task[name]
        try:
            heads[name] = head_of(fit_head(model, documents, task), documents)
        except CannotLearn as error:
            unfitted[name] = str(error)
    return heads, unfitted


def head_of(fitted: TopicHead, data: LabelledDocuments, B: npt.NDArray[np.float64] | None = None) -> Head:
    """Return a head as a release carries it: with its w, or with B, noised, in place of it."""
    w = fitted.w if B is None else None
    return Head(fitted.topics, fitted.classes, len(data), w, None if B is None else B.astype(np.float32))
