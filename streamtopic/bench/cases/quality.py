"""How good the learners' topics are, and how steady: quality of topics, and anchors that stay when documents go.

Quality is that of all documents; that of topics learned on one half of them, on the other half, the mean of both halves
of four halvings; and the mean and the spread over four random samples of nine tenths. NPMI is that of the words shown,
and of words by probability. Steadiness is counted over `draws` random sets of 1 document, of 10 and of 1 %:
in how many of them an update would keep every anchor, and what share of anchors stays on average.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from streamtopic.bench.peers.material import Material
    from streamtopic.bench.peers.score import Lists
    from streamtopic.counts import Cooccurrence
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.learner import Prepared
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["CASES", "OPTIONS"]

_LEARNERS: tuple[Literal["default", "paper"], ...] = ("default", "paper")

OPTIONS: dict[str, int | str] = {"documents": "", "topics": 20, "draws": 12, "seed": 1, "halves": 4, "samples": 4}
"""documents: a file of JSON lines, installed docstrings if none is given; draws: forget sets of each size; halves:
how many times the documents are halved, two fits each; samples: of nine tenths of the documents; 0 leaves them out."""


def _case(
    learner: Literal["default", "paper"],
    documents: str,
    topics: int,
    draws: int,
    seed: int,
    halves: int = 4,
    samples: int = 4,
) -> list[Figure]:
    from streamtopic.bench.peers.material import load_material
    from streamtopic.topics.learner_options import LearnerOptions

    learning = _Learning(load_material(documents), LearnerOptions(n_topics=topics, learner=learner))
    rng = np.random.default_rng(seed)
    return [
        Figure("documents", learning.m, "documents"),
        *_quality(learning, halves, samples),
        *_steadiness(learning, draws, rng),
    ]


class _Learning:
    """A corpus from which documents can be left out, and the learner that is tried on the rest."""

    def __init__(self, material: Material, options: LearnerOptions) -> None:
        self.material, self.options = material, options
        self.m = material.counts.shape[0]
        self.whole = self._count(np.arange(self.m))

    def without(self, gone: npt.NDArray[np.intp]) -> Prepared:
        """Return the counts without some documents, from which the learner starts."""
        return self._prepared(self._left(gone))

    def learned(self, gone: npt.NDArray[np.intp]) -> tuple[TopicFit, Lists]:
        """Return the model of the documents that are not gone, and its top words."""
        from streamtopic.bench.peers.score import Lists
        from streamtopic.topics.display import WordEvidence
        from streamtopic.topics.learner import learn_prepared

        left = self._left(gone)
        fit = learn_prepared(self._prepared(left), self.options)
        words = self.places(fit)
        return fit, Lists.of(fit.A.T, words, WordEvidence.of(fit, left.frequency[words]))

    def places(self, fit: TopicFit) -> npt.NDArray[np.intp]:
        """Return the positions of a model's words in the material."""
        return np.searchsorted(np.array(self.material.words), fit.words)

    def _left(self, gone: npt.NDArray[np.intp]) -> Cooccurrence:
        return self.whole - self._count(gone) if len(gone) else self.whole

    def _prepared(self, left: Cooccurrence) -> Prepared:
        from streamtopic.counts import Counts
        from streamtopic.topics.learner import prepare

        return prepare(Counts(self.material.words, left), self.options)

    def anchors(self, prepared: Prepared) -> frozenset[str]:
        """Return the anchor words."""
        from streamtopic.topics.learner import choose_sets

        sets = choose_sets(
            prepared.q, prepared.mass, prepared.squares, prepared.candidates, prepared.words, self.options
        )
        return frozenset(prepared.words[k] for k in sets.choice)

    def _count(self, rows: npt.NDArray[np.intp]) -> Cooccurrence:
        from streamtopic.counts import count
        from streamtopic.counts.matrices import as_documents

        return count(as_documents(self.material.counts[rows]), len(self.material.words), self.options.weighting)


def _quality(learning: _Learning, halves: int, samples: int) -> Iterator[Figure]:
    from streamtopic.bench.peers.material import samples as sampled
    from streamtopic.bench.peers.score import accuracy
    from streamtopic.bench.peers.shown import spread

    material = learning.material
    fit, lists = learning.learned(np.array([], np.intp))
    found = lists.score(material)
    yield from _unseen(learning, halves)
    yield Figure("NPMI", found.npmi, "as shown, by coefficients")
    yield Figure("NPMI, by probability", found.likely_npmi, "ten of the first twenty")
    yield Figure("diversity", found.diversity, "as shown, by coefficients")
    yield Figure("diversity, by probability", found.likely_diversity, "ten of the first twenty")
    if material.labels is not None:
        yield Figure("accuracy", accuracy(fit.A.T, learning.places(fit), material), "of classes")
    everything = np.arange(learning.m)
    scores = []
    for rows in sampled(learning.m, samples):
        _, lists = learning.learned(np.setdiff1d(everything, rows))
        scores.append(lists.score(material))
    if scores:
        yield from spread(scores)


def _unseen(learning: _Learning, halves: int) -> Iterator[Figure]:
    from streamtopic.bench.peers.material import halvings
    from streamtopic.bench.peers.score import mean_score

    scores = []
    for _, unseen in halvings(learning.m, halves):
        _, lists = learning.learned(unseen)
        scores.append(lists.score(learning.material.some(unseen)))
    if scores:
        found, unit = mean_score(scores), f"mean of {halves} halvings"
        yield Figure("NPMI, unseen half", found.npmi, unit)
        yield Figure("NPMI, unseen half, by probability", found.likely_npmi, unit)


def _steadiness(learning: _Learning, draws: int, rng: np.random.Generator) -> Iterator[Figure]:
    before = learning.anchors(learning.without(np.array([], np.intp)))
    for kind, size in (("1 document", 1), ("10 documents", 10), ("1 %", max(learning.m // 100, 1))):
        steady, kept = 0, []
        for _ in range(draws):
            gone = np.sort(rng.choice(learning.m, min(size, learning.m - 1), replace=False))
            after = learning.anchors(learning.without(gone))
            steady += after == before
            kept.append(len(after & before) / len(before))
        yield Figure(f"{kind}: all anchors kept", steady, f"of {draws}")
        yield Figure(f"{kind}: anchors kept", float(np.mean(kept)) if kept else 1.0, "share")


CASES = {learner: partial(_case, learner) for learner in _LEARNERS}
