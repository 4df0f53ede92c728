"""The bytes that a partition takes in Redis, by kind, and how its words grow. Capacity is planned from both."""

from dataclasses import dataclass

import numpy as np

from streamtopic.errors import StateError
from streamtopic.state.change_log import CutGone, current_totals, lost_changes, read_statistics
from streamtopic.state.connection import Connection
from streamtopic.state.meta import read_meta
from streamtopic.state.redis_keys import BUCKETS, PartitionKeys

__all__ = ["Growth", "Sizes", "growth", "measure"]

# Fields of a hash that Redis measures, to take their mean for all: more would keep it busy for longer.
_SAMPLES = 200
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a partition in Redis, in bytes from samples.

    documents: document records.
    changes: what readers follow: changes of documents, and the word statistics that they begin with.
    words: words and their ids.
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
    """Measure a partition. Raises StateMissing, ComponentUnreachable."""
    read_meta(connection, keys)
    names = [keys.words, keys.statistics, *keys.changes, *(keys.documents(bucket) for bucket in range(BUCKETS))]
    usage = [("MEMORY", "USAGE", key, "SAMPLES", _SAMPLES) for key in names]
    *sizes, held = connection.batch([*usage, ("HLEN", keys.words)])
    words, totals, even, odd, *documents = (int(size or 0) for size in sizes)
    return Sizes(documents=sum(documents), changes=totals + even + odd, words=words, held=int(held))


def growth(connection: Connection, keys: PartitionKeys) -> Growth:
    """Return how the words of a partition are spread. Only the word statistics and the changes since are read.

    Raises StateMissing, StateCorrupt, ComponentUnreachable, StateError where the partition changes too fast.
    """
    for _ in range(_ATTEMPTS):
        meta = read_meta(connection, keys)
        try:
            totals = current_totals(connection, keys, read_statistics(connection, keys), meta.place, meta.next_word)
        except CutGone:
            if read_meta(connection, keys) == meta:
                raise lost_changes(keys) from None
            # The statistics are newer than the position by now.
            continue
        words = np.count_nonzero(totals[0])
        hapaxes = np.count_nonzero(totals[0] == 1)
        return Growth(int(words), int(hapaxes))
    raise StateError(f"{keys.tag} changes faster than it can be read: try again")
