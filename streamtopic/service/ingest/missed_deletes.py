"""Deletes that left the log before they were read: documents that the log no longer knows are removed.

A compacted log keeps a delete for `delete.retention.ms` only. Whoever was away for longer, or was restored to an older
moment, may never see it. But then it has erased the document from the log as well: what is counted and not in the log
must have been deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.errors import StateError
from streamtopic.state import MAX_STORED_BYTES, Changes, Forget, ForgetKind, RemovedDocument, Stale
from streamtopic.streams import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from streamtopic.service.ingest.partition_ingest import Ingest
    from streamtopic.state import StoredDocument
    from streamtopic.streams import EventLog

__all__ = ["SweepReport", "sweep", "sweep_if_due"]

logger = logging.getLogger(__name__)

_AT_ONCE = 1_000
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep of a partition did: records read, documents removed because the log no longer holds them."""

    partition: int
    records: int
    removed: int


def sweep_if_due(
    ingest: Ingest, log: EventLog, now_ms: int, retention_ms: int, tick: Callable[[], object] = lambda: None
) -> SweepReport | None:
    """Sweep where a delete may have been missed; None where none can have been.

    That is so if the newest record counted is older than half of retention_ms, the log's `delete.retention.ms`. Call it
    before the first step after a partition was taken over. tick: called now and then.
    """
    meta = ingest.state.meta
    if not meta.time_ms or now_ms - meta.time_ms <= retention_ms / 2:
        return None
    report = sweep(ingest, log, now_ms, tick)
    logger.warning(
        "partition %d: the newest record counted was %d days old; %d documents removed whose deletes had left the log",
        report.partition,
        (now_ms - meta.time_ms) // 86_400_000,
        report.removed,
        extra={"event": "deletes_missed", "partition": report.partition, "documents": report.removed},
    )
    return report


def sweep(ingest: Ingest, log: EventLog, now_ms: int, tick: Callable[[], object] = lambda: None) -> SweepReport:
    """Remove the live documents that the partition's log does not name any more; 8 bytes of memory for each record.

    A document that the log names is left alone: what its records say was counted, or will be. The removals are
    deletions like any other, but for the receipt: nobody knows any more who asked for them. May be repeated after any
    error. Raises TakenOver, ComponentUnreachable, StateError.
    """
    known, records = _named(log, ingest.topic, ingest.partition, tick)
    missing = list(_missing(ingest, known))
    removed = start = 0
    while start < len(missing):
        gone, looked = _remove(ingest, missing[start : start + _AT_ONCE], now_ms, left=len(missing) - start)
        removed, start = removed + gone, start + looked
        tick()
    return SweepReport(ingest.partition, records, removed)


def _named(log: EventLog, topic: str, partition: int, tick: Callable[[], object]) -> tuple[npt.NDArray[np.uint64], int]:
    """Return hashes of all keys in the log, ascending, and how many records it holds."""
    hashes, records = [np.zeros(0, np.uint64)], 0
    offset, end = log.begin(topic, partition), log.end(topic, partition)
    for page in pages(log, topic, partition, offset, end):
        hashes.append(np.unique(np.array([_hash(record.key or b"") for record in page], np.uint64)))
        records += len(page)
        tick()
    return np.unique(np.concatenate(hashes)), records


def _missing(ingest: Ingest, known: npt.NDArray[np.uint64]) -> Iterator[bytes]:
    for ids in ingest.state.live_ids():
        found = np.isin(np.array([_hash(document) for document in ids], np.uint64), known)
        yield from (document for document, there in zip(ids, found.tolist(), strict=True) if not there)


def _remove(ingest: Ingest, ids: list[bytes], now_ms: int, *, left: int) -> tuple[int, int]:
    """Remove documents together with the next record, so that every version made until then is known to hold them.

    left: how many there still are, these included. Returns how many were removed, and how many of the ids were
    looked for: the first ones, as many as fit into memory.
    """
    count = looked = 0

    def amend(changes: Changes) -> Changes | None:
        nonlocal count, looked
        commit = ingest.state.meta.commit
        stored, looked = ingest.state.first_documents(ids, MAX_STORED_BYTES)
        if ingest.state.meta.commit != commit:
            return None
        # What the record itself is about is as the record says.
        touched = {added.document for added in changes.added} | {removed.document for removed in changes.removed}
        gone = {document: have for document, have in stored.items() if document not in touched}
        count = len(gone)
        # Until all are gone the state stays as old as it is, so that whoever comes next sweeps again.
        return _without(ingest, changes if looked >= left else replace(changes, time_ms=0), gone, now_ms)

    for _ in range(_ATTEMPTS):
        if ingest.step(1, amend).records:
            return count, looked
        changes = amend(Changes(ingest.state.meta.next_offset))
        if changes is None:
            ingest.state.reload()
        elif not isinstance(ingest.state.apply(changes), Stale):
            return count, looked
    raise StateError(f"partition {ingest.partition} keeps changing under its writer: is a second ingest running?")


def _without(ingest: Ingest, changes: Changes, gone: Mapping[bytes, StoredDocument], now_ms: int) -> Changes:
    offset, meta = changes.next_offset - 1, ingest.state.meta
    first = ingest.state.forgets.next_part(offset)
    forgets = [
        Forget(
            offset=offset,
            document=document,
            kind=ForgetKind.MISSED,
            request="",
            salt=b"",
            document_offset=have.offset,
            epoch=meta.epoch_of(have.offset),
            received_ms=now_ms,
            applied_ms=now_ms,
            part=part,
        )
        for part, (document, have) in enumerate(gone.items(), start=first)
    ]
    return replace(
        changes,
        removed=[*changes.removed, *(RemovedDocument(document, have) for document, have in gone.items())],
        forgets=[*changes.forgets, *forgets],
        totals={**changes.totals, "missed": len(gone)},
    )


def _hash(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest())
