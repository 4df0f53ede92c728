"""Exact pair counts of a set of documents, or the signed difference of two sets: one triangle, int64."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from streamtopic.compiled import allocating
from streamtopic.counts.arrays import Int32, Int64, Mask, Positions, entry_rows, places, row_ends
from streamtopic.errors import CountsOverflow

__all__ = ["Cooccurrence"]

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
    def sum(cls, parts: Sequence["Cooccurrence"], n_words: int) -> "Cooccurrence":
        """Add up counts over the same words. Raises CountsOverflow if a sum would leave 64 bits."""
        level = list(parts) or [cls.zero(n_words)]
        # In pairs, as in a tournament: added one by one, the first parts would be copied once for each of the others.
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            sums = [a + b for a, b in pairs]
            if len(level) % 2:
                sums.append(level[-1])
            level = sums
        return level[0]

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
    def pairs(self) -> int:
        """How many word pairs are stored."""
        return len(self.values)

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
        upper = self.upper
        if other.pairs and sign > 0:
            upper = upper + other.upper
        elif other.pairs:
            upper = upper - other.upper
        pairs = zip(self.statistics, other.statistics, strict=True)
        statistics = [mine + sign * theirs for mine, theirs in pairs]
        documents = self.documents + sign * other.documents
        return self._of(upper, statistics, documents)

    def relabel(self, ids: npt.ArrayLike, n_words: int) -> "Cooccurrence":
        """Give the words other ids, and drop some words with their pairs.

        ids: (n_words of self,) the new id of each word, distinct; negative for a word that is dropped.
        n_words: how many ids there are afterwards.
        """
        new = np.asarray(ids, np.int64)
        named = new >= 0
        # If the order stays, entries stay where they are: the usual case, and nothing has to be sorted.
        if np.all(np.diff(new[named]) > 0):
            some = self if named.all() else self.restrict(np.flatnonzero(named))
            return some.spread(new[named], n_words)
        row = new[entry_rows(self.indptr)]
        column = new[self.columns]
        kept = (row >= 0) & (column >= 0)
        row = row[kept]
        column = column[kept]
        # With another order a pair may come to lie below the diagonal, so its words change places.
        first = np.minimum(row, column)
        second = np.maximum(row, column)
        entries = (self.values[kept], (first, second))
        upper = coo_array(entries, shape=(n_words, n_words)).tocsr()
        upper.sort_indices()
        statistics = [array[named] for array in self.statistics]
        moved = _moved(statistics, new[named], n_words)
        return self._of(upper, moved, self.documents)

    def restrict(self, keep: npt.ArrayLike) -> "Cooccurrence":
        """Return the counts of the words at these ascending positions, in their order. All documents stay counted."""
        kept = np.asarray(keep, np.intp)
        all_chosen = np.ones(len(kept), bool)
        return self.touching(kept, all_chosen)

    def touching(self, keep: npt.ArrayLike, chosen: Mask) -> "Cooccurrence":
        """Return the counts of some words without the pairs that have no chosen word.

        keep: (k,) ascending positions of words.
        chosen: (k,) whether a word is chosen.
        Word statistics are those of `restrict`. Cost: the rows of chosen words, and one search in every other row for
        each chosen word.
        """
        kept = np.asarray(keep, np.intp)
        ids = places(self.n_words, kept, np.int32)
        indptr = _touching_indptr(self.indptr, self.columns, kept, ids, chosen)
        columns = np.empty(indptr[-1], np.int32)
        values = np.empty(indptr[-1], np.int64)
        _touching_rows(self.indptr, self.columns, self.values, kept, ids, chosen, indptr, columns, values)
        frequency, tokens, heavy = (array[kept] for array in self.statistics)
        return Cooccurrence(len(kept), indptr, columns, values, frequency, tokens, heavy, self.documents)

    def spread(self, ids: Int64, n_words: int) -> "Cooccurrence":
        """Give word k the id `ids[k]` among n_words. Ids ascend, so rows and columns keep their order."""
        lengths = np.zeros(n_words, np.int64)
        lengths[ids] = np.diff(self.indptr)
        frequency, tokens, heavy = _moved(self.statistics, ids, n_words)
        columns = ids.astype(np.int32)[self.columns]
        indptr = row_ends(lengths)
        return Cooccurrence(n_words, indptr, columns, self.values, frequency, tokens, heavy, self.documents)

    def digest(self, words: Sequence[str]) -> str:
        """Return a hex digest of counts and words that depends neither on word ids nor on the order of events.

        words: one name an id. Words without a document are left out, since no live document holds them.
        """
        live = [k for k in range(len(words)) if self.frequency[k]]
        order = sorted(live, key=words.__getitem__)
        ids = np.full(self.n_words, -1, np.int64)
        ids[order] = np.arange(len(order))
        plain = self.relabel(ids, len(order))
        state = hashlib.sha256(b"streamtopic counts 3\0")
        for k in order:
            word = words[k].encode("utf-8", "surrogatepass")
            state.update(word + b"\0")
        state.update(np.int64(plain.documents).tobytes())
        for array in (plain.indptr, plain.columns, plain.values, plain.frequency, plain.tokens, plain.heavy):
            # Digests are kept and compared between machines, so bytes are little-endian everywhere.
            little = array.dtype.newbyteorder("<")
            state.update(np.ascontiguousarray(array).astype(little, copy=False).tobytes())
        return state.hexdigest()


def _moved(statistics: Sequence[Int64], ids: Int64, n_words: int) -> Int64:
    """Return word statistics at their new ids, 0 if an id has no word, (len(statistics), n_words)."""
    moved = np.zeros((len(statistics), n_words), np.int64)
    for new, old in zip(moved, statistics, strict=True):
        new[ids] = old
    return moved


def _check_range(a: Cooccurrence, b: Cooccurrence) -> None:
    """Raise CountsOverflow if a sum or difference might leave 64 bits: integers would wrap in silence."""
    highest = 0.0
    for part in (a, b):
        if len(part.values):
            largest = np.abs(part.values).max()
            highest += float(largest)
    if highest >= _ROOM:
        raise CountsOverflow("a pair count would exceed 64 bits: too many documents for one model, split the corpus")


@allocating
def _touching_indptr(indptr: Int64, columns: Int32, kept: Positions, ids: Int32, chosen: Mask) -> Int64:
    """Return row pointers of the rows `kept`: a chosen row is whole, another one has chosen columns only."""
    out = np.zeros(len(kept) + 1, np.int64)
    wanted = kept[chosen]
    for i, kept_row in enumerate(kept):
        first = indptr[kept_row]
        row = columns[first : indptr[kept_row + 1]]
        found = 0
        if chosen[i]:
            for column in row:
                found += ids[column] >= 0
        else:
            # Few words are chosen and rows are long, so a search for each costs less than a pass over the row.
            for column in wanted:
                k = np.searchsorted(row, column)
                found += k < len(row) and row[k] == column
        out[i + 1] = out[i] + found
    return out


@allocating
def _touching_rows(
    indptr: Int64, columns: Int32, values: Int64, kept: Positions, ids: Int32, chosen: Mask,
    out: Int64, out_columns: Int32, out_values: Int64,
) -> None:  # fmt: skip
    """Write the entries that `_touching_indptr` counted, with their columns renamed by `ids`."""
    wanted = kept[chosen]
    for i, kept_row in enumerate(kept):
        first = indptr[kept_row]
        last = indptr[kept_row + 1]
        row = columns[first:last]
        slot = out[i]
        if chosen[i]:
            for k in range(len(row)):
                new = ids[row[k]]
                if new >= 0:
                    out_columns[slot] = new
                    out_values[slot] = values[first + k]
                    slot += 1
        else:
            for column in wanted:
                k = np.searchsorted(row, column)
                if k < len(row) and row[k] == column:
                    out_columns[slot] = ids[column]
                    out_values[slot] = values[first + k]
                    slot += 1
