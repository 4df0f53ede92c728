"""Remove documents whose deletes left the log before they were read.

A compacted log keeps a delete for `delete.retention.ms` only. A process that was away for longer, or whose Redis was
restored to an older moment, may never see it. But such a delete has erased its document from the log as well. So a
document that is counted, and that the log no longer names, must have been deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.documents.events import document_of
from streamtopic.errors import StateError
from streamtopic.state import MAX_STORED_BYTES, Changes, Forget, ForgetKind, RemovedDocument, Stale
from streamtopic.streams import pages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from streamtopic.service.ingest.partition_ingest import Ingest
    from streamtopic.state import StoredDocument
    from streamtopic.streams import EventLog

__all__ = ["MissedDeletes", "remove_missed", "remove_missed_if_due"]

logger = logging.getLogger(__name__)

_AT_ONCE = 1_000
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class MissedDeletes:
    """The deletes that a partition had missed.

    partition: its number.
    records: how many records its log holds.
    removed: how many documents were removed because the log no longer names them.
    """

    partition: int
    records: int
    removed: int


def remove_missed_if_due(ingest: Ingest, log: EventLog, now_ms: int, retention_ms: int) -> MissedDeletes | None:
    """Remove documents whose deletes may have been missed; return None if no delete can have been missed.

    Call it before the first step after a partition was taken over.

    ingest: the writer of the partition.
    now_ms: milliseconds since 1970.
    retention_ms: the log's `delete.retention.ms`. A delete may have been missed if the newest record that was counted
        is older than half of it.

    Raises as `remove_missed`.
    """
    meta = ingest.state.meta
    if not meta.time_ms or now_ms - meta.time_ms <= retention_ms / 2:
        return None
    report = remove_missed(ingest, log, now_ms)
    logger.warning(
        "partition %d: the newest record counted was %d days old; %d documents removed whose deletes had left the log",
        report.partition,
        (now_ms - meta.time_ms) // 86_400_000,
        report.removed,
        extra={"event": "deletes_missed", "partition": report.partition, "documents": report.removed},
    )
    return report


def remove_missed(ingest: Ingest, log: EventLog, now_ms: int) -> MissedDeletes:
    """Remove the live documents that the partition's log does not name any more.

    A document that the log names is left alone: its records were counted, or will be. The removals are deletions like
    any other, but they have no receipt: nobody knows any more who asked for them. Needs 8 bytes of memory for each
    record of the log. May be repeated after any error. Raises TakenOver, ComponentUnreachable, StateError.
    """
    known, records = _named(ingest, log)
    missing = list(_missing(ingest, known))
    removed = start = 0
    while start < len(missing):
        ids = missing[start : start + _AT_ONCE]
        gone, looked = _remove(ingest, ids, now_ms, left=len(missing) - start)
        removed += gone
        start += looked
    return MissedDeletes(ingest.partition, records, removed)


def _named(ingest: Ingest, log: EventLog) -> tuple[npt.NDArray[np.uint64], int]:
    """Return hashes of all document ids in the log, ascending, and how many records it holds."""
    topic = ingest.topic
    partition = ingest.partition
    # concatenate needs at least one array, and a log may be empty.
    hashes = [np.zeros(0, np.uint64)]
    records = 0
    offset = log.begin(topic, partition)
    end = log.end(topic, partition)
    for page in pages(log, topic, partition, offset, end):
        ids = [(document_of(record.key) or "").encode() for record in page]
        hashes.append(np.unique(_hashes(ids)))
        records += len(page)
    return np.unique(np.concatenate(hashes)), records


def _missing(ingest: Ingest, known: npt.NDArray[np.uint64]) -> Iterator[bytes]:
    """Yield the ids of live documents that the log does not name."""
    for ids in ingest.state.live_ids():
        found = np.isin(_hashes(ids), known).tolist()
        for document, in_log in zip(ids, found, strict=True):
            if not in_log:
                yield document


def _remove(ingest: Ingest, ids: list[bytes], now_ms: int, *, left: int) -> tuple[int, int]:
    """Remove documents together with the next record, so that every version made until then is known to hold them.

    left: how many documents are still to be removed, these included.

    Return how many were removed, and how many of the ids were looked for: the first ones, as many as fit into memory.
    """
    count = looked = 0

    def amend(changes: Changes) -> Changes | None:
        """Add the removals to the changes of a record; None if the state has changed."""
        nonlocal count, looked
        commit = ingest.state.meta.commit
        stored, looked = ingest.state.first_documents(ids, MAX_STORED_BYTES)
        # The state was read again in between: changes were made for the state of before.
        if ingest.state.meta.commit != commit:
            return None
        # The record itself decides about the documents that it adds or removes.
        touched = {added.document for added in changes.added}
        touched |= {removed.document for removed in changes.removed}
        gone = {document: have for document, have in stored.items() if document not in touched}
        count = len(gone)
        # Until all are gone the state stays as old as it is, so that the next writer looks again.
        if looked < left:
            changes = replace(changes, time_ms=0)
        return _without(ingest, changes, gone, now_ms)

    for _ in range(_ATTEMPTS):
        if ingest.step(1, amend).records:
            return count, looked
        # The log has no further record, so the removals are committed by themselves.
        changes = amend(Changes(ingest.state.meta.next_offset))
        if changes is None:
            ingest.state.reload()
        elif not isinstance(ingest.state.apply(changes), Stale):
            return count, looked
    raise StateError(f"partition {ingest.partition} keeps changing under its writer: is a second ingest running?")


def _without(ingest: Ingest, changes: Changes, gone: Mapping[bytes, StoredDocument], now_ms: int) -> Changes:
    """Return the changes with the removal of these documents added."""
    offset = changes.next_offset - 1
    # The record at this offset may have left deletions of its own: these parts come after them.
    first = ingest.state.forgets.next_part(offset)
    forgets = [
        Forget(
            offset=offset,
            document=document,
            kind=ForgetKind.MISSED,
            request="",
            salt=b"",
            document_offset=have.offset,
            received_ms=now_ms,
            applied_ms=now_ms,
            part=part,
        )
        for part, (document, have) in enumerate(gone.items(), start=first)
    ]
    removed = [RemovedDocument(document, have) for document, have in gone.items()]
    all_removed = [*changes.removed, *removed]
    all_forgets = [*changes.forgets, *forgets]
    return replace(
        changes,
        removed=all_removed,
        forgets=all_forgets,
        totals={**changes.totals, "missed": len(gone)},
    )


def _hashes(keys: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each key."""
    digests = b"".join(blake2b(key, digest_size=8).digest() for key in keys)
    return np.frombuffer(digests, np.uint64)
