"""Our topics and those of gensim, scikit-learn and tomotopy: cost, quality, and what adding and forgetting take.

Seconds are processor time, of all threads and child processes. Each model keeps the words of its own rule, or all of
one rule. Top words are chosen in two ways for all models, by coefficients and by probability. Both are judged on an
unseen half first (learned on the other half of the documents, mean of both halves of four halvings), and on the
documents that were learned. If a library cannot add or forget, the cost of a new fit is in that place, and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure
from streamtopic.bench.peers.shown import spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import numpy.typing as npt
    from scipy.sparse import csr_array

    from streamtopic.bench.peers.material import Material
    from streamtopic.bench.peers.models import Model
    from streamtopic.bench.peers.score import Lists, Score
    from streamtopic.bench.runner import Result

__all__ = ["CASES", "OPTIONS", "ratios", "text"]

OPTIONS: dict[str, int | str] = {
    "documents": "",
    "posts": 0,
    "topics": 20,
    "rule": "own",
    "halves": 4,
    "samples": 4,
}
"""posts: so many made-up posts of planted topics in place of documents. rule: "own": ours is given all words and leaves
out those in more than 5 % of documents by itself, the others are given what is left without stop words; any other: all
models are given the same words and keep them. halves: how many times the documents are halved, two fits each, 0 for no
figures of unseen halves. samples: from how many samples of nine tenths ours is learned again, for its spread."""

RATIOS_NEED = ("streamtopic",)
"""What others are held against; they are held against it if only some of them were measured."""

LEVEL = 0.02
"""Differences of NPMI below this are chance: another seed or a few documents make as much."""

SHOWN = ("NPMI, unseen half", "NPMI, unseen half, by probability", "NPMI", "NPMI, by probability")
"""Figures of quality in which others are held against ours."""

OURS = ("streamtopic", "streamtopic-paper")
NAMES = (
    *OURS,
    "gensim-lda",
    "gensim-lda-tuned",
    "sklearn-lda-batch",
    "sklearn-lda-online",
    "sklearn-nmf",
    "sklearn-minibatch-nmf",
    "tomotopy-lda",
)


def _case(
    name: str, documents: str, topics: int, rule: str, posts: int = 0, halves: int = 4, samples: int = 4
) -> list[Figure]:
    from streamtopic.bench.peers.cost import changes, compiled, inference, resident_peak
    from streamtopic.bench.peers.material import RULES, load_material, made_up
    from streamtopic.bench.peers.models import MODELS, missing
    from streamtopic.errors import UsageError

    if rule not in ("own", *RULES):
        raise UsageError(f"there is no vocabulary rule {rule}: choose own, {', '.join(RULES)}")
    if module := missing(name):
        # The others are still worth a run, and a figure cannot be overlooked as a missing row could.
        return [Figure("not measured", 1, f"{module} is not installed: pip install 'streamtopic[bench]'")]
    material = made_up(posts, topics) if posts else load_material(documents)
    entrant = _Entrant(name, topics, rule)
    vocabulary = entrant.vocabulary(material)
    X = material.counts[:, vocabulary]
    compiled(MODELS[name](2))
    before = Figure("memory before learning", resident_peak(), "MB")
    model = entrant.model()
    learned = _learned(model, X)
    return [
        Figure("documents", X.shape[0], "documents"),
        *learned,
        before,
        *_unseen(entrant, material, halves),
        *_quality(model, vocabulary, material),
        *_spread(entrant, material, samples if name in OURS else 0),
        inference(model, X),
        *changes(model, X, learned[0].value),
    ]


@dataclass(frozen=True, slots=True)
class _Entrant:
    """A model under a vocabulary rule, which is fitted again and again."""

    name: str
    topics: int
    rule: str

    @property
    def chooses(self) -> bool:
        """Whether it chooses words itself."""
        return self.rule == "own" and self.name in OURS

    def model(self) -> Model:
        """Return a new model."""
        from streamtopic.bench.peers.models import MODELS, OWN

        return (OWN if self.chooses else MODELS)[self.name](self.topics)

    def vocabulary(self, material: Material) -> npt.NDArray[np.intp]:
        """Return the words that the model is given."""
        if self.chooses:
            return material.everything
        return material.vocabulary("stop" if self.rule == "own" else self.rule)

    def lists(self, material: Material) -> Lists:
        """Learn these documents alone and return the top words."""
        vocabulary, model = self.vocabulary(material), self.model()
        model.fit(material.counts[:, vocabulary])
        return _lists(model.topics(), vocabulary, material)


def _learned(model: Model, X: csr_array) -> list[Figure]:
    from streamtopic.bench.peers.cost import cpu_seconds, resident_peak

    seconds = cpu_seconds(lambda: model.fit(X))
    return [
        Figure("learn", seconds, "CPU s"),
        Figure("memory", resident_peak(), "MB, peak of the process until it has learned"),
    ]


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
        Figure("diversity, plain", found.plain_diversity, "order p(w|t)"),
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

    scores: list[Score] = []
    for learned, unseen in halvings(material.counts.shape[0], halves):
        scores.append(entrant.lists(material.some(learned)).score(material.some(unseen)))
    if scores:
        found, unit = mean_score(scores), f"mean of {halves} halvings"
        yield Figure("NPMI, unseen half", found.npmi, unit)
        yield Figure("NPMI, unseen half, by probability", found.likely_npmi, unit)
        yield Figure("diversity, unseen half", found.diversity, unit)


def _spread(entrant: _Entrant, material: Material, times: int) -> Iterator[Figure]:
    """Yield the quality of topics of nine tenths of the documents, on all of them."""
    from streamtopic.bench.peers.material import samples

    found = [entrant.lists(material.some(rows)).score(material) for rows in samples(material.counts.shape[0], times)]
    if found:
        yield from spread(found)


def ratios(found: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    """Return the cost of every model over ours, its quality less ours, and the cost of a deletion for peers as good."""
    ours, peers = found["streamtopic"], {k: v for k, v in found.items() if k != "streamtopic" and "learn" in v}
    figures = [
        figure
        for case, values in peers.items()
        for figure in (
            Figure(f"{case}: learn over ours", values["learn"] / ours["learn"], "x"),
            Figure(f"{case}: forget one over ours", values["forget one document"] / ours["forget one document"], "x"),
            *_less(case, values, ours),
        )
    ]
    others = {case: values for case, values in peers.items() if not case.startswith("streamtopic")}
    return figures + ([_equal(ours, others)] if others else [])


def _less(case: str, values: Mapping[str, float], ours: Mapping[str, float]) -> list[Figure]:
    """Return a peer's NPMI less ours, for each way of measuring that both have."""
    return [Figure(f"{case}: {name} less ours", values[name] - ours[name], "") for name in SHOWN if name in values]


def _equal(ours: Mapping[str, float], others: Mapping[str, Mapping[str, float]]) -> Figure:
    """Return the refit of the cheapest peer whose NPMI reaches ours, over our forgetting of one document."""
    level = {case: values for case, values in others.items() if values["NPMI"] >= ours["NPMI"] - LEVEL}
    if level:
        case = min(level, key=lambda name: level[name]["learn"])
        name = f"refit of {case}, the cheapest peer level in NPMI, over our forgetting one document"
    else:
        case = max(others, key=lambda name: others[name]["NPMI"])
        name = f"refit of {case}, the best peer (none is level in NPMI), over our forgetting one document"
    return Figure(name, others[case]["learn"] / ours["forget one document"], "x", ">= 50")


def text(result: Result) -> str:
    """Return the table that people read."""
    from streamtopic.bench.peers.shown import text as shown

    return shown(result)


CASES = {name: partial(_case, name) for name in NAMES}
