"""Counts, documents and releases in Redis: what survives the process.

Connection      the server; its errors become this package's
PartitionState  a partition as its one writer sees it: look up, plan, commit
Reader          snapshots and deltas of the counts, over all partitions
cut             begin an epoch, before a retraining
compact         merge a partition's segments; Compactor: a little at a time, beside ingest
Rows            documents as numbers of a Lexicon's words, ready to be counted
ModelState      what a model has once: lease, base, releases, outbox, ledger
"""

from streamtopic.state.compaction import compact
from streamtopic.state.compactor import Compactor
from streamtopic.state.connection import Connection
from streamtopic.state.flush import AddedDocument, Changes, Flush, RemovedDocument
from streamtopic.state.forgets import Forget, ForgetKind, Forgets
from streamtopic.state.lexicon import Lexicon
from streamtopic.state.meta import Meta
from streamtopic.state.model import Lease, ModelSettings, ModelState, StoredBase
from streamtopic.state.outbox import OutboxEntry, OutboxRecord
from streamtopic.state.outcomes import AlreadyApplied, Applied, Outcome, Stale
from streamtopic.state.partition import (
    MAX_FLUSH_DOCUMENTS,
    MAX_FLUSH_RECORD_BYTES,
    MAX_FLUSH_WRITES,
    MAX_WORD_IDS,
    PartitionState,
    cut,
)
from streamtopic.state.reader import Delta, Reader, Snapshot, SnapshotExpired
from streamtopic.state.records import StoredDocument
from streamtopic.state.rows import Rows, RowSpan

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_FLUSH_RECORD_BYTES",
    "MAX_FLUSH_WRITES",
    "MAX_WORD_IDS",
    "AddedDocument",
    "AlreadyApplied",
    "Applied",
    "Changes",
    "Compactor",
    "Connection",
    "Delta",
    "Flush",
    "Forget",
    "ForgetKind",
    "Forgets",
    "Lease",
    "Lexicon",
    "Meta",
    "ModelSettings",
    "ModelState",
    "OutboxEntry",
    "OutboxRecord",
    "Outcome",
    "PartitionState",
    "Reader",
    "RemovedDocument",
    "RowSpan",
    "Rows",
    "Snapshot",
    "SnapshotExpired",
    "Stale",
    "StoredBase",
    "StoredDocument",
    "compact",
    "cut",
]
