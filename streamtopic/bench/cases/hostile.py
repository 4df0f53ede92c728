"""How far one hostile document moves the topics: learned without it, with it, and with ten copies of it.

Every document is within the limits on records. Topics are matched by the L1 distance of their distributions; the ten
words of a topic are those that are shown. `uncapped` is the default learner with the document mass f(L) = L in place of
min(L, 256), to show what the cap is for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from streamtopic.bench.figures import Figure
from streamtopic.counts import MAX_LENGTH, Counts, DocumentBatch, Passage, Weighting, count
from streamtopic.documents.corpus import MAX_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from streamtopic.bench.peers.material import Material
    from streamtopic.bench.runner import Option, Result
    from streamtopic.counts import Cooccurrence
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner_options import LearnerOptions

    Positions = npt.NDArray[np.intp]
    Document = list[Passage]

__all__ = ["CASES", "OPTIONS", "text"]

OPTIONS: dict[str, Option] = {"documents": "", "topics": 20, "seed": 1}
"""documents: a file of JSON lines, installed docstrings if none is given; seed: of the words of the documents."""

COPIES = (1, 10)
SPAM_TOKENS = 20_000
SPAM_WORDS = 20


class _Uncapped(Weighting):
    """The document mass f(L) = L, which nothing but this benchmark may count with."""

    __slots__ = ()

    def __init__(self) -> None:
        object.__setattr__(self, "cap", MAX_TEXT)

    @property
    def shift(self) -> int:
        return Weighting(256).shift


@dataclass(frozen=True, slots=True)
class Moved:
    """How topics have moved, matched one to one.

    anchors, shown: share of the anchors, and of the shown ten words of each topic, that are still there; entry: the
    largest difference of an entry of A over words of both models; distance: mean L1 distance of columns over all words;
    left, entered: words of the vocabulary that went, and that came. taken: anchors that are words of the document and
    were not anchors before.
    """

    anchors: float
    taken: int
    shown: float
    entry: float
    distance: float
    left: int
    entered: int


UNITS = {
    "anchors": "share kept",
    "taken": "words of the document",
    "shown": "share kept",
    "entry": "of A, largest difference",
    "distance": "mean of topics",
    "left": "words",
    "entered": "words",
}


def _case(
    learner: Literal["default", "paper"], documents: str, topics: int, seed: int, *, capped: bool = True
) -> list[Figure]:
    from streamtopic.bench.peers.material import load_material
    from streamtopic.topics.learner_options import LearnerOptions

    options = LearnerOptions(n_topics=topics, learner=learner)
    attacked = Attacked(load_material(documents), options, options.weighting if capped else _Uncapped())
    figures = [
        Figure("documents", attacked.counts.documents, "documents"),
        Figure("vocabulary", len(attacked.fit.words), "words"),
    ]
    for kind, document in attacked.hostile(np.random.default_rng(seed)).items():
        for copies in COPIES:
            moved = attacked.moved(document, copies)
            figures += [Figure(f"{kind}, {copies}: {name}", getattr(moved, name), UNITS[name]) for name in UNITS]
    return figures


class Attacked:
    """A corpus and its model, and the models of the corpus with documents that someone adds."""

    def __init__(self, material: Material, options: LearnerOptions, weighting: Weighting) -> None:
        from streamtopic.topics.learner import learn

        self.options, self.weighting = options, weighting
        batch, words = _reachable(material, options)
        self.counts = Counts(words, count(batch, len(words), weighting))
        self.fit = learn(self.counts, options)
        self.shown = self._shown(self.fit, self.counts)
        self.batch = batch

    def hostile(self, rng: np.random.Generator) -> dict[str, Document]:
        """Return hostile documents by kind, each within the limits: 8,192 tokens, or 1,000,000 bytes of text."""
        frequency, words = self.counts.frequency, self.counts.words
        live = self._places(self.fit.words)
        order = live[np.argsort(frequency[live], kind="stable")]
        rare, frequent = order[:1], order[-1:]
        # One word of each of two topics: the first shown one, if these two differ.
        pair = np.unique(live[self.shown[rng.permutation(len(self.shown))[:2], 0]])
        candidates = self._places([self.fit.names[k] for k in self.fit.candidates])
        spam = rng.choice(candidates, min(SPAM_WORDS, len(candidates)), replace=False)
        return {
            "one frequent word": _document(frequent, MAX_LENGTH),
            "one rare word, a text of 1 MB": _document(rare, MAX_TEXT // (len(words[int(rare[0])].encode()) + 1)),
            "two words of two topics": _document(pair, MAX_LENGTH),
            "all anchors": _document(self._places(self.fit.anchors), MAX_LENGTH),
            "random words": _document(rng.choice(live, MAX_LENGTH), MAX_LENGTH),
            "spam, 20,000 tokens": _document(spam, SPAM_TOKENS),
            "the longest document again": [_again(self.batch, int(np.argmax(self.batch.lengths)))],
            "any document again": [_again(self.batch, int(rng.integers(self.batch.documents)))],
        }

    def moved(self, document: Document, copies: int) -> Moved:
        """Learn with so many copies of a document, and compare."""
        from streamtopic.topics.learner import learn

        counts = self._with(document, copies)
        fit = learn(counts, self.options)
        held = {counts.words[k] for passage in document for k in passage.words.tolist()}
        return self._compared(fit, self._shown(fit, counts), held)

    def _with(self, document: Document, copies: int) -> Counts:
        batch = DocumentBatch.build([document] * copies)
        added: Cooccurrence = count(batch, len(self.counts.words), self.weighting)
        return Counts(self.counts.words, self.counts.cooccurrence + added)

    def _compared(self, fit: TopicFit, shown: Positions, held: set[str]) -> Moved:
        from scipy.optimize import linear_sum_assignment

        before, after = self._wide(self.fit), self._wide(fit)
        distance = np.array([np.abs(after - column[:, None]).sum(axis=0) for column in before.T])
        rows, columns = linear_sum_assignment(distance)
        ours, theirs = {*self.fit.words}, {*fit.words}
        both = self._places(sorted(ours & theirs))
        here, there = self._places(self.fit.words)[self.shown], self._places(fit.words)[shown]
        kept = [len(np.intersect1d(here[a], there[b])) / here.shape[1] for a, b in zip(rows, columns, strict=True)]
        return Moved(
            anchors=len({*self.fit.anchors} & {*fit.anchors}) / len(self.fit.anchors),
            taken=len(({*fit.anchors} - {*self.fit.anchors}) & held),
            shown=float(np.mean(kept)),
            entry=float(np.abs(before[both][:, rows] - after[both][:, columns]).max(initial=0.0)),
            distance=float(distance[rows, columns].mean()),
            left=len(ours - theirs),
            entered=len(theirs - ours),
        )

    def _wide(self, fit: TopicFit) -> npt.NDArray[np.float64]:
        wide = np.zeros((len(self.counts.words), fit.A.shape[1]))
        wide[self._places(fit.words)] = fit.A
        return wide

    def _shown(self, fit: TopicFit, counts: Counts) -> Positions:
        from streamtopic.topics.display import WordEvidence, top_words

        return top_words(fit.A, WordEvidence.of(fit, counts.frequency[self._places(fit.words)]))

    def _places(self, words: Sequence[str]) -> Positions:
        return np.searchsorted(np.array(self.counts.words), np.array(words)).astype(np.intp)


def _reachable(material: Material, options: LearnerOptions) -> tuple[DocumentBatch, list[str]]:
    """Return documents over the words that may be kept, also once copies are added: others need no pairs."""
    from streamtopic.counts.matrices import as_documents
    from streamtopic.topics.learner import thresholds

    batch = as_documents(material.counts)
    least = thresholds(batch.documents, options).least
    kept = np.flatnonzero(material.frequency + max(COPIES) >= least)
    ids = np.full(len(material.words), -1, np.int32)
    ids[kept] = np.arange(len(kept))
    words = ids[batch.words]
    held = words >= 0
    # Lengths stay those of all words.
    indptr = np.concatenate([[0], np.cumsum(held)])[batch.indptr]
    batch = replace(batch, indptr=indptr, words=words[held], counts=batch.counts[held])
    return batch, [material.words[k] for k in kept]


def _document(words: npt.NDArray[np.integer], tokens: int) -> Document:
    """Lay tokens over words in turn, repeated words in each turn as often, and cut them into equal passages."""
    parts = -(-tokens // MAX_LENGTH)
    lengths = [tokens // parts + (k < tokens % parts) for k in range(parts)]
    return [_passage(np.resize(words, length)) for length in lengths]


def _passage(tokens: npt.NDArray[np.integer]) -> Passage:
    words, counts = np.unique(tokens, return_counts=True)
    return Passage(len(tokens), words.astype(np.int32), counts.astype(np.int32))


def _again(batch: DocumentBatch, document: int) -> Passage:
    """Return a document of one passage."""
    own = batch.span(document, document + 1)
    return Passage(int(own.lengths[0]), own.words, own.counts)


def text(result: Result) -> str:
    """Return a table of each case: a row for each kind of document and number of copies."""
    from streamtopic.console import table

    said = [result.machine, f"{result.options['documents'] or 'docstrings'}, {result.options['topics']} topics"]
    for case in result.cases:
        found = {figure.name: figure.value for figure in case.figures}
        head = ["document", "copies", *UNITS]
        said.append(f"{case.case}, {found['documents']:,.0f} documents, {found['vocabulary']:,.0f} words")
        said.append(table(head, list(_rows(found))))
    return "\n\n".join(said)


def _rows(found: dict[str, float]) -> Iterator[list[str]]:
    last = [*UNITS][-1]
    for name in found:
        if name.endswith(f": {last}"):
            attack = name.removesuffix(f": {last}")
            kind, _, copies = attack.rpartition(", ")
            yield [kind, copies, *(f"{found[f'{attack}: {unit}']:.3g}" for unit in UNITS)]


CASES = {
    "default": partial(_case, "default"),
    "paper": partial(_case, "paper"),
    "uncapped": partial(_case, "default", capped=False),
}
