"""Our topics beside those of gensim, scikit-learn and tomotopy: cost, quality, and what adding and forgetting take."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from scipy.sparse import csr_array

    from streamtopic.bench.peers.models import Model

__all__ = ["CASES", "OPTIONS", "ratios"]

OPTIONS: dict[str, int | str] = {"documents": "", "topics": 20, "rule": "own"}
OWN = {"streamtopic": "5%", "streamtopic-paper": "5%"}
"""The vocabulary rule of a model if `rule` is "own": ours is max_df .05, the others have stop words removed."""

SHARE = 10
NAMES = (
    "streamtopic",
    "streamtopic-paper",
    "gensim-lda",
    "gensim-lda-10-passes",
    "sklearn-lda-batch",
    "sklearn-lda-online",
    "sklearn-nmf",
    "sklearn-minibatch-nmf",
    "tomotopy-lda",
)


def _case(name: str, documents: str, topics: int, rule: str) -> list[Figure]:
    from streamtopic.bench.peers.material import RULES, load_material
    from streamtopic.bench.peers.models import MODELS
    from streamtopic.bench.peers.score import score
    from streamtopic.errors import UsageError

    chosen = OWN.get(name, "stop") if rule == "own" else rule
    if chosen not in RULES:
        raise UsageError(f"there is no vocabulary rule {chosen}: choose own, {', '.join(RULES)}")
    material = load_material(documents)
    vocabulary = material.vocabulary(chosen)
    X = material.counts[:, vocabulary]
    _compile(MODELS[name](2))
    model = MODELS[name](topics)
    seconds = _cpu(lambda: model.fit(X))
    found = score(model.topics(), vocabulary, material)
    figures = [
        Figure("documents", X.shape[0], "documents"),
        Figure("vocabulary", X.shape[1], "words"),
        Figure("learn", seconds, "CPU s"),
        Figure("NPMI", found.npmi, "display order"),
        Figure("diversity", found.diversity, "display order"),
        Figure("NPMI, plain", found.plain_npmi, "order p(w|t)"),
        Figure("diversity, plain", found.plain_diversity, "order p(w|t)"),
    ]
    if found.accuracy is not None:
        figures.append(Figure("accuracy", found.accuracy, "of classes"))
    return figures + _rates(model, X, seconds)


def _rates(model: Model, X: csr_array, learned: float) -> list[Figure]:
    """Measure inference, and what one document in and one out of the model cost: a new fit where there is no way."""
    some = X[: max(1, X.shape[0] // SHARE)]
    figures = [Figure("infer", some.shape[0] / _cpu(lambda: model.infer(some)), "documents/CPU s")]
    changes: tuple[tuple[str, Callable[[csr_array], bool]], ...] = (("forget", model.forget), ("add", model.add))
    one = X[[int(np.argsort(X.sum(axis=1))[X.shape[0] // 2])]]
    for name, change in changes:
        able = False

        def act(change: Callable[[csr_array], bool] = change) -> None:
            nonlocal able
            able = change(one)

        seconds = _cpu(act)
        figures.append(
            Figure(f"{name} one document", seconds if able else learned, "CPU s" if able else "CPU s, refit")
        )
    return figures


def _compile(model: Model) -> None:
    """Learn a tiny model first, so that no one pays for imports and compilers."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    rates: npt.NDArray[np.float64] = np.where(np.arange(60)[:, None] % 2 == np.arange(40) % 2, 2.0, 0.1)
    X = csr_array(rng.poisson(rates).astype(float))
    model.fit(X)
    model.infer(X)


def _cpu(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def ratios(found: dict[str, dict[str, float]]) -> list[Figure]:
    """Return the cost of every model over ours, and its quality less ours."""
    ours = found["streamtopic"]
    return [
        figure
        for case, figures in found.items()
        if case != "streamtopic"
        for figure in (
            Figure(f"{case}: learn over ours", figures["learn"] / ours["learn"], "x"),
            Figure(f"{case}: forget one over ours", figures["forget one document"] / ours["forget one document"], "x"),
            Figure(f"{case}: NPMI less ours", figures["NPMI"] - ours["NPMI"], ""),
        )
    ]


CASES = {name: partial(_case, name) for name in NAMES}
