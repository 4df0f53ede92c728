"""Matrices of word counts, and their rows as documents that can be counted exactly.

TextMatrix     word counts of texts, as scikit-learn passes them on, with the texts' lengths and passages
               (CountedTexts); TextColumns: which word each column represents
as_documents   rows of amounts that know nothing of their texts; canonical: the same rows in one form
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streamtopic.counts.arrays import Float, Int32, Int64, Positions, entry_rows, places
from streamtopic.counts.batch import MAX_LENGTH, TWICE, DocumentBatch, narrowed, row_ends

__all__ = [
    "FIXED_POINT",
    "CountedTexts",
    "TextColumns",
    "TextMatrix",
    "as_documents",
    "canonical",
    "ordered",
]

FIXED_POINT = 1024
"""Parts of 1 in which fractional amounts are counted: about three decimals."""

# Entries that are turned into counts at a time.
_BLOCK = 1 << 17
# More than 2^200 columns would be needed for a sum that is not finite.
_LARGEST = 2.0**823
_Part = tuple[Int32, Int32, Int64, Int64, Int64]


@dataclass(frozen=True, slots=True, eq=False)
class CountedTexts:
    """Texts as documents over a vocabulary.

    words: (n,) the word of each column, distinct.
    batch: their passages over these columns; lengths count every token, also one whose word has no column.
    unknown: (documents,) tokens whose word has no column and might get one: words of up to 64 characters.
    """

    words: tuple[str, ...]
    batch: DocumentBatch
    unknown: Int64

    def take(self, documents: Positions) -> "CountedTexts":
        """Return the documents at these positions, in this order. A position may occur several times."""
        batch = self.batch.take(documents)
        unknown = self.unknown[documents]
        return CountedTexts(self.words, batch, unknown)


class TextMatrix(csr_array):  # type: ignore[misc]  # scipy has no types
    """Word counts X (documents, words) of texts, with `texts`: their passages, lengths and words.

    To everyone else it is a csr_array whose numbers cannot be changed in place. Selected rows and copies keep their
    texts. Every other result of scipy is a plain csr_array, since sums and products of texts are not texts.
    """

    texts: CountedTexts

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  as scipy's constructor
        """Return a plain csr_array: scipy makes results by the class of its operands, from arrays without texts."""
        return csr_array(*args, **kwargs)

    @classmethod
    def of(cls, texts: CountedTexts) -> "TextMatrix":
        """Lay the passages of each text together as one row."""
        batch = texts.batch
        numbers = np.arange(batch.documents + 1)
        rows = np.searchsorted(batch.owners, numbers)
        shape = (batch.documents, len(texts.words))
        made: TextMatrix = csr_array.__new__(cls)
        indptr = batch.indptr[rows]
        # With row pointers of the type that columns have, scipy keeps columns as they are.
        if indptr[-1] < 1 << 31:
            indptr = indptr.astype(np.int32)
        csr_array.__init__(made, (batch.counts, batch.words, indptr), shape=shape, copy=True)
        made.sum_duplicates()
        # The texts would not follow a change of the numbers.
        made.data.flags.writeable = False
        made.texts = texts
        return made

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401  as scipy's own
        """Return rows with their texts. For any other key return the same as scipy."""
        rows = _rows_only(key)
        if rows is None:
            return csr_array(self)[key]
        positions = np.arange(self.shape[0])[rows]
        taken = self.texts.take(np.atleast_1d(positions))
        return TextMatrix.of(taken)

    def copy(self) -> "TextMatrix":
        """Return the same matrix with arrays of its own."""
        return TextMatrix.of(self.texts)

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle makes an object by `__new__`, which gives a plain csr_array here.
        return TextMatrix.of, (self.texts,)


def _rows_only(key: Any) -> Any:  # noqa: ANN401  an index as numpy takes it
    """Return the part of an index that selects rows; None if the index does not select whole rows."""
    if isinstance(key, tuple):
        if len(key) != 2 or not _is_everything(key[1]):
            return None
        key = key[0]
    if isinstance(key, slice):
        return key
    selected = np.asarray(key)
    # A single number gives a vector, which is not a matrix of texts.
    if selected.ndim == 1 and selected.dtype.kind in "biu":
        return selected
    return None


def _is_everything(key: Any) -> bool:  # noqa: ANN401  an index as numpy takes it
    if isinstance(key, slice):
        return key == slice(None)
    return key is Ellipsis


@dataclass(frozen=True, slots=True, eq=False)
class TextColumns:
    """Columns of a matrix and the words that they represent.

    names: the word of each column; () if columns have only their numbers.
    words: (n,) ascending by code point.
    order: (n,) the column of each of these words. Columns that came later are after the others.
    """

    names: Sequence[str]
    words: Sequence[str]
    order: Positions

    @classmethod
    def of(cls, names: Sequence[str]) -> "TextColumns":
        """Name columns, each by a word of its own."""
        order = sorted(range(len(names)), key=names.__getitem__)
        words = [names[k] for k in order]
        return cls(names, words, np.array(order, np.intp))

    @classmethod
    def numbered(cls, columns: int) -> "TextColumns":
        """Name columns by their numbers."""
        # With leading zeros, since words are ordered by code point.
        digits = len(str(columns))
        words = [str(k).zfill(digits) for k in range(columns)]
        return cls((), words, np.arange(columns))

    @property
    def named(self) -> bool:
        """Whether columns have words."""
        return len(self.names) > 0

    def shared(self, texts: CountedTexts) -> int:
        """Return how many columns texts share with these. Shared columns are the first ones of both.

        Raises ValueError if the texts come from another vectoriser.
        """
        if not self.named:
            raise ValueError(
                "the model was fitted on rows that do not know their texts: to use texts, fit it on rows of TextCounts"
            )
        shared = min(len(self.names), len(texts.words))
        # The same object nearly always, so that most calls compare no words.
        if self.names is not texts.words and self.names[:shared] != texts.words[:shared]:
            raise ValueError(
                "the columns are other words than those of the model: use the TextCounts that the model was fitted "
                "with, and partial_fit to give it more words"
            )
        return shared

    def grown(self, texts: CountedTexts) -> "TextColumns":
        """Return these columns, or those of the texts if the texts have more. Raises ValueError as `shared`."""
        if self.shared(texts) == len(texts.words):
            return self
        return TextColumns.of(texts.words)

    def moved(self, before: "TextColumns") -> Positions:
        """Return the position in `words` of each word of `before`. These columns have grown from those."""
        positions = places(len(self.order), self.order)
        return np.asarray(positions[before.order], np.intp)

    def placed(self, texts: CountedTexts) -> DocumentBatch:
        """Return texts as documents over `words`.

        Raises ValueError if a text holds a word without a column, here or if it was counted.
        """
        # Once such a word has a column the same text would be another document, and could not be unlearned.
        unknown = texts.unknown > 0
        if self.shared(texts) < len(texts.words):
            batch = texts.batch
            owners = batch.owners[entry_rows(batch.indptr)]
            later = batch.words >= len(self.names)
            unknown[owners[later]] = True
        if unknown.any():
            count = np.count_nonzero(unknown)
            raise ValueError(
                f"{count} texts hold words without a column in the model, so the model does not hold these texts: "
                "to add them, call partial_fit of TextCounts with them first"
            )
        ids = places(len(self.order), self.order, np.int32)
        return ordered(narrowed(texts.batch, ids))


def canonical(X: csr_array) -> csr_array:
    """Return rows with ascending distinct columns and without zeros: X itself if it has such rows, else a copy."""
    if X.has_canonical_format and X.data.all():
        return X
    # A copy, since the arrays may be those of the caller's matrix.
    rows = X.copy()
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def as_documents(X: csr_array) -> DocumentBatch:
    """Turn the rows of X (documents, words) into passages of integer counts, one a row.

    A row of integers that sums to at most 8,192 is taken as it is. A row with fractions is multiplied by 1,024 and
    rounded, and no word of it is limited in pairs: its amounts are weights and not occurrences. A row that would then
    exceed 8,192 is scaled down to it. Each row is turned by itself, so the same row always gives the same integers, and
    a document that was added can be taken away.
    """
    rows = X.shape[0]
    parts = []
    start = 0
    # Some rows at a time: numbers on the way take several times the memory of the result.
    while start < rows:
        ends = X.indptr
        enough = ends[start] + _BLOCK
        stop = int(np.searchsorted(ends, enough, side="right")) - 1
        # A row that is longer than a block is turned alone.
        stop = min(max(stop, start + 1), rows)
        held = slice(ends[start], ends[stop])
        sizes = np.diff(ends[start : stop + 1])
        turned = _turned(X.indices[held], X.data[held], sizes)
        parts.append(turned)
        start = stop
    words, counts, kept, lengths, limited = map(np.concatenate, zip(*parts, strict=True))
    owners = np.arange(rows, dtype=np.int32)
    return DocumentBatch(row_ends(kept), words, counts, lengths, limited, owners, rows)


def _turned(indices: Int32, data: Float, sizes: Int32) -> _Part:
    """Return words and counts of entries that stay; for each row how many, its length and its limited length."""
    count = len(sizes)
    rows = np.repeat(np.arange(count), sizes)
    # Larger amounts count as this one, since the sum of a row must be a float; their row is scaled down anyway.
    values = np.minimum(np.asarray(data, np.float64), _LARGEST)
    fractional = np.zeros(count, bool)
    np.logical_or.at(fractional, rows, values != np.rint(values))
    scale = np.where(fractional, float(FIXED_POINT), 1.0)
    total = np.zeros(count)
    np.add.at(total, rows, values)
    # Rounding to nearest may carry a row over the limit, so a scaled row is cut rather than rounded.
    limit = MAX_LENGTH - 0.5 * fractional * sizes
    over = total * scale > limit
    # An empty row has no total, and is not over.
    fitting = MAX_LENGTH / np.maximum(total, 1e-300)
    scale = np.where(over, fitting, scale)
    amounts = values * scale[rows]
    integers = np.where(over[rows], np.floor(amounts), np.rint(amounts))
    kept = integers > 0
    left = integers[kept]
    owners = rows[kept]
    # Sums of at most 8,192, so floats add them exactly.
    sums = np.bincount(owners, weights=left, minlength=count)
    lengths = sums.astype(np.int64)
    beyond = np.bincount(owners, weights=np.maximum(left - TWICE, 0), minlength=count)
    limited = np.where(fractional, lengths, lengths - beyond.astype(np.int64))
    held = np.bincount(owners, minlength=count)
    words = indices[kept].astype(np.int32)
    return words, left.astype(np.int32), held, lengths, limited


def ordered(batch: DocumentBatch) -> DocumentBatch:
    """Return the passages with ascending words. Words given are distinct in each passage, in any order."""
    columns = int(batch.words.max(initial=0)) + 1
    entries = (batch.counts, batch.words, batch.indptr)
    rows = csr_array(entries, shape=(len(batch.lengths), columns))
    if rows.has_sorted_indices:
        return batch
    rows = rows.copy()
    rows.sort_indices()
    words = rows.indices.astype(np.int32, copy=False)
    return replace(batch, words=words, counts=rows.data)
