"""One partition as a folder of append-only files, each named by the first offset that it may hold.

A file holds records as frames. A frame is a header (magic, length of the body, offset, time, CRC of the body, CRC of
the header) and a body (msgpack: key, value, headers).
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
# Bytes of one read of a file. A longer frame is read by itself.
BLOCK = 1 << 20
# Bytes of a file between entries of its index.
INDEX_EVERY = 64 << 10


@dataclass(frozen=True, slots=True)
class Frame:
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
        key, value, headers = msgpack.unpackb(self.body)
        return key, value, tuple((name, content) for name, content in headers)


def encode_frame(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Return the bytes of a frame."""
    body: bytes = msgpack.packb((key, value, headers))
    fields = FIELDS.pack(MAGIC, len(body), offset, timestamp_ms, zlib.crc32(body))
    # The CRC of the header itself tells a torn write from damage: the length is right before its body is there.
    return fields + CHECK.pack(zlib.crc32(fields)) + body


def frames(descriptor: int, start: int, name: str) -> Iterator[Frame]:
    """Yield the whole frames of an open file.

    start: the first byte of a frame.
    name: of the file, for errors.

    Stops before a torn tail: bytes that are not a whole frame, with no frame behind them. Raises StateCorrupt where a
    frame follows damaged bytes.
    """
    block, base, at = b"", start, 0
    while True:
        size = _frame_size(block, at)
        if size is None or len(block) - at < size:
            base, at = base + at, 0
            block = os.pread(descriptor, max(BLOCK, size or 0), base)
            size = _frame_size(block, 0)
            # Only now the length of this frame is known: it may be longer than the block.
            if size is not None and BLOCK <= len(block) < size:
                block = os.pread(descriptor, size, base)
        frame = None if size is None else _frame(block, at, size, base + at)
        if frame is None:
            _check_torn(descriptor, base + at, name)
            return
        yield frame
        at += frame.stop - frame.start


def _frame_size(block: bytes, at: int) -> int | None:
    """Return the length of the frame at `at`; None without a header that passes its own check."""
    stop = at + HEADER_SIZE
    if len(block) < stop or block[at : at + 2] != MAGIC:
        return None
    (check,) = CHECK.unpack_from(block, stop - CHECK.size)
    if check != zlib.crc32(block[at : stop - CHECK.size]):
        return None
    _, length, _, _, _ = FIELDS.unpack_from(block, at)
    return HEADER_SIZE + int(length)


def _frame(block: bytes, at: int, size: int, start: int) -> Frame | None:
    """Return the frame of `size` bytes at `at`; None where its body is not whole. start: its place in the file."""
    _, _, offset, timestamp_ms, check = FIELDS.unpack_from(block, at)
    body = block[at + HEADER_SIZE : at + size]
    if len(body) < size - HEADER_SIZE or zlib.crc32(body) != check:
        return None
    return Frame(start, start + size, offset, timestamp_ms, body)


def _check_torn(descriptor: int, start: int, name: str) -> None:
    """Raise StateCorrupt for damage in the middle of a file. A torn tail is left to the next writer."""
    rest = os.pread(descriptor, max(os.fstat(descriptor).st_size - start, 0), start)
    size = _frame_size(rest, 0)
    if size is not None and _frame(rest, 0, size, start) is not None:
        # A writer has finished the frame since it was read.
        return
    at = rest.find(MAGIC, 1)
    while at >= 0:
        size = _frame_size(rest, at)
        if size is not None and _frame(rest, at, size, start + at) is not None:
            raise StateCorrupt(
                f"{name} is damaged at byte {start}: whole records follow at byte {start + at}; restore the file from "
                "a copy, or produce its documents again into a new log"
            )
        at = rest.find(MAGIC, at + 1)


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
        inode = os.fstat(descriptor).st_ino
        # Compaction puts another file in the place of this one, in which frames have other positions.
        if inode != self.inode:
            self.inode, self.scanned, self.next_offset = inode, 0, -1
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
                for frame in frames(descriptor, segment.position(offset), str(segment.path)):
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
        if segment.path.stat().st_size > segment.scanned:
            descriptor = segment.open()
            try:
                for frame in frames(descriptor, segment.scanned, str(segment.path)):
                    segment.note(frame)
            finally:
                os.close(descriptor)
        return max(segment.next_offset, segment.base)

    def compact(self, expired_ms: int, settled_ms: int | None = None) -> int:
        """Erase records that a later one of the same key supersedes, and old tombstones; return how many went.

        expired_ms: tombstones from before this time go, milliseconds since 1970.
        settled_ms: records from after this time supersede nothing yet, milliseconds since 1970; None for all do.

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
                # A newer record supersedes nothing yet, and is not superseded either.
                if settled_ms is None or frame.timestamp_ms <= settled_ms:
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
                    kept.append(encode_frame(frame.offset, frame.timestamp_ms, key, value, headers))
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
