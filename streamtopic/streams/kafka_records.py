"""Records whose header names are no UTF-8, which kafka-python cannot read, and cannot get past.

Other clients send any bytes as a header's name. One such record would stop its partition for ever.
"""

from typing import Any, SupportsIndex

from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch

__all__ = ["read_any_header"]


def read_any_header(consumer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Let this consumer read such names with the replacement character in place of what is wrong."""
    consumer._fetcher.PartitionRecords = _PartitionRecords  # noqa: SLF001 - nothing public reaches the decoder


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python is untyped
    def __init__(self, fetch_offset: int, tp: Any, records: Any, **options: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(fetch_offset, tp, _Batches(records), **options)


class _Batches:
    def __init__(self, records: Any) -> None:  # noqa: ANN401 - as above
        self._records = records

    def next_batch(self) -> Any:  # noqa: ANN401 - as above
        batch = self._records.next_batch()
        if type(batch) is DefaultRecordBatch:
            batch.__class__ = _Batch
        return batch


class _Batch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python is untyped
    __slots__ = ()
    _buffer: Any

    def _read_msg(self) -> Any:  # noqa: ANN401 - as above
        try:
            return super()._read_msg()
        except UnicodeDecodeError:
            # Reading has not moved on; the rest of the batch is read as tolerantly.
            self._buffer = _Tolerant(self._buffer)
            return super()._read_msg()


class _Tolerant(bytearray):
    def __getitem__(self, place: SupportsIndex | slice) -> Any:  # noqa: ANN401 - a number, or the same of a part
        found = super().__getitem__(place)
        return type(self)(found) if isinstance(found, bytearray) else found

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)
