"""A small change of Q as outer products: dQ = X^T S X - diag(E), a row of X for each passage that came or went.

    reach      Y = Q' D^2 X^T             what each word's row gives with each passage
    products   Q' D^2 (X^T S M) = Y S M   M: how much of a passage stands in each anchor's set
    Gram       Y_c S X_c and its like     for the candidates c

Y is summed once from the rows of the passages' words, and serves all three. Without it every such row is read for each
topic that the passage touches, and for each of the products.
"""

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True, eq=False)
class OuterChange:
    """passages: k of them, over the n internal words; reach: Y (n, k).

    others: ascending positions of words that are in no passage, whose rows and columns of dQ are all that dQ is beside
    them; None where it may be more.
    """

    passages: SignedPassages
    reach: Float
    others: Positions | None

    @property
    def whole(self) -> bool:
        """Whether dQ is the passages' and nothing else."""
        return self.others is not None and not len(self.others)

    @property
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

    def explained(self, sums: Int64, n: int) -> Int64:
        """Return (S M)^T X, (r, n): what the outer products alone add to the summed rows of the sets."""
        out = np.zeros((sums.shape[1], n), np.int64)
        p = self.passages
        _explained(p.indptr, p.words, p.counts, sums, out)
        return out

    def add_times(self, thin: Float, out: Float) -> Float:
        """Add (X^T S X - E) V to `out`, (n, r), V not negative; return the largest sum of sizes in each row, (n,).

        Cost: r for each word of a passage.
        """
        p, n = self.passages, len(thin)
        X, words = self.matrix(n), self.words
        own = X[:, words].T
        met = X @ thin
        diagonal = self.diagonal(n)[words, None].astype(float)
        out[words] += own @ (met * p.weights[:, None]) - diagonal * thin[words]
        sizes = np.zeros(n)
        sizes[words] = (own @ (met * np.abs(p.weights)[:, None]) + np.abs(diagonal) * thin[words]).max(axis=1)
        return sizes

    def matrix(self, n: int) -> csr_array:
        """Return X, (k, n)."""
        p = self.passages
        return csr_array((p.counts.astype(float), p.words, p.indptr), shape=(p.passages, n))

    def diagonal(self, n: int) -> Int64:
        """Return E, (n,)."""
        p = self.passages
        out = np.zeros(n, np.int64)
        np.add.at(out, p.words, p.counts * np.repeat(p.weights, np.diff(p.indptr)))
        return out


def outer_change(
    q: SymmetricCounts, squares: Float, passages: SignedPassages, r: int, others: Positions | None
) -> OuterChange | None:
    """Return the change with its reach, or None where a product with all of Q would cost less.

    q: Q', squares: D^2 (n,), both as they are after the change; passages: over the internal words; r: topics; others:
    as in OuterChange.
    Cost: the entries of the rows of the passages' words, once for every passage that holds the word.
    """
    k = passages.passages
    words, held = np.unique(passages.words, return_counts=True)
    lengths = np.diff(q.indptr)[words]
    cost = float(lengths @ (held + 3)) + 2.0 * q.n * k * r / _BLAS
    if not k or cost > q.entries * r / _WIDE or 8 * q.n * k > q.nbytes:
        return None
    return OuterChange(passages, _reach(q, squares, passages), others)


def _reach(q: SymmetricCounts, squares: Float, passages: SignedPassages) -> Float:
    """Return Q D^2 X^T, (n, k). Q is symmetric, so its columns are read as rows."""
    order = np.argsort(passages.words, kind="stable")
    owners = np.repeat(np.arange(passages.passages), np.diff(passages.indptr))[order]
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
