"""How far one hostile document moves the topics: learned without it and with it.

Every document is within the limits on records. Topics are matched by the L1 distance of their distributions; the ten
words of a topic are those that are shown.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from streamtopic.bench.figures import Figure
from streamtopic.counts import MAX_LENGTH, Counts, DocumentBatch, Passage, count, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from streamtopic.bench.runner import Option
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

    Positions = npt.NDArray[np.intp]
    Document = list[Passage]

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"documents": "", "topics": 20, "seed": 1}
"""documents: a file of JSON lines, installed docstrings if none is given; seed: of the words of the documents."""

SPAM_TOKENS = 20_000
SPAM_WORDS = 20


def _case(learner: Literal["default", "paper"], documents: str, topics: int, seed: int) -> list[Figure]:
    from streamtopic.bench.peers.material import load_material
    from streamtopic.counts.arrays import places
    from streamtopic.counts.matrices import as_documents
    from streamtopic.topics.learner import thresholds
    from streamtopic.topics.learner_options import LearnerOptions

    material = load_material(documents)
    options = LearnerOptions(n_topics=topics, learner=learner)
    batch = as_documents(material.counts)
    # Pairs of other words are many, and no such word can be kept, with one document more either.
    kept = np.flatnonzero(material.frequency + 1 >= thresholds(batch.documents, options).least)
    batch = narrowed(batch, places(len(material.words), kept, np.int32))
    words = [material.words[k] for k in kept]
    attacked = Attacked(Counts(words, count(batch, len(words), options.weighting)), options)
    figures = [
        Figure("documents", attacked.counts.documents, "documents"),
        Figure("vocabulary", len(attacked.fit.words), "words"),
    ]
    for kind, document in attacked.hostile(np.random.default_rng(seed)).items():
        figures += [Figure(f"{kind}: {one.name}", one.value, one.unit) for one in attacked.moved(document)]
    return figures


class Attacked:
    """A corpus and its model, and the models of the corpus with a document that someone adds."""

    def __init__(self, counts: Counts, options: LearnerOptions) -> None:
        from streamtopic.topics.learner import learn

        self.options = options
        self.counts = counts
        self.fit = learn(counts, options)
        self.shown = self._shown(self.fit, counts)

    def hostile(self, rng: np.random.Generator) -> dict[str, Document]:
        """Return hostile documents by kind, each within the limits: 8,192 tokens a passage."""
        live = self._places(self.fit.words)
        frequent = live[[np.argmax(self.counts.frequency[live])]]
        pair = np.unique(live[self.shown[rng.permutation(len(self.shown))[:2], 0]])
        candidates = self._places([self.fit.words[k] for k in self.fit.candidates])
        spam = rng.choice(candidates, min(SPAM_WORDS, len(candidates)), replace=False)
        return {
            "all anchors": _document(self._places(self.fit.anchors), MAX_LENGTH),
            "two words of two topics": _document(pair, MAX_LENGTH),
            "spam, 20,000 tokens": _document(spam, SPAM_TOKENS),
            "one frequent word": _document(frequent, MAX_LENGTH),
        }

    def moved(self, document: Document) -> Iterator[Figure]:
        """Learn with a document, and yield how topics have moved, matched one to one."""
        from scipy.optimize import linear_sum_assignment

        from streamtopic.topics.learner import learn

        added = count(DocumentBatch.build([document]), len(self.counts.words), self.options.weighting)
        counts = Counts(self.counts.words, self.counts.cooccurrence + added)
        fit = learn(counts, self.options)
        held = {counts.words[k] for passage in document for k in passage.words.tolist()}
        before, after = self._wide(self.fit), self._wide(fit)
        distance = np.array([np.abs(after - column[:, None]).sum(axis=0) for column in before.T])
        rows, columns = linear_sum_assignment(distance)
        both = self._places(sorted({*self.fit.words} & {*fit.words}))
        here, there = self._places(self.fit.words)[self.shown], self._places(fit.words)[self._shown(fit, counts)]
        kept = [len(np.intersect1d(here[a], there[b])) / here.shape[1] for a, b in zip(rows, columns, strict=True)]
        old, new = {*self.fit.anchors}, {*fit.anchors}
        entry = np.abs(before[both][:, rows] - after[both][:, columns]).max(initial=0.0)
        yield Figure("anchors that stay", len(old & new) / len(old), "share")
        yield Figure("new anchors that are words of the document", len((new - old) & held), "words")
        yield Figure("shown words that stay", float(np.mean(kept)), "share")
        yield Figure("largest difference of an entry of A", float(entry), "")
        yield Figure("mean L1 distance of topics", float(distance[rows, columns].mean()), "")

    def _wide(self, fit: TopicFit) -> npt.NDArray[np.float64]:
        wide = np.zeros((len(self.counts.words), fit.A.shape[1]))
        wide[self._places(fit.words)] = fit.A
        return wide

    def _shown(self, fit: TopicFit, counts: Counts) -> Positions:
        from streamtopic.topics.display import WordEvidence, top_words

        return top_words(fit.A, WordEvidence.of(fit, counts.frequency[self._places(fit.words)]))

    def _places(self, words: Sequence[str]) -> Positions:
        return np.searchsorted(np.array(self.counts.words), np.array(words)).astype(np.intp)


def _document(words: npt.NDArray[np.integer], tokens: int) -> Document:
    """Lay tokens over words in turn, and cut them into equal passages."""
    parts = -(-tokens // MAX_LENGTH)
    lengths = [tokens // parts + (k < tokens % parts) for k in range(parts)]
    return [_passage(np.resize(words, length)) for length in lengths]


def _passage(tokens: npt.NDArray[np.integer]) -> Passage:
    words, counts = np.unique(tokens, return_counts=True)
    return Passage(len(tokens), words.astype(np.int32), counts.astype(np.int32))


CASES = {learner: partial(_case, learner) for learner in ("default", "paper")}
