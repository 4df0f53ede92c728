"""AnchorTopics: the library alone, by scikit-learn's estimator contract."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from streamtopic.counts import Cooccurrence, Counts, DocumentBatch, KeptCounts, SignedPassages, count
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.topics.display import top_words
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.inference import fold_in
from streamtopic.topics.learner import learn
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.rows import as_documents
from streamtopic.topics.update import NeedsRetrain, update

__all__ = ["AnchorTopics"]

Float = npt.NDArray[np.float64]


class AnchorTopics(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Topic model by anchor words that can exactly forget documents.

    Documents are rows of word counts, X (documents, words), sparse or dense. `fit(X)` learns; `partial_fit(X_more)`
    adds documents; `unlearn(X_some)` takes documents away again. The model depends on the multiset of its documents
    only: `fit(X).unlearn(X_some)` equals `fit(X_rest)` to 1e-12. Words that occur in the same documents equally often
    tie as anchors, and the first column wins on every path; a word exactly at a threshold of a degenerate system may
    differ within `certificate_`.

    Values that are not integers are taken as fixed point with 1/1024 (about three decimals) and a row that sums to
    more than 8,192, after that, is scaled down to it; each row by itself, so unlearning stays exact.

    Parameters: see LearnerOptions. n_topics: r. learner: "default" or "paper". min_df, max_df, anchor_min_df,
    max_words: the working vocabulary; use min_df=1, max_df=1.0 to keep what a vectoriser already chose. alpha,
    tolerance: prior of `transform`, and bound on the relative error of each proportion.

    Attributes
    ----------
    components_ : (n_topics, words) word probabilities of each topic; rows sum to 1, 0 for words left out.
    topic_shares_ : (n_topics,) share of each topic in all word occurrences, by co-occurrence mass.
    anchors_ : (n_topics,) column of each topic's anchor word, ascending.
    certificate_ : bound on the Frobenius distance of `components_` to the exact optimum for these counts.
    n_documents_ : documents in the model.
    retrain_reason_ : why the last change needed a cold start from counts, or None if it did not.
    n_features_in_, feature_names_in_ : as in scikit-learn.

    Source: Arora et al. 2013; Wei et al. 2025, with an exact solve in place of the projected Newton step.
    """

    def __init__(
        self,
        n_topics: int = 10,
        *,
        learner: str = "default",
        min_df: int = 5,
        max_df: float = 0.05,
        anchor_min_df: float = 0.01,
        max_words: int = 20_000,
        alpha: float = 0.1,
        tolerance: float = 1e-3,
    ) -> None:
        self.n_topics = n_topics
        self.learner = learner
        self.min_df = min_df
        self.max_df = max_df
        self.anchor_min_df = anchor_min_df
        self.max_words = max_words
        self.alpha = alpha
        self.tolerance = tolerance

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn from documents X (documents, words), forgetting any seen before. Raises ValueError where it cannot."""
        del y
        batch = self._documents(X, reset=True)
        digits = len(str(self.n_features_in_))
        words = [f"{k:0{digits}d}" for k in range(self.n_features_in_)]
        # What an earlier fit held goes first: two would not fit where one does.
        for name in ("counts_", "fit_"):
            self.__dict__.pop(name, None)
        with _as_value_error():
            self.counts_ = KeptCounts.counted(words, batch, self._options().weighting)
        del batch
        self.n_documents_ = self.counts_.documents
        self._relearn(None)
        return self

    def partial_fit(self, X: Any, y: object = None) -> Self:
        """Add documents: the same model as one `fit` on all of them."""
        del y
        if not hasattr(self, "counts_"):
            return self.fit(X)
        return self._change(self._documents(X, reset=False), 1)

    def unlearn(self, X: Any) -> Self:
        """Take away documents that were fitted before: the exact inverse of having fitted them.

        Raises ValueError, leaving the model as it was, where counts would become negative (not all rows of X are in
        the model) or what is left cannot make n_topics topics.
        """
        check_is_fitted(self, "counts_")
        return self._change(self._documents(X, reset=False), -1)

    def transform(self, X: Any) -> Float:
        """Return topic proportions of documents, (documents, n_topics), rows summing to 1."""
        check_is_fitted(self, "components_")
        rows = self._rows(X, reset=False)
        A = np.ascontiguousarray(self.components_.T)
        return fold_in(
            A, rows.indptr.astype(np.int64), rows.indices, rows.data, alpha=self.alpha, tolerance=self.tolerance
        )

    def topics(self, feature_names: Sequence[str] | None = None, top: int = 10) -> list[list[str]]:
        """Return the top words of each topic in display order, p(w|t) log(m/df)."""
        check_is_fitted(self, "components_")
        names = feature_names
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])
        order = top_words(self.components_.T, self.counts_.frequency, self.counts_.documents, top)
        return [[str(names[k]) for k in topic if self.components_[t, k] > 0] for t, topic in enumerate(order)]

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _options(self) -> LearnerOptions:
        return LearnerOptions(
            n_topics=self.n_topics,
            learner=self.learner,  # type: ignore[arg-type]  # LearnerOptions refuses other values itself
            min_df=self.min_df,
            max_df=self.max_df,
            anchor_min_df=self.anchor_min_df,
            max_words=self.max_words,
        )

    def _rows(self, X: Any, *, reset: bool) -> csr_array:
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32, np.int64, np.int32],
            ensure_non_negative=True, ensure_min_features=2 if reset else 1, ensure_min_samples=2 if reset else 1,
        )  # fmt: skip
        rows = csr_array(X)
        rows.sum_duplicates()
        rows.sort_indices()
        rows.eliminate_zeros()
        return rows

    def _documents(self, X: Any, *, reset: bool) -> DocumentBatch:
        rows = self._rows(X, reset=reset)
        with _as_value_error():
            return as_documents(rows)

    def _change(self, batch: DocumentBatch, sign: int) -> Self:
        """Add documents, or take them away."""
        signs, weighting = np.full(batch.documents, sign, np.int64), self._options().weighting
        with _as_value_error():
            delta = count(batch, self.n_features_in_, weighting, signs)
        passages = SignedPassages.of(batch, weighting, signs)
        try:
            self.counts_.add(delta)
        except NegativeCounts as error:
            raise ValueError(f"these documents are not all in the model: {error}") from error
        try:
            self._relearn(delta, passages)
        except ValueError:
            self.counts_.add(Cooccurrence.zero(delta.n_words) - delta)
            raise
        self.n_documents_ = self.counts_.documents
        return self

    def _relearn(self, delta: Cooccurrence | None, passages: SignedPassages | None = None) -> None:
        with _as_value_error():
            change = None if delta is None else Counts(self.counts_.words, delta)
            fit = None if change is None else self._updated(self.counts_, change, passages)
            self._publish(fit or learn(self.counts_, self._options()))

    def _updated(self, now: KeptCounts, delta: Counts, passages: SignedPassages | None) -> TopicFit | None:
        self.retrain_reason_ = None
        fit: TopicFit | None = self.__dict__.pop("fit_", None)
        if fit is None or fit.options != self._options():
            self.retrain_reason_ = "no model of these settings to start from"
            return None
        outcome = update(fit, now, delta, passages)
        if isinstance(outcome, NeedsRetrain):
            self.retrain_reason_ = outcome.reason
            return None
        return outcome.fit

    def _publish(self, fit: TopicFit) -> None:
        columns = np.array([int(word) for word in fit.words])
        self.fit_ = fit
        self.components_ = np.zeros((fit.options.n_topics, self.n_features_in_))
        self.components_[:, columns] = fit.A.T
        self.topic_shares_ = fit.topic_masses
        self.anchors_ = np.array([int(word) for word in fit.anchors])
        self.certificate_ = fit.certificate.bound
        if not hasattr(self, "retrain_reason_"):
            self.retrain_reason_ = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


@contextmanager
def _as_value_error() -> Iterator[None]:
    try:
        yield
    except (CannotLearn, UsageError) as error:
        raise ValueError(str(error)) from error
