"""The cost of a model: processor time of all its threads and children, for learning and for changes by documents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure, cpu_timed
from streamtopic.bench.peers.models import Change

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from scipy.sparse import csr_array

    from streamtopic.bench.peers.models import Model

__all__ = ["changes", "compiled", "inference"]

ONES = 10
"""Documents that are forgotten one after the other, from short to long ones."""

SHARE = 10
"""A tenth of the documents is taken in, out, or inferred at once."""


def compiled(model: Model) -> None:
    """Do everything with a small model first, so that imports and compilation count for no model."""
    # Each word is in a sixth of the documents, and so in few enough for the rule of our own model.
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    rates: npt.NDArray[np.float64] = np.where(np.arange(60)[:, None] % 2 == np.arange(40) % 2, 0.4, 0.02)
    X = csr_array(rng.poisson(rates).astype(float))
    model.fit(X)
    model.infer(X)
    model.add(X[:1])
    model.forget(X[:1])


def inference(model: Model, X: csr_array) -> Figure:
    """Return how many documents a CPU second infers the topics of."""
    some = X[: max(1, X.shape[0] // SHARE)]
    seconds, _ = cpu_timed(lambda: model.infer(some))
    return Figure("infer", some.shape[0] / seconds, "documents/CPU s")


def changes(model: Model, X: csr_array, learned: float) -> Iterator[Figure]:
    """Yield the cost of forgetting one document, and documents forgotten and added a CPU second, a tenth at once.

    learned: CPU seconds of a fit; a library that cannot make a change pays this for it.
    The model, fitted to X, holds the same documents afterwards, except if a library counts added ones twice.
    """
    order = np.argsort(X.sum(axis=1), kind="stable")
    picked = order[np.linspace(0, len(order) - 1, ONES + 2).astype(int)[1:-1]]
    costs, again = [], 0
    for k in picked.tolist():
        seconds, change = cpu_timed(partial(model.forget, X[[k]]))
        if change is Change.REFIT:
            break
        costs.append(seconds)
        again += change is Change.RETRAINED
        model.add(X[[k]])
    yield Figure("forget one document", *((float(np.mean(costs)), "CPU s") if costs else (learned, "CPU s, refit")))
    if costs:
        yield Figure("forget one document, by retrain", again, f"of {ONES}")
    tenth = X[::SHARE]
    for name, act in (("forget", model.forget), ("add", model.add)):
        seconds, change = cpu_timed(partial(act, tenth))
        able = change is not Change.REFIT
        unit = "documents/CPU s" if able else "documents/CPU s, refit"
        yield Figure(name, tenth.shape[0] / (seconds if able else learned), unit)
