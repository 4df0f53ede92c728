"""A small change of counts as the passages that came or went, and not as the pairs that they make.

Q changes by one outer product a passage. So the consequences of a change cost as much as its passages are long, where
their pairs would cost the square of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts.batch import DocumentBatch
from streamtopic.counts.weights import Weighting

__all__ = ["SignedPassages"]

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SignedPassages:
    """Passages with the signed weight of their pairs: dQ = sum of w (h h^T - diag(h)), h a passage's word counts.

    indptr: (k + 1,) where passages begin.
    words: (nnz,) positions among the words of the change, ascending in each passage.
    counts: (nnz,) how often each word stands there.
    weights: (k,) integer weights as of `Weighting`, negative for a passage that went.
    """

    indptr: Int64
    words: Int64
    counts: Int64
    weights: Int64

    @classmethod
    def of(cls, batch: DocumentBatch, weighting: Weighting, signs: Int64 | None = None) -> "SignedPassages":
        """Take the passages of documents; signs: (documents,) 1 for one that came, -1 for one that went."""
        weights = weighting.weights(batch.lengths, batch.totals)
        if signs is not None:
            weights = weights * signs[batch.owners]
        return cls(batch.indptr, batch.words.astype(np.int64), batch.counts.astype(np.int64), weights)

    @classmethod
    def gone(cls, batch: DocumentBatch, weighting: Weighting) -> "SignedPassages":
        """Take the passages of documents that went."""
        return cls.of(batch, weighting, np.full(batch.documents, -1, np.int64))

    @classmethod
    def joined(cls, parts: Sequence["SignedPassages"]) -> "SignedPassages":
        """Lay passages over the same words one below the other."""
        sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.indptr) for part in parts)])
        nothing = np.zeros(0, np.int64)
        return cls(
            np.cumsum(sizes),
            np.concatenate([nothing, *(part.words for part in parts)]),
            np.concatenate([nothing, *(part.counts for part in parts)]),
            np.concatenate([nothing, *(part.weights for part in parts)]),
        )

    @property
    def passages(self) -> int:
        """How many passages there are."""
        return len(self.weights)

    @property
    def owners(self) -> Int64:
        """The passage of each word, (nnz,)."""
        return np.repeat(np.arange(self.passages), np.diff(self.indptr))

    def row_sums(self, n: int) -> Int64:
        """Return the row sums of dQ over n words, (n,)."""
        owners = self.owners
        # A word that stands h times among l tokens has w h (l - 1) pairs, those with itself included.
        lengths = np.zeros(self.passages, np.int64)
        np.add.at(lengths, owners, self.counts)
        sums = np.zeros(n, np.int64)
        np.add.at(sums, self.words, self.weights[owners] * self.counts * (lengths[owners] - 1))
        return sums

    def relabel(self, ids: Int64) -> "SignedPassages":
        """Give word k the position `ids[k]`, in the same order; a negative one leaves the word out of all passages.

        Passages that have no pair, or no word left, are left out.
        """
        words = ids[self.words]
        owners = self.owners
        kept = (words >= 0) & (self.weights[owners] != 0)
        sizes = np.bincount(owners[kept], minlength=self.passages)
        some = np.flatnonzero(sizes)
        indptr = np.concatenate([[0], np.cumsum(sizes[some])])
        return SignedPassages(indptr, words[kept], self.counts[kept], self.weights[some])
