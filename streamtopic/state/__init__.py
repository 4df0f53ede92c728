"""Counts, documents and releases in Redis: a log-structured store.

Each flush of documents writes one immutable segment of signed counts, and a manifest lists the segments that count.
A deletion is a count below zero in a segment. Size-tiered merges keep the segments few; readers add them up.
One script commits documents, words, segments, deletions and the next offset together.

Writing a partition
    partition_writer    PartitionWriter: `prepare` a batch, `apply` its changes; the one writer of a partition
    flush               the bounds of one flush, its counts, and the arguments of its commit
    word_ids            numbers of words
    document_records    a document as bytes: the counts to subtract when it is deleted
    segments            a segment as bytes
    deletions           deletions and requests to forget a subject that wait for their receipts, deletions that wait to
                        be sent to another partition, the end of the chain of receipts, and the keys that tie them to
                        requests
    compaction          the choice of segments to merge, and the time; merge_segments: the sum of several
Reading
    reader              snapshots and differences of the counts, over all partitions; sum_pairs: the sum of their pairs
    documents           the documents that a snapshot counts
    meta                the position of a partition: offset, epochs, counters, manifest
    measure             bytes by kind, growth of the words
Of a model, beside its partitions
    model_state         settings, lease, base model, releases, outbox, ledger
    deletion_requests   requests for deletions, until their receipts are there
    residue_ledger      where traces of deleted documents are left
    removal             taking counts out, so that they are made again from the log
    layout              the number of the layout that all of it has, raised and taken back
    dumped_keys         all keys as Redis dumps them, for a backup
Below all
    connection          the only module that speaks to Redis; redis_servers: a server, a cluster, or sentinels
    redis_keys          the name of everything in Redis
    scripts             guarded writes: the Lua scripts in `lua/` and their outcomes
"""

from streamtopic.state.compaction import Compactor, compact
from streamtopic.state.connection import Connection
from streamtopic.state.deletions import Forget, ForgetKind, Forgets, Forward, SubjectRequest, SubjectRequests
from streamtopic.state.document_records import StoredDocument
from streamtopic.state.flush import (
    MAX_FLUSH_DOCUMENTS,
    MAX_STORED_BYTES,
    AddedDocument,
    AddedDocuments,
    Batch,
    Changes,
    Flush,
    RemovedDocument,
)
from streamtopic.state.meta import Meta, cut
from streamtopic.state.model_state import Lease, ModelSettings, ModelState, OutboxEntry, OutboxRecord, StoredBase
from streamtopic.state.partition_writer import LiveDocuments, PartitionWriter, PreparedBatch
from streamtopic.state.reader import Delta, Reader, Snapshot, SnapshotExpired
from streamtopic.state.scripts import AlreadyApplied, Applied, Outcome, Stale
from streamtopic.state.word_ids import MAX_WORD_IDS, Rows, RowSpan
from streamtopic.words.lexicon import Lexicon

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_STORED_BYTES",
    "MAX_WORD_IDS",
    "AddedDocument",
    "AddedDocuments",
    "AlreadyApplied",
    "Applied",
    "Batch",
    "Changes",
    "Compactor",
    "Connection",
    "Delta",
    "Flush",
    "Forget",
    "ForgetKind",
    "Forgets",
    "Forward",
    "Lease",
    "Lexicon",
    "LiveDocuments",
    "Meta",
    "ModelSettings",
    "ModelState",
    "OutboxEntry",
    "OutboxRecord",
    "Outcome",
    "PartitionWriter",
    "PreparedBatch",
    "Reader",
    "RemovedDocument",
    "RowSpan",
    "Rows",
    "Snapshot",
    "SnapshotExpired",
    "Stale",
    "StoredBase",
    "StoredDocument",
    "SubjectRequest",
    "SubjectRequests",
    "compact",
    "cut",
]
