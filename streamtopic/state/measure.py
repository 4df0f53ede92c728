"""How much of Redis a partition takes, by kind: what capacity is planned from."""

from dataclasses import dataclass

from streamtopic.state.connection import Connection
from streamtopic.state.keys import BUCKETS, PartitionKeys
from streamtopic.state.partition import read_position

__all__ = ["Sizes", "measure"]

# Fields of a hash whose size is taken for that of all: more would keep Redis busy for longer.
_SAMPLES = 200


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of Redis for documents, segments and words; segments are exact, the others from samples.

    pairs: stored, so that a pair in two segments is two. held: words of live documents.
    """

    documents: int
    segments: int
    words: int
    pairs: int
    held: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.documents + self.segments + self.words


def measure(connection: Connection, keys: PartitionKeys) -> Sizes:
    """Measure a partition. Segments that were replaced and wait for their end are not counted.

    Raises StateMissing, ComponentUnreachable.
    """
    _, manifest = read_position(connection, keys)
    hashes = [keys.words, *(keys.documents(bucket) for bucket in range(BUCKETS))]
    *sizes, held = connection.batch([*(("MEMORY", "USAGE", key, "SAMPLES", _SAMPLES) for key in hashes),
                                     ("HLEN", keys.words)])  # fmt: skip
    words, *documents = (int(size or 0) for size in sizes)
    return Sizes(
        documents=sum(documents),
        segments=sum(entry.size for entry in manifest),
        words=words,
        pairs=sum(entry.pairs for entry in manifest),
        held=int(held),
    )
