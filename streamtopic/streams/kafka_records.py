"""Records as kafka-python cannot read them: compressed ones in bounded memory, and header names that are no UTF-8.

kafka-python unfolds a compressed batch as a whole: 1 MiB of gzip may become 1 GiB before anybody sees a record of it.
Here a batch is unfolded while its records are read, and a record that is longer than RECORD_BYTES is cut to it. A
record is cut and never left out: its key says which document it replaces or deletes.
Other clients send any bytes as a header's name. kafka-python cannot read one that is no UTF-8, and cannot get past it.
They also send any number of headers: of more than MAX_HEADERS, one more is kept, so that what decodes sees that.
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
"""Length past which a record is cut: the documents topic takes none that are longer."""

_VALUE_BYTES = RECORD_BYTES + 1
"""What is kept of a value: one byte more than any value may have, so that what was cut is refused for its size."""


_KEY_BYTES = 64 << 10
_HEADER_BYTES = 64 << 10
# Records of one partition that are taken in one go: a batch may unfold into thousands of the longest ones.
_TAKEN_BYTES = 8 << 20
_PIECE = 256 << 10

# A batch: offset, length of what follows, epoch, magic number, checksum, attributes.
_HEADER = struct.Struct(">8xi4xb4xh")
_BEFORE = 12
_MAGIC = 2

logger = logging.getLogger("streamtopic.streams")


def read_all_records(consumer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Let this consumer read any record: in bounded memory, and with what is wrong in header names replaced."""
    # Nothing public reaches the decoder.
    consumer._fetcher.PartitionRecords = partial(_PartitionRecords, consumer.pause)  # noqa: SLF001


def cut_record(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[bytes | None, bytes | None, Headers]:
    """Return a record cut to what a reader keeps of one that is too long. Whether it has a value stays as it is."""
    kept, size = list[tuple[str, bytes]](), 0
    for name, content in headers:
        size += len(name) + len(content)
        if size > _HEADER_BYTES:
            break
        kept.append((name, content))
    return key and key[:_KEY_BYTES], value and value[:_VALUE_BYTES], tuple(kept)


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python is untyped
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
        """Return the next records: at most n, and no more once they hold _TAKEN_BYTES."""
        if not self._folded:
            # What came unfolded is no more than was fetched. To look at each record would cost a tenth of its reading.
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
                    # The fetcher would ask again until it has n records; of a paused partition it keeps the rest.
                    self._pause(self.topic_partition)
                    break
        except Exception as error:
            if not taken:
                raise
            self._next_inline_exception = error
        return taken


def _holds_folded(data: bytes) -> bool:
    """Whether one of the batches in an answer is compressed."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, magic, attributes = _HEADER.unpack_from(data, at)
        if magic >= _MAGIC and attributes & DefaultRecordBatch.CODEC_MASK:
            return True
        at += _BEFORE + length
    return False


class _Batches:
    def __init__(self, records: Any, place: str) -> None:  # noqa: ANN401 - as above
        self._records = records
        self._place = place

    def next_batch(self) -> Any:  # noqa: ANN401 - as above
        batch = self._records.next_batch()
        if type(batch) is not DefaultRecordBatch:
            return batch
        if batch.compression_type != batch.CODEC_NONE:
            return _FoldedBatch(batch._buffer, self._place)  # noqa: SLF001 - it has no public access to its bytes
        batch.__class__ = _Batch
        return batch


class _Batch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python is untyped
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
        key, at = (bytes(buffer[at : at + size]), at + size) if size >= 0 else (None, at)
        size, at = decode_varint(buffer, at)
        value, at = (bytes(buffer[at : at + size]), at + size) if size >= 0 else (None, at)
        number, at = decode_varint(buffer, at)
        headers, at = self._headers(number, at) if number else ([], at)
        end = start + length
        if number > MAX_HEADERS and at <= end <= len(buffer):
            at = end
        if at != end:
            raise errors.CorruptRecordError(f"a record of {length} bytes ends {at - end} bytes behind its end")
        self._pos = end  # type: ignore[misc]  # its slot is in a class that mypy does not know
        stamped = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp = self.max_timestamp if stamped else self.first_timestamp + moment
        kind = ControlRecord if self.is_control_batch else DefaultRecord
        return kind(length, self.base_offset + place, timestamp, self.timestamp_type, key, value, headers)

    def _headers(self, number: int, at: int) -> tuple[list[tuple[str, bytes | None]], int]:
        """Return the headers, `number` of them and MAX_HEADERS + 1 at most, and where they end."""
        if number < 0:
            raise errors.CorruptRecordError(f"a record with {number} headers")
        buffer, found = self._buffer, list[tuple[str, bytes | None]]()
        for _ in range(min(number, MAX_HEADERS + 1)):
            size, at = decode_varint(buffer, at)
            if size < 0:
                raise errors.CorruptRecordError("a header without a name")
            name, at = bytes(buffer[at : at + size]).decode(errors="replace"), at + size
            size, at = decode_varint(buffer, at)
            content, at = (bytes(buffer[at : at + size]), at + size) if size >= 0 else (None, at)
            found.append((name, content))
        return found, at


class _FoldedBatch(_Batch):
    """A compressed batch. Of what it unfolds into, one record is held at a time."""

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
                f"a compressed batch of {self._place} cannot be unfolded: {error!r}"
            ) from error
        self._next_record_index += 1
        return record

    def _cut(self, stream: "_Unfolded", length: int) -> DefaultRecord:
        """Read the beginning of key, value and headers, and pass over the rest."""
        end = stream.position + length
        stream.read(1)
        moment, place = stream.varint()[1], stream.varint()[1]
        stamped = self.timestamp_type == self.LOG_APPEND_TIME
        timestamp = self.max_timestamp if stamped else self.first_timestamp + moment
        key = stream.field(_KEY_BYTES)
        value = stream.field(_VALUE_BYTES)
        headers, left = list[tuple[str, bytes]](), _HEADER_BYTES
        for _ in range(min(stream.varint()[1], MAX_HEADERS + 1)):
            name, content = stream.field(left), stream.field(left)
            left -= len(name or b"") + len(content or b"")
            if left <= 0:
                break
            headers.append(((name or b"").decode(errors="replace"), content or b""))
        stream.skip(end - stream.position)
        offset = self.base_offset + place
        logger.warning(
            "record %d of %s unfolds into %d bytes: it is cut to %d",
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
    """What a compressed batch unfolds into, as far as it was asked for. position: bytes that were read or skipped."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._piece = b""
        self._at = 0
        self.position = 0

    def read(self, size: int) -> bytes:
        """Return exactly `size` bytes. Raises EOFError where there are fewer."""
        at, stop = self._at, self._at + size
        if size >= 0 and stop <= len(self._piece):
            self._at, self.position = stop, self.position + size
            return self._piece[at:stop]
        return b"".join(self._pieces(size))

    def skip(self, size: int) -> None:
        """Pass over exactly `size` bytes. Raises as `read`."""
        for _ in self._pieces(size):
            pass

    def varint(self) -> tuple[bytes, int]:
        """Return a number in zigzag form: its bytes, and what it says."""
        found, number = b"", 0
        for shift in range(0, 70, 7):
            byte = self.read(1)
            found += byte
            number |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return found, (number >> 1) ^ -(number & 1)
        raise ValueError("a number without an end")

    def field(self, limit: int) -> bytes | None:
        """Return a field with its length before it, None for none; at most its first `limit` bytes."""
        length = self.varint()[1]
        if length < 0:
            return None
        kept = self.read(min(length, limit))
        self.skip(length - len(kept))
        return kept

    def _pieces(self, size: int) -> Iterator[bytes]:
        if size < 0:
            raise ValueError("a length below zero")
        while size:
            if self._at == len(self._piece):
                self._piece, self._at = self._source.read(_PIECE), 0
                if not self._piece:
                    raise EOFError("it ends too early")
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
        raise errors.UnsupportedCodecError("lz4f and lz4framed cannot unfold step by step: install lz4")
    found: _Source = codec.lz4.LZ4FrameFile(io.BytesIO(folded))
    return found


class _Snappy:
    """Blocks of snappy, one at a time: a block unfolds into some twenty times its length at most."""

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
            start, stop = self._at, len(self._folded)
            if self._framed:
                (length,) = struct.unpack_from(">I", self._folded, start)
                start, stop = start + 4, start + 4 + length
            self._at = stop
            if block := bytes(codec.snappy.decompress(self._folded[start:stop])):
                return block
        return b""


_CODECS: dict[int, Callable[[bytes], _Source]] = {
    DefaultRecordBatch.CODEC_GZIP: _gzip,
    DefaultRecordBatch.CODEC_SNAPPY: _Snappy,
    DefaultRecordBatch.CODEC_LZ4: _lz4,
    DefaultRecordBatch.CODEC_ZSTD: _zstd,
}
