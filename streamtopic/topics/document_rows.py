"""Rows of a matrix of word amounts, or of texts, as documents that can be counted exactly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from streamtopic.counts import MAX_LENGTH, CountedTexts, DocumentBatch, narrowed
from streamtopic.counts.arrays import Float, Int32, Int64, Positions

__all__ = ["FIXED_POINT", "TextColumns", "as_documents", "canonical"]

FIXED_POINT = 1024
"""Parts of 1 in which fractional amounts are counted: about three decimals."""

# Entries that are turned into counts at a time.
_BLOCK = 1 << 17
_Part = tuple[Int32, Int32, Int64, Int64]


@dataclass(frozen=True, slots=True, eq=False)
class TextColumns:
    """Columns of a matrix and the words that they stand for.

    names: the word of each column; () where columns have only their numbers.
    words: (n,) ascending by code point.
    order: (n,) the column of each of these words. Columns that came later stand behind the others.
    """

    names: Sequence[str]
    words: Sequence[str]
    order: Positions

    @classmethod
    def of(cls, names: Sequence[str]) -> "TextColumns":
        """Name columns, each by a word of its own."""
        order = sorted(range(len(names)), key=names.__getitem__)
        return cls(names, [names[k] for k in order], np.array(order, np.intp))

    @classmethod
    def numbered(cls, columns: int) -> "TextColumns":
        """Name columns by their numbers."""
        # With leading zeros, since words are ordered by code point.
        digits = len(str(columns))
        return cls((), [f"{k:0{digits}d}" for k in range(columns)], np.arange(columns))

    @property
    def named(self) -> bool:
        """Whether columns have words."""
        return len(self.names) > 0

    def shared(self, texts: CountedTexts) -> int:
        """Return how many columns texts share with these. Shared columns are the first ones of both.

        Raises ValueError where the texts come from another vectoriser.
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
        """Return these columns, or those of the texts where the texts have more. Raises ValueError as `shared`."""
        if self.shared(texts) == len(texts.words):
            return self
        return TextColumns.of(texts.words)

    def moved(self, before: "TextColumns") -> Positions:
        """Return the position in `words` of each word of `before`. These columns have grown from those."""
        places = np.empty(len(self.order), np.intp)
        places[self.order] = np.arange(len(self.order))
        return places[before.order]

    def placed(self, texts: CountedTexts) -> DocumentBatch:
        """Return texts as documents over `words`.

        Raises ValueError where a text holds a word without a column, here or where it was counted.
        """
        # Once such a word has a column the same text would be another document, and could not be unlearned.
        unknown = texts.unknown > 0
        if self.shared(texts) < len(texts.words):
            batch = texts.batch
            rows = np.repeat(batch.owners, np.diff(batch.indptr))
            unknown[rows[batch.words >= len(self.names)]] = True
        if unknown.any():
            count = np.count_nonzero(unknown)
            raise ValueError(
                f"{count} texts hold words without a column in the model, so the model does not hold these texts: "
                "to add them, call partial_fit of TextCounts with them first"
            )
        places = np.empty(len(self.order), np.int32)
        places[self.order] = np.arange(len(self.order), dtype=np.int32)
        return _ordered(narrowed(texts.batch, places))


def canonical(X: csr_array) -> csr_array:
    """Return rows with ascending distinct columns and without zeros: X itself where it has such rows, else a copy."""
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
    rounded. A row that would then exceed 8,192 is scaled down to it. Each row is turned by itself, so the same row
    always gives the same integers, and a document that was added can be taken away.
    """
    rows = X.shape[0]
    parts = []
    start = 0
    # Some rows at a time: numbers on the way take several times the memory of the result.
    while start < rows:
        stop = int(np.searchsorted(X.indptr, X.indptr[start] + _BLOCK, side="right")) - 1
        # A row that is longer than a block is turned alone.
        stop = min(max(stop, start + 1), rows)
        held = slice(X.indptr[start], X.indptr[stop])
        sizes = np.diff(X.indptr[start : stop + 1])
        parts.append(_turned(X.indices[held], X.data[held], sizes))
        start = stop
    words, counts, kept, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    indptr = np.concatenate([[0], np.cumsum(kept)])
    return DocumentBatch(
        indptr=indptr.astype(np.int64),
        words=words.astype(np.int32, copy=False),
        counts=counts.astype(np.int32, copy=False),
        lengths=lengths,
        owners=np.arange(rows, dtype=np.int32),
        documents=rows,
    )


def _turned(indices: Int32, data: Float, sizes: Int32) -> _Part:
    """Return words and counts of all entries that stay, and for each row how many those are and its length."""
    count = len(sizes)
    rows = np.repeat(np.arange(count), sizes)
    values = np.asarray(data, np.float64)
    fractional = np.zeros(count, bool)
    np.logical_or.at(fractional, rows, values != np.rint(values))
    scale = np.where(fractional, float(FIXED_POINT), 1.0)
    total = np.zeros(count)
    np.add.at(total, rows, values)
    # Rounding to nearest may carry a row over the limit, so a scaled row is cut rather than rounded.
    over = total * scale > MAX_LENGTH - 0.5 * fractional * sizes
    # An empty row has no total, and is not over.
    scale = np.where(over, MAX_LENGTH / np.maximum(total, 1e-300), scale)
    amounts = values * scale[rows]
    integers = np.where(over[rows], np.floor(amounts), np.rint(amounts)).astype(np.int64)
    kept = integers > 0
    lengths = np.bincount(rows[kept], weights=integers[kept], minlength=count).astype(np.int64)
    held = np.bincount(rows[kept], minlength=count)
    return indices[kept].astype(np.int32), integers[kept].astype(np.int32), held, lengths


def _ordered(batch: DocumentBatch) -> DocumentBatch:
    """Return the passages with ascending words. Words given are distinct in each passage, in any order."""
    shape = (len(batch.lengths), int(batch.words.max(initial=0)) + 1)
    rows = csr_array((batch.counts, batch.words, batch.indptr), shape=shape)
    if rows.has_sorted_indices:
        return batch
    rows = rows.copy()
    rows.sort_indices()
    return replace(batch, words=rows.indices.astype(np.int32, copy=False), counts=rows.data)
