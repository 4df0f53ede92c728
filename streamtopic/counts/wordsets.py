"""Which words each of some documents holds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["WordSets"]


@dataclass(frozen=True, slots=True, eq=False)
class WordSets:
    """Which words each document holds: indptr (documents + 1,), words (positions,) in any order, repeated or not."""

    indptr: npt.NDArray[np.int64]
    words: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def joined(cls, parts: Sequence["WordSets"]) -> "WordSets":
        """Return the documents of several."""
        lengths = [np.diff(part.indptr) for part in parts]
        indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]) if parts else np.zeros(1)
        words = np.concatenate([part.words for part in parts]) if parts else np.zeros(0)
        return cls(indptr.astype(np.int64), words.astype(np.int64))
