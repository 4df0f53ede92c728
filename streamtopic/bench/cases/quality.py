"""How good the learners' topics are, and how steady: quality of topics, and anchors that stay when documents go.

Quality is that of all documents, and the mean over them and four random samples of nine tenths, which chance moves
less. Steadiness is counted over `draws` random sets of 1 document, of 10 and of 1 %: in how many of them an update
would be verified (the same anchors, chosen with certainty), and what share of anchors stays on average. The cases
`mass-...` weigh the candidates' rows by a power of the words' masses before the search: what the default is held
against in docs/decisions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from streamtopic.bench.peers.material import Material
    from streamtopic.bench.peers.score import Score
    from streamtopic.counts import Cooccurrence
    from streamtopic.topics.learner import Prepared
    from streamtopic.topics.options import LearnerOptions

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, int | str] = {"documents": "", "topics": 20, "draws": 12, "seed": 1}
"""documents: a file of JSON lines, installed docstrings where none is given; draws: forget sets of each size."""

SAMPLES = 4


def _case(
    learner: Literal["default", "paper"], power: float, documents: str, topics: int, draws: int, seed: int
) -> list[Figure]:
    from streamtopic.bench.peers.material import load_material
    from streamtopic.topics.options import LearnerOptions

    learning = _Learning(load_material(documents), LearnerOptions(n_topics=topics, learner=learner), power)
    rng = np.random.default_rng(seed)
    return [Figure("documents", learning.m, "documents"), *_quality(learning, rng), *_steadiness(learning, draws, rng)]


class _Learning:
    """A corpus from which documents can be left out, and the learner that is tried on what is left."""

    def __init__(self, material: Material, options: LearnerOptions, power: float) -> None:
        self.material, self.options, self.power = material, options, power
        self.m = material.counts.shape[0]
        self.whole = self._count(np.arange(self.m))

    def without(self, gone: npt.NDArray[np.intp]) -> Prepared:
        """Return what the learner starts from when some documents are gone."""
        from streamtopic.counts import Counts
        from streamtopic.topics.learner import prepare

        left = self.whole - self._count(gone) if len(gone) else self.whole
        prepared = prepare(Counts(self.material.words, left), self.options)
        if not self.power or prepared.gram is None:
            return prepared
        # Masses rounded as those of the columns, so that the weights rarely move.
        weight = prepared.squares[prepared.candidates] ** (-2 * self.power)
        return replace(prepared, gram=prepared.gram * weight[:, None] * weight)

    def anchors(self, prepared: Prepared) -> tuple[frozenset[str], bool]:
        """Return the anchor words, and whether the choice is certain."""
        from streamtopic.topics.anchors import farthest_rows
        from streamtopic.topics.learner import choose_in_gram

        q, mass, candidates = prepared.q, prepared.mass, prepared.candidates
        if prepared.gram is None:
            choice = farthest_rows(q, candidates, mass, self.options.n_topics)
        else:
            choice = choose_in_gram(prepared.gram, mass, candidates, q.n, self.options)
        return frozenset(prepared.words[k] for k in choice.rows), choice.certain

    def judged(self, prepared: Prepared) -> Score:
        """Return the score of the topics, on all documents."""
        from streamtopic.bench.peers.score import score
        from streamtopic.topics.learner import learn_prepared

        fit = learn_prepared(prepared, self.options)
        return score(fit.A.T, np.searchsorted(np.array(self.material.words), fit.words), self.material)

    def _count(self, rows: npt.NDArray[np.intp]) -> Cooccurrence:
        from streamtopic.counts import count
        from streamtopic.topics.rows import as_documents

        return count(as_documents(self.material.counts[rows]), len(self.material.words), self.options.weighting)


def _quality(learning: _Learning, rng: np.random.Generator) -> list[Figure]:
    nothing = np.array([], np.intp)
    gone = [nothing, *(rng.choice(learning.m, learning.m // 10, replace=False) for _ in range(SAMPLES))]
    scores = [learning.judged(learning.without(rows)) for rows in gone]
    figures = [
        Figure("NPMI", scores[0].npmi, "display order"),
        Figure("NPMI, mean", float(np.mean([score.npmi for score in scores])), "and of four samples"),
        Figure("diversity", scores[0].diversity, "display order"),
        Figure("diversity, mean", float(np.mean([score.diversity for score in scores])), "and of four samples"),
    ]
    if scores[0].accuracy is not None:
        figures.append(Figure("accuracy", scores[0].accuracy, "of classes"))
    return figures


def _steadiness(learning: _Learning, draws: int, rng: np.random.Generator) -> Iterator[Figure]:
    before, _ = learning.anchors(learning.without(np.array([], np.intp)))
    for kind, size in (("1 document", 1), ("10 documents", 10), ("1 %", max(learning.m // 100, 1))):
        verified, kept = 0, []
        for _ in range(draws):
            gone = np.sort(rng.choice(learning.m, min(size, learning.m - 1), replace=False))
            after, certain = learning.anchors(learning.without(gone))
            verified += certain and after == before
            kept.append(len(after & before) / len(before))
        yield Figure(f"{kind}: verified", verified, f"of {draws}")
        yield Figure(f"{kind}: anchors kept", float(np.mean(kept)) if kept else 1.0, "share")


CASES = {
    "default": partial(_case, "default", 0.0),
    "mass-1/8": partial(_case, "default", 1 / 8),
    "mass-1/4": partial(_case, "default", 1 / 4),
    "mass-1/2": partial(_case, "default", 1 / 2),
    "paper": partial(_case, "paper", 0.0),
}
