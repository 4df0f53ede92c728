"""AnchorTopics: the library alone, by scikit-learn's estimator contract."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any, Self
from unicodedata import normalize

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from streamtopic.counts import Counts, DocumentBatch, KeptCounts, SignedPassages, TextMatrix, count, narrowed
from streamtopic.counts.arrays import Float, Positions
from streamtopic.counts.matrices import TextColumns, as_documents, canonical
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.topics.arrange import TopicHit, TopicTree, pyldavis_data, search_topics
from streamtopic.topics.display import WordEvidence, top_words
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.inference import fold_in
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions
from streamtopic.topics.over_time import FLOOR, ShareEstimator, SliceKeys, TopicSlices, Unit, periods, read_days
from streamtopic.topics.saved import read_model, write_model
from streamtopic.topics.update import NeedsRetrain, update

__all__ = ["AnchorTopics"]

# Steps of a probability that is shown: of rounding there are thousands in one of them.
_GRID = 2.0**40


class AnchorTopics(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Topic model by anchor words that can exactly forget documents.

    Documents are rows of word counts, X (documents, words), sparse or dense. `fit(X)` learns; `partial_fit(X_more)`
    adds documents; `unlearn(X_some)` takes documents away again. The model depends on the multiset of its documents
    only. `fit(X).unlearn(X_some)` has the words, anchors and sets of words of `fit(X_rest)`, decided to the bit on
    every path and machine. Its probabilities are within the sum of both `certificate_`: docs/proof.md proves it.

    Values that are not integers are taken as fixed point with 1/1024 (about three decimals). A row that then sums to
    more than 8,192 is scaled down to it. Each row is turned by itself, so unlearning stays exact. A document is as
    long as its row says: words that a vectoriser left out do not count. From `TextCounts`, in a pipeline or not, it is
    as long as its text, and longer texts are passages: the model is then the one that a service learns of these texts.

    A model holds its documents as word counts, without order, names or texts, since words that are too rare today may
    be frequent enough later. Its pickle holds them too. Neither holds a document that was unlearned.

    Parameters
    ----------
    n_topics : r.
    learner : "default" or "paper"; see LearnerOptions.
    min_df, min_share, max_df, anchor_min_df, max_words : the working vocabulary; see LearnerOptions. With min_df=1,
        min_share=0, max_df=1.0 all words stay that a vectoriser has chosen.
    alpha : prior of `transform`.
    tolerance : bound on the relative error of each proportion of `transform`.
    guided : topics of seed words, by name: {"cars": ["car", "engine"]}. They count among the n_topics, and all others
        are found beside them. Seeds are names of columns, or numbers of columns without names.

    Attributes
    ----------
    components_ : (n_topics, words) word probabilities of each topic; rows sum to 1, 0 for words left out. Guided
        topics are the last ones. A guided topic that has ended has no row.
    topic_shares_ : (n_topics,) share of each topic in all word occurrences, by co-occurrence mass.
    anchors_ : (n_topics,) column of each topic's anchor word, in the order of words: ascending, but for columns that
        `TextCounts.partial_fit` has put behind the others. It is -1 for a guided topic.
    topic_names_ : (n_topics,) name of each topic: its anchor word, or the name of a guided topic.
    guided_notes_ : a sentence for each guided topic that goes on with fewer seeds, or has ended.
    certificate_ : proven bound on the Frobenius distance of `components_` to the exact model of these counts.
    n_documents_ : documents in the model.
    retrain_reason_ : why the last change needed a cold start from counts; None if it did not.
    n_features_in_, feature_names_in_ : as in scikit-learn; names also where `TextCounts` gave them.

    Source: Arora et al. 2013; Wei et al. 2025, with an exact solve in place of the projected Newton step.
    """

    def __init__(
        self,
        n_topics: int = 10,
        *,
        learner: str = "default",
        min_df: int = 5,
        min_share: float = 0.0005,
        max_df: float = 0.1,
        anchor_min_df: float = 0.01,
        max_words: int = 20_000,
        alpha: float = 0.1,
        tolerance: float = 1e-3,
        guided: Mapping[str, Sequence[str | int]] | None = None,
    ) -> None:
        self.n_topics = n_topics
        self.learner = learner
        self.min_df = min_df
        self.min_share = min_share
        self.max_df = max_df
        self.anchor_min_df = anchor_min_df
        self.max_words = max_words
        self.alpha = alpha
        self.tolerance = tolerance
        self.guided = guided

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn from documents X (documents, words) and forget those of an earlier fit.

        Raises ValueError where these documents make no model.
        """
        del y
        batch = self._first_documents(X)
        self._check_inference()
        with _as_value_error():
            options = self._options()
        # The arrays of an earlier fit go first: there may be memory for one model, but not for two.
        for name in ("counts_", "fit_", "components_", "_looked_up"):
            self.__dict__.pop(name, None)
        with _as_value_error():
            self.counts_ = KeptCounts.counted(self._columns.words, batch, options.weighting)
            del batch
            self.retrain_reason_: str | None = None
            self._publish(learn(self.counts_, options))
        return self

    def partial_fit(self, X: Any, y: object = None) -> Self:
        """Add documents. The model is the same as after one `fit` on all of them.

        X of a `TextCounts` may have more columns than before, behind those that it had.
        Raises ValueError where these documents make no model or X has other columns. The model then stays as it was.
        """
        del y
        if not hasattr(self, "counts_"):
            return self.fit(X)
        counts = self.counts_
        columns = self._columns
        if isinstance(X, TextMatrix):
            columns = columns.grown(X.texts)
            batch = columns.placed(X.texts)
            if columns is not self._columns:
                places = columns.moved(self._columns)
                counts = counts.over(columns.words, places)
        else:
            batch = self._documents(X)
        with _as_value_error():
            return self._change(counts.plus(batch), columns, batch, 1)

    def unlearn(self, X: Any) -> Self:
        """Take away documents that were fitted before: the exact inverse of having fitted them.

        A document is taken away once for each row of X that equals it.
        Raises ValueError where not all rows of X are documents of the model, or where the documents left cannot make
        n_topics topics. The model then stays as it was.
        """
        check_is_fitted(self, "counts_")
        batch = self._documents(X)
        try:
            counts = self.counts_.minus(batch)
        except NegativeCounts as error:
            raise ValueError(f"these documents are not all in the model: {error}") from error
        with _as_value_error():
            return self._change(counts, self._columns, batch, -1)

    def transform(self, X: Any) -> Float:
        """Return topic proportions of documents, (documents, n_topics). Rows sum to 1.

        Raises ValueError for another number of columns, amounts that are negative or not finite, and an `alpha` or
        `tolerance` that is not a number above 0.
        """
        check_is_fitted(self, "components_")
        self._check_inference()
        rows = self._rows_of(X)
        A = self.components_.T
        indptr = rows.indptr.astype(np.int64)
        return fold_in(
            np.ascontiguousarray(A),
            indptr,
            rows.indices,
            rows.data,
            alpha=self.alpha,
            tolerance=self.tolerance,
        )

    def word_places(self) -> tuple[Positions, Positions]:
        """Return where the model's words stand, in the order of words: their columns, and their places in `counts_`."""
        check_is_fitted(self, "components_")
        order = self._columns.order
        positions = np.flatnonzero(self.components_[:, order].any(axis=0))
        return order[positions], positions

    def topics(self, feature_names: Sequence[str] | None = None, top: int = 10) -> list[list[str]]:
        """Return the top words of each topic as they are shown: see `streamtopic.topics.top_words`.

        The words and their order are those that a service publishes of this model.

        feature_names: the words of the columns, where the model was not fitted on a frame that names them.
        top: how many words of each topic.
        Raises ValueError where there is not one name for each column, and for a negative number of words.
        """
        check_is_fitted(self, "components_")
        if top < 0:
            raise ValueError(f"top is {top}: ask for 0 words of a topic or more")
        names = feature_names
        if names is None:
            names = getattr(self, "feature_names_in_", [f"x{k}" for k in range(self.n_features_in_)])
        if len(names) != self.n_features_in_:
            raise ValueError(f"there are {len(names)} names for {self.n_features_in_} columns: give one for each")
        columns, positions = self.word_places()
        A = _steady(self.components_.T[columns])
        frequency = self.counts_.frequency[positions]
        fit = getattr(self, "fit_", None)
        if fit is None:
            # A change that was refused has used up the fit. The counts say the same of these words.
            q = self.counts_.symmetric(positions)
            places = np.arange(len(columns))
            evidence = WordEvidence.over(q, places, frequency, self.counts_.documents)
        else:
            evidence = WordEvidence.of(fit, frequency)
        own = [str(names[k]) for k in columns.tolist()]
        labels = np.array(own, object)
        shown = []
        for order, share in zip(top_words(A, evidence, top), A.T, strict=True):
            # A topic may have fewer words than are asked for.
            possible = order[share[order] > 0]
            shown.append(labels[possible].tolist())
        return shown

    def save(self, path: str | Path) -> None:
        """Write the model to a file, its documents as word counts included. See `load`.

        Raises OSError where the file cannot be written; a file that was there before stays then.
        """
        check_is_fitted(self, "counts_")
        write_model(Path(path), self)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote. It goes on with the same bits, and runs no code of the file.

        Raises UsageError where the file does not hold a whole model.
        """
        params, attributes = read_model(Path(path))
        model = cls(**params)
        for name, value in attributes.items():
            setattr(model, name, value)
        return model

    def tree(self) -> TopicTree:
        """Return the tree of topics, in which those that are alike stand together."""
        A, shares, _ = self._shown()
        return TopicTree.of(A, shares)

    def search(self, word: str) -> tuple[TopicHit, ...]:
        """Return the topics that a word stands in, those first that hold most of it.

        word: the name of a column; "x3" for column 3 without a name.
        Raises UsageError for a word that the model does not have.
        """
        A, shares, words = self._shown()
        return search_topics(A, shares, words, word)

    def pyldavis_data(self, terms: int = 30) -> Mapping[str, Any]:
        """Return what pyLDAvis draws, made of the model and of exact counts of words. terms: bars of a topic."""
        A, shares, words = self._shown()
        _, positions = self.word_places()
        tokens = float(self.counts_.tokens[positions].sum())
        return pyldavis_data(A, shares, words, tokens, terms)

    def topics_over(
        self,
        X: Any,
        *,
        times: Any = None,
        classes: Iterable[object] | None = None,
        unit: Unit = "month",
        floor: int = FLOOR,
        top: int = 10,
    ) -> TopicSlices:
        """Return the shares and words of topics over time, by class, or both, with standard errors.

        X: documents (documents, words), those of the model or others.
        times: of each document, as `streamtopic.topics.over_time.read_days` takes them.
        classes: of each document, texts or whole numbers; "", None or NaN for a document without a class.
        unit: length of a period: day, week, month, quarter or year, in UTC.
        floor: the fewest documents of a slice that is shown.
        top: words of a topic in a slice. They are columns of X; `get_feature_names_out` of the vectoriser names them.

        Raises UsageError for times that cannot be read, and where times or classes are not one for each document.
        """
        check_is_fitted(self, "components_")
        columns, _ = self.word_places()
        rows = self._rows_of(X)[:, columns]
        moments = None if times is None else periods(read_days(times), unit)
        keys = SliceKeys.made(moments, None if classes is None else _class_names(classes))
        if len(keys.of) != rows.shape[0]:
            raise UsageError(f"there are {rows.shape[0]} documents, but {len(keys.of)} times or classes")
        A, shares, _ = self._shown()
        estimator = ShareEstimator.of(np.ascontiguousarray(A), shares)
        sums = estimator.sums(rows, keys.of, len(keys.times))
        found = estimator.slices(keys, sums, floor=floor, top=top)
        names = np.append(columns, -1)
        return replace(found, words=names[found.words])

    def _shown(self) -> tuple[Float, Float, list[str]]:
        """Return A over the words of the model, (n', r), shares of topics, (r,), and the names of the words.

        Views of a model that forgot are made of these, so that they are those of a model that never saw the documents.
        """
        columns, _ = self.word_places()
        words = [self._name(column) for column in columns.tolist()]
        return _steady(self.components_.T[columns]), _steady(self.topic_shares_), words

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _check_inference(self) -> None:
        """Raise ValueError unless both parameters of `transform` are numbers above 0."""
        for name in ("alpha", "tolerance"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and 0 < float(value) < inf):
                raise ValueError(f"{name} is {value!r}: use a number above 0")

    def _options(self) -> LearnerOptions:
        return LearnerOptions(
            n_topics=self.n_topics,
            learner=self.learner,  # type: ignore[arg-type]  # LearnerOptions refuses other values itself
            min_df=self.min_df,
            min_share=self.min_share,
            max_df=self.max_df,
            anchor_min_df=self.anchor_min_df,
            max_words=self.max_words,
            guided=self._guided(),
        )

    def _guided(self) -> tuple[GuidedTopic, ...]:
        """Return the guided topics by the words of the counts."""
        if not self.guided:
            return ()
        columns = self._columns
        seen = getattr(self, "feature_names_in_", ())
        names = {str(name): k for k, name in enumerate(seen)}
        words = dict(zip(columns.order.tolist(), columns.words, strict=True))
        topics = []
        if not isinstance(self.guided, Mapping):
            raise UsageError(f"guided is a {type(self.guided).__name__}: give a dict of names to lists of seeds")
        for name, seeds in self.guided.items():
            if isinstance(seeds, str):
                raise UsageError(f"the seeds of guided topic {name} are one text: give a list of words")
            if not isinstance(seeds, Iterable):
                raise UsageError(f"the seeds of guided topic {name} are a {type(seeds).__name__}: give a list of words")
            chosen = [_column(name, seed, names, len(words)) for seed in seeds]
            own = tuple(words[k] for k in chosen)
            topics.append(GuidedTopic(str(name), own))
        return tuple(topics)

    def _rows_of(self, X: Any) -> csr_array:
        """Return documents over the columns of the model, (documents, words)."""
        if not isinstance(X, TextMatrix):
            return self._rows(X, reset=False)
        # The vectoriser may have grown since the fit, or not have grown as far as the model: later words are left out.
        shared = self._columns.shared(X.texts)
        rows = csr_array(X)[:, :shared]
        rows.resize((rows.shape[0], self.n_features_in_))
        return rows

    def _rows(self, X: Any, *, reset: bool) -> csr_array:
        """Check a matrix as scikit-learn does; reset: whether it says from here on how many columns there are."""
        _refuse_texts(X)
        X = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32, np.int64, np.int32],
            ensure_non_negative=True, ensure_min_features=2 if reset else 1, ensure_min_samples=2 if reset else 1,
        )  # fmt: skip
        return canonical(csr_array(X))

    def _first_documents(self, X: Any) -> DocumentBatch:
        """Return the documents of a fit. Their columns are the model's from here on."""
        if isinstance(X, TextMatrix):
            self._columns = TextColumns.of(X.texts.words)
            batch = self._columns.placed(X.texts)
            # validate_data sets the same two attributes for a frame.
            self.n_features_in_ = len(X.texts.words)
            self.feature_names_in_ = np.array(X.texts.words, dtype=object)
            return batch
        rows = self._rows(X, reset=True)
        self._columns = TextColumns.numbered(self.n_features_in_)
        with _as_value_error():
            return as_documents(rows)

    def _documents(self, X: Any) -> DocumentBatch:
        """Return the documents of a matrix, which may know its texts or not, over the model's columns."""
        if isinstance(X, TextMatrix):
            return self._columns.placed(X.texts)
        # A text is as long as all its tokens. A row of such a matrix may be shorter: it would be another document.
        if self._columns.named:
            raise ValueError(
                "the model was fitted on texts that TextCounts had counted, and this matrix does not know its texts: "
                "give the result of TextCounts.transform, or rows of it"
            )
        rows = self._rows(X, reset=False)
        with _as_value_error():
            return as_documents(rows)

    def _change(self, counts: KeptCounts, columns: TextColumns, batch: DocumentBatch, sign: int) -> Self:
        """Take over changed counts, with the model that follows from them.

        batch: the documents that were added (sign 1) or taken away (-1).
        """
        # Counts and columns are set once there is a model, so that a refused change leaves those of the last one.
        fit = self._updated(counts, batch, sign) or learn(counts, self._options())
        self.counts_ = counts
        self._columns = columns
        if columns.named:
            self.n_features_in_ = len(columns.names)
            self.feature_names_in_ = np.array(columns.names, dtype=object)
        self._publish(fit)
        return self

    def _updated(self, counts: KeptCounts, batch: DocumentBatch, sign: int) -> TopicFit | None:
        """Return the model carried over to changed counts; None where it has to be learned again."""
        self.retrain_reason_ = None
        # An update changes its arrays in place, so no later call may meet a model that it left half-way.
        fit: TopicFit | None = self.__dict__.pop("fit_", None)
        if fit is None or fit.options != self._options():
            self.retrain_reason_ = "no model of these settings to start from"
            return None
        # Pairs of other words change nothing that the model has. Those of words that enter are counted anew.
        inside = self._inside(counts, fit)
        n = len(fit.names)
        ids = np.full(len(counts.words), -1, np.int32)
        ids[inside] = np.arange(n)
        known = narrowed(batch, ids)
        signs = np.full(batch.documents, sign, np.int64)
        changed = count(known, n, counts.weighting, signs)
        delta = Counts(fit.names, changed)
        passages = SignedPassages.of(known, counts.weighting, signs)
        outcome = update(fit, counts, delta, passages)
        if isinstance(outcome, NeedsRetrain):
            self.retrain_reason_ = outcome.reason
            return None
        return outcome.fit

    def _inside(self, counts: KeptCounts, fit: TopicFit) -> Positions:
        """Return where the fit's internal words stand among those of the counts."""
        # Looked up once for the same words.
        found: tuple[Sequence[str], Sequence[str], Positions] | None = self.__dict__.get("_looked_up")
        if found is None or found[0] is not fit.names or found[1] is not counts.words:
            places = counts.positions(fit.names)
            found = (fit.names, counts.words, places)
            self._looked_up = found
        return found[2]

    def _publish(self, fit: TopicFit) -> None:
        """Set the attributes that scikit-learn's users read."""
        live = self._inside(self.counts_, fit)[fit.live]
        places = self._columns.order[live]
        self.fit_ = fit
        self.n_documents_ = self.counts_.documents
        shape = len(fit.topic_names), self.n_features_in_
        self.components_ = np.zeros(shape)
        self.components_[:, places] = fit.A.T
        self.topic_shares_ = fit.topic_masses
        positions = self.counts_.positions(fit.anchors)
        anchors = self._columns.order[positions]
        no_anchor = np.full(len(fit.guided), -1)
        self.anchors_ = np.append(anchors, no_anchor)
        guided = [topic.name for topic in fit.guided]
        by_anchor = (self._name(column) for column in anchors.tolist())
        self.topic_names_ = (*by_anchor, *guided)
        self.guided_notes_ = fit.notes
        self.certificate_ = fit.certificate.bound

    def _name(self, column: int) -> str:
        """Return the name of a column."""
        names = getattr(self, "feature_names_in_", None)
        return f"x{column}" if names is None else str(names[column])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def _steady(probabilities: Float) -> Float:
    """Return probabilities on a grid: words that are equally likely by the counts tie, whatever came and went."""
    # Updates and cold starts end at different last bits, which would decide which of the words is shown first.
    return np.asarray(np.rint(probabilities * _GRID) / _GRID)


def _class_names(classes: Iterable[object]) -> list[str]:
    """Return classes as texts, "" for a document without one. Raises UsageError for other values, by their row."""
    names = []
    for row, value in enumerate(classes):
        if isinstance(value, str | int | np.integer):
            names.append(str(value))
        elif value is None or value != value:  # noqa: PLR0124  NaN differs from itself
            names.append("")
        elif isinstance(value, float) and value.is_integer():
            # A column of whole numbers in which some are missing.
            names.append(str(int(value)))
        else:
            raise UsageError(f"the class of document {row} is a {type(value).__name__}: give texts or whole numbers")
    return names


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
        remedy = "give words that the columns have" if names else "name columns by their numbers, or fit on named ones"
        # Words of texts are in small letters and composed.
        meant = normalize("NFC", seed.strip().lower())
        if meant in names:
            remedy = f"did you mean {meant}?"
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
