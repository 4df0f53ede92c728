"""A fixed sample of live documents, chosen by hash of the id: a function of the documents, not of their history."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamtopic.state.connection import Connection
from streamtopic.state.keys import BUCKETS
from streamtopic.state.reader import Snapshot
from streamtopic.state.records import decode_records

__all__ = ["sample_words"]


def sample_words(
    connection: Connection, snapshot: Snapshot, words: Sequence[str], limit: int = 20_000
) -> list[npt.NDArray[np.int64]] | None:
    """Return the distinct positions in `words` that each sampled document holds, or None if documents moved meanwhile.

    Whole hash buckets are taken, as many of each partition as hold about `limit` documents in all; every document
    where there are no more than that. Only documents that the snapshot counts are used.
    """
    buckets = BUCKETS if snapshot.documents <= limit else max(1, BUCKETS * limit // snapshot.documents)
    place = {word: k for k, word in enumerate(words)}
    sample: list[npt.NDArray[np.int64]] = []
    counted = 0
    for view in snapshot.views:
        position = np.full(view.meta.next_word + 1, -1, np.int64)
        for number, word in view.names.items():
            position[number] = place.get(word, -1)
        for bucket in range(buckets):
            found = [record for _, record in connection.scan(view.keys.documents(bucket))]
            for stored in decode_records(found):
                if stored.offset < view.meta.next_offset:
                    held = [passage.words for passage in stored.passages]
                    ids = np.minimum(np.concatenate(held), view.meta.next_word) if held else np.zeros(0, np.int64)
                    known = np.unique(position[ids])
                    sample.append(known[known >= 0])
                    counted += 1
    if buckets == BUCKETS and counted != snapshot.documents:
        return None
    return sample
