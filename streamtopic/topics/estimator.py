"""AnchorTopics: the library alone, by scikit-learn's estimator contract."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from math import inf, isnan
from numbers import Real
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from streamtopic.compiled import compiling_is_said, duration_is_said
from streamtopic.counts import Counts, DocumentBatch, KeptCounts, TextMatrix, count, narrowed
from streamtopic.counts.arrays import Float, Int32, Int64, Positions, entry_rows, places
from streamtopic.counts.batch import row_ends
from streamtopic.counts.matrices import TextColumns, as_documents, canonical
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.topics.display import TopicRow, TopicTable, heap
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.fitted import Fitted, steady
from streamtopic.topics.inference import fold_in, held_out_likelihood, unknown_documents, warn_of_unknown
from streamtopic.topics.learner import learn, why_left_out
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions, words_given
from streamtopic.topics.saved import saved_model, write_model
from streamtopic.topics.update import NeedsRetrain, update

__all__ = ["AnchorTopics", "warn_of"]

# Without a number of their own: topics, and the share of the documents that may hold a word.
_TOPICS = LearnerOptions().n_topics
_MAX_DF = 0.1


def _of_model(name: str) -> Any:
    """Return an attribute that is read from the model; there is none before the first fit."""

    def read(estimator: "AnchorTopics") -> Any:
        value = getattr(estimator.__dict__.get("_model"), name, None)
        if value is None:
            raise AttributeError(f"this {type(estimator).__name__} has no such attribute: fit it first")
        return value

    return property(read)


class _WithoutChance:
    """Refuses `random_state` with the reason. A base class, so that the signature stays that of `__init__`."""

    def __new__(cls, *_: Any, **params: Any) -> Self:
        if "random_state" in params:
            raise TypeError("random_state is not needed: the result is deterministic")
        return super().__new__(cls)


class AnchorTopics(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, _WithoutChance):  # type: ignore[misc]
    """Topic model by anchor words that can exactly forget documents.

    Documents are rows of word counts, X (documents, words), sparse or dense. `fit(X)` learns; `partial_fit(X_more)`
    adds documents; `unlearn(X_some)` takes documents away again. The model depends on the multiset of its documents
    only. `fit(X).unlearn(X_some)` has the words, anchors and sets of words of `fit(X_rest)`, decided to the bit on
    every path and machine. Its probabilities are within the sum of both `certificate_`: docs/proof.md proves it.

    Values that are not integers are taken as fixed point with 1/1024 (about three decimals). A row that then sums to
    more than 8,192 is scaled down to it. Each row is turned by itself, so unlearning stays exact. Learner "default"
    counts a word at most twice in a row of integers; a row of fractions counts as it is. A document is as
    long as its row says: words that a vectoriser left out do not count. From `TextCounts`, in a pipeline or not, it is
    as long as its text, and longer texts are passages: the model is then the one that a service learns of these texts.

    Readers in other threads see the model before a change or the one after it. Changes come from one thread at a time.

    A model holds its documents as word counts, without order, names or texts, since words that are too rare today may
    be frequent enough later. Its pickle holds them too. Neither holds a document that was unlearned.

    Parameters
    ----------
    n_topics : r. None for 20, or for as many as the documents can make if these are fewer.
    learner : "default" or "paper"; see LearnerOptions.
    min_df, min_share, max_df, anchor_min_df, max_words : the working vocabulary; see LearnerOptions. With min_df=1,
        min_share=0, max_df=1.0 all words stay that a vectoriser has chosen. None for max_df is 0.1, or 1.0 if no model
        can be made without the words of more documents.
    exclude_words : words that are not kept: a list, or the path of a file with a word on each line, which is read at
        each change of the model. Words as topics show them, of texts in small letters; those that no document holds do
        no harm. Columns need names. The words still count in the length of a document, as in a service.
    alpha : prior of `transform`.
    tolerance : bound on the relative error of each proportion of `transform`.
    guided : topics of seed words, by name: {"cars": ["car", "engine"]}. They count among the n_topics, and all others
        are found in addition. Seeds are names of columns, or numbers of columns without names.
    verbose : whether `fit` says how long its steps took, on standard error.

    Attributes
    ----------
    components_ : (n_topics, words) word probabilities of each topic; rows sum to 1, 0 for words left out. Guided
        topics are the last ones. A guided topic that has ended has no row.
    topic_shares_ : (n_topics,) share of each topic in all word occurrences, by co-occurrence mass.
    anchors_ : (n_topics,) column of each topic's anchor word, in the order of words: ascending, but for columns that
        `TextCounts.partial_fit` has put after the others. It is -1 for a guided topic.
    topic_names_ : (n_topics,) name of each topic: its anchor word, or the name of a guided topic.
    guided_notes_ : a sentence for each guided topic that goes on with fewer seeds, or has ended.
    certificate_ : proven bound on the Frobenius distance of `components_` to the exact model of these counts.
    n_documents_ : documents in the model.
    retrain_reason_ : why the last change needed a cold start from counts; None if it did not.
    n_features_in_, feature_names_in_ : as in scikit-learn; names also if `TextCounts` gave them.

    Source: Arora et al. 2013; Wei et al. 2025, with an exact solve in place of the projected Newton step.
    """

    def __init__(
        self,
        n_topics: int | None = None,
        *,
        learner: str = "default",
        min_df: int = 5,
        min_share: float = 0.0005,
        max_df: float | None = None,
        anchor_min_df: float = 0.0075,
        max_words: int = 20_000,
        exclude_words: Iterable[str] | Path | str | None = None,
        alpha: float = 0.1,
        tolerance: float = 1e-3,
        guided: Mapping[str, Sequence[str | int]] | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_topics = n_topics
        self.learner = learner
        self.min_df = min_df
        self.min_share = min_share
        self.max_df = max_df
        self.anchor_min_df = anchor_min_df
        self.max_words = max_words
        self.exclude_words = exclude_words
        self.alpha = alpha
        self.tolerance = tolerance
        self.guided = guided
        self.verbose = verbose

    # Read from one value, which a change replaces at once: see `Fitted`.
    components_ = _of_model("components")
    topic_shares_ = _of_model("shares")
    anchors_ = _of_model("anchors")
    topic_names_ = _of_model("topic_names")
    guided_notes_ = _of_model("notes")
    certificate_ = _of_model("certificate")
    n_documents_ = _of_model("documents")
    n_features_in_ = _of_model("n_features")
    feature_names_in_ = _of_model("names")
    counts_ = _of_model("counts")
    fit_ = _of_model("fit")

    @property
    def retrain_reason_(self) -> str | None:
        """Why the last change needed a cold start from counts; None if it did not."""
        return self._now().retrain_reason

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn from documents X (documents, words) and forget those of an earlier fit.

        Warns of a guided topic that has ended already, and, if there are five topics or more, of one that holds more
        than half of all words. Each warning has a remedy. A notice says once if code is compiled on the first run.
        Raises ValueError if these documents make no model. An earlier model then stays as it was.
        """
        del y
        self._model = self._learned(*self._first_counts(X))
        warn_of(self._model)
        return self

    def partial_fit(self, X: Any, y: object = None) -> Self:
        """Add documents. The model is the same as after one `fit` on all of them.

        X of a `TextCounts` may have more columns than before, after those that it had.
        Raises ValueError if these documents make no model or X has other columns. The model then stays as it was.
        """
        del y
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        self._model = self._with(self._model, X)
        return self

    def unlearn(self, X: Any) -> Self:
        """Take away documents that were fitted before: the exact inverse of having fitted them.

        A document is taken away once for each row of X that equals it.
        Raises ValueError if not all rows of X are documents of the model, or if the documents left cannot make
        n_topics topics. The model then stays as it was.
        """
        self._model = self._without(self._now(), X)
        return self

    def transform(self, X: Any) -> Float:
        """Return topic proportions of documents, (documents, n_topics). Rows sum to 1.

        Warns of documents without a word of the model, by their rows: their proportions are all equal.
        Raises ValueError for another number of columns, amounts that are negative or not finite, and an `alpha` or
        `tolerance` that is not a number above 0.
        """
        model = self._now()
        theta, unknown = self._proportions(model, X)
        # One more than usual, since scikit-learn's wrapper comes between.
        warn_of_unknown(unknown, len(theta), stacklevel=4)
        return theta

    def score(self, X: Any, y: object = None) -> float:
        """Return the mean log-likelihood of tokens that were held out, in nats: higher is better.

        Every second word of a document is predicted from the topics of the others. Words that the model does not have
        are left out, so compare models of the same vocabulary, such as of several `n_topics` by GridSearchCV.
        Raises ValueError as `transform`, and if no document has two words of the model.
        """
        del y
        known = self._known_words(self._now(), X)
        found = held_out_likelihood(*known, alpha=self.alpha, tolerance=self.tolerance)
        if isnan(found):
            raise ValueError("no document has two words of the model, so none can be held out: give other documents")
        return found

    def representative_documents(self, X: Any, top: int = 3) -> Positions:
        """Return the rows of X with the largest proportion of each topic, (n_topics, top), the largest first.

        X: documents, those of the model or others; a model holds no texts. Equal rows are in their order.
        top: how many of each topic; with fewer documents there are fewer columns.
        Raises ValueError as `transform`.
        """
        theta, unknown = self._proportions(self._now(), X)
        # No topic has a document whose proportions are equal because it holds no word.
        theta[unknown] = -1
        return np.argsort(-theta, axis=0, kind="stable")[:top].T

    def _proportions(self, model: Fitted, X: Any) -> tuple[Float, Positions]:
        """Return topic proportions of documents by a model, and the documents without a word of it."""
        return self._inferred(*self._known_words(model, X))

    def _known_words(self, model: Fitted, X: Any) -> tuple[Float, Int64, Int32, npt.NDArray[Any]]:
        """Return what topic proportions need: A over the model's words, and these words of each document as CSR rows.

        The matrix is not needed any more afterwards. Most of its columns are no words of the model.
        """
        self._check_inference()
        rows = self._rows_of(model, X)
        return _known(model, rows.indptr.astype(np.int64), rows.indices, rows.data)

    def _inferred(self, A: Float, indptr: Int64, words: Int32, counts: npt.NDArray[Any]) -> tuple[Float, Positions]:
        """Return topic proportions of documents over known words alone, and the documents without one."""
        theta = fold_in(A, indptr, words, counts, alpha=self.alpha, tolerance=self.tolerance)
        return theta, unknown_documents(A, theta, indptr, words)

    def word_places(self) -> tuple[Positions, Positions]:
        """Return where the model's words are, in the order of words: their columns, and their places in `counts_`."""
        return self._now().word_places()

    def topics(self, feature_names: Sequence[str] | None = None, top: int = 10) -> list[list[str]]:
        """Return the top words of each topic, topics with the largest share first. `topic_info` says which they are.

        The words and their order are those that a service publishes of this model.

        feature_names: the words of the columns, if the model was not fitted on a frame that names them.
        top: how many words of each topic.
        Raises ValueError if there is not one name for each column, and for a negative number of words.
        """
        model = self._now()
        shown = _shown_words(model, feature_names, top)
        return [shown[k] for k in _by_share(model)]

    def topic_info(self, feature_names: Sequence[str] | None = None, top: int = 10) -> TopicTable:
        """Return the topics as a table: id, name, share, documents and words of each, the largest share first.

        feature_names, top: as of `topics`.
        It infers the topics of all documents of the model, so it takes as long as `transform` of them. A document
        without a word of the model counts for no topic.
        Raises ValueError as `topics`.
        """
        model = self._now()
        shown = _shown_words(model, feature_names, top)
        largest = np.zeros(len(shown), np.int64)
        for block in model.counts.blocks:
            ends = np.searchsorted(block.owners, np.arange(block.documents + 1))
            columns = model.columns.order[block.words]
            theta, unknown = self._inferred(*_known(model, block.indptr[ends], columns, block.counts))
            known = np.delete(theta, unknown, axis=0)
            largest += np.bincount(known.argmax(axis=1), minlength=len(shown))
        rows = []
        for k in _by_share(model):
            share = float(model.shares[k])
            rows.append(TopicRow(k, model.topic_names[k], share, int(largest[k]), tuple(shown[k])))
        return TopicTable(rows)

    def save(self, path: str | Path) -> None:
        """Write the parameters and the documents, as word counts, to a file: the model follows from them. See `load`.

        Raises OSError if the file cannot be written; a file that was there before stays then.
        """
        params = self.get_params(deep=False) | {"exclude_words": list(words_given(self.exclude_words)) or None}
        write_model(Path(path), params, self._now())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote: its documents are learned again. It runs no code of the file.

        Raises UsageError if the file does not hold a whole model.
        """
        with saved_model(Path(path)) as (params, columns, names, batch):
            model = cls(**params)
            model._model = model._learned(columns, names, model._counted(columns, names, batch))
        return model

    def pyldavis_data(self, X: Any, terms: int = 30) -> Any:
        """Return what `pyLDAvis.save_html` and `pyLDAvis.display` take: the topics, and how often documents have words.

        X: documents, those of the model or others.
        terms: how many words are drawn for each topic.
        Needs pyLDAvis. Raises ValueError as `transform`.
        """
        import pyLDAvis

        model = self._now()
        A, indptr, words, counts = self._known_words(model, X)
        theta, _ = self._inferred(A, indptr, words, counts)
        lengths = np.bincount(entry_rows(indptr), counts, len(theta))
        frequency = np.bincount(words, counts, len(A))
        names = [model.name(column) for column in np.flatnonzero(model.components.any(axis=0)).tolist()]
        with warnings.catch_warnings():
            # It takes logarithms of 0.
            warnings.simplefilter("ignore", RuntimeWarning)
            return pyLDAvis.prepare(A.T, theta, lengths, names, frequency, R=terms, n_jobs=1)

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in self.__dict__

    def _now(self) -> Fitted:
        """Return the model as it is now. A method asks once, so that all of its answer is of one model."""
        check_is_fitted(self)
        return self._model

    @property
    def _n_features_out(self) -> int:
        return len(self._now().components)

    def _check_inference(self) -> None:
        """Raise ValueError unless both parameters of `transform` are numbers above 0."""
        for name in ("alpha", "tolerance"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < inf):
                raise ValueError(f"{name} is {value!r}: use a number above 0")

    def _options(self, columns: TextColumns, names: Iterable[object] | None) -> Iterator[LearnerOptions]:
        """Yield the options to learn with: later ones are taken if no model can be made with those before.

        columns, names: as of `Fitted`.
        """
        guided = self._guided(columns, names)
        excluded = self._excluded(columns, names)
        # Python's own ranges: a number that was given may be of any type, and LearnerOptions refuses other values.
        fewest = max(1, len(guided))
        topics = [*range(max(_TOPICS, fewest), fewest - 1, -1)] if self.n_topics is None else [self.n_topics]
        shares = [_MAX_DF, 1.0] if self.max_df is None else [self.max_df]
        for max_df, n_topics in product(shares, topics):
            yield LearnerOptions(
                n_topics=n_topics,
                learner=self.learner,  # type: ignore[arg-type]  # LearnerOptions refuses other values itself
                min_df=self.min_df,
                min_share=self.min_share,
                max_df=max_df,
                anchor_min_df=self.anchor_min_df,
                max_words=self.max_words,
                guided=guided,
                exclude_words=excluded,
            )

    def _guided(self, columns: TextColumns, names: Iterable[object] | None) -> tuple[GuidedTopic, ...]:
        """Return the guided topics by the words of the counts."""
        if not self.guided:
            return ()
        places = {str(name): k for k, name in enumerate(() if names is None else names)}
        words = dict(zip(columns.order.tolist(), columns.words, strict=True))
        topics = []
        if not isinstance(self.guided, Mapping):
            raise UsageError(f"guided is a {type(self.guided).__name__}: give a dict of names to lists of seeds")
        for name, seeds in self.guided.items():
            if isinstance(seeds, str):
                raise UsageError(f"the seeds of guided topic {name} are one text: give a list of words")
            if not isinstance(seeds, Iterable):
                raise UsageError(f"the seeds of guided topic {name} are a {type(seeds).__name__}: give a list of words")
            chosen = [_column(name, seed, places, len(words)) for seed in seeds]
            own = tuple(words[k] for k in chosen)
            topics.append(GuidedTopic(str(name), own))
        return tuple(topics)

    def _excluded(self, columns: TextColumns, names: Iterable[object] | None) -> tuple[str, ...]:
        """Return the excluded words by the words of the counts."""
        excluded = words_given(self.exclude_words)
        if not excluded or columns.named:
            return excluded
        if names is None:
            raise UsageError(
                "exclude_words needs columns with names: give a frame, or texts to TextCounts or TextTopics"
            )
        places = {str(name): k for k, name in enumerate(names)}
        return tuple(columns.words[places[word]] for word in excluded if word in places)

    def _rows_of(self, model: Fitted, X: Any) -> csr_array:
        """Return documents over the columns of a model, (documents, words)."""
        if not isinstance(X, TextMatrix):
            return _checked(_Columns.of(model), X, type(self).__name__)
        # The vectoriser may have grown since the fit, or not have grown as far as the model: later words are left out.
        shared = model.columns.shared(X.texts)
        rows = csr_array(X)
        if shared < rows.shape[1]:
            rows = rows[:, :shared]
        rows.resize((rows.shape[0], model.n_features))
        return rows

    def _learned(self, columns: TextColumns, names: npt.NDArray[np.object_] | None, counts: KeptCounts) -> Fitted:
        """Return the model of counts, as `_first_counts` returns them."""
        with _as_value_error(), compiling_is_said():
            all_options = [*self._options(columns, names)]
            with duration_is_said("learned topics", self.verbose):
                fit = _first_learned(counts, all_options)
            return Fitted.of(counts, columns, names, len(columns.order), fit)

    def _first_counts(self, X: Any) -> tuple[TextColumns, npt.NDArray[np.object_] | None, KeptCounts]:
        """Return the columns of a matrix, their names, and the counts of its documents over them.

        The matrix is not needed any more afterwards: a fit on texts gives it back before it learns.
        """
        columns, names, batch = self._first_documents(X)
        return columns, names, self._counted(columns, names, batch)

    def _counted(self, columns: TextColumns, names: npt.NDArray[np.object_] | None, batch: DocumentBatch) -> KeptCounts:
        """Return the counts of documents over columns."""
        self._check_inference()
        with _as_value_error(), compiling_is_said():
            all_options = [*self._options(columns, names)]
            with duration_is_said(f"counted {batch.documents} documents", self.verbose):
                return KeptCounts.counted(columns.words, batch, all_options[0].weighting)

    def _first_documents(self, X: Any) -> tuple[TextColumns, npt.NDArray[np.object_] | None, DocumentBatch]:
        """Return the columns of a matrix, their names, and its documents over them."""
        if isinstance(X, TextMatrix):
            columns = TextColumns.of(X.texts.words)
            return columns, np.array(X.texts.words, dtype=object), columns.placed(X.texts)
        seen = _Columns()
        rows = _checked(seen, X, type(self).__name__, reset=True)
        with _as_value_error():
            batch = as_documents(rows)
        return TextColumns.numbered(seen.n_features_in_), getattr(seen, "feature_names_in_", None), batch

    def _with(self, model: Fitted, X: Any) -> Fitted:
        """Return a model with more documents."""
        counts = model.counts
        columns = model.columns
        if isinstance(X, TextMatrix):
            columns = columns.grown(X.texts)
            batch = columns.placed(X.texts)
            if columns is not model.columns:
                places = columns.moved(model.columns)
                counts = counts.over(columns.words, places)
        else:
            batch = self._documents(model, X)
        with _as_value_error(), compiling_is_said():
            return self._changed(model, counts.plus(batch), columns, batch, 1)

    def _without(self, model: Fitted, X: Any) -> Fitted:
        """Return a model without some of its documents."""
        batch = self._documents(model, X)
        try:
            counts = model.counts.minus(batch)
        except NegativeCounts as error:
            raise ValueError(f"these documents are not all in the model: {error}") from error
        with _as_value_error(), compiling_is_said():
            return self._changed(model, counts, model.columns, batch, -1)

    def _documents(self, model: Fitted, X: Any) -> DocumentBatch:
        """Return the documents of a matrix, which may know its texts or not, over the columns of a model."""
        if isinstance(X, TextMatrix):
            return model.columns.placed(X.texts)
        # A text is as long as all its tokens. A row of such a matrix may be shorter: it would be another document.
        if model.columns.named:
            raise ValueError(
                "the model was fitted on texts that TextCounts had counted, and this matrix does not know its texts: "
                "give the result of TextCounts.transform, or rows of it"
            )
        rows = self._rows_of(model, X)
        with _as_value_error():
            return as_documents(rows)

    def _changed(
        self, model: Fitted, counts: KeptCounts, columns: TextColumns, batch: DocumentBatch, sign: int
    ) -> Fitted:
        """Return the model of changed counts.

        batch: the documents that were added (sign 1) or taken away (-1).
        """
        names = model.names
        n_features = model.n_features
        if columns.named:
            names = np.array(columns.names, dtype=object)
            n_features = len(columns.names)
        all_options = [*self._options(columns, names)]
        outcome: TopicFit | NeedsRetrain = NeedsRetrain("no model of these settings to start from")
        if model.fit.options == all_options[0]:
            outcome = _updated(model.fit, counts, batch, sign)
        if isinstance(outcome, TopicFit):
            return Fitted.of(counts, columns, names, n_features, outcome)
        fit = _first_learned(counts, all_options)
        return Fitted.of(counts, columns, names, n_features, fit, outcome.reason)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


class _Columns(BaseEstimator):  # type: ignore[misc]
    """Holds what scikit-learn notes and asks about columns, so that a fit that fails has changed no estimator."""

    @classmethod
    def of(cls, model: Fitted) -> "_Columns":
        """Return the columns of a model."""
        seen = cls()
        seen.n_features_in_ = model.n_features
        if model.names is not None:
            seen.feature_names_in_ = model.names
        return seen


def _checked(seen: _Columns, X: Any, estimator: str, *, reset: bool = False) -> csr_array:
    """Check a matrix as scikit-learn does.

    seen: the columns to hold it against; with `reset` they are taken from the matrix.
    estimator: the name in errors.
    """
    _refuse_texts(X)
    least = 2 if reset else 1
    X = validate_data(
        seen, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32, np.int64, np.int32],
        ensure_non_negative=True, ensure_min_features=least, ensure_min_samples=least, estimator=estimator,
    )  # fmt: skip
    return canonical(csr_array(X))


def _first_learned(counts: KeptCounts, all_options: Sequence[LearnerOptions]) -> TopicFit:
    """Return the model by the first options that make one. Raises CannotLearn if none do."""
    for options in all_options[:-1]:
        with suppress(CannotLearn):
            return learn(counts, options)
    return learn(counts, all_options[-1])


def warn_of(model: Fitted) -> None:
    """Warn, at the line that called `fit`, of what a user should know about a fresh model."""
    for warning in filter(None, (*_ended(model), heap(model.shares, model.topic_names))):
        warnings.warn(warning, UserWarning, stacklevel=3)


def _shown_words(model: Fitted, names: Sequence[str] | None, top: int) -> list[list[str]]:
    """Return the words of each topic of a model as they are shown: see `AnchorTopics.topics`."""
    if top < 0:
        raise ValueError(f"top is {top}: ask for 0 words of a topic or more")
    if names is None:
        names = [model.name(column) for column in range(model.n_features)]
    if len(names) != model.n_features:
        raise ValueError(f"there are {len(names)} names for {model.n_features} columns: give one for each")
    columns, _ = model.word_places()
    A = steady(model.components.T[columns])
    own = [str(names[k]) for k in columns.tolist()]
    labels = np.array(own, object)
    shown = []
    for order, share in zip(model.word_order[:, :top], A.T, strict=True):
        # A topic may have fewer words than are asked for.
        possible = order[share[order] > 0]
        shown.append(labels[possible].tolist())
    return shown


def _known(
    model: Fitted, indptr: Int64, columns: npt.NDArray[np.integer], counts: npt.NDArray[Any]
) -> tuple[Float, Int64, Int32, npt.NDArray[Any]]:
    """Return A over the model's words, and of documents over its columns these words alone, as CSR rows."""
    inside = np.flatnonzero(model.components.any(axis=0))
    words = places(model.n_features, inside, np.int32)[columns]
    known = words >= 0
    A = np.ascontiguousarray(model.components[:, inside].T)
    return A, row_ends(known)[indptr], words[known], counts[known]


def _by_share(model: Fitted) -> list[int]:
    """Return the topics of a model, those with the largest share first."""
    order: list[int] = np.argsort(-steady(model.shares), kind="stable").tolist()
    return order


def _ended(model: Fitted) -> Iterator[str]:
    """Yield for each guided topic that a fresh model does not have what is against its seeds, and the remedy."""
    options = model.fit.options
    going_on = {topic.name for topic in model.fit.guided}
    for topic in options.guided:
        if topic.name in going_on:
            continue
        causes = []
        for seed in topic.seeds:
            why = why_left_out(model.counts, seed, options)
            if why:
                name = seed if model.columns.named else model.name(int(seed))
                causes.append(f"; {name} {why}")
        remedy = "give seeds that stand for one subject together, or change the limits"
        yield f"{model.fit.notes[topic.name]}{''.join(causes)}: {remedy}"


def _updated(fit: TopicFit, counts: KeptCounts, batch: DocumentBatch, sign: int) -> TopicFit | NeedsRetrain:
    """Return a fit carried over to changed counts, or why it has to be learned again.

    batch: the documents that were added (sign 1) or taken away (-1), over the words of `counts`.
    """
    # Pairs of other words change nothing that the model has. Those of words that enter are counted again.
    n = len(fit.words)
    known = narrowed(batch, places(len(counts.words), counts.positions(fit.words), np.int32))
    signs = np.full(batch.documents, sign, np.int64)
    return update(fit, counts, Counts(fit.words, count(known, n, counts.weighting, signs)))


def _refuse_texts(X: Any) -> None:
    """Raise ValueError for a list or a column of texts, with the remedy: scikit-learn's words would not name it."""
    first = None
    if isinstance(X, Iterable) and getattr(X, "ndim", 1) == 1:
        first = next(iter(X), None)
    if isinstance(X, str) or isinstance(first, str):
        raise ValueError(  # noqa: TRY004  as scikit-learn
            "these are texts, and AnchorTopics learns from counts of words: "
            "use make_pipeline(TextCounts(), AnchorTopics()), or give the result of TextCounts"
        )


def _column(topic: str, seed: object, names: Mapping[str, int], columns: int) -> int:
    """Return the column of a seed: a word, or a column's number.

    names: the column of each name, empty for columns without names.
    Raises UsageError for a seed without a column.
    """
    if isinstance(seed, str):
        if seed in names:
            return names[seed]
        remedy = (
            "give words that the columns have, those of texts in small letters"
            if names
            else "name columns by their numbers, or fit on named ones"
        )
        raise UsageError(f"guided topic {topic}: the seed {seed!r} has no column: {remedy}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise UsageError(f"guided topic {topic}: the seed {seed!r} is neither a word nor the number of a column")
    if not 0 <= seed < columns:
        raise UsageError(f"guided topic {topic}: column {seed} is not one of {columns}: count columns from 0")
    return int(seed)


@contextmanager
def _as_value_error() -> Iterator[None]:
    """Raise this package's errors as scikit-learn's users expect them."""
    try:
        yield
    except (CannotLearn, UsageError) as error:
        raise ValueError(str(error)) from error
