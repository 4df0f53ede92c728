"""Reading records that kafka-python cannot read: compressed ones in bounded memory, and any names of headers.

kafka-python decompresses a batch as a whole: 1 MiB of gzip may become 1 GiB before a record of it is seen. Here a batch
is decompressed while its records are read, and a record longer than RECORD_BYTES is cut to this length. A record is cut
and never left out, since its key says which document it replaces or deletes.

Other clients send any bytes as the name of a header. kafka-python cannot read a name that is not UTF-8, and cannot get
past it. They also send any number of headers: MAX_HEADERS and one more are kept, and the decoder refuses that many.
"""

import gzip
import io
import logging
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from kafka import codec, errors
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import ControlRecord, DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint

from streamtopic.streams.event_log import MAX_HEADERS, Headers

__all__ = ["RECORD_BYTES", "cut_record", "read_all_records"]

RECORD_BYTES = 4 << 20
"""Length to which a longer record is cut; the documents topic takes no longer ones."""

_VALUE_BYTES = RECORD_BYTES + 1
"""Bytes to which a value is cut: one more than a value may have, so that it is refused for its size."""

_KEY_BYTES = 64 << 10
_HEADER_BYTES = 64 << 10
# Bytes of the records of one partition in one poll: a batch may decompress into thousands of the longest records.
_TAKEN_BYTES = 8 << 20
_PIECE = 256 << 10

# A batch: offset, length of the rest, epoch, magic number, checksum, attributes.
_HEADER = struct.Struct(">8xi4xb4xh")
_BEFORE = 12
_MAGIC = 2

logger = logging.getLogger("streamtopic.streams")


def read_all_records(consumer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Let a consumer read any record, in bounded memory. Bytes of header names that are not UTF-8 are replaced."""
    # kafka-python has no public way to its decoder.
    consumer._fetcher.PartitionRecords = partial(_PartitionRecords, consumer.pause)  # noqa: SLF001


def cut_record(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[bytes | None, bytes | None, Headers]:
    """Return a record that is too long, cut. A tombstone stays a tombstone, and a value stays a value."""
    kept = list[tuple[str, bytes]]()
    size = 0
    for name, content in headers:
        size += len(name) + len(content)
        if size > _HEADER_BYTES:
            break
        kept.append((name, content))
    return key and key[:_KEY_BYTES], value and value[:_VALUE_BYTES], tuple(kept)


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python is untyped
    """An answer of a broker for one partition, as its records are taken.

    pause: pauses a partition of the consumer.
    """

    def __init__(
        self,
        pause: Callable[[Any], None],
        fetch_offset: int,
        tp: Any,  # noqa: ANN401 - as above
        records: Any,  # noqa: ANN401 - as above
        **options: Any,  # noqa: ANN401 - as above
    ) -> None:
        super().__init__(fetch_offset, tp, _Batches(records, f"{tp.topic}/{tp.partition}"), **options)
        self._pause = pause
        self._folded = _holds_folded(records._buffer)  # noqa: SLF001 - as above

    def take(self, n: int | None = None) -> list[Any]:
        """Return the next records, at most n, and no more once they hold _TAKEN_BYTES."""
        if not self._folded:
            # Without compression the fetch has bounded them; to look at each would cost a tenth of reading it.
            found: list[Any] = super().take(n)
            return found
        self._maybe_raise_next_inline_exception()
        taken: list[Any] = []
        size = 0
        try:
            for record in self.record_iterator:
                taken.append(record)
                size += max(record.serialized_value_size, 0) + max(record.serialized_header_size, 0)
                if len(taken) == n:
                    break
                if size >= _TAKEN_BYTES:
                    # The fetcher would ask again until it has n records; for a paused partition it keeps the rest.
                    self._pause(self.topic_partition)
                    break
        except Exception as error:
            # Records before the damaged one are given out first; the error then comes with the next call.
            if not taken:
                raise
            self._next_inline_exception = error
        return taken


def _holds_folded(data: bytes) -> bool:
    """Return whether a batch of an answer is compressed."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, magic, attributes = _HEADER.unpack_from(data, at)
        if magic >= _MAGIC and attributes & DefaultRecordBatch.CODEC_MASK:
            return True
        at += _BEFORE + length
    return False


class _Batches:
    """The batches of an answer, each as a class that reads any record. place: topic and partition, for errors."""

    def __init__(self, records: Any, place: str) -> None:  # noqa: ANN401 - as above
        self._records = records
        self._place = place

    def next_batch(self) -> Any:  # noqa: ANN401 - as above
        batch = self._records.next_batch()
        if type(batch) is not DefaultRecordBatch:
            return batch
        if batch.compression_type != batch.CODEC_NONE:
            return _FoldedBatch(batch._buffer, self._place)  # noqa: SLF001 - it has no public access to its bytes
        # Not a new object: the header of this one is parsed already.
        batch.__class__ = _Batch
        return batch


class _Batch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python is untyped
    """A batch whose records may have any headers."""

    __slots__ = ()
    _buffer: Any
    _pos: int

    def _read_msg(self) -> Any:  # noqa: ANN401 - as above
        buffer = self._buffer
        length, start = decode_varint(buffer, self._pos)
        # One byte of attributes, which say nothing yet.
        moment, at = decode_varint(buffer, start + 1)
        place, at = decode_varint(buffer, at)
        size, at = decode_varint(buffer, at)
        # Written out, not in a function of its own, since this runs for every record.
        key, at = (bytes(buffer[at : at + size]), at + size) if size >= 0 else (None, at)
        size, at = decode_varint(buffer, at)
        value, at = (bytes(buffer[at : at + size]), at + size) if size >= 0 else (None, at)
        number, at = decode_varint(buffer, at)
        headers, at = self._headers(number, at) if number else ([], at)
        end = start + length
        # After too many headers the others are passed over, unread.
        if number > MAX_HEADERS and at <= end <= len(buffer):
            at = end
        if at != end:
            raise errors.CorruptRecordError(f"a record of {length} bytes ends {at - end} bytes after its end")
        self._pos = end  # type: ignore[misc]  # its slot is in a class that mypy does not know
        stamped = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp = self.max_timestamp if stamped else self.first_timestamp + moment
        kind = ControlRecord if self.is_control_batch else DefaultRecord
        return kind(length, self.base_offset + place, timestamp, self.timestamp_type, key, value, headers)

    def _headers(self, number: int, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
        """Return the headers, at most MAX_HEADERS + 1 of `number`, and the place after them."""
        if number < 0:
            raise errors.CorruptRecordError(f"a record with {number} headers")
        buffer = self._buffer
        found = list[tuple[str, bytes | None]]()
        for _ in range(min(number, MAX_HEADERS + 1)):
            size, at = decode_varint(buffer, at)
            if size < 0:
                raise errors.CorruptRecordError("a header without a name")
            name = bytes(buffer[at : at + size]).decode(errors="replace")
            at = at + size
            size, at = decode_varint(buffer, at)
            content, at = (bytes(buffer[at : at + size]), at + size) if size >= 0 else (None, at)
            found.append((name, content))
        return found, at


class _FoldedBatch(_Batch):
    """A compressed batch. One record at a time is held decompressed."""

    __slots__ = ("_place", "_stream")

    def __init__(self, buffer: bytes, place: str) -> None:
        super().__init__(buffer)
        self._place = place
        self._stream: _Unfolded | None = None

    def __iter__(self) -> "Iterator[Any]":
        if self._stream is None:
            self._assert_has_codec(self.compression_type)
            folded = bytes(memoryview(self._buffer)[self._pos :])
            self._stream = _Unfolded(_CODECS[self.compression_type](folded))
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - as above
        stream = self._stream
        if stream is None or self._next_record_index >= self._num_records:
            raise StopIteration
        try:
            before, length = stream.varint()
            if length <= RECORD_BYTES:
                self._buffer = bytearray(before + stream.read(length))
                self._pos = 0  # type: ignore[misc]  # as above
                record = self._read_msg()
            else:
                record = self._cut(stream, length)
        except (ValueError, IndexError, OSError, EOFError, struct.error) as error:
            raise errors.CorruptRecordError(
                f"a compressed batch of {self._place} cannot be decompressed: {error!r}"
            ) from error
        self._next_record_index += 1
        return record

    def _cut(self, stream: "_Unfolded", length: int) -> DefaultRecord:
        """Return a record with the first bytes of key, value and headers, and pass over the rest.

        length: of the record, bytes.
        """
        end = stream.position + length
        stream.read(1)
        moment = stream.varint()[1]
        place = stream.varint()[1]
        stamped = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp = self.max_timestamp if stamped else self.first_timestamp + moment
        key = stream.field(_KEY_BYTES)
        value = stream.field(_VALUE_BYTES)
        headers = list[tuple[str, bytes]]()
        left = _HEADER_BYTES
        number = stream.varint()[1]
        for _ in range(min(number, MAX_HEADERS + 1)):
            name = stream.field(left) or b""
            content = stream.field(left) or b""
            left -= len(name) + len(content)
            if left <= 0:
                break
            headers.append((name.decode(errors="replace"), content))
        stream.skip(end - stream.position)
        offset = self.base_offset + place
        logger.warning(
            "record %d of %s has %d bytes decompressed: it is cut to %d",
            offset,
            self._place,
            length,
            RECORD_BYTES,
            extra={"event": "record_cut", "offset": offset, "bytes": length},
        )
        return DefaultRecord(length, offset, timestamp, self.timestamp_type, key, value, headers)


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Unfolded:
    """The decompressed bytes of a batch, as far as they were asked for.

    position: number of bytes that were read or skipped.
    """

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._piece = b""
        self._at = 0
        self.position = 0

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes. Raises EOFError if there are fewer."""
        at = self._at
        stop = self._at + size
        if size >= 0 and stop <= len(self._piece):
            self._at, self.position = stop, self.position + size
            return self._piece[at:stop]
        return b"".join(self._pieces(size))

    def skip(self, size: int) -> None:
        """Pass over exactly `size` bytes. Raises as `read`."""
        for _ in self._pieces(size):
            pass

    def varint(self) -> tuple[bytes, int]:
        """Return a number in zigzag form: its bytes, and its value."""
        found, number = b"", 0
        for shift in range(0, 70, 7):
            byte = self.read(1)
            found += byte
            number |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return found, (number >> 1) ^ -(number & 1)
        raise ValueError("a number of more than ten bytes")

    def field(self, limit: int) -> bytes | None:
        """Return the first `limit` bytes of a field with its length before it; None for a length below 0."""
        length = self.varint()[1]
        if length < 0:
            return None
        kept = self.read(min(length, limit))
        self.skip(length - len(kept))
        return kept

    def _pieces(self, size: int) -> Iterator[bytes]:
        if size < 0:
            raise ValueError(f"a length of {size} bytes")
        while size:
            if self._at == len(self._piece):
                self._piece = self._source.read(_PIECE)
                self._at = 0
                if not self._piece:
                    raise EOFError(f"it ends {size} bytes too early")
            part = self._piece[self._at : self._at + size]
            self._at += len(part)
            self.position += len(part)
            size -= len(part)
            yield part


def _gzip(folded: bytes) -> _Source:
    return gzip.GzipFile(fileobj=io.BytesIO(folded), mode="rb")


def _zstd(folded: bytes) -> _Source:
    found: _Source = codec.zstd.ZstdDecompressor().stream_reader(io.BytesIO(folded), read_across_frames=True)
    return found


def _lz4(folded: bytes) -> _Source:
    if codec.lz4 is None:
        raise errors.UnsupportedCodecError("lz4f and lz4framed cannot decompress step by step: install lz4")
    found: _Source = codec.lz4.LZ4FrameFile(io.BytesIO(folded))
    return found


class _Snappy:
    """Blocks of snappy, one at a time. A block grows to about twenty times its length at most."""

    # Xerial's framing: a magic number, two version numbers, then blocks with their length before them.
    _MAGIC = b"\x82SNAPPY\x00"
    _HEADER = 16

    def __init__(self, folded: bytes) -> None:
        self._folded = folded
        self._framed = folded.startswith(self._MAGIC)
        self._at = self._HEADER if self._framed else 0

    def read(self, _size: int) -> bytes:
        """Return the next block, however long."""
        while self._at < len(self._folded):
            start = self._at
            stop = len(self._folded)
            if self._framed:
                (length,) = struct.unpack_from(">I", self._folded, start)
                start, stop = start + 4, start + 4 + length
            self._at = stop
            block = bytes(codec.snappy.decompress(self._folded[start:stop]))
            # An empty answer would mean the end of the batch.
            if block:
                return block
        return b""


_CODECS: dict[int, Callable[[bytes], _Source]] = {
    DefaultRecordBatch.CODEC_GZIP: _gzip,
    DefaultRecordBatch.CODEC_SNAPPY: _Snappy,
    DefaultRecordBatch.CODEC_LZ4: _lz4,
    DefaultRecordBatch.CODEC_ZSTD: _zstd,
}
