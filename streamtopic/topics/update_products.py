"""Products of an update: how Q V moves when Q does, at the cost of the entries that changed and of their rows.

    product_shift      dQ V + Q' (V' - V), which is added to the product of before
    OuterChange        dQ as outer products, where the passages that it is made of are known
    add_times_sparse   Q S for a sparse S: the rest of a product once most of it is carried over

A small change is dQ = X^T S X - diag(E), with a row of X for each passage that came or went:

    reach      Y = Q' D^2 X^T             the product of each word's row with each passage
    products   Q' D^2 (X^T S M) = Y S M   M: how much of a passage stands in each anchor's set
    Gram       Y_c S X_c and its like     for the candidates c

Y is summed once from the rows of the passages' words, and serves all three. Without it every such row would be read for
each topic that the passage touches, and for each of the products.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numba
import numpy as np
from scipy.sparse import csr_array

from streamtopic.counts import SignedPassages, SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Mask, Positions
from streamtopic.counts.compact import Compact, read, seek
from streamtopic.topics.threads import each, workers

__all__ = [
    "OuterChange",
    "SparseRows",
    "ThinShift",
    "add_times_sparse",
    "dearer_than_whole",
    "outer_change",
    "product_shift",
]

# Numbers that a compiled loop adds at once where they lie side by side.
_WIDE = 4
# Numbers that a library's dense product multiplies in the time of one addition.
_BLAS = 16
# Reading an entry of Q takes about as long as adding this many numbers.
_READING = 3
# Bytes of sums that stay in the second-level cache.
_BLOCK_BYTES = 1 << 18
# Columns that one thread sums together. A row of S with more entries than that is long.
_TOGETHER = 8


@dataclass(frozen=True, eq=False)
class OuterChange:
    """A change of Q that is known as outer products.

    passages: k passages over the n internal words.
    reach: Y (n, k).
    others: ascending positions of words that are not in the passages. Their rows and columns are the rest of dQ.
    """

    passages: SignedPassages
    reach: Float
    others: Positions

    @property
    def whole(self) -> bool:
        """Whether the passages make all of dQ."""
        return not len(self.others)

    @cached_property
    def words(self) -> Positions:
        """The words of the passages, ascending."""
        return np.unique(self.passages.words)

    @property
    def longest(self) -> int:
        """Words of the longest passage."""
        return int(np.diff(self.passages.indptr).max(initial=0))

    def sums(self, group: Int64, r: int) -> Int64:
        """Return S M, (k, r): weighted counts of each passage's words in each topic's set.

        group: (n,) the topic that each word stands for, -1 for most.
        """
        out = np.zeros((self.passages.passages, r), np.int64)
        p = self.passages
        _sums(p.indptr, p.words, p.counts, p.weights, group, out)
        return out

    def explained(self, sums: Int64) -> Int64:
        """Return (S M)^T X, (r, n): the part of the outer products alone in the summed rows of the sets."""
        out = np.zeros((sums.shape[1], len(self.reach)), np.int64)
        p = self.passages
        _explained(p.indptr, p.words, p.counts, sums, out)
        return out

    def add_times(self, thin: Float, out: Float) -> Float:
        """Add (X^T S X - E) V to `out`, (n, r). Return for each row the largest sum of its terms' sizes, (n,).

        thin: V (n, r), not negative.
        Cost: r for each word of a passage.
        """
        weights = self.passages.weights[:, None]
        words = self.words
        own = self.X[:, words].T
        met = self.X @ thin
        diagonal = self.E[words, None].astype(float)
        out[words] += own @ (met * weights) - diagonal * thin[words]
        # V and X are not negative, so the sizes of terms are the terms with the sizes of the signed factors.
        terms = own @ (met * np.abs(weights)) + np.abs(diagonal) * thin[words]
        sizes = np.zeros(len(thin))
        sizes[words] = terms.max(axis=1)
        return sizes

    @cached_property
    def X(self) -> csr_array:
        """The passages' counts, (k, n)."""
        p = self.passages
        entries = (p.counts.astype(float), p.words, p.indptr)
        return csr_array(entries, shape=self.reach.shape[::-1])

    @cached_property
    def E(self) -> Int64:
        """The pairs of tokens with themselves, (n,): an outer product has them, and counts do not."""
        p = self.passages
        out = np.zeros(len(self.reach), np.int64)
        np.add.at(out, p.words, p.counts * p.weights[p.owners])
        return out


def outer_change(
    q: SymmetricCounts, squares: Float, passages: SignedPassages, r: int, others: Positions
) -> OuterChange | None:
    """Return the change with its reach, or None where a product with all of Q would cost less.

    q: Q' after the change.
    squares: D^2 (n,) after the change.
    passages: over the internal words.
    r: topics.
    others: as in OuterChange.
    Cost: the entries of the rows of the passages' words, once for every passage that holds the word.
    """
    k = passages.passages
    if not k:
        return None
    words, held = np.unique(passages.words, return_counts=True)
    lengths = np.diff(q.indptr)[words]
    cost = float(lengths @ (held + _READING)) + 2.0 * q.n * k * r / _BLAS
    # Y must not need more memory than Q either.
    if cost > q.entries * r / _WIDE or 8 * q.n * k > q.nbytes:
        return None
    reach = _reach(q, squares, passages)
    return OuterChange(passages, reach, others)


def _reach(q: SymmetricCounts, squares: Float, passages: SignedPassages) -> Float:
    """Return Q D^2 X^T, (n, k). Q is symmetric, so its columns are read as rows."""
    order = np.argsort(passages.words, kind="stable")
    owners = passages.owners[order]
    words, starts = np.unique(passages.words[order], return_index=True)
    values = passages.counts[order] * squares[passages.words[order]]
    weighted = SparseRows(words, np.append(starts, len(order)), owners, values)
    out = np.zeros((q.n, passages.passages))
    add_times_sparse(q, weighted, out)
    return out


@numba.njit(cache=True, nogil=True)
def _sums(indptr: Int64, words: Int64, counts: Int64, weights: Int64, group: Int64, out: Int64) -> None:
    """Add the weighted counts of each passage's words to the topics of the words, `out` (k, r)."""
    for p in range(len(weights)):
        for k in range(indptr[p], indptr[p + 1]):
            if group[words[k]] >= 0:
                out[p, group[words[k]]] += weights[p] * counts[k]


@numba.njit(cache=True, nogil=True)
def _explained(indptr: Int64, words: Int64, counts: Int64, sums: Int64, out: Int64) -> None:
    """Add each passage's counts times its sums (k, r) to `out` (r, n)."""
    for p in range(len(sums)):
        for t in range(sums.shape[1]):
            if sums[p, t] != 0:
                for k in range(indptr[p], indptr[p + 1]):
                    out[t, words[k]] += sums[p, t] * counts[k]


@dataclass(frozen=True, slots=True, eq=False)
class ThinShift:
    """A change dV of V (n, r).

    rows: (t,) ascending positions of rows that change.
    moved: (t, r) their change.
    outer: the passages X (k, n), if they are known; dV has the part D^2 X^T sums too then.
    sums: (k, r) integers.
    """

    rows: Positions
    moved: Float
    outer: OuterChange | None = None
    sums: Int64 = field(default_factory=lambda: np.zeros((0, 0), np.int64))


def dearer_than_whole(q: SymmetricCounts, delta: SymmetricCounts, thin: ThinShift) -> bool:
    """Return whether `product_shift` would take longer than the product with all of Q."""
    # A product with all of Q adds up vectors, some numbers at a time; a product with dV adds up single numbers.
    r = thin.moved.shape[1]
    held = np.count_nonzero(thin.moved, axis=1) + _READING
    single = int(np.diff(q.indptr)[thin.rows] @ held)
    shifted = single + delta.entries * r / _WIDE
    whole = q.entries * r / _WIDE
    return bool(shifted > whole)


def product_shift(q: SymmetricCounts, delta: SymmetricCounts, before: Float, thin: ThinShift) -> tuple[Float, Float]:
    """Return dQ V + Q' dV, (n, r), and for each of its rows the largest sum of its terms' sizes, (n,).

    q: Q'.
    delta: dQ, signed.
    before: V (n, r), not negative.
    thin: dV.
    Cost: nnz(dQ) r; for each entry of `moved` the entries of its row of Q'; n r for each passage.
    """
    shift = np.zeros(before.shape)
    sizes = np.zeros(len(before))
    outer = thin.outer
    if outer is not None and outer.whole:
        sizes += outer.add_times(before, shift)
    else:
        _add_change(delta.rows, before, before.max(axis=1), shift, sizes)
    sizes += add_times_sparse(q, SparseRows.of(thin.rows, thin.moved), shift)
    if outer is not None:
        sizes += _add_mixed(outer.reach, thin.sums, shift)
    return shift, sizes


def _add_mixed(thin: Float, mixing: Int64, out: Float) -> Float:
    """Add T M for T (n, k), not negative, and M (k, r). Return for each row the largest sum of its terms' sizes."""
    out += thin @ mixing.astype(float)
    terms = thin @ np.abs(mixing).astype(float)
    return np.asarray(terms.max(axis=1))


@numba.njit(cache=True, nogil=True)
def _add_change(q: Compact, thin: Float, largest: Float, out: Float, sizes: Float) -> None:
    """Add dQ V to `out` (n, r), and bounds on the sizes of its terms to `sizes` (n,). largest: (n,) of V's rows."""
    for row in range(len(q.indptr) - 1):
        total, w = out[row], q.wide_indptr[row]
        for k in range(q.indptr[row], q.indptr[row + 1]):
            exact, w = read(q, k, w)
            value, column = float(exact), q.columns[k]
            factors = thin[column]
            sizes[row] += abs(value) * largest[column]
            for t in range(thin.shape[1]):
                total[t] += value * factors[t]


@dataclass(frozen=True, slots=True, eq=False)
class SparseRows:
    """A sparse S (n, k) by those rows that have entries.

    rows: (t,) ascending positions of the rows.
    ends: (t + 1,) where rows begin and end.
    columns, values: (nnz,) the entries.
    """

    rows: Int64
    ends: Int64
    columns: Int64
    values: Float

    @classmethod
    def of(cls, rows: Int64, dense: Float) -> "SparseRows":
        """Take the entries of `dense` (t, k), whose rows stand at ascending positions."""
        held, columns = np.nonzero(dense)
        ends = np.searchsorted(held, np.arange(len(rows) + 1))
        return cls(rows.astype(np.int64), ends, columns, dense[held, columns])

    @property
    def owners(self) -> Int64:
        """The row of each entry, as a position in `rows`, (nnz,)."""
        return np.repeat(np.arange(len(self.rows)), np.diff(self.ends))

    def only(self, chosen: Mask) -> "SparseRows":
        """Return some of the rows. chosen: (t,) whether a row is chosen."""
        kept = chosen[self.owners]
        sizes = np.diff(self.ends)[chosen]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        return SparseRows(self.rows[chosen], ends, self.columns[kept], self.values[kept])


def add_times_sparse(q: SymmetricCounts, S: SparseRows, out: Float) -> Float:
    """Add Q S to `out` (n, k). Return for each row a bound on the sum of its terms' sizes in any column, (n,).

    Cost: for each entry of S the entries of its row of Q.
    """
    # Q is symmetric, so its columns are read as rows: those of the rows of S.
    columns = out.shape[1]
    long = np.diff(S.ends) > _TOGETHER
    # Rows with few entries go column by column, so that sums are read and written in order.
    few = S.only(~long)
    order = np.argsort(few.columns, kind="stable")
    starts = np.searchsorted(few.columns[order], np.arange(columns + 1))
    same = q.rows, few.rows[few.owners[order]], few.values[order], starts, out
    found = []
    parts = []
    for first in range(0, columns, _TOGETHER):
        # Sizes of its own for each thread, which no other one writes to.
        size = np.zeros(q.n)
        found.append(size)
        parts.append((*same, size, first, min(first + _TOGETHER, columns)))
    each(_by_columns, parts)
    sizes = np.zeros(q.n)
    for size in found:
        np.maximum(sizes, size, out=sizes)
    if long.any():
        sizes += _add_long(q, S.only(long), out)
    return sizes


def _add_long(q: SymmetricCounts, S: SparseRows, out: Float) -> Float:
    """Do the same for rows with many entries: each entry of Q is read once for a whole row of S."""
    sizes = np.zeros(q.n)
    largest = np.zeros(len(S.rows))
    np.maximum.at(largest, S.owners, np.abs(S.values))
    edges = np.linspace(0, q.n, workers() + 1).astype(np.int64).tolist()
    block = max(64, _BLOCK_BYTES // (8 * max(1, out.shape[1])))
    same = q.rows, S.rows, S.ends, S.columns, S.values, largest, out, sizes
    each(_by_rows, [(*same, *span, block) for span in pairwise(edges)])
    return sizes


@numba.njit(cache=True, nogil=True)
def _by_columns(
    q: Compact, rows: Int64, values: Float, starts: Int64, out: Float, sizes: Float, first: int, last: int
) -> None:
    """Add to columns first ... last - 1 of the result."""
    # Positive and negative terms are summed by themselves, since both sums together bound the sizes of terms.
    n = len(out)
    sums = np.zeros((last - first, 2, n))
    for column in range(first, last):
        for j in range(starts[column], starts[column + 1]):
            row, factor = rows[j], abs(values[j])
            total, w = sums[column - first, 0 if values[j] > 0.0 else 1], q.wide_indptr[row]
            for k in range(q.indptr[row], q.indptr[row + 1]):
                exact, w = read(q, k, w)
                total[q.columns[k]] += float(exact) * factor
    for i in range(n):
        for column in range(first, last):
            up, down = sums[column - first, 0, i], sums[column - first, 1, i]
            out[i, column] += up - down
            sizes[i] = max(sizes[i], up + down)


@numba.njit(cache=True, nogil=True)
def _by_rows(
    q: Compact, chosen: Int64, ends: Int64, columns: Int64, values: Float,
    largest: Float, out: Float, sizes: Float, start: int, stop: int, block: int,
) -> None:  # fmt: skip
    """Add to rows start ... stop - 1 of the result, a block of them at a time, so that they stay in the cache."""
    cursor, wide = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.int64)
    for j in range(len(chosen)):
        cursor[j], wide[j] = seek(q, chosen[j], start)
    for edge in range(start, stop, block):
        end = min(edge + block, stop)
        for j in range(len(chosen)):
            k, w, last = cursor[j], wide[j], q.indptr[chosen[j] + 1]
            while k < last and q.columns[k] < end:
                exact, w = read(q, k, w)
                value, row = float(exact), q.columns[k]
                sizes[row] += value * largest[j]
                total = out[row]
                for t in range(ends[j], ends[j + 1]):
                    total[columns[t]] += value * values[t]
                k += 1
            cursor[j], wide[j] = k, w
