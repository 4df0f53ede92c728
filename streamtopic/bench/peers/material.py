"""Documents as counts, and the vocabulary rules that every model is offered."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from streamtopic.documents.corpus import Document
    from streamtopic.topics.display import WordEvidence

__all__ = ["RULES", "Material", "halvings", "load_material", "made_up", "samples"]

MIN_DF = 5
POST_WORDS = 5_000
POST_TOKENS = 66


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

    def vocabulary(self, rule: str) -> npt.NDArray[np.intp]:
        """Return the positions of the words that a rule leaves, ascending."""
        return np.flatnonzero((self.frequency >= MIN_DF) & RULES[rule](self))


def _everything(material: Material) -> npt.NDArray[np.bool_]:
    return np.ones(len(material.words), np.bool_)


def _below(share: float) -> Callable[[Material], npt.NDArray[np.bool_]]:
    """Words in at most this share of documents; never fewer than 20 documents, as our own rule has it."""

    def rule(material: Material) -> npt.NDArray[np.bool_]:
        return np.asarray(material.frequency <= max(20, share * material.counts.shape[0]))

    return rule


def _without_stop_words(material: Material) -> npt.NDArray[np.bool_]:
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return np.array([word not in ENGLISH_STOP_WORDS for word in material.words])


RULES: dict[str, Callable[[Material], npt.NDArray[np.bool_]]] = {
    "all": _everything,
    "stop": lambda material: _without_stop_words(material) & _below(0.1)(material),
    "5%": _below(0.05),
}
"""Besides min_df 5: every word; no English stop words and max_df .1; max_df .05 and no stop list."""


def halvings(documents: int, times: int) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Yield halves of so many documents, ascending, and the same exchanged: 2 `times` pairs, the same in each run."""
    for seed in range(times):
        order = np.random.default_rng(seed).permutation(documents)
        one, other = np.sort(order[: documents // 2]), np.sort(order[documents // 2 :])
        yield one, other
        yield other, one


def samples(documents: int, times: int) -> Iterator[npt.NDArray[np.intp]]:
    """Yield random samples of nine tenths of so many documents, ascending, the same each run."""
    for seed in range(times):
        order = np.random.default_rng([seed, documents]).permutation(documents)
        yield np.sort(order[documents // 10 :])


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


def made_up(posts: int, topics: int) -> Material:
    """Draw posts of planted topics, as `streamtopic bench fit` does: 5,000 words, 66 tokens on average, no labels.

    They are drawn in another process, so that the memory measured is the learner's.
    """
    from tempfile import TemporaryDirectory

    from streamtopic.bench.drawn import drawn

    with TemporaryDirectory() as name:
        drawn(Path(name), posts, POST_WORDS, topics, POST_TOKENS)
        with np.load(Path(name) / "posts.npz") as found:
            parts = found["counts"].astype(float), found["words"].astype(np.int64), found["indptr"]
            counts = csr_array(parts, shape=(len(found["lengths"]), POST_WORDS))
    return Material(tuple(f"w{k:04d}" for k in range(POST_WORDS)), counts, None)


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
