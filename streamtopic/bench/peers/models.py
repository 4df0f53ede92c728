"""The models, behind one small interface; each library with its own defaults but for what is said here.

    fit(X)         learn from counts (documents, words); X over the rule's vocabulary
    topics()       p(w|t), (r, words), rows summing to 1
    infer(X)       topic proportions of new documents, (documents, r)
    add(X)         take in more documents; False where that means a new fit
    forget(X)      take documents out; False where that means a new fit

All run on one thread unless the library has its own default; processor time is what is compared.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    from scipy.sparse import csr_array
    from sklearn.base import BaseEstimator

__all__ = ["MODELS", "Model"]

SEED = 1


class Model(Protocol):
    """What a model can be asked."""

    def fit(self, X: csr_array) -> None:
        """Learn."""

    def topics(self) -> npt.NDArray[np.float64]:
        """Return p(w|t)."""

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        """Return topic proportions of new documents."""

    def add(self, X: csr_array) -> bool:
        """Take in more documents; False where the model cannot."""

    def forget(self, X: csr_array) -> bool:
        """Take documents out; False where the model cannot."""


class Ours:
    """AnchorTopics; the vocabulary rule was applied before, so it keeps every word it is given."""

    def __init__(self, topics: int, learner: str = "default") -> None:
        from streamtopic import AnchorTopics

        self.model = AnchorTopics(n_topics=topics, learner=learner, min_df=1, max_df=1.0)

    def fit(self, X: csr_array) -> None:
        self.model.fit(X)

    def topics(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.model.components_)

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        return self.model.transform(X)

    def add(self, X: csr_array) -> bool:
        self.model.partial_fit(X)
        return True

    def forget(self, X: csr_array) -> bool:
        self.model.unlearn(X)
        return True


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

    def add(self, X: csr_array) -> bool:
        if self.online:
            self.model.partial_fit(self._seen(X))
        return self.online

    def forget(self, X: csr_array) -> bool:
        del X
        return False

    def _seen(self, X: csr_array) -> csr_array:
        return X if self.weight is None else self.weight.transform(X)


class Gensim:
    """gensim's LdaModel."""

    def __init__(self, topics: int, passes: int) -> None:
        self.count, self.passes = topics, passes
        self.model: Any = None

    def fit(self, X: csr_array) -> None:
        from gensim.models import LdaModel

        names = {k: str(k) for k in range(X.shape[1])}
        self.model = LdaModel(
            self._bags(X), num_topics=self.count, id2word=names, passes=self.passes, random_state=SEED
        )

    def topics(self) -> npt.NDArray[np.float64]:
        return np.asarray(self.model.get_topics(), np.float64)

    def infer(self, X: csr_array) -> npt.NDArray[np.float64]:
        gamma, _ = self.model.inference(self._bags(X))
        return np.asarray(gamma / gamma.sum(axis=1, keepdims=True))

    def add(self, X: csr_array) -> bool:
        self.model.update(self._bags(X))
        return True

    def forget(self, X: csr_array) -> bool:
        del X
        return False

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

    def add(self, X: csr_array) -> bool:
        del X
        return False

    def forget(self, X: csr_array) -> bool:
        del X
        return False

    @staticmethod
    def _texts(X: csr_array) -> list[list[str]]:
        names = np.array([str(k) for k in range(X.shape[1])], object)
        tokens = np.repeat(names[X.indices], X.data.astype(np.int64)).tolist()
        ends = np.concatenate([[0], np.cumsum(X.data.astype(np.int64))])[X.indptr].tolist()
        return [tokens[start:stop] for start, stop in pairwise(ends)]


def _lda(method: str) -> Callable[[int], Model]:
    def make(topics: int) -> Model:
        from sklearn.decomposition import LatentDirichletAllocation

        model = LatentDirichletAllocation(topics, learning_method=method, random_state=SEED)
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
    "gensim-lda": lambda topics: Gensim(topics, passes=1),
    "gensim-lda-10-passes": lambda topics: Gensim(topics, passes=10),
    "sklearn-lda-batch": _lda("batch"),
    "sklearn-lda-online": _lda("online"),
    "sklearn-nmf": _nmf,
    "sklearn-minibatch-nmf": _minibatch_nmf,
    "tomotopy-lda": lambda topics: Tomotopy(topics, iterations=1000),
}
