"""A fixed sample of live documents, chosen by hash of the id: a function of the documents, not of their history."""

from collections.abc import Sequence

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import WordSets
from streamtopic.errors import StateCorrupt
from streamtopic.state import varints
from streamtopic.state.connection import Connection
from streamtopic.state.keys import BUCKETS
from streamtopic.state.reader import PartitionView, Snapshot
from streamtopic.state.records import RECORD_VERSION

__all__ = ["sample_words"]

Int64 = npt.NDArray[np.int64]


def sample_words(
    connection: Connection, snapshot: Snapshot, words: Sequence[str], limit: int = 20_000
) -> WordSets | None:
    """Return the positions in `words` that each sampled document holds, or None if documents moved meanwhile.

    Whole hash buckets are taken, as many of each partition as hold about `limit` documents in all; every document
    where there are no more than that. Only documents that the snapshot counts are used. A word of several passages
    comes several times. Raises StateCorrupt.
    """
    buckets = BUCKETS if snapshot.documents <= limit else max(1, BUCKETS * limit // snapshot.documents)
    place = {word: k for k, word in enumerate(words)}
    parts = []
    for view in snapshot.views:
        position = np.full(view.meta.next_word + 1, -1, np.int64)
        for number, word in view.names.items():
            position[number] = place.get(word, -1)
        until = view.meta.end_of(snapshot.through)
        parts += [_bucket(connection, view, bucket, position, until) for bucket in range(buckets)]
    sample = WordSets.joined(parts)
    return None if buckets == BUCKETS and len(sample) != snapshot.documents else sample


def _bucket(connection: Connection, view: PartitionView, bucket: int, position: Int64, until: int) -> WordSets:
    records = [record for _, record in connection.scan(view.keys.documents(bucket))]
    data = np.frombuffer(bytearray().join(records), np.uint8)
    ends = np.cumsum([len(record) for record in records], dtype=np.int64)
    indptr, held = _held(data, ends, position, until)
    if len(indptr) == 0:
        raise StateCorrupt("a stored document cannot be read: rebuild the state (`streamtopic rebuild`)")
    return WordSets(indptr, held)


@numba.njit(cache=True, nogil=True)
def _held(data: npt.NDArray[np.uint8], ends: Int64, position: Int64, until: int) -> tuple[Int64, Int64]:
    """Read the words of records (records.py) of offsets below `until`; nothing at all where one is malformed."""
    nothing = np.empty(0, np.int64)
    indptr = np.zeros(len(ends) + 1, np.int64)
    held = np.empty(len(data), np.int64)
    last = len(position) - 1
    used, documents, start = 0, 0, 0
    for end in ends:
        record = data[start:end]
        start = end
        if len(record) == 0 or record[0] != RECORD_VERSION:
            return nothing, nothing
        offset, at = varints.get(record, 1)
        labels, at = varints.get(record, at)
        if at < 0:
            return nothing, nothing
        passages, at = varints.get(record, int(at + np.int64(labels)))
        if at < 0:
            return nothing, nothing
        if np.int64(offset) >= until:
            continue
        for _ in range(np.int64(passages)):
            _, at = varints.get(record, at)
            size, at = varints.get(record, at)
            word = np.int64(-1)
            for _ in range(np.int64(size)):
                gap, at = varints.get(record, at)
                if gap & np.uint64(1):
                    _, at = varints.get(record, at)
                if at < 0 or (gap >> np.uint64(1)) > np.uint64(last):
                    return nothing, nothing
                word += 1 + np.int64(gap >> np.uint64(1))
                # Words that came after the snapshot have no place.
                place = position[word] if word < last else -1
                if place >= 0:
                    held[used] = place
                    used += 1
            if at < 0:
                return nothing, nothing
        documents += 1
        indptr[documents] = used
    return indptr[: documents + 1], held[:used].copy()
