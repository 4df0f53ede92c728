"""The models, with one small interface; each library has its own defaults except if this page says otherwise.

    fit(X)         learn from counts (documents, words); X over the rule's vocabulary
    topics()       p(w|t), (r, words), rows summing to 1
    infer(X)       topic proportions of new documents, (documents, r)
    add(X)         take in more documents, or say that this means a new fit
    forget(X)      take documents out, or say so

Settings are what each library recommends for text, where it does: gensim's tutorial on LDA besides its defaults, the
learning offset of scikit-learn's example, tf-idf for NMF, 1,000 sweeps of Gibbs sampling. All run on one thread unless
the library has its own default; processor time is what is compared.
"""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from scipy.sparse import csr_array
    from sklearn.base import BaseEstimator

__all__ = ["MODELS", "Change", "Model", "missing"]

SEED = 1
TUTORIAL = {"passes": 20, "iterations": 400, "alpha": "auto", "eta": "auto", "eval_every": None}
LIBRARIES = {"gensim": "gensim", "tomotopy": "tomotopy"}
"""Modules that do not come with streamtopic, by the first part of a model's name."""


class Change(StrEnum):
    """How a model took documents in or out; REFIT: it cannot, and only a new fit on all documents would do it."""

    UPDATED = "updated"
    RETRAINED = "retrained"
    REFIT = "refit"


class Model(Protocol):
    """The interface of a model."""

    def fit(self, X: csr_array) -> None:
        """Learn."""

    def topics(self) -> npt.NDArray[np.float64]:
        """Return p(w|t)."""

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        """Return topic proportions of new documents."""

    def add(self, X: csr_array) -> Change:
        """Take in more documents."""

    def forget(self, X: csr_array) -> Change:
        """Take documents out."""


class Ours:
    """AnchorTopics, which chooses words by its own thresholds."""

    def __init__(self, topics: int, learner: str = "default") -> None:
        from streamtopic import AnchorTopics

        self.model = AnchorTopics(n_topics=topics, learner=learner)

    def fit(self, X: csr_array) -> None:
        self.model.fit(X)

    def topics(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.model.components_)

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        return self.model.transform(X)

    def add(self, X: csr_array) -> Change:
        self.model.partial_fit(X)
        return self._how()

    def forget(self, X: csr_array) -> Change:
        self.model.unlearn(X)
        return self._how()

    def _how(self) -> Change:
        return Change.UPDATED if self.model.retrain_reason_ is None else Change.RETRAINED


class Decomposition:
    """A model of scikit-learn with `components_`; NMF sees tf-idf, as it does best, the others counts."""

    def __init__(self, model: BaseEstimator, *, tfidf: bool = False, online: bool = False) -> None:
        from sklearn.feature_extraction.text import TfidfTransformer

        self.model, self.online = model, online
        self.weight = TfidfTransformer() if tfidf else None

    def fit(self, X: csr_array) -> None:
        self.model.fit(X if self.weight is None else self.weight.fit_transform(X))

    def topics(self) -> npt.NDArray[np.float64]:
        parts = np.maximum(self.model.components_, 1e-12)
        return np.asarray(parts / parts.sum(axis=1, keepdims=True))

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        return np.asarray(self.model.transform(self._seen(X)))

    def add(self, X: csr_array) -> Change:
        if not self.online:
            return Change.REFIT
        self.model.partial_fit(self._seen(X))
        return Change.UPDATED

    def forget(self, X: csr_array) -> Change:
        del X
        return Change.REFIT

    def _seen(self, X: csr_array) -> csr_array:
        return X if self.weight is None else self.weight.transform(X)


class Gensim:
    """gensim's LdaModel; settings: besides its defaults."""

    def __init__(self, topics: int, **settings: object) -> None:
        self.count, self.settings = topics, settings
        self.model: Any = None

    def fit(self, X: csr_array) -> None:
        from gensim.models import LdaModel

        names = {k: str(k) for k in range(X.shape[1])}
        self.model = LdaModel(self._bags(X), num_topics=self.count, id2word=names, random_state=SEED, **self.settings)

    def topics(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.model.get_topics(), np.float64)

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        gamma, _ = self.model.inference(self._bags(X))
        return np.asarray(gamma / gamma.sum(axis=1, keepdims=True))

    def add(self, X: csr_array) -> Change:
        self.model.update(self._bags(X))
        return Change.UPDATED

    def forget(self, X: csr_array) -> Change:
        del X
        return Change.REFIT

    @staticmethod
    def _bags(X: csr_array) -> list[list[tuple[int, float]]]:
        ends = X.indptr.tolist()
        pairs = list(zip(X.indices.tolist(), X.data.tolist(), strict=True))
        return [pairs[start:stop] for start, stop in pairwise(ends)]


class Tomotopy:
    """tomotopy's LDAModel by Gibbs sampling, on one worker."""

    def __init__(self, topics: int, iterations: int) -> None:
        self.count, self.iterations = topics, iterations
        self.model: Any = None
        self.words = 0

    def fit(self, X: csr_array) -> None:
        import tomotopy

        self.words = X.shape[1]
        self.model = tomotopy.LDAModel(k=self.count, seed=SEED)
        for tokens in self._texts(X):
            if tokens:
                self.model.add_doc(tokens)
        self.model.train(self.iterations, workers=1)

    def topics(self) -> npt.NDArray[np.float64]:
        # Its own vocabulary is in order of appearance, less what it removed.
        wide = np.full((self.count, self.words), 1e-12)
        columns = np.array([int(name) for name in self.model.used_vocabs])
        for k in range(self.count):
            wide[k, columns] = self.model.get_topic_word_dist(k)
        return np.asarray(wide / wide.sum(axis=1, keepdims=True))

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        theta = np.full((X.shape[0], self.count), 1 / self.count)
        known = set(self.model.used_vocabs)
        texts = [[name for name in tokens if name in known] for tokens in self._texts(X)]
        full = [k for k, tokens in enumerate(texts) if tokens]
        documents = [self.model.make_doc(texts[k]) for k in full]
        found, _ = self.model.infer(documents, workers=1)
        theta[full] = found
        return theta

    def add(self, X: csr_array) -> Change:
        del X
        return Change.REFIT

    def forget(self, X: csr_array) -> Change:
        del X
        return Change.REFIT

    @staticmethod
    def _texts(X: csr_array) -> list[list[str]]:
        names = np.array([str(k) for k in range(X.shape[1])], object)
        tokens = np.repeat(names[X.indices], X.data.astype(np.int64)).tolist()
        ends = np.concatenate([[0], np.cumsum(X.data.astype(np.int64))])[X.indptr].tolist()
        return [tokens[start:stop] for start, stop in pairwise(ends)]


def _lda(method: str) -> Callable[[int], Model]:
    def make(topics: int) -> Model:
        from sklearn.decomposition import LatentDirichletAllocation

        model = LatentDirichletAllocation(topics, learning_method=method, learning_offset=50.0, random_state=SEED)
        return Decomposition(model, online=method == "online")

    return make


def _nmf(topics: int) -> Model:
    from sklearn.decomposition import NMF

    return Decomposition(NMF(topics, init="nndsvd", random_state=SEED), tfidf=True)


def _minibatch_nmf(topics: int) -> Model:
    from sklearn.decomposition import MiniBatchNMF

    return Decomposition(MiniBatchNMF(topics, init="nndsvda", random_state=SEED), tfidf=True, online=True)


MODELS: dict[str, Callable[[int], Model]] = {
    "streamtopic": Ours,
    "streamtopic-paper": lambda topics: Ours(topics, "paper"),
    "gensim-lda": Gensim,
    "gensim-lda-tuned": lambda topics: Gensim(topics, **TUTORIAL),
    "sklearn-lda-batch": _lda("batch"),
    "sklearn-lda-online": _lda("online"),
    "sklearn-nmf": _nmf,
    "sklearn-minibatch-nmf": _minibatch_nmf,
    "tomotopy-lda": lambda topics: Tomotopy(topics, iterations=1000),
}
"""Models by name. Ours chooses words; the others keep every word that they are given."""


def missing(name: str) -> str | None:
    """Return the module that a model needs and that is not installed, or None."""
    module = LIBRARIES.get(name.partition("-")[0])
    return module if module is not None and find_spec(module) is None else None
