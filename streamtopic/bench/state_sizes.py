"""The bytes that a partition takes in Redis, by kind."""

from dataclasses import dataclass

from streamtopic.state.connection import BUCKETS, Connection, PartitionKeys
from streamtopic.state.meta import read_position

__all__ = ["Sizes", "measure"]

# Fields of a hash that Redis measures, to take their mean for all: more would keep it busy for longer.
_SAMPLES = 200


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a partition in Redis, in bytes from samples.

    documents: document records.
    changes: of documents, which readers follow.
    words: words, their ids and statistics.
    held: number of words of live documents.
    """

    documents: int
    changes: int
    words: int
    held: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.documents + self.changes + self.words


def measure(connection: Connection, keys: PartitionKeys) -> Sizes:
    """Measure a partition. Raises StateMissing, ComponentUnreachable."""
    held = read_position(connection, keys).words
    names = [keys.statistics, *keys.changes, *(keys.documents(bucket) for bucket in range(BUCKETS))]
    usage = [("MEMORY", "USAGE", key, "SAMPLES", _SAMPLES) for key in names]
    words, even, odd, *documents = (int(size or 0) for size in connection.batch(usage))
    return Sizes(documents=sum(documents), changes=even + odd, words=words, held=held)
