"""How much of Redis a partition takes, by kind, and how its words grow: what capacity is planned from."""

from dataclasses import dataclass

import numpy as np

from streamtopic.errors import StateError
from streamtopic.state.connection import Connection
from streamtopic.state.meta import read_position
from streamtopic.state.redis_keys import BUCKETS, PartitionKeys
from streamtopic.state.segments import decode_head

__all__ = ["Growth", "Sizes", "growth", "measure"]

# Fields of a hash whose size is taken for that of all: more would keep Redis busy for longer.
_SAMPLES = 200
_ATTEMPTS = 5


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


@dataclass(frozen=True, slots=True)
class Growth:
    """Words of live documents, and how many of them only one document holds (hapaxes)."""

    words: int
    hapaxes: int

    @property
    def exponent(self) -> float:
        """The exponent beta of Heaps' law, V = K N^beta: its slope, by Good and Turing, is hapaxes over tokens."""
        return self.hapaxes / self.words if self.words else 0.0

    def times_until(self, limit: int) -> float:
        """Return how many times as many documents as now bring the words to a limit; infinity for never."""
        if not self.words or not self.hapaxes:
            return float("inf")
        return float(np.exp(min(np.log(max(limit, 1) / self.words) / self.exponent, 700.0)))


def measure(connection: Connection, keys: PartitionKeys) -> Sizes:
    """Measure a partition. Segments that were replaced and wait for their end are not counted.

    Raises StateMissing, ComponentUnreachable.
    """
    _, manifest = read_position(connection, keys)
    hashes = [keys.words, *(keys.documents(bucket) for bucket in range(BUCKETS))]
    usage = [("MEMORY", "USAGE", key, "SAMPLES", _SAMPLES) for key in hashes]
    *sizes, held = connection.batch([*usage, ("HLEN", keys.words)])
    words, *documents = (int(size or 0) for size in sizes)
    return Sizes(
        documents=sum(documents),
        segments=sum(entry.size for entry in manifest),
        words=words,
        pairs=sum(entry.pairs for entry in manifest),
        held=int(held),
    )


def growth(connection: Connection, keys: PartitionKeys) -> Growth:
    """Read how many words there are and how many are in one document only; no pairs are read.

    Raises StateMissing, StateCorrupt, ComponentUnreachable, StateError where the partition changes too fast.
    """
    for _ in range(_ATTEMPTS):
        meta, manifest = read_position(connection, keys)
        heads = connection.batch(("GET", keys.segment(entry.name, 0)) for entry in manifest)
        if any(head is None for head in heads):
            continue
        frequency = np.zeros(meta.next_word, np.int64)
        for data in heads:
            head = decode_head(data)
            frequency[head.ids] += head.frequency
        return Growth(int(np.count_nonzero(frequency)), int(np.count_nonzero(frequency == 1)))
    raise StateError(f"{keys.tag} changes faster than it can be read: try again")
