"""A small change of Q as outer products: dQ = X^T S X - diag(E), a row of X for each passage that came or went.

    reach      Y = Q' D^2 X^T             what each word's row gives with each passage
    products   Q' D^2 (X^T S M) = Y S M   M: how much of a passage stands in each anchor's set
    Gram       Y_c S X_c and its like     for the candidates c

Y is summed once from the rows of the passages' words, and serves all three. Without it every such row is read for each
topic that the passage touches, and for each of the products.
"""

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamtopic.counts import SignedPassages, SymmetricCounts
from streamtopic.topics.sparse_times import SparseRows, add_times_sparse

__all__ = ["OuterChange", "outer_change"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]
_WIDE = 4
_BLAS = 16


@dataclass(frozen=True, eq=False)
class OuterChange:
    """passages: k of them, over the n internal words; reach: Y (n, k).

    others: ascending positions of words that are in no passage, whose rows and columns of dQ are all that dQ is beside
    them.
    """

    passages: SignedPassages
    reach: Float
    others: Positions

    @property
    def whole(self) -> bool:
        """Whether dQ is the passages' and nothing else."""
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
        """Return S M, (k, r): weighted counts of each passage's words in each topic's set; group: (n,), -1 for none."""
        out = np.zeros((self.passages.passages, r), np.int64)
        p = self.passages
        _sums(p.indptr, p.words, p.counts, p.weights, group, out)
        return out

    def explained(self, sums: Int64) -> Int64:
        """Return (S M)^T X, (r, n): what the outer products alone add to the summed rows of the sets."""
        out = np.zeros((sums.shape[1], len(self.reach)), np.int64)
        p = self.passages
        _explained(p.indptr, p.words, p.counts, sums, out)
        return out

    def add_times(self, thin: Float, out: Float) -> Float:
        """Add (X^T S X - E) V to `out`, (n, r), V not negative; return the largest sum of sizes in each row, (n,).

        Cost: r for each word of a passage.
        """
        weights, words = self.passages.weights[:, None], self.words
        own = self.X[:, words].T
        met = self.X @ thin
        diagonal = self.E[words, None].astype(float)
        out[words] += own @ (met * weights) - diagonal * thin[words]
        sizes = np.zeros(len(thin))
        sizes[words] = (own @ (met * np.abs(weights)) + np.abs(diagonal) * thin[words]).max(axis=1)
        return sizes

    @cached_property
    def X(self) -> csr_array:
        """The passages' counts, (k, n)."""
        p = self.passages
        return csr_array((p.counts.astype(float), p.words, p.indptr), shape=self.reach.shape[::-1])

    @cached_property
    def E(self) -> Int64:
        """The self-pairs of outer products, that passages do not make, (n,)."""
        p = self.passages
        out = np.zeros(len(self.reach), np.int64)
        np.add.at(out, p.words, p.counts * p.weights[p.owners])
        return out


def outer_change(
    q: SymmetricCounts, squares: Float, passages: SignedPassages, r: int, others: Positions | None
) -> OuterChange | None:
    """Return the change with its reach, or None where a product with all of Q would cost less.

    q: Q', squares: D^2 (n,), both as they are after the change; passages: over the internal words; r: topics; others:
    as in OuterChange, None where there is more to the change: then there is nothing to be made of it either.
    Cost: the entries of the rows of the passages' words, once for every passage that holds the word.
    """
    k = passages.passages
    if others is None or not k:
        return None
    words, held = np.unique(passages.words, return_counts=True)
    lengths = np.diff(q.indptr)[words]
    cost = float(lengths @ (held + 3)) + 2.0 * q.n * k * r / _BLAS
    if cost > q.entries * r / _WIDE or 8 * q.n * k > q.nbytes:
        return None
    return OuterChange(passages, _reach(q, squares, passages), others)


def _reach(q: SymmetricCounts, squares: Float, passages: SignedPassages) -> Float:
    """Return Q D^2 X^T, (n, k). Q is symmetric, so its columns are read as rows."""
    order = np.argsort(passages.words, kind="stable")
    owners = passages.owners[order]
    words, starts = np.unique(passages.words[order], return_index=True)
    values = passages.counts[order] * squares[passages.words[order]]
    out = np.zeros((q.n, passages.passages))
    add_times_sparse(q, SparseRows(words, np.append(starts, len(order)), owners, values), out)
    return out


@numba.njit(cache=True, nogil=True)
def _sums(indptr: Int64, words: Int64, counts: Int64, weights: Int64, group: Int64, out: Int64) -> None:
    for p in range(len(weights)):
        for k in range(indptr[p], indptr[p + 1]):
            if group[words[k]] >= 0:
                out[p, group[words[k]]] += weights[p] * counts[k]


@numba.njit(cache=True, nogil=True)
def _explained(indptr: Int64, words: Int64, counts: Int64, sums: Int64, out: Int64) -> None:
    for p in range(len(sums)):
        for t in range(sums.shape[1]):
            if sums[p, t] != 0:
                for k in range(indptr[p], indptr[p + 1]):
                    out[t, words[k]] += sums[p, t] * counts[k]
