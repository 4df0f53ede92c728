"""What readers follow: the changes of a partition, and its words with their statistics as of a moment.

Every change of the state has an entry under its version: the documents that came and those that went, as they are
stored, with the ids of this change and of the one before. So a reader that holds counts of one moment carries them to a
later one without reading the documents again, and notices a history that is not its own, as after Redis was set back.
Nothing else names the words of a partition: those of now are the words of the statistics, with what changes add and
take away.

Entries are in two hashes, one for each of the last two generations. The writer begins a generation when it writes the
word statistics (`PartitionWriter.sum_changes`), and the generation before the last goes as a whole: Redis then gives
its memory back, where deleted entries of a stream would stay in memory until their whole node is empty.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import msgpack
import numpy as np

from streamtopic.counts.arrays import Int64
from streamtopic.errors import StateCorrupt, StateError
from streamtopic.state.connection import Codec, Connection
from streamtopic.state.document_records import Records
from streamtopic.state.redis_keys import PartitionKeys

__all__ = [
    "CHANGES",
    "MOST_UNSUMMED",
    "ChangeEntry",
    "CutGone",
    "Place",
    "WordStatistics",
    "came_and_went",
    "pack_numbers",
    "read_changes",
    "read_statistics",
    "unpack_numbers",
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

    base, commit: ids of the change before, and of this one.
    came: records of documents that came.
    went: records of documents that went. A document that was replaced is in both.
    ids: of the documents that went.
    born: words that no live document held before, as `word_bytes` writes them, with their ids.
    dead: words that no live document holds any more, with their ids.
    """

    base: str
    commit: str
    came: Sequence[bytes] = ()
    went: Sequence[bytes] = ()
    ids: Sequence[bytes] = ()
    born: Mapping[bytes, int] = field(default_factory=dict)
    dead: Mapping[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.went) != len(self.ids):
            raise ValueError("each document that went has an id")


CHANGES = Codec(ChangeEntry, "a change cannot be read: run `streamtopic rebuild`")


@dataclass(frozen=True, slots=True, eq=False)
class WordStatistics:
    """The words of a partition's live documents.

    place: the moment that they are of.
    words: (k,) as `word_bytes` writes them.
    ids: (k,) of the words, ascending.
    totals: (3, k) documents, occurrences and heavy documents of each.
    """

    place: Place
    words: Sequence[bytes]
    ids: Int64
    totals: Int64

    def pack(self) -> bytes:
        """Return the bytes that Redis keeps."""
        columns = [pack_numbers(column) for column in (self.ids, *self.totals)]
        return bytes(msgpack.packb((self.place.version, self.place.commit, self.words, *columns)))

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Undo `pack`. Raises StateCorrupt."""
        try:
            version, commit, words, *columns = msgpack.unpackb(data)
            place = Place(int(version), str(commit))
            ids, *totals = (unpack_numbers(column, len(words)) for column in columns)
            found = cls(place, words, ids, np.stack(totals).reshape(3, len(words)))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise StateCorrupt(f"word statistics cannot be read ({error}): run `streamtopic rebuild`") from None
        if not set(map(type, words)) <= {bytes} or (np.diff(ids) <= 0).any():
            raise StateCorrupt("word statistics cannot be read: run `streamtopic rebuild`")
        return found


def pack_numbers(values: Int64) -> bytes:
    """Return numbers of 0 or more, each in as many bytes as the largest takes, and this number of bytes before them."""
    size = (int(values.max(initial=0)).bit_length() + 7) // 8
    return bytes([size]) + values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :size].tobytes()


def unpack_numbers(data: bytes, number: int) -> Int64:
    """Undo `pack_numbers`. number: how many there are. Raises StateCorrupt for other bytes."""
    size = data[0] if data else 9
    if size > 8 or len(data) != 1 + size * number:
        raise StateCorrupt("numbers in Redis cannot be read: run `streamtopic rebuild`")
    found = np.zeros((number, 8), np.uint8)
    found[:, :size] = np.frombuffer(data, np.uint8, offset=1).reshape(number, size)
    values: Int64 = found.view("<i8").reshape(number).astype(np.int64, copy=False)
    if size == 8 and (values < 0).any():
        raise StateCorrupt("numbers in Redis cannot be read: run `streamtopic rebuild`")
    return values


def read_statistics(connection: Connection, keys: PartitionKeys) -> WordStatistics:
    """Return the word statistics of a partition. Before the first ones all changes are kept: these are of no word."""
    data = connection.call("GET", keys.statistics)
    if data is None:
        return WordStatistics(Place(1, ""), (), np.zeros(0, np.int64), np.zeros((3, 0), np.int64))
    return WordStatistics.unpack(data)


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
            change = CHANGES.unpack(entry)
            if change.base != reached.commit:
                raise _other_history(keys)
            reached = Place(version, change.commit)
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


def _either(first: bytes | None, second: bytes | None) -> bytes | None:
    return second if first is None else first


def _other_history(keys: PartitionKeys) -> CutGone:
    return CutGone(f"partition {keys.number} has another history by now, as after Redis was set back")
