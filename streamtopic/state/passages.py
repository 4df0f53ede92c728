"""The passages of which a difference of two snapshots consists, where all of its segments still have theirs."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from streamtopic.counts import SignedPassages
from streamtopic.state.merge import SignedSegment
from streamtopic.state.segments import MOST_PASSAGES, decode_passages

__all__ = ["MOST_JOINED", "joined_passages"]

Int64 = npt.NDArray[np.int64]

MOST_JOINED = 1024
"""Passages, and documents, of a difference that is given as passages: a bound on what these take, a few megabytes at
the length of news, 200 where all are as long as may be. A change that is larger is hardly small beside the model."""


def joined_passages(segments: Sequence[SignedSegment], last: Callable[[SignedSegment], bytes]) -> SignedPassages | None:
    """Return the passages of all segments, over the words of their positions; last: reads a segment's last string.

    None where a segment has none, where there are more than MOST_JOINED, or where one has a word without a position.
    Raises what `last` does, StateCorrupt.
    """
    # A segment without pairs changes none: its passages are too short or cancel out.
    counted = [segment for segment in segments if segment.entry.pairs]
    documents = [segment.head.added + segment.head.removed for segment in counted]
    if max(documents, default=0) > MOST_PASSAGES or sum(documents) > MOST_JOINED:
        return None
    parts, number = list[SignedPassages](), 0
    for segment in counted:
        found = decode_passages(last(segment), len(segment.head.ids))
        if found is None or number + found.passages > MOST_JOINED:
            return None
        number += found.passages
        words = segment.positions[found.words]
        if (words < 0).any():
            return None
        parts.append(_placed(found, words, segment.sign))
    return SignedPassages.joined(parts)


def _placed(passages: SignedPassages, words: Int64, sign: int) -> SignedPassages:
    """Return passages with other words, which ascend anew: ids are in the order of arrival, positions are not."""
    order = np.lexsort((words, passages.owners))
    return SignedPassages(passages.indptr, words[order], passages.counts[order], sign * passages.weights)
