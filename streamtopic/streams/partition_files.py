"""One partition as a folder of append-only files, each named by the first offset that it may hold.

Records stand in a file as checksummed frames. A frame is a header (magic, body length, offset, timestamp, CRC of the
body, CRC of the header itself) and a body (msgpack: key, value, headers). The header's own CRC tells a torn write,
which ends too early, from damage: a length can be believed before its body is there.
"""

import fcntl
import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from streamtopic.errors import StateCorrupt
from streamtopic.streams.event_log import Headers, Message

__all__ = ["Frame", "PartitionFiles", "encode_frame", "frames"]

MAGIC = b"S1"
FIELDS = struct.Struct(">2sIQqI")
CHECK = struct.Struct(">I")
HEADER_SIZE = FIELDS.size + CHECK.size
BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Frame:
    """One record's place in a file, [start, stop) in bytes, and its still encoded body."""

    start: int
    stop: int
    offset: int
    timestamp_ms: int
    body: bytes

    def decode(self) -> tuple[bytes | None, bytes | None, Headers]:
        """Key, value and headers."""
        key, value, headers = msgpack.unpackb(self.body)
        return key, value, tuple((name, content) for name, content in headers)


def encode_frame(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Bytes of one record."""
    body: bytes = msgpack.packb((key, value, headers))
    fields = FIELDS.pack(MAGIC, len(body), offset, timestamp_ms, zlib.crc32(body))
    return fields + CHECK.pack(zlib.crc32(fields)) + body


def frames(descriptor: int, start: int, name: str) -> Iterator[Frame]:
    """Whole frames of an open file from byte `start` on.

    Stops quietly before a torn tail: bytes that are no whole frame and that no frame follows.
    Raises StateCorrupt (naming the file as `name`) if what is damaged is followed by a frame.
    """
    block, base, at = b"", start, 0
    while True:
        size = _frame_size(block, at)
        if size is None or len(block) - at < size:
            base, at = base + at, 0
            block = os.pread(descriptor, max(BLOCK, size or 0), base)
            size = _frame_size(block, 0)
            if size is not None and BLOCK <= len(block) < size:
                block = os.pread(descriptor, size, base)
        frame = None if size is None else _frame(block, at, size, base + at)
        if frame is None:
            _check_torn(descriptor, base + at, name)
            return
        yield frame
        at += frame.stop - frame.start


def _frame_size(block: bytes, at: int) -> int | None:
    """Length of the frame that begins at `at`; None without a header that passes its own check."""
    stop = at + HEADER_SIZE
    if len(block) < stop or block[at : at + 2] != MAGIC:
        return None
    (check,) = CHECK.unpack_from(block, stop - CHECK.size)
    if check != zlib.crc32(block[at : stop - CHECK.size]):
        return None
    _, length, _, _, _ = FIELDS.unpack_from(block, at)
    return HEADER_SIZE + int(length)


def _frame(block: bytes, at: int, size: int, start: int) -> Frame | None:
    _, _, offset, timestamp_ms, check = FIELDS.unpack_from(block, at)
    body = block[at + HEADER_SIZE : at + size]
    if len(body) < size - HEADER_SIZE or zlib.crc32(body) != check:
        return None
    return Frame(start, start + size, offset, timestamp_ms, body)


def _check_torn(descriptor: int, start: int, name: str) -> None:
    """Tell a torn tail, which is left to the next writer, from damage in the middle."""
    rest = os.pread(descriptor, max(os.fstat(descriptor).st_size - start, 0), start)
    if (size := _frame_size(rest, 0)) is not None and _frame(rest, 0, size, start) is not None:
        return  # a writer has finished it meanwhile
    at = rest.find(MAGIC, 1)
    while at >= 0:
        size = _frame_size(rest, at)
        if size is not None and _frame(rest, at, size, start + at) is not None:
            raise StateCorrupt(
                f"{name} is damaged at byte {start}: whole records follow at byte {start + at}; restore the file from "
                "a copy, or produce its documents again into a new log"
            )
        at = rest.find(MAGIC, at + 1)


INDEX_EVERY = 64 << 10


@dataclass(slots=True)
class _Segment:
    """What is known of one file: a sparse index, and how far its frames have been read.

    One process's view: others may have appended since, which `PartitionFiles.scan` finds out.
    """

    path: Path
    base: int
    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    scanned: int = 0
    next_offset: int = -1
    inode: int = -1

    def open(self) -> int:
        """A descriptor to read with; what was known is forgotten if compaction has put another file in its place."""
        descriptor = os.open(self.path, os.O_RDONLY)
        inode = os.fstat(descriptor).st_ino
        if inode != self.inode:
            self.inode, self.scanned, self.next_offset = inode, 0, -1
            self.offsets, self.positions = [], []
        return descriptor

    def note(self, frame: Frame) -> None:
        """Take in a frame that follows those seen so far."""
        if not self.positions or frame.start - self.positions[-1] >= INDEX_EVERY:
            self.offsets.append(frame.offset)
            self.positions.append(frame.start)
        self.scanned = frame.stop
        self.next_offset = frame.offset + 1

    def position(self, offset: int) -> int:
        """A byte at or before the frame of `offset`."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0


class PartitionFiles:
    """Append to and read from the files of one partition, together with other processes.

    A writer holds an exclusive lock on the folder's `lock` file; readers take none, since what a frame's checksums
    accept is whole. `segment_bytes` is the size past which a new file is begun.
    """

    def __init__(self, folder: Path, *, segment_bytes: int, fsync: bool) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._fsync = fsync
        self._segments: list[_Segment] = []

    def create(self) -> None:
        """Make the folder with its first, empty file; safe to repeat."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._bases():
            (self._folder / _name(0)).touch(mode=0o600)

    def append(self, messages: list[Message], timestamp_ms: int) -> int:
        """Write messages under consecutive offsets; the first of them."""
        with self._locked():
            first = self.end()
            segment = self._segments[-1]
            if segment.scanned >= self._segment_bytes:
                segment = self._roll(first)
            data = b"".join(
                encode_frame(first + place, timestamp_ms, message.key, message.value, message.headers)
                for place, message in enumerate(messages)
            )
            self._write(segment, data)
            return first

    def read(self, offset: int) -> Iterator[Frame]:
        """Frames at `offset` and after, over all files."""
        self._refresh()
        at = max(bisect_right([segment.base for segment in self._segments], offset) - 1, 0)
        for segment in self._segments[at:]:
            descriptor = segment.open()
            try:
                for frame in frames(descriptor, segment.position(offset), str(segment.path)):
                    if frame.start == segment.scanned:
                        segment.note(frame)
                    if frame.offset >= offset:
                        yield frame
            finally:
                os.close(descriptor)

    def begin(self) -> int:
        """First offset that the files may hold."""
        self._refresh()
        return self._segments[0].base

    def end(self) -> int:
        """Offset of the next record, after a look at what others have appended."""
        self._refresh()
        segment = self._segments[-1]
        if segment.path.stat().st_size > segment.scanned:
            descriptor = segment.open()
            try:
                for frame in frames(descriptor, segment.scanned, str(segment.path)):
                    segment.note(frame)
            finally:
                os.close(descriptor)
        return max(segment.next_offset, segment.base)

    def compact(self, expired_ms: int) -> int:
        """Erase records that a later one of the same key supersedes, and tombstones from before `expired_ms`.

        Offsets stay as they are. Everything written so far is compacted: a new file is begun first. Returns how many
        records went. Records without a key stay, and the very last one: a reader that is not at the end finds a record.
        """
        with self._locked():
            end = self.end()
            if self._segments[-1].scanned:
                self._roll(end)
            last: dict[bytes | None, int] = {
                frame.decode()[0]: frame.offset for frame in self.read(self._segments[0].base)
            }
            return sum(self._rewrite(segment, last, expired_ms, end - 1) for segment in self._segments[:-1])

    def _rewrite(self, segment: _Segment, last: dict[bytes | None, int], expired_ms: int, tail: int) -> int:
        """Put a file in the place of `segment` that holds what must stay; how many records it lacks."""
        kept, dropped = [], 0
        descriptor = segment.open()
        try:
            for frame in frames(descriptor, 0, str(segment.path)):
                key, value, headers = frame.decode()
                superseded = key is not None and last[key] != frame.offset
                expired = key is not None and value is None and frame.timestamp_ms < expired_ms
                if superseded or (expired and frame.offset != tail):
                    dropped += 1
                else:
                    kept.append(encode_frame(frame.offset, frame.timestamp_ms, key, value, headers))
        finally:
            os.close(descriptor)
        if dropped:
            self._replace(segment.path, b"".join(kept))
        return dropped

    def _replace(self, path: Path, data: bytes) -> None:
        # Always to the disk first: a rename that outlives its content would lose what was confirmed.
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
        known = {segment.base: segment for segment in self._segments}
        self._segments = [known.get(base) or _Segment(self._folder / _name(base), base) for base in self._bases()]

    def _roll(self, base: int) -> _Segment:
        path = self._folder / _name(base)
        path.touch(mode=0o600)
        self._refresh()
        return self._segments[-1]

    def _write(self, segment: _Segment, data: bytes) -> None:
        """Append after the last whole frame, cutting off what a writer that died there left behind."""
        descriptor = os.open(segment.path, os.O_RDWR)
        try:
            if os.fstat(descriptor).st_size > segment.scanned:
                os.ftruncate(descriptor, segment.scanned)
            try:
                written = 0
                while written < len(data):
                    written += os.pwrite(descriptor, data[written:], segment.scanned + written)
                if self._fsync:
                    os.fsync(descriptor)
            except OSError:
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
