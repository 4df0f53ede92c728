"""Our topics beside those of gensim, scikit-learn and tomotopy: cost, quality, and what adding and forgetting take.

Seconds are processor time, of all threads and child processes. Each model keeps the words of its own rule, or all of
one rule. Top words are judged in the same display order for all, and in plain order too. Where a library cannot add or
forget, what a new fit costs stands in its place and says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt
    from scipy.sparse import csr_array

    from streamtopic.bench.peers.material import Material
    from streamtopic.bench.peers.models import Model
    from streamtopic.bench.runner import Option, Result

__all__ = ["CASES", "OPTIONS", "picture", "ratios", "text"]

OPTIONS: dict[str, int | str] = {"documents": "", "posts": 0, "topics": 20, "rule": "own"}
"""posts: so many made-up posts of planted topics in place of documents. rule: "own": ours is given all words and leaves
out those in more than 5 % of documents by itself, the others are given what is left without stop words; any other: all
models are given the same words and keep them."""

RATIOS_NEED = ("streamtopic",)
"""What others are held against; they are held against it where only some of them were measured."""

LEVEL = 0.02
"""Differences of NPMI below this are chance: another seed or a few documents make as much."""

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


def _case(name: str, documents: str, topics: int, rule: str, posts: int = 0) -> list[Figure]:
    from streamtopic.bench.peers.cost import changes, compiled, inference, resident_peak
    from streamtopic.bench.peers.material import RULES, load_material, made_up
    from streamtopic.bench.peers.models import MODELS, OWN, missing
    from streamtopic.errors import UsageError

    if rule not in ("own", *RULES):
        raise UsageError(f"there is no vocabulary rule {rule}: choose own, {', '.join(RULES)}")
    if module := missing(name):
        # The others are still worth a run, and a figure cannot be overlooked as a missing row could.
        return [Figure("not measured", 1, f"{module} is not installed: pip install 'streamtopic[bench]'")]
    material = made_up(posts, topics) if posts else load_material(documents)
    chooses = rule == "own" and name in OWN
    vocabulary = material.everything if chooses else material.vocabulary("stop" if rule == "own" else rule)
    X = material.counts[:, vocabulary]
    compiled(MODELS[name](2))
    before = Figure("memory before learning", resident_peak(), "MB")
    model = (OWN if chooses else MODELS)[name](topics)
    learned = _learned(model, X)
    return [
        Figure("documents", X.shape[0], "documents"),
        *learned,
        before,
        *_quality(model, vocabulary, material),
        inference(model, X),
        *changes(model, X, learned[0].value),
    ]


def _learned(model: Model, X: csr_array) -> list[Figure]:
    from streamtopic.bench.peers.cost import cpu_seconds, resident_peak

    seconds = cpu_seconds(lambda: model.fit(X))
    return [
        Figure("learn", seconds, "CPU s"),
        Figure("memory", resident_peak(), "MB, peak of the process until it has learned"),
    ]


def _quality(model: Model, vocabulary: npt.NDArray[np.intp], material: Material) -> list[Figure]:
    from streamtopic.bench.peers.score import score

    topics = model.topics()
    kept = topics.any(axis=0)
    found = score(topics[:, kept], vocabulary[kept], material)
    figures = [
        Figure("vocabulary", int(kept.sum()), "words"),
        Figure("NPMI", found.npmi, "display order"),
        Figure("diversity", found.diversity, "display order"),
        Figure("NPMI, plain", found.plain_npmi, "order p(w|t)"),
        Figure("diversity, plain", found.plain_diversity, "order p(w|t)"),
    ]
    return figures if found.accuracy is None else [*figures, Figure("accuracy", found.accuracy, "of classes")]


def ratios(found: Mapping[str, Mapping[str, float]]) -> list[Figure]:
    """Return the cost of every model over ours, its quality less ours, and what a deletion costs peers as good."""
    ours, peers = found["streamtopic"], {k: v for k, v in found.items() if k != "streamtopic" and "learn" in v}
    figures = [
        figure
        for case, values in peers.items()
        for figure in (
            Figure(f"{case}: learn over ours", values["learn"] / ours["learn"], "x"),
            Figure(f"{case}: forget one over ours", values["forget one document"] / ours["forget one document"], "x"),
            Figure(f"{case}: NPMI less ours", values["NPMI"] - ours["NPMI"], ""),
        )
    ]
    others = {case: values for case, values in peers.items() if not case.startswith("streamtopic")}
    return figures + ([_equal(ours, others)] if others else [])


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


def picture(found: Mapping[str, Mapping[str, float]], options: Mapping[str, Option]) -> str:
    """Return NPMI against processor time as an SVG."""
    from streamtopic.bench.peers.shown import picture as shown

    return shown(found, options)


CASES = {name: partial(_case, name) for name in NAMES}
