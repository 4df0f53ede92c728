"""A segment with all its strings at once, for tests of what a flush and a merge write piece by piece."""

from dataclasses import dataclass

import numpy as np

from streamtopic.counts import Cooccurrence
from streamtopic.state import segments


@dataclass(frozen=True, eq=False)
class Segment:
    """Signed counts over positions among ascending word ids."""

    ids: np.ndarray
    counts: Cooccurrence
    added: int
    removed: int


def encode(segment):
    """Return the head's bytes, then those of the row chunks, packed."""
    counts = segment.counts
    head = segments.SegmentHead(
        segment.ids, counts.frequency, counts.tokens, counts.heavy, segment.added, segment.removed
    )
    strings = [segments.encode_head(head, packed=True)]
    for start in range(0, counts.pairs, segments.CHUNK_PAIRS):
        stop = min(start + segments.CHUNK_PAIRS, counts.pairs)
        sizes = np.diff(np.clip(counts.indptr, start, stop)).astype(np.int64)
        columns, values = counts.columns[start:stop], counts.values[start:stop]
        strings.append(segments.encode_chunk(0, sizes, columns, values, packed=True))
    return strings


def decode(strings):
    """Undo `encode`."""
    head = segments.decode_head(strings[0])
    chunks = [segments.decode_chunk(string, len(head.ids)) for string in strings[1:]]
    sizes = np.zeros(len(head.ids) + 1, np.int64)
    for chunk in chunks:
        sizes[1:][chunk.rows] += chunk.sizes
    counts = Cooccurrence(
        n_words=len(head.ids),
        indptr=np.cumsum(sizes),
        columns=np.concatenate([np.empty(0, np.int32), *(chunk.columns for chunk in chunks)]),
        values=np.concatenate([np.empty(0, np.int64), *(chunk.values for chunk in chunks)]),
        frequency=head.frequency,
        tokens=head.tokens,
        heavy=head.heavy,
        documents=head.documents,
    )
    return Segment(head.ids, counts, head.added, head.removed)
