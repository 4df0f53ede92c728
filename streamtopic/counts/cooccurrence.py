"""Exact pair counts of a set of documents, or the signed difference of two sets: one triangle, int64."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from streamtopic.errors import CountsOverflow, NegativeCounts

__all__ = ["Cooccurrence"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
# As a float, since the sum of two magnitudes is compared with it before anything is added.
_ROOM = 2.0**62


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """Pair counts over words 0 ... n_words - 1, as the upper triangle with its diagonal in CSR form.

    Counts of documents form a group under + and -: every document that was added can be taken away again, bit for bit,
    in any order. A difference may hold negative entries; `check_nonnegative` is the test for a set of documents.

    indptr: (n_words + 1,) int64, where rows begin.
    columns: (pairs,) int32, ascending in each row.
    values: (pairs,) int64, never zero.
    frequency: (n_words,) documents that hold a word.
    tokens: (n_words,) occurrences.
    heavy: (n_words,) documents in which the word is a tenth of the tokens or more.
    documents: how many were counted.
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
        """Return the counts of no document."""
        frequency, tokens, heavy = np.zeros((3, n_words), np.int64)
        return cls._of(csr_array((n_words, n_words), dtype=np.int64), frequency, tokens, heavy, 0)

    @classmethod
    def sum(cls, parts: Sequence["Cooccurrence"], n_words: int) -> "Cooccurrence":
        """Add up counts over the same words, pairwise, so that long sums stay cheap."""
        level = list(parts) or [cls.zero(n_words)]
        while len(level) > 1:
            level = [level[i] + level[i + 1] if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
        return level[0]

    @classmethod
    def _of(cls, upper: csr_array, frequency: Int64, tokens: Int64, heavy: Int64, documents: int) -> "Cooccurrence":
        return cls(
            n_words=upper.shape[0],
            indptr=upper.indptr.astype(np.int64, copy=False),
            columns=upper.indices.astype(np.int32, copy=False),
            values=upper.data.astype(np.int64, copy=False),
            frequency=frequency,
            tokens=tokens,
            heavy=heavy,
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
            self.heavy + sign * other.heavy,
            self.documents + sign * other.documents,
        )

    def relabel(self, ids: npt.ArrayLike, n_words: int) -> "Cooccurrence":
        """Give word k the id `ids[k]` among n_words; a negative id drops the word with its pairs.

        ids: (n_words of self,), distinct where not negative.
        """
        new = np.asarray(ids, np.int64)
        # Where the order stays, entries stay where they are: the usual case, and nothing has to be sorted.
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
        frequency, tokens, heavy = (part[named] for part in (self.frequency, self.tokens, self.heavy))
        return self._of(upper, *_moved(frequency, tokens, heavy, new[named], n_words), self.documents)

    def restrict(self, keep: npt.ArrayLike) -> "Cooccurrence":
        """Keep the words at these ascending positions, in their order. All documents stay counted."""
        kept = np.asarray(keep, np.intp)
        return self.touching(kept, np.ones(len(kept), bool))

    def touching(self, keep: npt.ArrayLike, chosen: npt.NDArray[np.bool_]) -> "Cooccurrence":
        """Return `restrict(keep)` without the pairs that have no chosen word.

        chosen: (len(keep),) whether a word is chosen. Word statistics are those of `restrict`. Cost: the rows of chosen
        words, and a look-up a row for each of them.
        """
        kept = np.asarray(keep, np.intp)
        ids = np.full(self.n_words, -1, np.int32)
        ids[kept] = np.arange(len(kept))
        indptr = _touching_indptr(self.indptr, self.columns, kept, ids, chosen)
        columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
        _touching_rows(self.indptr, self.columns, self.values, kept, ids, chosen, indptr, columns, values)
        frequency, tokens, heavy = self.frequency[kept], self.tokens[kept], self.heavy[kept]
        return Cooccurrence(len(kept), indptr, columns, values, frequency, tokens, heavy, self.documents)

    def spread(self, ids: Int64, n_words: int) -> "Cooccurrence":
        """Give word k the id `ids[k]`, ascending: rows and columns keep their order, so nothing is sorted."""
        lengths = np.zeros(n_words, np.int64)
        lengths[ids] = np.diff(self.indptr)
        moved = _moved(self.frequency, self.tokens, self.heavy, ids, n_words)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        columns = ids.astype(np.int32)[self.columns]
        return Cooccurrence(n_words, indptr, columns, self.values, *moved, self.documents)

    def check_nonnegative(self) -> None:
        """Raise NegativeCounts unless these can be the counts of a set of documents."""
        arrays = (self.values, self.frequency, self.tokens, self.heavy)
        if self.documents < 0 or any(int(array.min(initial=0)) < 0 for array in arrays):
            raise NegativeCounts("a count fell below zero: a document was deleted that was not counted, or twice")

    def digest(self, words: Sequence[str]) -> str:
        """Return a hex digest of counts and words that depends neither on word ids nor on the order of events.

        words: one name an id. Words without a document are left out, since no live document holds them.
        """
        order = sorted((word, k) for k, word in enumerate(words) if self.frequency[k])
        ids = np.full(self.n_words, -1, np.int64)
        ids[[k for _, k in order]] = np.arange(len(order))
        plain = self.relabel(ids, len(order))
        # Digests are kept and compared between machines, so bytes are little-endian everywhere.
        state = hashlib.sha256(b"streamtopic counts 2\0")
        for word, _ in order:
            state.update(word.encode("utf-8", "surrogatepass") + b"\0")
        state.update(np.int64(plain.documents).tobytes())
        for array in (plain.indptr, plain.columns, plain.values, plain.frequency, plain.tokens, plain.heavy):
            state.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        return state.hexdigest()


def _moved(frequency: Int64, tokens: Int64, heavy: Int64, ids: Int64, n_words: int) -> tuple[Int64, Int64, Int64]:
    """Return word statistics at their new ids, 0 at those that no word has."""
    moved = np.zeros((3, n_words), np.int64)
    for new, old in zip(moved, (frequency, tokens, heavy), strict=True):
        new[ids] = old
    return moved[0], moved[1], moved[2]


def _check_room(a: Cooccurrence, b: Cooccurrence) -> None:
    highest = sum(float(np.abs(part.values).max()) if len(part.values) else 0.0 for part in (a, b))
    if highest >= _ROOM:
        raise CountsOverflow("a pair count would exceed 64 bits: too many documents for one model, split the corpus")


@numba.njit(cache=True, nogil=True)
def _touching_indptr(
    indptr: Int64, columns: Int32, kept: npt.NDArray[np.intp], ids: Int32, chosen: npt.NDArray[np.bool_]
) -> Int64:
    """Return row pointers of rows `kept`, whole where `chosen`, else with chosen columns only."""
    out = np.zeros(len(kept) + 1, np.int64)
    wanted = kept[chosen]
    for i in range(len(kept)):
        row = columns[indptr[kept[i]] : indptr[kept[i] + 1]]
        found = 0
        if chosen[i]:
            for column in row:
                found += ids[column] >= 0
        else:
            for column in wanted:
                k = np.searchsorted(row, column)
                found += k < len(row) and row[k] == column
        out[i + 1] = out[i] + found
    return out


@numba.njit(cache=True, nogil=True)
def _touching_rows(
    indptr: Int64,
    columns: Int32,
    values: Int64,
    kept: npt.NDArray[np.intp],
    ids: Int32,
    chosen: npt.NDArray[np.bool_],
    out: Int64,
    out_columns: Int32,
    out_values: Int64,
) -> None:
    """Write the entries that `_touching_indptr` counted, columns renamed by `ids`."""
    wanted = kept[chosen]
    for i in range(len(kept)):
        first, last = indptr[kept[i]], indptr[kept[i] + 1]
        row, slot = columns[first:last], out[i]
        if chosen[i]:
            for k in range(len(row)):
                if ids[row[k]] >= 0:
                    out_columns[slot], out_values[slot] = ids[row[k]], values[first + k]
                    slot += 1
        else:
            for column in wanted:
                k = np.searchsorted(row, column)
                if k < len(row) and row[k] == column:
                    out_columns[slot], out_values[slot] = ids[column], values[first + k]
                    slot += 1
