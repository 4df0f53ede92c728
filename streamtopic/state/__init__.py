"""A model in Redis: its documents, what came and went, its versions.

The documents are the store; counts are kept with them. One script commits documents, words, the change that readers
follow, deletions and the next offset together. Readers count pairs from the documents when they need them.

Writing a partition
    partition_writer    PartitionWriter: `prepare` a batch, `apply` its changes; the one writer of a partition
    word_ids            numbers of words, and the documents that a batch adds
    document_records    a document as bytes: the counts to subtract when it is deleted
    deletions           deletions that wait for their receipts, their traces, documents of people, suppressions, and the
                        keys that tie receipts to requests
Reading
    reader              Reader: positions, counts as of a cut of all partitions, what is left of the base model
    document_counts     those counts: words, documents and their pairs, what changed since an older cut
    meta                the position of a partition: offset and counters
Of a model, besides its partitions
    model_state         settings, lease, base model, releases, outbox
    stored_counts       the co-occurrence counts of the working vocabulary
    deletion_requests   requests for deletions, until their receipts are there
Below all
    connection          the only module that speaks to Redis: names of keys, guarded writes (`lua/change.lua`)
    redis_servers       a server, a cluster, or sentinels
"""

from streamtopic.state.connection import AlreadyApplied, Applied, Connection, Outcome, Stale
from streamtopic.state.deletions import Forget, ForgetKind, Forgets, SubjectIndex, Suppressed
from streamtopic.state.document_counts import ChangedDocuments, DocumentCounts
from streamtopic.state.document_records import StoredDocument
from streamtopic.state.meta import CutGone, LastRecord, ModelSettings, PartitionPosition
from streamtopic.state.model_state import Base, Lease, ModelState, OutboxEntry
from streamtopic.state.partition_writer import (
    MAX_FLUSH_DOCUMENTS,
    MAX_STORED_BYTES,
    DocumentChanges,
    Flush,
    PartitionWriter,
    PreparedBatch,
)
from streamtopic.state.reader import Reader, RemainingBase
from streamtopic.state.word_ids import MAX_WORD_IDS, AddedDocuments
from streamtopic.words.lexicon import Lexicon

__all__ = [
    "MAX_FLUSH_DOCUMENTS",
    "MAX_STORED_BYTES",
    "MAX_WORD_IDS",
    "AddedDocuments",
    "AlreadyApplied",
    "Applied",
    "Base",
    "ChangedDocuments",
    "Connection",
    "CutGone",
    "DocumentChanges",
    "DocumentCounts",
    "Flush",
    "Forget",
    "ForgetKind",
    "Forgets",
    "LastRecord",
    "Lease",
    "Lexicon",
    "ModelSettings",
    "ModelState",
    "OutboxEntry",
    "Outcome",
    "PartitionPosition",
    "PartitionWriter",
    "PreparedBatch",
    "Reader",
    "RemainingBase",
    "Stale",
    "StoredDocument",
    "SubjectIndex",
    "Suppressed",
]
