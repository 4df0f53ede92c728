"""Records as checksummed frames in a file.

A frame is a header (magic, body length, offset, timestamp, CRC of the body, CRC of the header itself) and a body
(msgpack: key, value, headers). The header's own CRC tells a torn write, which ends too early, from damage: a length
can be believed before its body is there.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgpack

from streamtopic.errors import StateCorrupt
from streamtopic.streams.base import Headers

__all__ = ["Frame", "encode_frame", "frames"]

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
