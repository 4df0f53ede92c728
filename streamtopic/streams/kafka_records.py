"""Reading records that kafka-python cannot read: any names and numbers of headers. Compressed ones are refused.

kafka-python decompresses a batch as a whole: 1 MiB of gzip may become 1 GiB before a record of it is seen. So topics of
a model store nothing compressed, since their broker undoes it (`TopicNames.settings`), and one that does is refused.

Other clients send any bytes as the name of a header. kafka-python cannot read a name that is not UTF-8, and cannot get
past it. They also send any number of headers: MAX_HEADERS and one more are kept, and the decoder refuses that many.
"""

from typing import Any

from kafka import errors
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import ControlRecord, DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint

from streamtopic.streams.event_log import MAX_HEADERS

__all__ = ["read_all_records"]


def read_all_records(consumer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Let a consumer read any record. Bytes of header names that are not UTF-8 are replaced."""
    # kafka-python has no public way to its decoder.
    consumer._fetcher.PartitionRecords = _PartitionRecords  # noqa: SLF001


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python is untyped
    """An answer of a broker for one partition."""

    def __init__(self, fetch_offset: int, tp: Any, records: Any, **options: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(fetch_offset, tp, _Batches(records, f"{tp.topic}/{tp.partition}"), **options)


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
            raise errors.UnsupportedCodecError(f"offset {batch.base_offset} of {self._place}")
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
