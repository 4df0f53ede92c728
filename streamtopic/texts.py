"""Texts for scikit-learn: to word counts as the service counts them, and to topics.

TextCounts    a vectoriser
TextTopics    AnchorTopics over texts, with the words that TextCounts finds in them
"""

import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamtopic.compiled import compiling_is_said, duration_is_said
from streamtopic.counts import CountedTexts, DocumentBatch, TextMatrix, narrowed
from streamtopic.counts.arrays import Float, Int32, Int64, entry_rows
from streamtopic.counts.matrices import ordered
from streamtopic.errors import UsageError
from streamtopic.topics.estimator import AnchorTopics, warn_of
from streamtopic.topics.fitted import Fitted
from streamtopic.words.lexicon import Lexicon, word_bytes, word_text
from streamtopic.words.text import AnyText

__all__ = ["TextCounts", "TextTopics"]

# Texts that are counted at a time, or characters after which no other text comes: the arrays of a chunk take several
# times its characters.
_TEXTS = 4096
_CHARACTERS = 4 << 20


class TextCounts(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn texts into word counts, as the service does, for AnchorTopics to learn the service's own model.

    In place of CountVectorizer: `make_pipeline(TextCounts(), AnchorTopics())`. It counts all words of
    `streamtopic.words.text.tokenize`, in every script; AnchorTopics chooses among them. The result is a TextMatrix, a
    sparse matrix (texts, words) that also carries the number of tokens of each text, words without a column included,
    and the passages of texts of more than 8,192 tokens. AnchorTopics reads these.

    Columns are the words of the texts it was fitted on, ascending. `partial_fit` puts new words after the others, so
    columns keep their places and a text gives the same counts for ever. So texts can be added to a model and taken away
    again:

        model.partial_fit(counts.partial_fit(more).transform(more))
        model.unlearn(counts.transform(more))

    In place of a text, each method takes the list of its words, made by a tokeniser or stemmer of yours, or a mapping
    of its words to their counts. Such words are taken as they are. Words of more than 64 characters get no column.

    Attributes
    ----------
    words_ : tuple with the word of each column.

    It has no parameters, since AnchorTopics chooses among the words: `exclude_words` is a parameter there. It keeps
    words, never texts; words of texts that a model has unlearned stay until it is fitted again.
    """

    words_: tuple[str, ...]

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Self:
        """Return a vectoriser with these columns. words: distinct words, as `words_` of another one had them."""
        made = cls()
        made.words_ = tuple(words)
        return made

    def fit(self, texts: Iterable[AnyText], y: object = None) -> Self:
        """Take the words of texts.

        texts: strings, lists of words, or mappings of words to counts.
        y: not used.
        Raises ValueError for texts without a word, or an item that is not a text.
        """
        del y
        self._fitted(texts)
        return self

    def fit_transform(self, texts: Iterable[AnyText], y: object = None) -> TextMatrix:
        """Take the words of texts and return their counts, (texts, words): `fit` and `transform` in one reading."""
        del y
        return self._fitted(texts)

    def partial_fit(self, texts: Iterable[AnyText], y: object = None) -> Self:
        """Take the words of more texts: new words get columns after the others. Raises ValueError as `fit` does."""
        del y
        if not hasattr(self, "words_"):
            return self.fit(texts)
        words = self.words_
        lexicon = self._table(words)
        for _ in _counted(texts, lexicon):
            pass
        # New words have entries in the order in which they came, and get columns in that of words.
        new = sorted(lexicon.words(len(words)))
        table = self._table(words)
        table.number(new)
        self.words_ = grown = (*words, *map(word_text, new))
        self._tabled = grown, table
        return self

    def transform(self, texts: Iterable[AnyText]) -> TextMatrix:
        """Return word counts of texts, (texts, words). A word without a column adds to the length of its text only."""
        check_is_fitted(self, "words_")
        # Read once, since another thread may be adding words.
        words = self.words_
        places = np.arange(len(words), dtype=np.int32)
        return _matrix(words, _counted(texts, self._table(words)), places)

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Return the word of each column."""
        del input_features
        check_is_fitted(self, "words_")
        return np.array(self.words_, dtype=object)

    def _fitted(self, texts: Iterable[AnyText]) -> TextMatrix:
        """Take the words of texts and return their counts."""
        lexicon = _table_of(())
        counted = deque(_counted(texts, lexicon))
        words = lexicon.words()
        if not words:
            raise ValueError("empty vocabulary: these texts hold no word of two letters or more")
        order = sorted(range(len(words)), key=words.__getitem__)
        places = np.empty(len(words), np.int32)
        places[order] = np.arange(len(words), dtype=np.int32)
        own = tuple(word_text(words[k]) for k in order)
        self.words_ = own
        # Each batch is given back once it is placed.
        return _matrix(own, (counted.popleft() for _ in range(len(counted))), places)

    def _table(self, words: tuple[str, ...]) -> Lexicon:
        """Return a table in which each of these words has the entry of its column. It may take up others after them."""
        # Kept with its words, since a table of other words would count them into wrong columns.
        known, lexicon = getattr(self, "_tabled", (None, None))
        if known is not words or lexicon is None:
            lexicon = _table_of(words)
            self._tabled = words, lexicon
        # A copy, since words that come later must not get columns by it.
        own: Lexicon = lexicon.copy()
        return own

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        # It follows from the words, and has a lock, which cannot be pickled.
        state.pop("_tabled", None)
        return state

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  scikit-learn's own type
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


class TextTopics(AnchorTopics):
    """Topic model of texts that can exactly forget some of them: `TextCounts` and `AnchorTopics` in one estimator.

    Give it texts where AnchorTopics takes counts: a list, or a column of pandas, polars or pyarrow. In place of a text
    each method takes the list of its words, or a mapping of its words to their counts, as TextCounts does.

        >>> from streamtopic import TextTopics
        >>> cars, pets = ["car engine wheel", "wheel road car"] * 20, ["cat dog fur", "dog paw cat"] * 20
        >>> model = TextTopics(2, max_df=1.0).fit(cars + pets)
        >>> model.partial_fit(["a car on the road"]).n_documents_
        81
        >>> model.unlearn(["a car on the road"]).n_documents_
        80
        >>> [sorted(words) for words in model.topics(top=3)]
        [['cat', 'dog', 'fur'], ['car', 'engine', 'wheel']]

    Parameters and attributes are those of AnchorTopics, and so are the promises. Columns of `components_` are words,
    and `feature_names_in_` names them. A text is found for `unlearn` by its words: it need not be the same object.

    Attributes
    ----------
    vectoriser_ : the TextCounts whose columns the model has.
    """

    @property
    def vectoriser_(self) -> TextCounts:
        """The TextCounts whose columns the model has."""
        if not self.__sklearn_is_fitted__():
            raise AttributeError("this TextTopics has no words: fit it first")
        found: TextCounts = self._model.vectoriser
        return found

    def fit(self, X: Iterable[AnyText], y: object = None) -> Self:
        """Learn from texts and forget those of an earlier fit.

        X: texts, or the words of each.
        Raises ValueError if an item is not a text, named by its row and type, or if the texts make no model. An
        earlier model then stays as it was.
        """
        del y
        counts = TextCounts()
        learned = self._learned(*self._first_counts(self._read(counts, X)))
        self._model = replace(learned, vectoriser=counts)
        warn_of(self._model)
        return self

    def fit_transform(self, X: Iterable[AnyText], y: object = None, **more: Any) -> Float:  # noqa: ANN401  scikit-learn's
        """Learn from texts and return their topic proportions, (texts, n_topics). Raises as `fit`."""
        del y, more
        # Both readings need all texts, and an iterator gives them once.
        texts = list(chain.from_iterable(_chunks(X)))
        found: Float = self.fit(texts).transform(texts)
        return found

    def partial_fit(self, X: Iterable[AnyText], y: object = None) -> Self:
        """Add texts; their new words get columns after the others. The model is the same as after one `fit` on all.

        X: texts, or the words of each.
        Raises ValueError as `fit`. The model and its words then stay as they were.
        """
        del y
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        model = self._model
        texts = list(chain.from_iterable(_chunks(X)))
        # A copy, because words of texts that are refused must not stay.
        grown = copy(model.vectoriser).partial_fit(texts)
        self._model = replace(self._with(model, grown.transform(texts)), vectoriser=grown)
        return self

    def unlearn(self, X: Iterable[AnyText]) -> Self:
        """Take away texts that were fitted before: the exact inverse of having fitted them.

        X: texts, or the words of each. A text is taken away once for each item that equals it in all words.
        Raises ValueError if not all of them are in the model, or if the texts left cannot make n_topics topics.
        The model then stays as it was.
        """
        model = self._now()
        left = self._without(model, model.vectoriser.transform(X))
        self._model = replace(left, vectoriser=model.vectoriser)
        return self

    def _read(self, counts: TextCounts, X: Any) -> Any:  # noqa: ANN401  texts, and their counts
        """Return texts as a matrix; with `verbose` say how long reading took."""
        with duration_is_said("read the words of all texts", self.verbose):
            return counts.fit_transform(X)

    def _rows_of(self, model: Fitted, X: Any) -> csr_array:  # noqa: ANN401  texts
        """Return texts over the columns of a model, (texts, words)."""
        return super()._rows_of(model, model.vectoriser.transform(X))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote, with its words: its documents are learned again. It runs no code of the file.

        The model may have been an AnchorTopics that was fitted on the result of `TextCounts`.
        Raises UsageError if the file does not hold a whole model, or the columns of the model are not words.
        """
        model = super().load(path)
        fitted = model._now()  # noqa: SLF001  the class's own method
        words = fitted.columns.names
        if not words:
            raise UsageError(f"{path} holds a model of counts without words: read it with AnchorTopics.load")
        model._model = replace(fitted, vectoriser=TextCounts.of_words(words))  # noqa: SLF001  the class's own attribute
        return model

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  scikit-learn's own type
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        tags.input_tags.positive_only = False
        return tags


def _chunks(texts: Iterable[AnyText]) -> Iterator[Sequence[AnyText]]:
    """Yield texts, some at a time. Raises ValueError for other values, which it names by their row and type."""
    chunk: list[AnyText] = []
    size = 0
    for k, text in enumerate(_column(texts)):
        if not isinstance(text, str):
            _check_words(k, text)
        chunk.append(text)
        size += len(text)
        if len(chunk) == _TEXTS or size >= _CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _check_words(row: int, text: object) -> None:
    """Raise ValueError for an item that is neither a text nor its words. row: its place, from 0."""
    if not isinstance(text, list | tuple | np.ndarray | Mapping):
        raise ValueError(  # noqa: TRY004  as scikit-learn
            f"text {row} is a {type(text).__name__}, not a string: give one text, or the list of its words, for each "
            "row; decode bytes, and leave out rows without a text"
        )
    others = [word for word in text if not isinstance(word, str)]
    if others:
        kind = type(others[0]).__name__
        raise ValueError(f"text {row} has a {kind} among its words: give words as strings, without missing ones")


def _column(texts: Any) -> Iterable[Any]:  # noqa: ANN401  a caller may give anything
    """Return the items of a list or a column. Raises ValueError for what would give other items than texts."""
    # Frames and maps give the names of their columns, which are texts as well. The type is asked: a lazy frame of
    # polars has to plan its query before it can name its columns. A set has no order, and rows keep one.
    kind = type(texts)
    named = hasattr(kind, "columns") or hasattr(kind, "column_names")
    other = named or isinstance(texts, str | bytes | Mapping | AbstractSet) or not isinstance(texts, Iterable)
    if other or getattr(texts, "ndim", 1) != 1:
        raise ValueError(
            f"expected a list or a column of texts, got a {kind.__name__}: put a single text into a list, and give one "
            'column of a table, such as table["text"]'
        )
    # A column of pyarrow gives wrapped values, and this method gives the texts in them.
    unwrapped = getattr(texts, "to_pylist", None)
    found: Iterable[Any] = texts if unwrapped is None else unwrapped()
    return found


def _table_of(words: Iterable[str]) -> Lexicon:
    """Return a table of these words, each with the entry of its place."""
    # A secret, so that writers of texts cannot choose words that all meet in one slot of the table.
    lexicon = Lexicon(secrets.token_hex(16))
    lexicon.number(list(map(word_bytes, words)))
    return lexicon


def _counted(texts: Iterable[AnyText], lexicon: Lexicon) -> Iterator[DocumentBatch]:
    """Yield texts as documents, some at a time. Their words are entries of the lexicon, in any order."""
    for chunk in _chunks(texts):
        with compiling_is_said():
            batch = lexicon.documents(chunk)
        yield batch


def _placed(batch: DocumentBatch, places: Int32) -> tuple[DocumentBatch, Int64]:
    """Return documents over columns, and the tokens of each document without a column.

    batch: documents over entries.
    places: (entries,), the column of each entry; later entries have none.
    """
    entries = int(batch.words.max(initial=-1)) + 1
    ids = np.full(max(entries, len(places)), -1, np.int32)
    ids[: len(places)] = places
    unplaced = ids[batch.words] < 0
    owners = batch.owners[entry_rows(batch.indptr)]
    tokens = np.bincount(owners[unplaced], batch.counts[unplaced], batch.documents)
    return ordered(narrowed(batch, ids)), tokens.astype(np.int64)


def _matrix(words: tuple[str, ...], batches: Iterable[DocumentBatch], places: Int32) -> TextMatrix:
    """Return documents over entries as one matrix with a column for each word. places: as of `_placed`."""
    placed = []
    # An integer array in front, since there may be no document.
    unknown = [np.zeros(0, np.int64)]
    for batch in batches:
        own, tokens = _placed(batch, places)
        placed.append(own)
        unknown.append(tokens)
    return TextMatrix.of(CountedTexts(words, DocumentBatch.stacked(placed), np.concatenate(unknown)))
