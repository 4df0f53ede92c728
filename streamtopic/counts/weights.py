"""The integer weight of a document's word pairs."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts.arrays import Int64
from streamtopic.errors import UsageError

__all__ = ["MAX_LENGTH", "Weighting"]

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
