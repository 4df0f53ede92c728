"""Names of a model's topics, and their settings in Kafka."""

import re
from dataclasses import dataclass

from streamtopic.errors import UsageError

__all__ = ["TopicNames"]

MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
DAY_MS = 24 * 3600 * 1000
# Life of pointers to refused adds: time to look into them.
_REJECTED_MS = 30 * DAY_MS


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The topics of one model. Raises UsageError for a name that cannot be part of a topic name or a Redis key."""

    model: str

    def __post_init__(self) -> None:
        if not MODEL.match(self.model):
            raise UsageError(
                f"model name {self.model!r} is not usable: 1 to 100 letters, digits, dashes and underscores, the first "
                "a letter or digit"
            )

    @property
    def documents(self) -> str:
        """Adds and deletes, keyed by document id."""
        return f"{self.model}.documents"

    @property
    def releases(self) -> str:
        """Published versions, in chunks. It has one partition."""
        return f"{self.model}.releases"

    @property
    def receipts(self) -> str:
        """Receipts of deletions, keyed by receipt id. It has one partition."""
        return f"{self.model}.receipts"

    @property
    def rejected(self) -> str:
        """Pointers to adds that were refused. It has one partition."""
        return f"{self.model}.rejected"

    def settings(
        self, max_compaction_lag_ms: int = DAY_MS, delete_retention_ms: int = 30 * DAY_MS
    ) -> dict[str, dict[str, str]]:
        """Return the Kafka settings of each topic by its name. All times are milliseconds.

        max_compaction_lag_ms: time within which a delete erases its add from the log.
        delete_retention_ms: life of a delete after it was compacted.
        """
        common = {
            # The time of a producer may be anything.
            "message.timestamp.type": "LogAppendTime",
            # The broker undoes any compression: every consumer can read the record, and a small one cannot unfold into
            # more than `max.message.bytes`.
            "compression.type": "uncompressed",
            "max.message.bytes": str(1 << 20),
        }
        compacted = common | {"cleanup.policy": "compact", "max.compaction.lag.ms": str(max_compaction_lag_ms)}
        kept = common | {"cleanup.policy": "delete"}
        documents = {"delete.retention.ms": str(delete_retention_ms), "max.message.bytes": str(4 << 20)}
        return {
            self.documents: compacted | documents,
            # Withdrawn versions hold words of deleted documents, so their chunks must go in time as well.
            self.releases: compacted,
            # A compacted topic keeps the last record of a key, so a stray or a tombstone would take a receipt's place.
            self.receipts: kept | {"retention.ms": "-1", "retention.bytes": "-1"},
            self.rejected: kept | {"retention.ms": str(_REJECTED_MS)},
        }
