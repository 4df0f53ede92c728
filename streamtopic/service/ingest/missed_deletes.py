"""Delete documents whose deletes left the log before they were read.

A compacted log keeps a delete for `delete.retention.ms` only. A process that was away for longer, or whose Redis was
restored to an older moment, may never see it. But such a delete has erased its document from the log as well. So a
document that is counted, and that the log no longer names, must have been deleted: its tombstone is written again.
"""

from __future__ import annotations

import logging
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.documents.events import document_of
from streamtopic.streams import Message, pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from streamtopic.service.ingest.partition_ingest import Ingest
    from streamtopic.streams import EventLog

__all__ = ["delete_missed", "delete_missed_if_due"]

logger = logging.getLogger(__name__)

_AT_ONCE = 1_000


def delete_missed_if_due(ingest: Ingest, log: EventLog, now_ms: int, retention_ms: int) -> int:
    """Write tombstones if deletes may have been missed; return how many.

    Call it before the first step after a partition was taken over. A process that is killed in between looks again:
    nothing new is counted yet, and the documents whose tombstones were written are named in the log.

    ingest: the writer of the partition.
    now_ms: milliseconds since 1970.
    retention_ms: the log's `delete.retention.ms`. A delete may have been missed if the newest record that was counted
        is older than half of it.

    Raises ComponentUnreachable, StateError.
    """
    counted_ms = ingest.state.meta.time_ms
    if not counted_ms or now_ms - counted_ms <= retention_ms / 2:
        return 0
    documents = delete_missed(ingest, log)
    logger.warning(
        "partition %d: the newest record counted was %d days old; %d documents are deleted whose deletes had left the "
        "log",
        ingest.partition,
        (now_ms - counted_ms) // 86_400_000,
        documents,
        extra={"event": "deletes_missed", "partition": ingest.partition, "documents": documents},
    )
    return documents


def delete_missed(ingest: Ingest, log: EventLog) -> int:
    """Write a tombstone for each live document that the partition's log does not name any more; return how many.

    A document that the log names is left alone: its records were counted, or will be. Needs 8 bytes of memory for each
    record of the log.
    """
    topic = ingest.topic
    partition = ingest.partition
    end = log.end(topic, partition)
    missing = list(_missing(ingest, _named(log, topic, partition, end)))
    written = 0
    for start in range(0, len(missing), _AT_ONCE):
        # A record that has come meanwhile decides about its document.
        later = {record.key for page in pages(log, topic, partition, end) for record in page}
        gone = [document for document in missing[start : start + _AT_ONCE] if document not in later]
        log.append_many(topic, [Message(document, None, partition=partition) for document in gone])
        written += len(gone)
    return written


def _named(log: EventLog, topic: str, partition: int, end: int) -> npt.NDArray[np.uint64]:
    """Return hashes of all document ids in the log before an offset, ascending."""
    # concatenate needs at least one array, and a log may be empty.
    hashes = [np.zeros(0, np.uint64)]
    for page in pages(log, topic, partition, log.begin(topic, partition), end):
        ids = [(document_of(record.key) or "").encode() for record in page]
        hashes.append(np.unique(_hashes(ids)))
    return np.unique(np.concatenate(hashes))


def _missing(ingest: Ingest, known: npt.NDArray[np.uint64]) -> Iterator[bytes]:
    """Yield the ids of live documents that the log does not name."""
    for ids in ingest.state.live_ids():
        found = np.isin(_hashes(ids), known).tolist()
        for document, in_log in zip(ids, found, strict=True):
            if not in_log:
                yield document


def _hashes(keys: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each key."""
    digests = b"".join(blake2b(key, digest_size=8).digest() for key in keys)
    return np.frombuffer(digests, np.uint64)
