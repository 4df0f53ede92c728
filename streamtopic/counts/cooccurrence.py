"""Exact pair counts of a set of documents, or the signed difference of two sets: one triangle, int64."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from streamtopic.compiled import kernel
from streamtopic.counts.arrays import Int32, Int64, Mask, Positions, places
from streamtopic.counts.batch import row_ends
from streamtopic.errors import CountsOverflow

__all__ = ["Cooccurrence", "moved"]

# As a float, since the sum of two magnitudes is compared with it before anything is added.
_ROOM = 2.0**62


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """Pair counts over words 0 ... n_words - 1, as the upper triangle with its diagonal in CSR form.

    Counts of documents form a group under + and -: every document that was added can be taken away again, bit for bit,
    in any order. A difference may hold negative entries.

    indptr: (n_words + 1,) int64, where rows begin.
    columns: (pairs,) int32, ascending in each row.
    values: (pairs,) int64, never zero.
    frequency: (n_words,) documents that hold a word.
    tokens: (n_words,) occurrences.
    heavy: (n_words,) documents in which the word is a tenth of the tokens or more.
    documents: how many documents were counted.
    """

    n_words: int
    indptr: Int64
    columns: Int32
    values: Int64
    frequency: Int64
    tokens: Int64
    heavy: Int64
    documents: int

    @classmethod
    def zero(cls, n_words: int) -> "Cooccurrence":
        """Return the counts of zero documents."""
        statistics = np.zeros((3, n_words), np.int64)
        empty = csr_array((n_words, n_words), dtype=np.int64)
        return cls._of(empty, statistics, 0)

    @classmethod
    def _of(cls, upper: csr_array, statistics: Iterable[Int64], documents: int) -> "Cooccurrence":
        """Take an upper triangle of scipy's. scipy chooses the types of indices by their size."""
        frequency, tokens, heavy = statistics
        indptr = upper.indptr.astype(np.int64, copy=False)
        columns = upper.indices.astype(np.int32, copy=False)
        values = upper.data.astype(np.int64, copy=False)
        return cls(
            n_words=upper.shape[0],
            indptr=indptr,
            columns=columns,
            values=values,
            frequency=frequency,
            tokens=tokens,
            heavy=heavy,
            documents=documents,
        )

    @property
    def statistics(self) -> tuple[Int64, Int64, Int64]:
        """The statistics of words, (n_words,) each."""
        return self.frequency, self.tokens, self.heavy

    @property
    def upper(self) -> csr_array:
        """The upper triangle as a scipy array that shares this one's memory."""
        shape = (self.n_words, self.n_words)
        return csr_array((self.values, self.columns, self.indptr), shape=shape)

    def __add__(self, other: "Cooccurrence") -> "Cooccurrence":
        """Add the counts of other documents. Raises CountsOverflow if a sum would leave 64 bits."""
        return self._combine(other, 1)

    def __sub__(self, other: "Cooccurrence") -> "Cooccurrence":
        """Take away the counts of other documents: the inverse of +."""
        return self._combine(other, -1)

    def _combine(self, other: "Cooccurrence", sign: int) -> "Cooccurrence":
        _check_range(self, other)
        upper = self.upper + other.upper if sign > 0 else self.upper - other.upper
        pairs = zip(self.statistics, other.statistics, strict=True)
        statistics = [mine + sign * theirs for mine, theirs in pairs]
        documents = self.documents + sign * other.documents
        return self._of(upper, statistics, documents)

    def relabel(self, ids: Int64, n_words: int) -> "Cooccurrence":
        """Give the words other ids, in the same order, and drop some words with their pairs.

        ids: (n_words of self,) the new id of each word; negative for a word that is dropped.
        n_words: how many ids there are afterwards.
        """
        kept = np.flatnonzero(ids >= 0)
        part = self.restrict(kept)
        new = ids[kept]
        lengths = np.zeros(n_words, np.int64)
        lengths[new] = np.diff(part.indptr)
        columns = new.astype(np.int32)[part.columns]
        frequency, tokens, heavy = (moved(array, new, n_words) for array in part.statistics)
        return replace(
            part,
            n_words=n_words,
            indptr=row_ends(lengths),
            columns=columns,
            frequency=frequency,
            tokens=tokens,
            heavy=heavy,
        )

    def restrict(self, keep: Positions) -> "Cooccurrence":
        """Return the counts of the words at these ascending positions, in their order. All documents stay counted."""
        return self.touching(keep, np.ones(len(keep), bool))

    def touching(self, keep: Positions, chosen: Mask) -> "Cooccurrence":
        """Return the counts of some words without the pairs that have no chosen word.

        keep: (k,) ascending positions of words.
        chosen: (k,) whether a word is chosen.
        Word statistics are those of `restrict`. Cost: the entries of the words' rows.
        """
        ids = places(self.n_words, keep, np.int32)
        most = int(np.diff(self.indptr)[keep].sum())
        # Arrays for the worst case: pages that are never written take no memory.
        columns = np.empty(most, np.int32)
        values = np.empty(most, np.int64)
        indptr = np.zeros(len(keep) + 1, np.int64)
        _touching(self.indptr, self.columns, self.values, keep, ids, chosen, indptr, columns, values)
        columns.resize(indptr[-1], refcheck=False)
        values.resize(indptr[-1], refcheck=False)
        frequency, tokens, heavy = (array[keep] for array in self.statistics)
        return Cooccurrence(len(keep), indptr, columns, values, frequency, tokens, heavy, self.documents)


def moved(statistic: Int64, ids: Int64, n_words: int) -> Int64:
    """Return a word statistic at the words' new ids, 0 if an id has no word, (n_words,)."""
    found = np.zeros(n_words, np.int64)
    found[ids] = statistic
    return found


def _check_range(a: Cooccurrence, b: Cooccurrence) -> None:
    """Raise CountsOverflow if a sum or difference might leave 64 bits: integers would wrap in silence."""
    highest = 0.0
    for part in (a, b):
        if len(part.values):
            largest = np.abs(part.values).max()
            highest += float(largest)
    if highest >= _ROOM:
        raise CountsOverflow("a pair count would exceed 64 bits: too many documents for one model, split the corpus")


@kernel
def _touching(
    indptr: Int64, columns: Int32, values: Int64, keep: Positions, ids: Int32, chosen: Mask,
    out: Int64, out_columns: Int32, out_values: Int64,
) -> None:  # fmt: skip
    """Write row pointers, and the entries of rows `keep` whose row or column is chosen; `ids` renames columns."""
    slot = 0
    for i, row in enumerate(keep):
        for k in range(indptr[row], indptr[row + 1]):
            new = ids[columns[k]]
            if new >= 0 and (chosen[i] or chosen[new]):
                out_columns[slot] = new
                out_values[slot] = values[k]
                slot += 1
        out[i + 1] = slot
