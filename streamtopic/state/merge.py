"""Adding up the pairs of many segments, exactly and without holding them all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from streamtopic.counts import Cooccurrence
from streamtopic.state.keys import PartitionKeys
from streamtopic.state.meta import ManifestEntry
from streamtopic.state.segments import PairChunk, SegmentHead

__all__ = ["SignedSegment", "merged_pairs"]

Int64 = npt.NDArray[np.int64]


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
    n_words: int,
    chunks: Callable[[SignedSegment], Iterable[PairChunk]],
) -> Cooccurrence:
    """Return the sum of all pairs among kept words; word statistics and documents are left at zero.

    where: each word position's new position among n_words, -1 to drop it. Integer sums: the order of segments and
    chunks, and so their history, leaves no trace in the result.
    """

    def parts() -> Iterator[Cooccurrence]:
        for segment in segments:
            known = segment.positions >= 0
            new = np.full(len(segment.positions), -1, np.int64)
            new[known] = where[segment.positions[known]]
            if (new >= 0).any():
                for chunk in chunks(segment):
                    yield _relabelled(chunk, new, n_words, segment.sign)

    return _sum(parts(), n_words)


def _sum(parts: Iterable[Cooccurrence], n_words: int) -> Cooccurrence:
    """Add like a binary counter: sums of about equal size meet, and only a logarithm of them is held at once."""
    waiting: list[tuple[int, Cooccurrence]] = []
    for part in parts:
        level, total = 0, part
        while waiting and waiting[-1][0] == level:
            total = waiting.pop()[1] + total
            level += 1
        waiting.append((level, total))
    result = Cooccurrence.zero(n_words)
    for _, part in reversed(waiting):
        result = part + result
    return result


def _relabelled(chunk: PairChunk, new: Int64, n_words: int, sign: int) -> Cooccurrence:
    rows = np.repeat(new[chunk.rows], chunk.sizes)
    columns = new[chunk.columns]
    kept = (rows >= 0) & (columns >= 0)
    rows, columns = rows[kept], columns[kept]
    # Ids are in the order in which words arrived, positions in word order: a pair may change sides.
    first, second = np.minimum(rows, columns).astype(np.int32), np.maximum(rows, columns).astype(np.int32)
    upper = coo_array((sign * chunk.values[kept], (first, second)), shape=(n_words, n_words)).tocsr()
    upper.sort_indices()
    upper.eliminate_zeros()
    nothing = np.zeros(n_words, np.int64)
    return Cooccurrence(
        n_words=n_words,
        indptr=upper.indptr.astype(np.int64),
        columns=upper.indices.astype(np.int32),
        values=upper.data,
        frequency=nothing,
        tokens=nothing,
        documents=0,
    )
