"""The integer weight of a document's word pairs, and a small change of counts as passages with their weights.

    Weighting        the weight; MAX_LENGTH: tokens of a passage
    SignedPassages   the passages that came or went, in place of the pairs that they make

Q changes by one outer product for each passage. So the consequences of a change cost as much as its passages are long.
By pairs they would cost the square of that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts.arrays import Int64, entry_rows, row_ends
from streamtopic.counts.batch import DocumentBatch
from streamtopic.errors import UsageError

__all__ = ["MAX_LENGTH", "SignedPassages", "Weighting"]


MAX_LENGTH = 8192
"""Tokens of the longest passage that is counted as one; longer texts are counted as several passages."""

# Both keep cap << shift within 2^38, so that 2^18 documents of 64 passages stay within 64 bits.
_SHIFTS = {1: 36, 256: 30}


@dataclass(frozen=True, slots=True)
class Weighting:
    """Document mass f(L) = min(L, cap), as fixed-point integers.

    A document of L tokens adds f(L) / (L (L - 1)) for every ordered pair of its tokens (Arora et al. 2013, section 2,
    times f). A long document is counted as passages, which share its mass by their lengths. A passage of l tokens has
    f(L) l / L of the mass, so f(L) / (L (l - 1)) for every ordered pair of its own tokens. That number is stored as
    `round(2**shift * f(L) / (L (l - 1)))`. The shift keeps the rounding below 5e-4 of the weight up to L = 8,192, and
    below .8 % (cap 1: 3.1 %) up to 64 passages of that length.

    cap: tokens from which on a longer document has no more mass; fixed when a model is created. 1 is the published
        learner. 256 lets long documents count for more, but no single spam document for everything.
    """

    cap: int = 256

    def __post_init__(self) -> None:
        if self.cap not in _SHIFTS:
            raise UsageError(f"document mass cap {self.cap} is not supported: use one of {sorted(_SHIFTS)}")

    @property
    def shift(self) -> int:
        """Binary places of the fixed-point weight."""
        return _SHIFTS[self.cap]

    def weights(self, lengths: npt.ArrayLike, totals: npt.ArrayLike) -> Int64:
        """Return the integer weight of each passage; 0 for fewer than two tokens, which make no pair.

        lengths: tokens of each passage.
        totals: tokens of its whole document, as `DocumentBatch.totals` gives them; the same as `lengths` for documents
            of one passage.
        Raises UsageError for a length above 8,192, where rounding would no longer be negligible.
        """
        length = np.asarray(lengths, dtype=np.int64)
        total = np.asarray(totals, dtype=np.int64)
        longest = int(length.max(initial=0))
        if longest > MAX_LENGTH:
            raise UsageError(
                f"a passage of {longest} tokens is longer than {MAX_LENGTH}: cut the document into several passages"
            )
        # The passage's own length is in its share of the mass and in its number of pairs, and cancels out.
        # At least 1, so that a passage without a pair is not divided by 0.
        pairs = np.maximum(total * (length - 1), 1)
        numerator = np.minimum(total, self.cap) << self.shift
        # In integers, half rounded up, so that every machine gets the same weight.
        rounded = (2 * numerator + pairs) // (2 * pairs)
        return np.where(length < 2, 0, rounded)


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
        signs = np.full(batch.documents, -1, np.int64)
        return cls.of(batch, weighting, signs)

    @classmethod
    def joined(cls, parts: Sequence["SignedPassages"]) -> "SignedPassages":
        """Lay passages over the same words one below the other."""
        sizes = _joined([np.diff(part.indptr) for part in parts])
        words = _joined([part.words for part in parts])
        counts = _joined([part.counts for part in parts])
        weights = _joined([part.weights for part in parts])
        return cls(row_ends(sizes), words, counts, weights)

    @property
    def passages(self) -> int:
        """How many passages there are."""
        return len(self.weights)

    @property
    def owners(self) -> Int64:
        """The passage of each word, (nnz,)."""
        return entry_rows(self.indptr)

    def row_sums(self, n: int) -> Int64:
        """Return the row sums of dQ over n words, (n,)."""
        owners = self.owners
        # add.at and not bincount, which would add floats: these sums must be exact.
        lengths = np.zeros(self.passages, np.int64)
        np.add.at(lengths, owners, self.counts)
        # A word that stands h times among l tokens has w h (l - 1) pairs, those with itself included.
        others = lengths[owners] - 1
        own = self.weights[owners] * self.counts * others
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
        counts = self.counts[kept]
        return SignedPassages(row_ends(sizes[some]), words[kept], counts, self.weights[some])


def _joined(arrays: Sequence[Int64]) -> Int64:
    """Lay arrays one behind the other, also where there are none."""
    # An integer array in front, since concatenate refuses an empty list.
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *arrays])
