"""TextCounts: texts to word counts as the service counts them, by scikit-learn's contract for vectorisers."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from streamtopic.counts import CountedTexts, DocumentBatch, TextMatrix
from streamtopic.lexicon import Lexicon, count_texts
from streamtopic.text import passages

__all__ = ["TextCounts"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

# Texts and characters that are counted at a time: the arrays of a chunk take several times their characters.
_TEXTS = 4096
_CHARACTERS = 4 << 20


class TextCounts(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn texts into word counts, as the service does, for AnchorTopics to learn the service's own model.

    In place of CountVectorizer: `make_pipeline(TextCounts(), AnchorTopics())`. Words are those of
    `streamtopic.text.tokenize`, all of them, in every script; AnchorTopics chooses among them. The result is a
    TextMatrix, a sparse matrix (texts, words) that carries beside its numbers the tokens of each text, those counted
    whose word has no column, and the passages of texts of more than 8,192 tokens. AnchorTopics reads these.

    Columns are the words of the texts it was fitted on, ascending. `partial_fit` puts new words behind the others, so
    columns that are there keep their places and a text gives the same counts for ever. So texts can be added to a model
    and taken away again:

        model.partial_fit(counts.partial_fit(more).transform(more))
        model.unlearn(counts.transform(more))

    Attributes
    ----------
    words_ : tuple of the word of each column.

    It has no parameters: other words, or a limit on them, would be another model. It holds words, never texts; words of
    texts that a model has unlearned stay until it is fitted anew.
    """

    words_: tuple[str, ...]

    def fit(self, texts: Iterable[str], y: object = None) -> Self:
        """Take the words of texts, strings. Raises ValueError where no word is found, or an item is not a text."""
        del y
        self._fitted(texts)
        return self

    def fit_transform(self, texts: Iterable[str], y: object = None) -> TextMatrix:
        """Take the words of texts and return their counts: `fit` and `transform`, the texts read once."""
        del y
        return self._fitted(texts)

    def partial_fit(self, texts: Iterable[str], y: object = None) -> Self:
        """Take the words of more texts: new ones get columns behind those that are there."""
        del y
        if not hasattr(self, "words_"):
            return self.fit(texts)
        lexicon = self._table().copy()
        for _ in _counted(_checked(texts), lexicon):
            pass
        new = sorted(lexicon.words(len(self.words_)))
        # New words have entries in the order in which they came, and get columns in that of words.
        self._table().number(new)
        self.words_ = (*self.words_, *map(_text, new))
        return self

    def transform(self, texts: Iterable[str]) -> TextMatrix:
        """Return word counts of texts, (texts, words). A word without a column adds to the length of its text only."""
        check_is_fitted(self, "words_")
        known = len(self.words_)
        places = np.arange(known, dtype=np.int32)
        lexicon = self._table().copy()
        parts = [_placed(part, places, known) for part in _counted(_checked(texts), lexicon)]
        return _matrix(self.words_, parts)

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Return the word of each column."""
        del input_features
        check_is_fitted(self, "words_")
        return np.array(self.words_, dtype=object)

    def _fitted(self, texts: Iterable[str]) -> TextMatrix:
        # A secret, so that nobody who writes texts can choose words that all meet in one slot of the table.
        lexicon = Lexicon(secrets.token_hex(16))
        counted = list(_counted(_checked(texts), lexicon))
        words = lexicon.words()
        if not words:
            raise ValueError("empty vocabulary: these texts hold no word of two letters or more")
        order = sorted(range(len(words)), key=words.__getitem__)
        places = np.empty(len(words), np.int32)
        places[order] = np.arange(len(words), dtype=np.int32)
        self.words_ = tuple(_text(words[k]) for k in order)
        self.__dict__.pop("_lexicon", None)
        return _matrix(self.words_, [_placed(part, places, len(words)) for part in counted])

    def _table(self) -> Lexicon:
        """Return the table in which a word's entry is its column."""
        if not hasattr(self, "_lexicon"):
            self._lexicon = Lexicon(secrets.token_hex(16))
            self._lexicon.number([word.encode("utf-8", "surrogatepass") for word in self.words_])
        return self._lexicon

    def __getstate__(self) -> dict[str, Any]:
        # The table is made of the words, and has a lock.
        return {name: value for name, value in super().__getstate__().items() if name != "_lexicon"}

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401  scikit-learn's own type
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogatepass")


def _checked(texts: Iterable[str]) -> Iterator[Sequence[str]]:
    """Yield texts, some at a time."""
    if isinstance(texts, str | bytes):
        raise ValueError("expected an iterable of texts, got a single one: put it into a list")  # noqa: TRY004  as scikit-learn
    several, first = iter(texts), 0
    while chunk := list(islice(several, _TEXTS)):
        for k, text in enumerate(chunk, first):
            if not isinstance(text, str):
                raise ValueError(f"text {k} is a {type(text).__name__}, not a string")  # noqa: TRY004  as above
        yield from _bounded(chunk)
        first += len(chunk)


def _bounded(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield texts, so many at a time that they are not too long together."""
    ends = np.cumsum([len(text) for text in texts])
    first = 0
    while first < len(texts):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + _CHARACTERS, side="right")))
        yield texts[first:stop]
        first = stop


_Part = tuple[Int64, Int64, Int32, Int32, Int64]


def _counted(chunks: Iterable[Sequence[str]], lexicon: Lexicon) -> Iterator[_Part]:
    """Yield for some texts at a time: tokens and distinct words of each passage, entries, counts, and passages a text.

    Passages are in the order of texts, their words in any.
    """
    for texts in chunks:
        lengths, sizes, entries, counts = _plain(texts, lexicon)
        held = (lengths > 0).astype(np.int64)
        if (lengths >= 0).all():
            yield lengths[lengths > 0], sizes[lengths > 0], entries, counts, held
            continue
        yield _with_others(texts, lexicon, lengths, sizes, entries, counts)


def _plain(texts: Sequence[str], lexicon: Lexicon) -> tuple[Int64, Int64, Int32, Int32]:
    """Count ASCII texts of one passage: tokens of each, -1 for others; distinct words; entries and counts."""
    # One byte beyond ASCII makes the loop leave a text to `_with_others`.
    values = [text.encode() if text.isascii() else b"\x80" for text in texts]
    data = np.frombuffer(bytearray().join(values), np.uint8)
    ends = np.fromiter(accumulate(map(len, values)), np.int64, len(values))
    lengths, stops = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    entries, counts = np.empty(len(data) // 2 + 1, np.int32), np.empty(len(data) // 2 + 1, np.int32)
    done = 0
    while True:
        # As long as the table, which may have grown.
        marks = np.full(lexicon.room, -1, np.int64)
        done = int(count_texts(data, ends, done, lexicon.table, marks, lengths, stops, entries, counts))
        if done == len(values):
            break
        lexicon.grow(len(values[done]))
    used = int(stops[-1])
    sizes = np.diff(stops, prepend=0)
    return lengths, sizes, entries[:used].copy(), counts[:used].copy()


def _with_others(
    texts: Sequence[str], lexicon: Lexicon, lengths: Int64, sizes: Int64, entries: Int32, counts: Int32
) -> _Part:
    """Count the texts that were left, and put them between the others."""
    others = {k: passages(texts[k]) for k in np.flatnonzero(lengths < 0).tolist()}
    words = [word.encode("utf-8", "surrogatepass") for parts in others.values() for _, held in parts for word in held]
    numbers, done = lexicon.number(words), 0
    ends = np.cumsum(sizes).tolist()
    rows: list[tuple[int, Int32, Int32]] = []
    held = np.zeros(len(texts), np.int64)
    for k, length in enumerate(lengths.tolist()):
        before = len(rows)
        if length > 0:
            here = slice(ends[k] - int(sizes[k]), ends[k])
            rows.append((length, entries[here], counts[here]))
        for tokens, found in others.get(k, ()):
            rows.append((tokens, numbers[done : done + len(found)], np.fromiter(found.values(), np.int32, len(found))))
            done += len(found)
        held[k] = len(rows) - before
    nothing = np.zeros(0, np.int32)
    return (
        np.array([tokens for tokens, _, _ in rows], np.int64),
        np.array([len(own) for _, own, _ in rows], np.int64),
        np.concatenate([nothing, *(own for _, own, _ in rows)]),
        np.concatenate([nothing, *(amounts for _, _, amounts in rows)]),
        held,
    )


def _placed(part: _Part, places: Int32, n: int) -> tuple[DocumentBatch, Int64]:
    """Return documents over columns, and the tokens of each whose word has no column: its entry has no place."""
    lengths, sizes, entries, counts, held = part
    owners = np.repeat(np.arange(len(held), dtype=np.int32), held)
    rows = np.repeat(np.arange(len(lengths)), sizes)
    known = entries < len(places)
    tokens = np.bincount(owners[rows[~known]], counts[~known], len(held)).astype(np.int64)
    if len(tokens) and tokens.any():
        sizes = np.bincount(rows[known], minlength=len(lengths))
        entries, counts = entries[known], counts[known]
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    sorting = csr_array((counts, places[entries], indptr.astype(np.int32)), shape=(len(lengths), n))
    sorting.sort_indices()
    return DocumentBatch(indptr, sorting.indices, sorting.data, lengths, owners, len(held)), tokens


def _matrix(words: tuple[str, ...], parts: Sequence[tuple[DocumentBatch, Int64]]) -> TextMatrix:
    batch = DocumentBatch.stacked([own for own, _ in parts])
    unknown = np.concatenate([np.zeros(0, np.int64), *(tokens for _, tokens in parts)])
    return TextMatrix.of(CountedTexts(words, batch, unknown))
