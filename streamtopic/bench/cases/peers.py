"""Our topics and those of gensim, scikit-learn and tomotopy: cost, quality, and what adding and forgetting take.

Seconds are processor time, of all threads and child processes. Ours is given all words and leaves out the most frequent
by itself; the others are given what a common rule leaves, without stop words. Top words are chosen in two ways for all
models, by coefficients and by probability. Both are judged on an unseen half first (learned on the other half of the
documents, mean of both halves of four halvings), and on the documents that were learned. If a library cannot add or
forget, the cost of a new fit is in that place, and marked. A tenth of the documents is added, forgotten or inferred at
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, cpu_timed, peak_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from streamtopic.bench.peers.material import Material
    from streamtopic.bench.peers.models import Model
    from streamtopic.bench.peers.score import Lists
    from streamtopic.bench.runner import Option

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"documents": "", "topics": 20, "halves": 4}
"""documents: a file of JSON lines, installed docstrings if none is given; halves: how many times the documents are
halved, two fits each, 0 for no figures of unseen halves."""

NAMES = (
    "streamtopic",
    "streamtopic-paper",
    "gensim-lda",
    "gensim-lda-tuned",
    "sklearn-lda-batch",
    "sklearn-lda-online",
    "sklearn-nmf",
    "sklearn-minibatch-nmf",
    "tomotopy-lda",
)


def _case(name: str, documents: str, topics: int, halves: int) -> list[Figure]:
    from streamtopic.bench.peers.cost import changes, compiled, inference
    from streamtopic.bench.peers.material import load_material
    from streamtopic.bench.peers.models import MODELS, missing

    if module := missing(name):
        # The others are still worth a run, and a figure cannot be overlooked as a missing row could.
        return [Figure("not measured", 1, f"{module} is not installed: pip install 'streamtopic[bench]'")]
    material = load_material(documents)
    entrant = _Entrant(name, topics)
    vocabulary = entrant.vocabulary(material)
    X = material.counts[:, vocabulary]
    compiled(MODELS[name](2))
    before = Figure("memory before learning", peak_bytes() / 1e6, "MB")
    model = entrant.model()
    seconds, _ = cpu_timed(lambda: model.fit(X))
    return [
        Figure("documents", X.shape[0], "documents"),
        Figure("learn", seconds, "CPU s"),
        Figure("memory", peak_bytes() / 1e6, "MB, peak of the process until it has learned"),
        before,
        *_unseen(entrant, material, halves),
        *_quality(model, vocabulary, material),
        inference(model, X),
        *changes(model, X, seconds),
    ]


@dataclass(frozen=True, slots=True)
class _Entrant:
    """A model that is fitted again and again. Ours chooses words itself; the others are given those of a rule."""

    name: str
    topics: int

    def model(self) -> Model:
        """Return a new model."""
        from streamtopic.bench.peers.models import MODELS

        return MODELS[self.name](self.topics)

    def vocabulary(self, material: Material) -> npt.NDArray[np.intp]:
        """Return the words that the model is given."""
        return material.everything if self.name.startswith("streamtopic") else material.vocabulary()

    def lists(self, material: Material) -> Lists:
        """Learn these documents alone and return the top words."""
        vocabulary, model = self.vocabulary(material), self.model()
        model.fit(material.counts[:, vocabulary])
        return _lists(model.topics(), vocabulary, material)


def _quality(model: Model, vocabulary: npt.NDArray[np.intp], material: Material) -> list[Figure]:
    from streamtopic.bench.peers.score import accuracy

    topics = model.topics()
    kept = topics.any(axis=0)
    found = _lists(topics, vocabulary, material).score(material)
    figures = [
        Figure("vocabulary", int(kept.sum()), "words"),
        Figure("NPMI", found.npmi, "as shown, by coefficients"),
        Figure("diversity", found.diversity, "as shown, by coefficients"),
        Figure("NPMI, by probability", found.likely_npmi, "ten of the first twenty"),
        Figure("diversity, by probability", found.likely_diversity, "ten of the first twenty"),
        Figure("NPMI, plain", found.plain_npmi, "order p(w|t)"),
    ]
    if material.labels is not None:
        figures.append(Figure("accuracy", accuracy(topics[:, kept], vocabulary[kept], material), "of classes"))
    return figures


def _lists(topics: npt.NDArray[np.float64], vocabulary: npt.NDArray[np.intp], learned: Material) -> Lists:
    """Return the top words of topics that were learned of these documents."""
    from streamtopic.bench.peers.score import Lists

    kept = topics.any(axis=0)
    words = vocabulary[kept]
    return Lists.of(topics[:, kept], words, learned.evidence(words))


def _unseen(entrant: _Entrant, material: Material, halves: int) -> Iterator[Figure]:
    """Yield the quality of topics of one half of the documents on the other."""
    from streamtopic.bench.peers.material import halvings
    from streamtopic.bench.peers.score import mean_score

    scores = []
    for learned, unseen in halvings(material.counts.shape[0], halves):
        scores.append(entrant.lists(material.some(learned)).score(material.some(unseen)))
    if scores:
        found, unit = mean_score(scores), f"mean of {halves} halvings"
        yield Figure("NPMI, unseen half", found.npmi, unit)
        yield Figure("NPMI, unseen half, by probability", found.likely_npmi, unit)
        yield Figure("diversity, unseen half", found.diversity, unit)


CASES = {name: partial(_case, name) for name in NAMES}
