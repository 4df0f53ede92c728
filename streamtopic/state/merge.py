"""Adding up the pairs of many segments, exactly and without holding them all."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence
from streamtopic.errors import CountsOverflow
from streamtopic.state import gather
from streamtopic.state.keys import PartitionKeys
from streamtopic.state.meta import ManifestEntry
from streamtopic.state.segments import PairChunk, SegmentHead

__all__ = ["SignedSegment", "merged_pairs"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_WAITING_PAIRS = 1 << 23


@dataclass(frozen=True, slots=True, eq=False)
class SignedSegment:
    """A segment to add (sign 1) or take away (-1); positions: each of its ids' word position, -1 for none."""

    keys: PartitionKeys
    entry: ManifestEntry
    head: SegmentHead
    positions: Int64
    sign: int


def merged_pairs(
    segments: Sequence[SignedSegment],
    where: Int64,
    chosen: npt.NDArray[np.bool_],
    chunks: Callable[[SignedSegment], Iterable[PairChunk]],
) -> Cooccurrence:
    """Return the sum of the pairs of kept words with a chosen one; word statistics and documents are left at zero.

    where: each word position's new position among the kept, -1 to drop it; chosen: one a kept word. Integer sums: the
    order of segments and chunks, and so their history, leaves no trace in the result.
    """
    n_words = len(chosen)
    total = _Sum(n_words)
    for segment in segments:
        known = segment.positions >= 0
        new = np.full(len(segment.positions), -1, np.int64)
        new[known] = where[segment.positions[known]]
        if (new >= 0).any():
            for chunk in chunks(segment):
                part = gather.relabel(chunk.rows, chunk.sizes, chunk.columns, chunk.values, new, chosen, segment.sign)
                total.add(*part)
    indptr, columns, values = total.result()
    nothing = np.zeros(n_words, np.int64)
    return Cooccurrence(n_words, indptr, columns, values, nothing, nothing.copy(), documents=0)


class _Sum:
    """Parts wait until they are as many pairs as the sum so far, so that each pair is added a few times only."""

    def __init__(self, n_words: int) -> None:
        self._parts = [(np.zeros(n_words + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))]
        self._waiting = 0

    def add(self, indptr: Int64, columns: Int32, values: Int64) -> None:
        """Take one part."""
        self._parts.append((indptr, columns, values))
        self._waiting += len(values)
        if self._waiting > max(_WAITING_PAIRS, len(self._parts[0][2])):
            self._parts = [self.result()]
            self._waiting = 0

    def result(self) -> tuple[Int64, Int32, Int64]:
        """Return the sum of what was taken. Raises CountsOverflow."""
        starts = np.cumsum([0, *(len(values) for _, _, values in self._parts[:-1])])
        indptrs = np.stack([indptr + start for (indptr, _, _), start in zip(self._parts, starts, strict=True)])
        columns = np.concatenate([columns for _, columns, _ in self._parts])
        values = np.concatenate([values for _, _, values in self._parts])
        indptr, columns, values, fits = gather.accumulate(indptrs, columns, values)
        if not fits:
            raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
        return indptr, columns, values
