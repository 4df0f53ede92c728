"""The event log in a file, for one machine without a broker.

    DIR/events.sqlite    topics and their records: a database of SQLite in WAL mode

A reader sees a record whole or not at all, also after kill -9. A checksum of our own is next to each record, since
SQLite has none. It needs a local disk.
"""

import os
import secrets
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from streamtopic.errors import ComponentUnreachable, StateCorrupt
from streamtopic.streams.event_log import (
    MAX_READ_BYTES,
    MAX_READ_RECORDS,
    Closing,
    EventLog,
    LogTopic,
    Message,
    Record,
    check_offset,
    check_partition,
    check_topic,
    placed,
    within,
)

__all__ = ["FileLog"]

LOOK_SECONDS = 0.05
# Seconds that an append waits for others: a compaction of a large log may take so long.
PATIENCE = 60.0
# A record's number in the database: topic, partition and offset, so that the records of a partition lie together.
PARTITION_BITS, OFFSET_BITS = 12, 40

_MADE = """
PRAGMA journal_mode = WAL;
CREATE TABLE topics (number INTEGER PRIMARY KEY, name TEXT UNIQUE, id TEXT, partitions INTEGER);
CREATE TABLE records (id INTEGER PRIMARY KEY, time INTEGER, key BLOB, value BLOB, headers BLOB, crc INTEGER);
CREATE TABLE compaction (at REAL);
"""
# A confirmed record is with the system, which keeps it through kill -9; a power cut may take the newest ones. What is
# erased is zeros at once, since a process may be killed before it writes the file anew.
_OPENED = "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY;"
_READ = "SELECT id, time, key, value, headers, crc FROM records WHERE id BETWEEN ? AND ? ORDER BY id LIMIT ?"
_SUPERSEDED = """
DELETE FROM records WHERE id IN (
    SELECT id FROM (
        SELECT id, max(id) OVER (PARTITION BY key) AS newest FROM records
        WHERE id BETWEEN :first AND :last AND key IS NOT NULL
    ) WHERE id < newest
)
"""
_EXPIRED = """
DELETE FROM records
WHERE id BETWEEN :first AND :last - 1 AND key IS NOT NULL AND value IS NULL AND time < :expired
"""

_Row = tuple[int, int, bytes | None, bytes | None, bytes | None, int]


class FileLog(Closing, EventLog):
    """An EventLog in a folder. Safe with several processes and threads.

    A confirmed record survives kill -9. A power cut may take the newest ones.

    directory: the folder, which is made with the first topic.
    clock: seconds since 1970, for the times of records.
    monotonic, sleep: clock of `wait`, seconds.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = Path(directory)
        self._path = self._directory / "events.sqlite"
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._database: sqlite3.Connection | None = None
        self._mutex = threading.RLock()

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:  # noqa: ARG002 - of Kafka
        """See EventLog.create; settings are ignored: only a call of `compact` erases anything."""
        with self._guard():
            if not self._path.exists():
                self._make()
        with self._written() as database:
            # Of several processes that create a topic, one decides.
            given = topic, secrets.token_hex(16), partitions
            database.execute("INSERT OR IGNORE INTO topics (name, id, partitions) VALUES (?, ?, ?)", given)

    def partitions(self, topic: str) -> int:
        """See EventLog.partitions."""
        return self.describe(topic).partitions

    def describe(self, topic: str) -> LogTopic:
        """See EventLog.describe."""
        found = self._topic(topic)
        return LogTopic("", 0) if found is None else LogTopic(found.id, found.partitions)

    def append_many(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """See EventLog.append_many; all records are written together, with one time, or none is."""
        known = self._known(topic)
        partitions = placed(topic, messages, known.partitions)
        places, rows = list[tuple[int, int]](), list[_Row]()
        with self._written() as database:
            timestamp = int(self._clock() * 1000)
            ends = {partition: self._end(known.first(partition)) for partition in set(partitions)}
            for partition, message in zip(partitions, messages, strict=True):
                places.append((partition, ends[partition]))
                rows.append(_row(known.first(partition) + ends[partition], timestamp, message))
                ends[partition] += 1
            database.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
        return places

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = MAX_READ_RECORDS,
        max_bytes: int = MAX_READ_BYTES,
    ) -> list[Record]:
        """See EventLog.read. Raises StateCorrupt for a record that is not as it was written."""
        known = self._known(topic)
        check_partition(topic, partition, known.partitions)
        first = known.first(partition)
        check_offset(topic, partition, offset, 0, self._end(first))

        def record(row: _Row) -> Record:
            number, timestamp, key, value, headers, crc = row
            if crc != _checksum(number, timestamp, key, value, headers):
                raise self._damaged(f"record {number - first} of {topic}/{partition}")
            named = msgpack.unpackb(headers, use_list=False) if headers else ()
            return Record(topic, partition, number - first, key, value, named, timestamp)

        with self._guard():
            rows = self._opened().execute(_READ, (first + offset, _last(first), max_records))
            return within(map(record, rows), max_records, max_bytes)

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait; looks every 50 ms."""
        deadline = self._monotonic() + seconds
        while all(self.end(topic, partition) <= position for partition, position in positions.items()):
            remaining = deadline - self._monotonic()
            if remaining <= 0:
                return
            self._sleep(min(remaining, LOOK_SECONDS))

    def begin(self, topic: str, partition: int) -> int:
        """See EventLog.begin: 0, since only compaction takes records away."""
        check_partition(topic, partition, self._known(topic).partitions)
        return 0

    def end(self, topic: str, partition: int) -> int:
        """See EventLog.end."""
        known = self._known(topic)
        check_partition(topic, partition, known.partitions)
        return self._end(known.first(partition))

    def appended_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """See EventLog.appended_ms."""
        if offset >= self.end(topic, partition):
            return None
        found = self.read(topic, partition, offset, 1)
        return found[0].timestamp_ms if found else None

    def compact(self, *topics: str, tombstones_ms: int = 30 * 24 * 3600 * 1000) -> int:
        """Erase records of some topics that later ones of the same key supersede; return how many went.

        tombstones_ms: age after which tombstones go as well, milliseconds.

        This erases the text of a deleted document from the log. Readers go on meanwhile, and writers wait; offsets do
        not change. The last record of a partition stays, by which its end is known.
        """
        expired = int(self._clock() * 1000) - tombstones_ms
        gone = 0
        for known in map(self._known, topics):
            for partition in range(known.partitions):
                with self._written() as database:
                    first = known.first(partition)
                    last = first + self._end(first) - 1
                    given = {"first": first, "last": last, "expired": expired}
                    gone += database.execute(_SUPERSEDED, given).rowcount
                    gone += database.execute(_EXPIRED, given).rowcount
        # Once for all of them, since it writes the whole file.
        self._clear()
        return gone

    def compact_when_due(self, topics: Sequence[str], *, longest_ms: int, tombstones_ms: int) -> bool:
        """Compact topics if that is due, as Kafka does by itself; return whether it was done.

        longest_ms: time within which a record that is superseded must be gone, milliseconds.
        tombstones_ms: as `compact` takes it, milliseconds.
        """
        if not self._path.exists():
            return False
        done = self._rows("SELECT at FROM compaction")
        now = self._clock()
        due = bool(done) and (now - done[0][0]) * 1000 >= longest_ms
        if due:
            self.compact(*topics, tombstones_ms=tombstones_ms)
        # A new log has nothing to compact: its time begins now.
        if due or not done:
            with self._written() as database:
                database.execute("DELETE FROM compaction")
                database.execute("INSERT INTO compaction VALUES (?)", (now,))
        return due

    def remove(self, topic: str) -> None:
        """See EventLog.remove."""
        known = self._topic(topic)
        if known is not None:
            with self._written() as database:
                whole = known.first(0), _last(known.first(known.partitions - 1))
                database.execute("DELETE FROM records WHERE id BETWEEN ? AND ?", whole)
                database.execute("DELETE FROM topics WHERE number = ?", (known.number,))
        # Also if it was removed before: that process may have been killed before it came to this.
        if self._path.exists():
            self._clear()

    def close(self) -> None:
        """See EventLog.close."""
        with self._mutex:
            if self._database is not None:
                self._database.close()
                self._database = None

    def _make(self) -> None:
        """Make the database, whatever other processes do at the same time."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside = self._path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        # The files that SQLite makes next to it have its rights.
        aside.touch(mode=0o600)
        made = sqlite3.connect(aside)
        try:
            made.executescript(_MADE)
        finally:
            made.close()
        # A link fails if the name exists: one of several processes decides.
        with suppress(FileExistsError):
            self._path.hardlink_to(aside)
        aside.unlink()

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            # Statements are transactions of their own, unless `_written` begins one.
            # A file that is gone is not made again, since this would be another log.
            uri = f"{self._path.absolute().as_uri()}?mode=rw"
            found = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
            weakref.finalize(self, found.close)
            found.executescript(_OPENED)
            self._database = found
        return self._database

    def _rows(self, question: str, *values: object) -> list[Any]:
        """Return what the database answers; [] before the first topic is made."""
        with self._guard():
            if self._database is None and not self._path.exists():
                return []
            return self._opened().execute(question, values).fetchall()

    def _topic(self, topic: str) -> "_Topic | None":
        """Return what is known of a topic, None if there is no such topic. Raises StateCorrupt."""
        found = self._rows("SELECT number, id, partitions FROM topics WHERE name = ?", topic)
        if not found:
            return None
        known = _Topic(*found[0])
        # Damage may change the kind of a value.
        if not all(isinstance(value, kind) for value, kind in zip(known, (int, str, int), strict=True)):
            raise self._damaged(f"topic {topic}")
        return known

    def _known(self, topic: str) -> "_Topic":
        """Return what is known of a topic. Raises UsageError if there is no such topic."""
        known = self._topic(topic) or _Topic(0, "", 0)
        check_topic(topic, known.partitions, f"in {self._directory}")
        return known

    def _end(self, first: int) -> int:
        """Return the offset of the next record of a partition. first: the number of its first record."""
        ((newest,),) = self._rows("SELECT max(id) FROM records WHERE id BETWEEN ? AND ?", first, _last(first))
        return 0 if newest is None else newest - first + 1

    def _clear(self) -> None:
        """Take what was erased off the disk: write the file anew, and empty the second one with the newest changes.

        Zeros in freed pages are not enough: a page that was split keeps a copy of what moved, beside what stays in it.
        """
        with self._guard():
            self._opened().execute("VACUUM")
            ((busy, *_),) = self._opened().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if busy:
                raise ComponentUnreachable(
                    f"event log {self._directory}: what was erased is still on the disk, since another process reads "
                    "the log all the time; it is tried again"
                )

    def _damaged(self, what: str) -> StateCorrupt:
        return StateCorrupt(
            f"{self._path} is damaged ({what}): restore the file from a copy, or produce its documents again into a "
            "new log"
        )

    @contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        """Write what the block writes as a whole, or not at all; no other process writes meanwhile."""
        # At the end a connection of SQLite commits, or rolls back after an error.
        with self._guard(), self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            yield database

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Let one thread at a time use the database. Its errors become ours."""
        with self._mutex:
            try:
                yield
            except (OSError, sqlite3.Error, UnicodeError) as error:
                # Statements are our own: if SQLite does not understand one, or answers no text, the file is damaged.
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
                passing = isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR
                if not (passing or isinstance(error, OSError)):
                    raise self._damaged(str(error)) from error
                raise ComponentUnreachable(
                    f"event log {self._directory}: {error}; check the folder and its free space"
                ) from error


class _Topic(NamedTuple):
    """A topic: its number in the database, its id, and its number of partitions."""

    number: int
    id: str
    partitions: int

    def first(self, partition: int) -> int:
        """Return the number of the record at offset 0 of a partition."""
        return ((self.number << PARTITION_BITS) + partition) << OFFSET_BITS


def _last(first: int) -> int:
    """Return the number of the last record that a partition can have. first: of its first one."""
    return first + (1 << OFFSET_BITS) - 1


def _row(number: int, timestamp_ms: int, message: Message) -> _Row:
    headers = msgpack.packb(message.headers) if message.headers else None
    crc = _checksum(number, timestamp_ms, message.key, message.value, headers)
    return number, timestamp_ms, message.key, message.value, headers, crc


def _checksum(*parts: bytes | int | None) -> int:
    """Return a checksum of a record: of its number, its time, and key, value and headers as they are stored."""
    # Damage may change the kind of a value, which msgpack writes down with it.
    return zlib.crc32(msgpack.packb(parts))
