"""TextTopics: AnchorTopics over texts, with the words that TextCounts finds in them."""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Self

from scipy.sparse import csr_array

from streamtopic.compiled import duration_is_said
from streamtopic.counts.arrays import Float
from streamtopic.errors import UsageError
from streamtopic.text_counts import TextCounts, text_chunks
from streamtopic.topics.estimator import AnchorTopics, warn_of
from streamtopic.topics.fitted import Fitted
from streamtopic.words.text import AnyText

__all__ = ["TextTopics"]


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
        texts = list(chain.from_iterable(text_chunks(X)))
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
        texts = list(chain.from_iterable(text_chunks(X)))
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
