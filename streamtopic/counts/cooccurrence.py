"""Exact pair counts of a set of documents, or the signed difference of two sets."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from streamtopic.counts.passes import touching_indptr, touching_rows
from streamtopic.errors import CountsOverflow, NegativeCounts

__all__ = ["Cooccurrence"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
_ROOM = 2.0**62


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """Pair counts over words 0 ... n_words - 1, as the upper triangle with its diagonal in CSR form.

    indptr (n_words + 1,) int64, columns (pairs,) int32 ascending in each row, values (pairs,) int64 and never zero;
    frequency (n_words,) documents that hold a word; tokens (n_words,) occurrences; documents: how many were counted.
    Counts of documents form a group under + and -: whatever was added can be taken away again, bit for bit, in any
    order. A difference may hold negative entries; `check_nonnegative` is the test for a set of documents.
    """

    n_words: int
    indptr: Int64
    columns: Int32
    values: Int64
    frequency: Int64
    tokens: Int64
    documents: int

    @classmethod
    def zero(cls, n_words: int) -> "Cooccurrence":
        """Return the counts of no document."""
        nothing = np.zeros(n_words, np.int64)
        return cls._of(csr_array((n_words, n_words), dtype=np.int64), nothing, nothing.copy(), 0)

    @classmethod
    def sum(cls, parts: Sequence["Cooccurrence"], n_words: int) -> "Cooccurrence":
        """Add up counts over the same words, pairwise, so that long sums stay cheap."""
        level = list(parts) or [cls.zero(n_words)]
        while len(level) > 1:
            level = [level[i] + level[i + 1] if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
        return level[0]

    @classmethod
    def _of(cls, upper: csr_array, frequency: Int64, tokens: Int64, documents: int) -> "Cooccurrence":
        return cls(
            n_words=upper.shape[0],
            indptr=upper.indptr.astype(np.int64, copy=False),
            columns=upper.indices.astype(np.int32, copy=False),
            values=upper.data.astype(np.int64, copy=False),
            frequency=frequency,
            tokens=tokens,
            documents=documents,
        )

    @property
    def pairs(self) -> int:
        """Stored word pairs."""
        return len(self.values)

    @property
    def upper(self) -> csr_array:
        """The upper triangle as a scipy array that shares this one's memory."""
        return csr_array((self.values, self.columns, self.indptr), shape=(self.n_words, self.n_words))

    def __add__(self, other: "Cooccurrence") -> "Cooccurrence":
        """Add the counts of other documents. Raises CountsOverflow where a sum would leave 64 bits."""
        return self._combine(other, 1)

    def __sub__(self, other: "Cooccurrence") -> "Cooccurrence":
        """Take away the counts of other documents: the inverse of +."""
        return self._combine(other, -1)

    def _combine(self, other: "Cooccurrence", sign: int) -> "Cooccurrence":
        _check_room(self, other)
        upper = self.upper
        if other.pairs:
            upper = upper + other.upper if sign > 0 else upper - other.upper
        return self._of(
            upper,
            self.frequency + sign * other.frequency,
            self.tokens + sign * other.tokens,
            self.documents + sign * other.documents,
        )

    def relabel(self, ids: npt.ArrayLike, n_words: int) -> "Cooccurrence":
        """Give word k the id `ids[k]` among n_words; a negative id drops the word with its pairs.

        ids: (n_words of self,), distinct where not negative.
        """
        new = np.asarray(ids, np.int64)
        if np.all(np.diff(new[new >= 0]) > 0):
            some = self if (new >= 0).all() else self.restrict(np.flatnonzero(new >= 0))
            return some.spread(new[new >= 0], n_words)
        row = new[np.repeat(np.arange(self.n_words), np.diff(self.indptr))]
        column = new[self.columns]
        kept = (row >= 0) & (column >= 0)
        row, column = row[kept], column[kept]
        first, second = np.minimum(row, column), np.maximum(row, column)
        upper = coo_array((self.values[kept], (first, second)), shape=(n_words, n_words)).tocsr()
        upper.sort_indices()
        named = new >= 0
        frequency, tokens = np.zeros(n_words, np.int64), np.zeros(n_words, np.int64)
        frequency[new[named]] = self.frequency[named]
        tokens[new[named]] = self.tokens[named]
        return self._of(upper, frequency, tokens, self.documents)

    def restrict(self, keep: npt.ArrayLike) -> "Cooccurrence":
        """Keep the words at these ascending positions, in their order. All documents stay counted."""
        kept = np.asarray(keep, np.intp)
        return self.touching(kept, np.ones(len(kept), bool))

    def touching(self, keep: npt.ArrayLike, chosen: npt.NDArray[np.bool_]) -> "Cooccurrence":
        """Return `restrict(keep)` with those pairs only that have a chosen word; chosen: one a word of `keep`.

        Word statistics are those of `restrict`. Cost: the rows of chosen words, and a look-up a row for each of them.
        """
        kept = np.asarray(keep, np.intp)
        ids = np.full(self.n_words, -1, np.int32)
        ids[kept] = np.arange(len(kept))
        indptr = touching_indptr(self.indptr, self.columns, kept, ids, chosen)
        columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
        touching_rows(self.indptr, self.columns, self.values, kept, ids, chosen, indptr, columns, values)
        return Cooccurrence(len(kept), indptr, columns, values, self.frequency[kept], self.tokens[kept], self.documents)

    def spread(self, ids: Int64, n_words: int) -> "Cooccurrence":
        """Give word k the id `ids[k]`, ascending: rows and columns keep their order, so nothing is sorted."""
        lengths = np.zeros(n_words, np.int64)
        lengths[ids] = np.diff(self.indptr)
        frequency, tokens = np.zeros(n_words, np.int64), np.zeros(n_words, np.int64)
        frequency[ids], tokens[ids] = self.frequency, self.tokens
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        columns = ids.astype(np.int32)[self.columns]
        return Cooccurrence(n_words, indptr, columns, self.values, frequency, tokens, self.documents)

    def check_nonnegative(self) -> None:
        """Raise NegativeCounts unless these can be the counts of a set of documents."""
        if self.documents < 0 or any(len(a) and int(a.min()) < 0 for a in (self.values, self.frequency, self.tokens)):
            raise NegativeCounts("a count fell below zero: a document was deleted that was not counted, or twice")

    def digest(self, words: Sequence[str]) -> str:
        """Return a hex digest of counts and words that depends neither on word ids nor on the order of events.

        words: one name an id. Words without a document are left out, since no live document holds them.
        """
        order = sorted((word, k) for k, word in enumerate(words) if self.frequency[k])
        ids = np.full(self.n_words, -1, np.int64)
        ids[[k for _, k in order]] = np.arange(len(order))
        plain = self.relabel(ids, len(order))
        state = hashlib.sha256(b"streamtopic counts 1\0")
        for word, _ in order:
            state.update(word.encode("utf-8", "surrogatepass") + b"\0")
        state.update(np.int64(plain.documents).tobytes())
        for array in (plain.indptr, plain.columns, plain.values, plain.frequency, plain.tokens):
            state.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        return state.hexdigest()


def _check_room(a: Cooccurrence, b: Cooccurrence) -> None:
    highest = sum(float(np.abs(part.values).max()) if len(part.values) else 0.0 for part in (a, b))
    if highest >= _ROOM:
        raise CountsOverflow("a pair count would exceed 64 bits: too many documents for one model, split the corpus")
