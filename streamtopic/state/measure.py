"""The bytes that a partition takes in Redis, by kind, and how its words grow. Capacity is planned from both."""

from dataclasses import dataclass

import numpy as np

from streamtopic.errors import StateError
from streamtopic.state.connection import Connection
from streamtopic.state.meta import ManifestEntry, head_strings, read_position
from streamtopic.state.redis_keys import BUCKETS, PartitionKeys
from streamtopic.state.segments import decode_head

__all__ = ["Growth", "Sizes", "growth", "measure"]

# Fields of a hash that Redis measures, to take their mean for all: more would keep it busy for longer.
_SAMPLES = 200
# Of segments that were merged (docs/capacity-planning.md).
_BYTES_A_PAIR = 2
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a partition in Redis.

    documents: bytes of document records, from samples.
    segments: bytes of count segments, exact.
    merged: the same once segments that hold rows are pairs, about.
    words: bytes of the words and their ids, from samples.
    pairs: stored pairs; one that stands in two segments counts twice, and rows count as the most that they can make.
    held: number of words of live documents.
    """

    documents: int
    segments: int
    merged: int
    words: int
    pairs: int
    held: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.documents + self.segments + self.words


@dataclass(frozen=True, slots=True)
class Growth:
    """How the words of live documents are spread.

    words: number of words.
    hapaxes: number of words that only one document holds.
    """

    words: int
    hapaxes: int

    @property
    def exponent(self) -> float:
        """The exponent beta of Heaps' law, V = K N^beta."""
        # beta = (N / V) dV/dN, and by Good and Turing dV/dN is hapaxes over tokens, hapaxes / N.
        return self.hapaxes / self.words if self.words else 0.0

    def times_until(self, limit: int) -> float:
        """Return the factor by which documents must grow until there are `limit` words; infinity for never."""
        if not self.words or not self.hapaxes:
            return float("inf")
        exponent = np.log(max(limit, 1) / self.words) / self.exponent
        # Beyond 709 `exp` overflows, with a warning.
        return float(np.exp(min(exponent, 700.0)))


def measure(connection: Connection, keys: PartitionKeys) -> Sizes:
    """Measure a partition. Replaced segments, which expire by themselves, are not counted.

    Raises StateMissing, ComponentUnreachable.
    """
    _, manifest = read_position(connection, keys)
    hashes = [keys.words, *(keys.documents(bucket) for bucket in range(BUCKETS))]
    usage = [("MEMORY", "USAGE", key, "SAMPLES", _SAMPLES) for key in hashes]
    *sizes, held = connection.batch([*usage, ("HLEN", keys.words)])
    words, *documents = (int(size or 0) for size in sizes)
    pairs = sum(entry.pairs for entry in manifest)
    segments = sum(entry.size for entry in manifest)
    merged = sum(_merged(entry) for entry in manifest)
    return Sizes(
        documents=sum(documents),
        segments=segments,
        merged=merged,
        words=words,
        pairs=pairs,
        held=int(held),
    )


def _merged(entry: ManifestEntry) -> int:
    return max(entry.size, _BYTES_A_PAIR * entry.pairs) if entry.rows else entry.size


def growth(connection: Connection, keys: PartitionKeys) -> Growth:
    """Return how the words of a partition are spread. Only the heads of its segments are read.

    Raises StateMissing, StateCorrupt, ComponentUnreachable, StateError where the partition changes too fast.
    """
    for _ in range(_ATTEMPTS):
        meta, manifest = read_position(connection, keys)
        names = [entry.name for entry in manifest]
        heads = [head for head in head_strings(connection, keys, names) if head is not None]
        if len(heads) < len(names):
            # A merge has replaced a segment since the manifest was read, and its grace period is over.
            continue
        frequency = np.zeros(meta.next_word, np.int64)
        for data in heads:
            head = decode_head(data)
            frequency[head.ids] += head.frequency
        words = np.count_nonzero(frequency)
        hapaxes = np.count_nonzero(frequency == 1)
        return Growth(int(words), int(hapaxes))
    raise StateError(f"{keys.tag} changes faster than it can be read: try again")
