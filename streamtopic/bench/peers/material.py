"""Documents as counts, and the words that models are given."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from streamtopic.documents.corpus import Document
    from streamtopic.topics.display import WordEvidence

__all__ = ["Material", "halvings", "load_material"]

MIN_DF, MAX_DF = 5, 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """Counts (documents, words) over all words of the corpus, ascending; labels, one a document, or None."""

    words: tuple[str, ...]
    counts: csr_array
    labels: tuple[str, ...] | None

    @property
    def frequency(self) -> npt.NDArray[np.int64]:
        """Documents that hold each word, (words,)."""
        return np.bincount(self.counts.indices, minlength=len(self.words)).astype(np.int64)

    @property
    def everything(self) -> npt.NDArray[np.intp]:
        """The positions of all words, ascending."""
        return np.arange(len(self.words))

    def some(self, documents: npt.NDArray[np.intp]) -> Material:
        """Return these documents alone, over the same words."""
        labels = None if self.labels is None else tuple(self.labels[k] for k in documents.tolist())
        return Material(self.words, self.counts[documents], labels)

    def evidence(self, vocabulary: npt.NDArray[np.intp]) -> WordEvidence:
        """Return the evidence of these documents about some words, ascending, as our default learner counts pairs.

        Lengths of documents are of all words, so it is the same for every model that keeps the same words.
        """
        from streamtopic.counts import SymmetricCounts, count, narrowed
        from streamtopic.counts.matrices import as_documents
        from streamtopic.topics.display import WordEvidence
        from streamtopic.topics.learner_options import LearnerOptions

        batch, ids = as_documents(self.counts), np.full(len(self.words), -1, np.int32)
        ids[vocabulary] = np.arange(len(vocabulary))
        counts = count(narrowed(batch, ids), len(vocabulary), LearnerOptions().weighting)
        return WordEvidence.over(SymmetricCounts.of(counts), counts.frequency, counts.documents)

    def vocabulary(self) -> npt.NDArray[np.intp]:
        """Return the positions of the words that the others are given, neither rare, frequent nor stop words.

        As in our own rule, a word in at most 20 documents is not too frequent.
        """
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        told = np.array([word not in ENGLISH_STOP_WORDS for word in self.words])
        frequent = self.frequency > max(20, MAX_DF * self.counts.shape[0])
        return np.flatnonzero((self.frequency >= MIN_DF) & ~frequent & told)


def halvings(documents: int, times: int) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Yield halves of so many documents, ascending, and the same exchanged: 2 `times` pairs, the same in each run."""
    for seed in range(times):
        order = np.random.default_rng(seed).permutation(documents)
        one, other = np.sort(order[: documents // 2]), np.sort(order[documents // 2 :])
        yield one, other
        yield other, one


def load_material(documents: str) -> Material:
    """Read a JSONL file, or the docstrings of installed packages for "".

    labels: the first task's, if every document has one. Raises UsageError if nothing is left.
    """
    from streamtopic.documents.corpus import load_corpus

    corpus = load_corpus(documents)
    words, counts = _counted(corpus.documents)
    if not len(words):
        raise UsageError(f"{corpus.name} holds no words: give documents with text")
    return Material(words, counts, _labels(corpus.documents))


def _counted(documents: list[Document]) -> tuple[tuple[str, ...], csr_array]:
    from streamtopic.words.text import passages

    number: dict[str, int] = {}
    rows, columns = [], []
    for row, document in enumerate(documents):
        words_of_each = (held.elements() for _, held in passages(document.text))
        found = [number.setdefault(word, len(number)) for word in chain.from_iterable(words_of_each)]
        rows.append(np.full(len(found), row))
        columns.append(np.array(found, np.int64))
    place, column = np.concatenate(rows), np.concatenate(columns)
    words = sorted(number)
    order = np.empty(len(words), np.int64)
    order[[number[word] for word in words]] = np.arange(len(words))
    counts = csr_array((np.ones(len(place)), (place, order[column])), shape=(len(documents), len(words)))
    counts.sum_duplicates()
    return tuple(words), counts


def _labels(documents: list[Document]) -> tuple[str, ...] | None:
    tasks = {task for document in documents for task in document.labels}
    task = min(tasks, default=None)
    if task is None or not all(task in document.labels for document in documents):
        return None
    return tuple(document.labels[task] for document in documents)
