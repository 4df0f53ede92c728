"""Names of a model's topics, and the settings each is created with on Kafka."""

import re
from dataclasses import dataclass

from streamtopic.errors import UsageError

__all__ = ["TopicNames"]

MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")
DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Topics of one model. Raises UsageError for a model name that cannot be part of a topic name or a Redis key."""

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
        """Published versions, in chunks; one partition."""
        return f"{self.model}.releases"

    @property
    def receipts(self) -> str:
        """Deletion receipts, keyed by receipt id; one partition."""
        return f"{self.model}.receipts"

    @property
    def rejected(self) -> str:
        """Pointers to adds that were refused; one partition."""
        return f"{self.model}.rejected"

    def settings(
        self,
        max_compaction_lag_ms: int = DAY_MS,
        rejected_retention_ms: int = 30 * DAY_MS,
        delete_retention_ms: int = 30 * DAY_MS,
    ) -> dict[str, dict[str, str]]:
        """Kafka settings by topic: a delete must erase its add from the log within `max_compaction_lag_ms`.

        Times are the broker's: those of producers may be anything. Whatever compression a record was sent with, the
        broker undoes it, so that every consumer can read it and a small record cannot unfold into more than
        `max.message.bytes`.
        """
        stamped = {
            "message.timestamp.type": "LogAppendTime",
            "compression.type": "uncompressed",
            "max.message.bytes": str(1 << 20),
        }
        compacted = stamped | {"cleanup.policy": "compact"}
        return {
            self.documents: compacted
            | {
                "max.compaction.lag.ms": str(max_compaction_lag_ms),
                "delete.retention.ms": str(delete_retention_ms),
                "max.message.bytes": str(4 << 20),
            },
            # Withdrawn versions hold words of deleted documents, so their chunks must go in time as well.
            self.releases: compacted | {"max.compaction.lag.ms": str(max_compaction_lag_ms)},
            # A compacted topic keeps the last record of a key, so a stray or a tombstone would take a receipt's place.
            self.receipts: stamped
            | {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "max.message.bytes": str(1 << 20),
            },
            self.rejected: stamped | {"cleanup.policy": "delete", "retention.ms": str(rejected_retention_ms)},
        }
