"""What readers follow: the changes of a partition, and the statistics of its words as of a moment.

Every change of the state has an entry under its version: the documents that came and those that went, as they are
stored, with the ids of this change and of the one before. So a reader that holds counts of one moment carries them to a
later one without reading the documents again, and notices a history that is not its own, as after Redis was set back.

Entries are in two hashes, one for each of the last two generations. The writer begins a generation when it writes the
word statistics (`PartitionWriter.sum_changes`), and the generation before the last goes as a whole: Redis then gives
its memory back, where deleted entries of a stream would stay in memory until their whole node is empty.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Self

import msgpack
import numpy as np

from streamtopic.counts import statistics
from streamtopic.counts.arrays import Int64
from streamtopic.errors import StateCorrupt, StateError
from streamtopic.state.connection import Connection
from streamtopic.state.document_records import EVERY_OFFSET, Records, decode_batch
from streamtopic.state.redis_keys import PartitionKeys
from streamtopic.state.varints import pack_numbers, unpack_numbers

__all__ = [
    "MOST_UNSUMMED",
    "ChangeEntry",
    "CutGone",
    "Place",
    "WordStatistics",
    "came_and_went",
    "current_totals",
    "lost_changes",
    "read_changes",
    "read_statistics",
]

MOST_UNSUMMED = 8 << 20
"""Bytes of changes after which the writer writes the word statistics again, in a small partition."""

# Entries of one command: those of full commits hold a third of a megabyte each, and Redis should not be busy for long.
_AT_ONCE = 16


class CutGone(StateError):
    """The changes since a cut are gone: take new counts."""


@dataclass(frozen=True, slots=True)
class Place:
    """A moment of a partition's history.

    version: number of changes of the state until then.
    commit: id of the last of them.
    """

    version: int
    commit: str


@dataclass(frozen=True, slots=True, eq=False)
class ChangeEntry:
    """The documents of one commit.

    came: records of documents that came.
    went: records of documents that went. A document that was replaced is in both.
    ids: of the documents that went.
    born: words that no live document held before, with their ids.
    dead: words that no live document holds any more, with their ids.
    """

    came: Sequence[bytes] = ()
    went: Sequence[bytes] = ()
    ids: Sequence[bytes] = ()
    born: Mapping[str, int] = field(default_factory=dict)
    dead: Mapping[str, int] = field(default_factory=dict)

    def pack(self, base: str, commit: str) -> bytes:
        """Return the bytes of its entry. base, commit: ids of the change before, and of this one."""
        parts = (base, commit, self.came, self.went, self.ids, dict(self.born), dict(self.dead))
        return bytes(msgpack.packb(parts, unicode_errors="surrogatepass"))

    @classmethod
    def unpack(cls, data: bytes) -> tuple[str, str, Self]:
        """Undo `pack`: base, commit and the change. Raises StateCorrupt."""
        try:
            base, commit, *rest = msgpack.unpackb(data, unicode_errors="surrogatepass")
            change = cls(*rest)
            change._check()
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise StateCorrupt(f"a change cannot be read ({error}): run `streamtopic rebuild`") from None
        return base, commit, change

    def _check(self) -> None:
        """Raise ValueError, TypeError or AttributeError for parts of another form."""
        records = set(map(type, chain(self.came, self.went, self.ids)))
        words = set(map(type, chain(self.born, self.dead)))
        numbers = set(map(type, chain(self.born.values(), self.dead.values())))
        if not (records <= {bytes} and words <= {str} and numbers <= {int} and len(self.went) == len(self.ids)):
            raise ValueError("another form")


@dataclass(frozen=True, slots=True, eq=False)
class WordStatistics:
    """Statistics of all words of a partition.

    place: the moment that they are of.
    totals: (3, ids) documents, occurrences and heavy documents of each word id that was given.
    """

    place: Place
    totals: Int64

    def pack(self) -> bytes:
        """Return the bytes that Redis keeps."""
        columns = [pack_numbers(column) for column in self.totals]
        return bytes(msgpack.packb((self.place.version, self.place.commit, self.totals.shape[1], *columns)))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Undo `pack`. Raises StateCorrupt."""
        try:
            version, commit, ids, *columns = msgpack.unpackb(data)
            place = Place(int(version), str(commit))
            totals = np.stack([unpack_numbers(column, ids) for column in columns]).reshape(3, ids)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(f"word statistics cannot be read ({error}): run `streamtopic rebuild`") from None
        return cls(place, totals)


def read_statistics(connection: Connection, keys: PartitionKeys) -> WordStatistics:
    """Return the word statistics of a partition. Before the first ones all changes are kept: these are of no word."""
    data = connection.call("GET", keys.statistics)
    return WordStatistics(Place(1, ""), np.zeros((3, 0), np.int64)) if data is None else WordStatistics.unpack(data)


def read_changes(
    connection: Connection, keys: PartitionKeys, after: Place, through: Place
) -> Iterator[tuple[Place, ChangeEntry]]:
    """Yield the changes after one moment up to another one, with the moment of each, in their order.

    Raises CutGone if an entry is gone, or if the two moments are not of one history.
    """
    reached = after
    versions = range(after.version + 1, through.version + 1)
    for start in range(0, len(versions), _AT_ONCE):
        some = versions[start : start + _AT_ONCE]
        commands = [("HMGET", key, *some) for key in keys.changes]
        first, second = connection.batch(commands)
        for version, entry in zip(some, map(_either, first, second), strict=True):
            if entry is None:
                raise CutGone(f"changes of partition {keys.number} since version {after.version} are gone by now")
            base, commit, change = ChangeEntry.unpack(entry)
            if base != reached.commit:
                raise _other_history(keys)
            reached = Place(version, commit)
            yield reached, change
    if reached != through:
        raise _other_history(keys)


def came_and_went(changes: Iterable[tuple[Place, ChangeEntry]]) -> list[tuple[int, Records]]:
    """Return the documents that came, with sign 1, and those that went, with sign -1."""
    came, went = list[bytes](), list[bytes]()
    for _, change in changes:
        came += change.came
        went += change.went
    return [(1, Records.of(came)), (-1, Records.of(went))]


def current_totals(
    connection: Connection, keys: PartitionKeys, known: WordStatistics, through: Place, ids: int
) -> Int64:
    """Return word statistics as of a moment: those that are known and the changes since then, (3, ids) int64.

    ids: number of word ids that were given by then. Raises CutGone, StateCorrupt.
    """
    changed = came_and_went(read_changes(connection, keys, known.place, through))
    # Only now: statistics of a later moment, which hold more ids, end above.
    totals = np.zeros((3, ids), np.int64)
    totals[:, : known.totals.shape[1]] = known.totals
    itself = np.arange(ids)
    for sign, records in changed:
        batch = decode_batch(records, itself, EVERY_OFFSET).batch
        totals += np.stack(statistics(batch, ids, np.full(batch.documents, sign)))
    return totals


def lost_changes(keys: PartitionKeys) -> StateCorrupt:
    """Return the error for a state without the changes since its word statistics."""
    return StateCorrupt(
        f"Redis has lost changes of partition {keys.number}: stop ingest and run `streamtopic rebuild`, which counts "
        "the log again"
    )


def _either(first: bytes | None, second: bytes | None) -> bytes | None:
    return second if first is None else first


def _other_history(keys: PartitionKeys) -> CutGone:
    return CutGone(f"partition {keys.number} has another history by now, as after Redis was set back")
