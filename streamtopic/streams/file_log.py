"""The event log in files, for one machine without a broker.

    DIR/compacted               empty file whose age is that of the last compaction
    DIR/TOPIC/partitions        number of partitions, and the id of the topic
    DIR/TOPIC/settings          Kafka's topic settings, JSON
    DIR/TOPIC/P/lock            locked while a process appends
    DIR/TOPIC/P/OFFSET.log      records from OFFSET on

    FileLog           the log: topics, their settings, and when to compact them
    PartitionFiles    the files of one partition: append, read, compact
    Frame             a record in a file

A frame is a header (magic, length of the body, offset, time, CRC of the body, CRC of the header) and a body (msgpack:
key, value, headers). A reader sees a record whole or not at all, also after kill -9. It needs POSIX (flock) and a local
disk.
"""

import fcntl
import json
import os
import secrets
import shutil
import struct
import threading
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgpack

from streamtopic.errors import ComponentUnreachable, StateCorrupt, UsageError
from streamtopic.streams.event_log import (
    MAX_READ_BYTES,
    MAX_READ_RECORDS,
    Closing,
    Headers,
    LogTopic,
    Message,
    Record,
    check_count,
    check_new_topic,
    check_offset,
    check_partition,
    check_topic,
    placed,
)

__all__ = ["FileLog"]

LOOK_SECONDS = 0.05
# Of a frame's header.
MAGIC = b"S1"
FIELDS = struct.Struct(">2sIQqI")
CHECK = struct.Struct(">I")
HEADER = struct.Struct(FIELDS.format + "I")
HEADER_SIZE = HEADER.size
# Bytes of one read of a file. A longer frame is read by itself.
BLOCK = 1 << 20
# Bytes of a file between entries of its index.
INDEX_EVERY = 64 << 10


class FileLog(Closing):
    """An EventLog in a folder. Safe with several processes and threads.

    A confirmed record survives kill -9. A power cut may take the newest ones.

    directory: the folder, which is made if missing.
    clock: seconds since 1970, for the times of records.
    segment_bytes: size of a file after which the next one is begun.
    monotonic, sleep: clock of `wait`, seconds.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        segment_bytes: int = 64 << 20,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = Path(directory)
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._monotonic = monotonic
        self._sleep = sleep
        self._open: dict[tuple[str, int], PartitionFiles] = {}
        self._mutex = threading.RLock()

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """See EventLog.create; settings are stored, but only a call of `compact` does anything about them."""
        check_new_topic(topic, partitions)
        existing = self.partitions(topic) or self._claim(topic, partitions, settings or {})
        check_count(topic, existing, partitions)

    def partitions(self, topic: str) -> int:
        """See EventLog.partitions."""
        return self.describe(topic).partitions

    def describe(self, topic: str) -> LogTopic:
        """See EventLog.describe. Raises StateCorrupt for a file that cannot be read."""
        path = self._directory / topic / "partitions"
        with self._guard():
            try:
                partitions, name = path.read_text().split()
                return LogTopic(name, int(partitions))
            except FileNotFoundError:
                return LogTopic("", 0)
            except ValueError as error:
                raise StateCorrupt(f"{path} is damaged ({error}): restore it from a copy of the log") from error

    def settings(self, topic: str) -> Mapping[str, str]:
        """See EventLog.settings."""
        self._partitions(topic)
        path = self._directory / topic / "settings"
        with self._guard():
            try:
                text = path.read_text("utf-8")
                found: dict[str, str] = json.loads(text)
            except FileNotFoundError:
                return {}
            except ValueError as error:
                raise StateCorrupt(f"{path} is damaged ({error}): remove it") from error
            return found

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """See EventLog.configure."""
        changed = {**self.settings(topic), **settings}
        with self._guard():
            path = self._directory / topic / "settings"
            written = self._aside(path, json.dumps(changed))
            written.replace(path)

    def append(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int | None = None
    ) -> tuple[int, int]:
        """See EventLog.append."""
        message = Message(key, value, headers, partition)
        return self.append_many(topic, [message])[0]

    def append_many(self, topic: str, messages: Sequence[Message]) -> list[tuple[int, int]]:
        """See EventLog.append_many; the records of a partition are written at once, with one time."""
        count = self._partitions(topic)
        partitions = placed(topic, messages, count)
        written: dict[int, list[int]] = {}
        for index, partition in enumerate(partitions):
            written.setdefault(partition, []).append(index)
        offsets = [0] * len(messages)
        timestamp = int(self._clock() * 1000)
        with self._guard():
            for partition, indexes in written.items():
                together = [messages[index] for index in indexes]
                first = self._files(topic, partition).append(together, timestamp)
                for offset, index in enumerate(indexes, first):
                    offsets[index] = offset
        return list(zip(partitions, offsets, strict=True))

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_records: int = MAX_READ_RECORDS,
        max_bytes: int = MAX_READ_BYTES,
    ) -> list[Record]:
        """See EventLog.read."""
        begin = self.begin(topic, partition)
        end = self.end(topic, partition)
        check_offset(topic, partition, offset, begin, end)
        records: list[Record] = []
        size = 0
        with self._guard():
            found = self._files(topic, partition).read(offset) if offset < end else ()
            for frame in found:
                key, value, headers = frame.decode()
                record = Record(topic, partition, frame.offset, key, value, headers, frame.timestamp_ms)
                size += record.size
                full = len(records) >= max_records or size > max_bytes
                if records and full:
                    break
                records.append(record)
        return records

    def wait(self, topic: str, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait; looks every 50 ms."""
        deadline = self._monotonic() + seconds
        while all(self.end(topic, partition) <= position for partition, position in positions.items()):
            remaining = deadline - self._monotonic()
            if remaining <= 0:
                return
            self._sleep(min(remaining, LOOK_SECONDS))

    def begin(self, topic: str, partition: int) -> int:
        """See EventLog.begin."""
        check_partition(topic, partition, self._partitions(topic))
        with self._guard():
            return self._files(topic, partition).begin()

    def end(self, topic: str, partition: int) -> int:
        """See EventLog.end."""
        check_partition(topic, partition, self._partitions(topic))
        with self._guard():
            return self._files(topic, partition).end()

    def written_end(self, topic: str, partition: int) -> int:
        """See EventLog.written_end; files have no transactions."""
        return self.end(topic, partition)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int:  # noqa: ARG002 - the protocol's
        """See EventLog.offset_at; files keep no index of times, so this is their begin."""
        return self.begin(topic, partition)

    def appended_ms(self, topic: str, partition: int, offset: int) -> int | None:
        """See EventLog.appended_ms."""
        if offset >= self.end(topic, partition):
            return None
        held = max(offset, self.begin(topic, partition))
        found = self.read(topic, partition, held, 1)
        return found[0].timestamp_ms if found else None

    def compact(self, topic: str, *, tombstones_ms: int = 30 * 24 * 3600 * 1000) -> int:
        """Erase records that later ones of the same key supersede; return how many went.

        tombstones_ms: age after which tombstones go as well, milliseconds.

        This erases the text of a deleted document from the log. Readers and writers may go on meanwhile; offsets do
        not change. A topic with the setting `cleanup.policy=delete` keeps everything.
        """
        if self.settings(topic).get("cleanup.policy") == "delete":
            return 0
        expired = int(self._clock() * 1000) - tombstones_ms
        count = self._partitions(topic)
        with self._guard():
            return sum(self._files(topic, partition).compact(expired) for partition in range(count))

    def compact_when_due(self, topics: Sequence[str], *, longest_ms: int, tombstones_ms: int) -> bool:
        """Compact topics where that is due, as Kafka does by itself; return whether it was done.

        longest_ms: time within which a record that is superseded must be gone, milliseconds.
        tombstones_ms: as `compact` takes it, milliseconds.
        """
        done = self._directory / "compacted"
        now = self._clock()
        with self._guard():
            # The age of the file is that of the last compaction. A new log has nothing to compact: its time begins now.
            if not done.exists():
                done.touch(mode=0o600)
                os.utime(done, (now, now))
            age_ms = (now - done.stat().st_mtime) * 1000
            if age_ms < longest_ms:
                return False
            for topic in topics:
                self.compact(topic, tombstones_ms=tombstones_ms)
            os.utime(done, (now, now))
        return True

    def remove(self, topic: str) -> None:
        """See EventLog.remove."""
        if not topic or "/" in topic or topic.startswith("."):
            raise UsageError(
                f"{topic!r} is not the name of a topic: take one without a slash and without a dot at its start"
            )
        folder = self._directory / topic
        with self._guard():
            # The number of partitions first: without it the topic is gone for everyone, however much is left of it.
            (folder / "partitions").unlink(missing_ok=True)
            if folder.exists():
                shutil.rmtree(folder)
            opened = [key for key in self._open if key[0] == topic]
            for key in opened:
                del self._open[key]

    def members(self, group: str) -> list[str]:  # noqa: ARG002 - the protocol's
        """See EventLog.members."""
        return []

    def close(self) -> None:
        """See EventLog.close."""
        # Files are open within a call only, so only the index is to be dropped.
        self._open.clear()

    def _claim(self, topic: str, partitions: int, settings: Mapping[str, str]) -> int:
        """Make the folders of a topic; return its number of partitions, which another process may have decided."""
        with self._guard():
            for partition in range(partitions):
                self._files(topic, partition).create()
            path = self._directory / topic / "partitions"
            written = self._aside(path, f"{partitions} {secrets.token_hex(16)}")
            # A link fails if the name exists: of several processes that create a topic, one decides.
            with suppress(FileExistsError):
                path.hardlink_to(written)
            written.unlink()
            if settings:
                chosen = self._aside(path, json.dumps(dict(settings)))
                chosen.replace(path.with_name("settings"))
        return self.partitions(topic)

    @staticmethod
    def _aside(path: Path, text: str) -> Path:
        """Write a file of this thread beside `path`; return its path. It can take the place of `path` at once."""
        written = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        # Settings name nobody, but a folder of documents is easier to check if nothing in it is open to others.
        written.touch(mode=0o600)
        written.write_text(text, "utf-8")
        return written

    def _files(self, topic: str, partition: int) -> "PartitionFiles":
        key = (topic, partition)
        if key not in self._open:
            folder = self._directory / topic / str(partition)
            self._open[key] = PartitionFiles(folder, segment_bytes=self._segment_bytes)
        return self._open[key]

    def _partitions(self, topic: str) -> int:
        return check_topic(topic, self.partitions(topic), f"in {self._directory}")

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Let one thread at a time use the index of files. Errors of the file system become ComponentUnreachable."""
        with self._mutex:
            try:
                yield
            except OSError as error:
                raise ComponentUnreachable(
                    f"event log {self._directory}: {error.strerror or error}; check the folder and its free space"
                ) from error


# One is made for each record of a log, and a frozen dataclass takes twice the time.
class Frame(NamedTuple):
    """A record in a file.

    start, stop: its first byte, and the one behind its last.
    offset: of the record.
    timestamp_ms: time at which it was appended, milliseconds since 1970.
    body: key, value and headers, still encoded.
    """

    start: int
    stop: int
    offset: int
    timestamp_ms: int
    body: bytes

    def decode(self) -> tuple[bytes | None, bytes | None, Headers]:
        """Return key, value and headers."""
        # Lists become tuples.
        key, value, headers = msgpack.unpackb(self.body, use_list=False)
        return key, value, headers


def encode_frame(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Return the bytes of a frame."""
    body: bytes = msgpack.packb((key, value, headers))
    fields = FIELDS.pack(MAGIC, len(body), offset, timestamp_ms, zlib.crc32(body))
    # The CRC of the header itself tells a torn write from damage: the length is right before its body is there.
    header = fields + CHECK.pack(zlib.crc32(fields))
    return header + body


def frames(descriptor: int, start: int, name: str) -> Iterator[Frame]:
    """Yield the whole frames of an open file.

    start: the first byte of a frame.
    name: of the file, for errors.

    Stops before a torn tail (`_check_torn`). Raises StateCorrupt for other bytes that are not a whole frame.
    """
    block, base, at = b"", start, 0
    while True:
        frame = _frame(block, at, base)
        if frame is None:
            base, at = base + at, 0
            block = _block(descriptor, base)
            frame = _frame(block, 0, base)
        if frame is None:
            _check_torn(descriptor, base, name)
            return
        yield frame
        at = frame.stop - base


def _block(descriptor: int, start: int) -> bytes:
    """Return bytes of a file from `start` on: so many that the frame there is whole, if the file holds it."""
    block = os.pread(descriptor, BLOCK, start)
    fields = _fields(block, 0)
    # Only now the length of this frame is known: it may be longer than the block.
    size = 0 if fields is None else HEADER_SIZE + fields[0]
    return os.pread(descriptor, size, start) if BLOCK <= len(block) < size else block


def _fields(block: bytes, at: int) -> tuple[int, int, int, int] | None:
    """Return length of the body, offset, time and CRC of the body of the frame at `at`.

    None where there is no whole header that passes its own check.
    """
    if len(block) < at + HEADER_SIZE:
        return None
    magic, length, offset, timestamp_ms, body_check, check = HEADER.unpack_from(block, at)
    if magic != MAGIC or check != zlib.crc32(block[at : at + FIELDS.size]):
        return None
    return length, offset, timestamp_ms, body_check


def _frame(block: bytes, at: int, base: int) -> Frame | None:
    """Return the frame at `at`; None where its header or body is not whole. base: place of the block in the file."""
    fields = _fields(block, at)
    if fields is None:
        return None
    length, offset, timestamp_ms, check = fields
    begin = at + HEADER_SIZE
    stop = begin + length
    body = block[begin:stop]
    if len(body) < length or zlib.crc32(body) != check:
        return None
    return Frame(base + at, base + stop, offset, timestamp_ms, body)


def _check_torn(descriptor: int, start: int, name: str) -> None:
    """Raise StateCorrupt unless the bytes from `start` on are a torn tail, which is left to the next writer.

    A torn tail is the beginning of one frame, with nothing after it but zeros, which a power cut may leave. Contents of
    records are not looked at: whole frames may be among them.
    """
    unread = os.fstat(descriptor).st_size - start
    rest = os.pread(descriptor, max(unread, 0), start)
    if _frame(rest, 0, start) is not None:
        # A writer has finished the frame since it was read.
        return
    written = len(rest.rstrip(b"\0"))
    fields = _fields(rest, 0)
    torn = written < HEADER_SIZE if fields is None else written <= HEADER_SIZE + fields[0]
    if not torn:
        raise StateCorrupt(
            f"{name} is damaged at byte {start}, and {written} bytes follow there: restore the file from a copy, or "
            "produce its documents again into a new log"
        )


@dataclass(slots=True)
class _Segment:
    """A file as this process knows it. Other processes may have appended since.

    base: the first offset that it may hold.
    offsets, positions: a sparse index, offset and first byte of some frames, ascending.
    scanned: the byte behind the last frame that was read.
    next_offset: the offset behind it, -1 before the first.
    inode: of the file that was read.
    """

    path: Path
    base: int
    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    scanned: int = 0
    next_offset: int = -1
    inode: int = -1

    def open(self) -> int:
        """Return a descriptor to read with."""
        descriptor = os.open(self.path, os.O_RDONLY)
        found = os.fstat(descriptor)
        # Compaction puts another file in the place of this one, in which frames have other positions. A file that has
        # become shorter was cut by somebody else.
        if found.st_ino != self.inode or found.st_size < self.scanned:
            self.inode, self.scanned, self.next_offset = found.st_ino, 0, -1
            self.offsets, self.positions = [], []
        return descriptor

    def note(self, frame: Frame) -> None:
        """Add the frame that follows those read so far."""
        if not self.positions or frame.start - self.positions[-1] >= INDEX_EVERY:
            self.offsets.append(frame.offset)
            self.positions.append(frame.start)
        self.scanned = frame.stop
        self.next_offset = frame.offset + 1

    def position(self, offset: int) -> int:
        """Return the first byte of a frame at or before that of `offset`."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0


class PartitionFiles:
    """The files of one partition, which other processes may read and append to as well.

    segment_bytes: size of a file after which a new one is begun.
    """

    # A writer locks the file `lock`. Readers need no lock: a frame whose checksums are right is whole.

    def __init__(self, folder: Path, *, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []

    def create(self) -> None:
        """Make the folder with its first, empty file; safe to repeat."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._bases():
            (self._folder / _name(0)).touch(mode=0o600)

    def append(self, messages: list[Message], timestamp_ms: int) -> int:
        """Append messages at consecutive offsets; return the first of them."""
        with self._locked():
            first = self.end()
            segment = self._segments[-1]
            if segment.scanned >= self._segment_bytes:
                segment = self._roll(first)
            data = bytearray()
            for offset, message in enumerate(messages, first):
                data += encode_frame(offset, timestamp_ms, message.key, message.value, message.headers)
            self._write(segment, data)
            return first

    def read(self, offset: int) -> Iterator[Frame]:
        """Yield the frames from `offset` on, of all files."""
        self._refresh()
        bases = [segment.base for segment in self._segments]
        at = max(bisect_right(bases, offset) - 1, 0)
        for segment in self._segments[at:]:
            descriptor = segment.open()
            try:
                start = segment.position(offset)
                for frame in frames(descriptor, start, str(segment.path)):
                    # Only the next one: an index with a gap would lead to the wrong place.
                    if frame.start == segment.scanned:
                        segment.note(frame)
                    if frame.offset >= offset:
                        yield frame
            finally:
                os.close(descriptor)

    def begin(self) -> int:
        """Return the first offset that the files may hold."""
        self._refresh()
        return self._segments[0].base

    def end(self) -> int:
        """Return the offset of the next record, behind all that other processes have appended."""
        self._refresh()
        segment = self._segments[-1]
        if segment.path.stat().st_size != segment.scanned:
            descriptor = segment.open()
            try:
                for frame in frames(descriptor, segment.scanned, str(segment.path)):
                    segment.note(frame)
            finally:
                os.close(descriptor)
        return max(segment.next_offset, segment.base)

    def compact(self, expired_ms: int) -> int:
        """Erase records that a later one of the same key supersedes, and old tombstones; return how many went.

        expired_ms: tombstones from before this time go, milliseconds since 1970.

        Offsets stay as they are. Records without a key stay, and so does the very last record.
        """
        with self._locked():
            end = self.end()
            # Files are only replaced as a whole, and writers append to the last: a new one is begun first.
            if self._segments[-1].scanned:
                self._roll(end)
            last: dict[bytes | None, int] = {}
            for frame in self.read(self._segments[0].base):
                key, _, _ = frame.decode()
                last[key] = frame.offset
            # The last record stays, so that a reader before the end always finds one.
            return sum(self._rewrite(segment, last, expired_ms, end - 1) for segment in self._segments[:-1])

    def _rewrite(self, segment: _Segment, last: dict[bytes | None, int], expired_ms: int, tail: int) -> int:
        """Replace a file by one with the records that stay; return how many went.

        last: key to the offset of its last record.
        tail: offset of the last record of all.
        """
        kept, dropped = [], 0
        descriptor = segment.open()
        try:
            for frame in frames(descriptor, 0, str(segment.path)):
                key, value, headers = frame.decode()
                superseded = key is not None and frame.offset < last.get(key, 0)
                expired = key is not None and value is None and frame.timestamp_ms < expired_ms
                if superseded or (expired and frame.offset != tail):
                    dropped += 1
                else:
                    same = encode_frame(frame.offset, frame.timestamp_ms, key, value, headers)
                    kept.append(same)
        finally:
            os.close(descriptor)
        if dropped:
            self._replace(segment.path, b"".join(kept))
        return dropped

    def _replace(self, path: Path, data: bytes) -> None:
        # Always to the disk first: if the rename survived a power cut and the content did not, records would be lost.
        written = path.with_suffix(".new")
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.log"))

    def _refresh(self) -> None:
        """Look which files there are: another process may have begun one."""
        known = {segment.base: segment for segment in self._segments}
        self._segments = []
        for base in self._bases():
            segment = known.get(base) or _Segment(self._folder / _name(base), base)
            self._segments.append(segment)

    def _roll(self, base: int) -> _Segment:
        path = self._folder / _name(base)
        path.touch(mode=0o600)
        self._refresh()
        return self._segments[-1]

    def _write(self, segment: _Segment, data: bytearray) -> None:
        """Append bytes behind the last whole frame."""
        descriptor = os.open(segment.path, os.O_RDWR)
        try:
            # A writer that died here has left a part of a frame.
            if os.fstat(descriptor).st_size > segment.scanned:
                os.ftruncate(descriptor, segment.scanned)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, data[written:], segment.scanned + written)
            except OSError:
                # The caller reports that nothing was written, so nothing may stay.
                os.ftruncate(descriptor, segment.scanned)
                raise
        finally:
            os.close(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # A fresh descriptor each time: locks belong to open files, so threads and forks exclude each other as well.
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _name(base: int) -> str:
    return f"{base:020d}.log"
