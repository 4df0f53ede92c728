"""A small change of counts as the passages that came or went, not as the pairs that they make.

Q changes by one outer product for each passage. So the consequences of a change cost as much as its passages are long.
By pairs they would cost the square of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamtopic.counts.arrays import Int64
from streamtopic.counts.batch import DocumentBatch
from streamtopic.counts.weights import Weighting

__all__ = ["SignedPassages"]


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
        """Take the passages of documents.

        signs: (documents,) 1 for a document that came, -1 for one that went; None for all came.
        """
        weights = weighting.weights(batch.lengths, batch.totals)
        if signs is not None:
            weights = weights * signs[batch.owners]
        # Products of counts and weights need 64 bits.
        words = batch.words.astype(np.int64)
        counts = batch.counts.astype(np.int64)
        return cls(batch.indptr, words, counts, weights)

    @classmethod
    def gone(cls, batch: DocumentBatch, weighting: Weighting) -> "SignedPassages":
        """Take the passages of documents that went."""
        return cls.of(batch, weighting, np.full(batch.documents, -1, np.int64))

    @classmethod
    def joined(cls, parts: Sequence["SignedPassages"]) -> "SignedPassages":
        """Lay passages over the same words one below the other."""
        sizes = [np.diff(part.indptr) for part in parts]
        words = [part.words for part in parts]
        counts = [part.counts for part in parts]
        weights = [part.weights for part in parts]
        # An integer array in front, since concatenate refuses an empty list.
        nothing = np.zeros(1, np.int64)
        return cls(
            indptr=np.cumsum(np.concatenate([nothing, *sizes])),
            words=np.concatenate([nothing[:0], *words]),
            counts=np.concatenate([nothing[:0], *counts]),
            weights=np.concatenate([nothing[:0], *weights]),
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
        # add.at and not bincount, which would add floats: these sums must be exact.
        lengths = np.zeros(self.passages, np.int64)
        np.add.at(lengths, owners, self.counts)
        # A word that stands h times among l tokens has w h (l - 1) pairs, those with itself included.
        own = self.weights[owners] * self.counts * (lengths[owners] - 1)
        sums = np.zeros(n, np.int64)
        np.add.at(sums, self.words, own)
        return sums

    def relabel(self, ids: Int64) -> "SignedPassages":
        """Rename the words of all passages and leave some words out.

        ids: the new position of each word, in the same order; negative for a word that is left out.
        """
        words = ids[self.words]
        owners = self.owners
        # A passage of one token has weight 0: it makes no pair, and nothing follows from it.
        kept = (words >= 0) & (self.weights[owners] != 0)
        sizes = np.bincount(owners[kept], minlength=self.passages)
        some = np.flatnonzero(sizes)
        indptr = np.concatenate([[0], np.cumsum(sizes[some])])
        return SignedPassages(indptr, words[kept], self.counts[kept], self.weights[some])
