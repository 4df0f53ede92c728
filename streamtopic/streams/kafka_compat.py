"""Repairs of kafka-python, in one place. Each method names the version that needed it.

Sockets that 3.0.12 forgets to close are not repaired: Python closes a socket that nobody uses any more.

tests/streams/test_kafka_compat.py shows each fault in the installed version, and fails when a repair is not needed any
more.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from kafka import errors
from kafka.consumer.fetcher import Fetcher
from kafka.net.compat import KafkaNetClient
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch
from kafka.record.util import decode_varint

from streamtopic.security.tls_faults import tls_fault
from streamtopic.streams.event_log import MAX_HEADERS, Headers, Record

__all__ = [
    "REFUSED",
    "NetClient",
    "TlsRefused",
    "data_before_end",
    "give_up",
    "read_all_records",
    "records_in",
]


class TlsRefused(errors.KafkaConnectionError):  # type: ignore[misc]  # kafka-python is untyped
    """No connection is possible with these settings of TLS. Its argument is the fault and the remedy."""


REFUSED = (
    errors.AuthorizationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
"""Errors with which a broker refuses a user."""


class NetClient(KafkaNetClient):  # type: ignore[misc]  # kafka-python is untyped
    """The network of one client."""

    def __init__(self, **configuration: Any) -> None:  # noqa: ANN401 - kafka-python's arguments
        super().__init__(**configuration)
        self._open = self._manager.get_connection
        self._manager.get_connection = self._watched
        self._build = self._manager._build_transport
        self._manager._build_transport = self._built

    def connection_delay(self, node_id: object) -> float:
        """Return milliseconds, as a producer expects: 3.0.12 gives seconds, and the producer spins."""
        return 1000.0 * float(super().connection_delay(node_id))

    def _watched(self, node_id: object, **options: Any) -> Any:  # noqa: ANN401 - as above
        connection = self._open(node_id, **options)
        connection.init_future.add_errback(lambda error: self._note(node_id, error))
        return connection

    def _note(self, node_id: object, error: Exception) -> None:
        """Keep a refusal, so that the next attempt raises it. 3.0.12 only logs it, and goes on looking for a broker."""
        fault = tls_fault(error)
        if fault is not None:
            # The error itself loses its cause where it is raised again.
            error = TlsRefused(fault)
        if isinstance(error, (*REFUSED, TlsRefused)) and not self._manager.bootstrapped:
            # Not at once: 3.0.12 forgets what it noted, since it takes a connection that cannot begin for one that has.
            self._net.call_soon(lambda: self._manager._auth_failures.update({node_id: error}))

    async def _built(self, *place: Any, timeout_at: float) -> Any:  # noqa: ANN401 - as above
        """Return a transport that keeps the last answer of a broker: 3.0.12 drops it if the end follows at once.

        It is given up at `timeout_at`, monotonic seconds: 3.0.12 waits for a handshake of TLS for ever.
        """
        making = self._manager.call_soon(lambda: self._build(*place, timeout_at=timeout_at))
        transport = await self._manager.wait_for(making, 1000.0 * max(timeout_at - time.monotonic(), 0.0))
        transport._sock_recv = data_before_end(transport._sock_recv, plain=not self._manager.ssl_enabled)
        return transport


def give_up(client: Any, **limits: Any) -> None:  # noqa: ANN401 - a client of kafka-python, and arguments of its `close`
    """Close a client, whatever happens. 3.0.12 leaves its network open if a step before that fails.

    Records of a producer that are not confirmed yet are not sent any more, and its own thread closes its network.
    """
    # It is given up in any case, so an error of its end does not matter.
    with suppress(Exception):
        client._sender.force_close()
    with suppress(Exception):
        client.close(**limits)
    with suppress(Exception):
        client._client.close()


Receive = Callable[[], tuple[bytes, Exception | None]]
# A record of TLS that holds an alert. Read as the size of an answer of Kafka, it would be 353 MB.
_TLS_ALERT = b"\x15\x03"
_WITH_TLS = "it speaks TLS and this client does not: set kafka_security_protocol to SASL_SSL or SSL"


def data_before_end(receive: Receive, *, plain: bool = True) -> Receive:
    """Return a function like `receive`. An error that came together with bytes is returned by its next call instead.

    plain: whether the connection has no TLS: then it ends with TlsRefused if the other side begins with an alert of it.
    """
    held: list[Exception] = []
    begun = not plain

    def received() -> tuple[bytes, Exception | None]:
        nonlocal begun
        if held:
            return b"", held.pop()
        data, error = receive()
        if not begun and data.startswith(_TLS_ALERT):
            return b"", TlsRefused(_WITH_TLS)
        begun = begun or bool(data)
        if data and error is not None:
            held.append(error)
            error = None
        return data, error

    return received


def read_all_records(consumer: Any, answered: Callable[[], None]) -> None:  # noqa: ANN401 - kafka-python is untyped
    """Let a consumer read any record, and give all records of a batch as the value of one (`records_in`).

    answered: called for each answer about a partition, with records or without.

    3.0.12 cannot get past a header name that is not UTF-8; its bytes are replaced. Other clients also send any number
    of headers: MAX_HEADERS and one more are kept, and the decoder refuses that many. And 3.0.12 makes three objects of
    each record in turn, which takes longer than to count the words of a short text.

    A batch is decompressed as a whole: 1 MiB of gzip may become 1 GiB before a record of it is seen. So model topics
    store nothing compressed, since their broker undoes it (`TopicNames.settings`), and one that does is refused.
    """

    def answer(*about: Any, **options: Any) -> _PartitionRecords:  # noqa: ANN401 - as above
        answered()
        return _PartitionRecords(*about, **options)

    # kafka-python has no public way to its decoder.
    consumer._fetcher.PartitionRecords = answer


def records_in(found: Sequence[Any], offset: int) -> list[Record]:
    """Return the records from an offset on, of one partition, in what the poll of such a consumer has found."""
    batches = [batch.value for batch in found]
    # Only the first batch can begin before the offset that was asked for.
    if batches and batches[0] and batches[0][0].offset < offset:
        batches[0] = [record for record in batches[0] if record.offset >= offset]
    return list(chain.from_iterable(batches))


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # kafka-python is untyped
    """An answer of a broker for one partition."""

    def __init__(self, fetch_offset: int, tp: Any, records: Any, **options: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(fetch_offset, tp, _Batches(records, tp), **options)


class _Batches:
    """The batches of an answer. place: topic and partition."""

    def __init__(self, records: Any, place: Any) -> None:  # noqa: ANN401 - as above
        self._records, self._place = records, place

    def next_batch(self) -> Any:  # noqa: ANN401 - as above
        batch = self._records.next_batch()
        if batch is None:
            return None
        # The format before Kafka 0.11 has no batches, and its own ways of compression.
        if type(batch) is not DefaultRecordBatch or batch.compression_type != batch.CODEC_NONE:
            raise errors.UnsupportedCodecError(f"offset {batch.base_offset} of {self._place.topic}/{self._place[1]}")
        return _Batch(batch._buffer, self._place)


class _Batch(DefaultRecordBatch):  # type: ignore[misc]  # kafka-python is untyped
    """A batch that is one record for kafka-python: its offset is that of the end, its value are all records."""

    __slots__ = ("_place",)

    def __init__(self, buffer: bytearray, place: Any) -> None:  # noqa: ANN401 - as above
        super().__init__(buffer)
        self._place = place

    def __iter__(self) -> Iterator[Any]:
        try:
            records = self._whole()
        except (ValueError, IndexError) as error:
            raise errors.CorruptRecordError(f"the batch of offset {self.base_offset}: {error!r}") from error
        about = self.size_in_bytes, self.last_offset, self.max_timestamp, self.timestamp_type
        yield DefaultRecord(*about, None, records, ())

    def _whole(self) -> list[Record]:
        """Return all records of the batch."""
        topic, partition = self._place
        base, moment, records = self.base_offset, self.first_timestamp, list[Record]()
        stamped = self.timestamp_type == self.LOG_APPEND_TIME
        buffer, at = bytes(self._buffer), self._pos
        for _ in range(self.records_count):
            length, at = decode_varint(buffer, at)
            end = at + length
            # One byte of attributes, which say nothing yet.
            later, at = decode_varint(buffer, at + 1)
            place, at = decode_varint(buffer, at)
            size, at = decode_varint(buffer, at)
            # Written out, not in a function of its own, since this runs for every record.
            key, at = (buffer[at : at + size], at + size) if size >= 0 else (None, at)
            size, at = decode_varint(buffer, at)
            value, at = (buffer[at : at + size], at + size) if size >= 0 else (None, at)
            number, at = decode_varint(buffer, at)
            headers, at = _headers(buffer, at, number) if number else ((), at)
            # After too many headers the others are passed over, unread.
            if number > MAX_HEADERS and at <= end:
                at = end
            if at != end:
                raise errors.CorruptRecordError(f"a record of {length} bytes ends {at - end} bytes after its end")
            time_ms = self.max_timestamp if stamped else moment + later
            records.append(Record(topic, partition, base + place, key, value, headers, time_ms, stamped))
        if at != len(buffer):
            raise errors.CorruptRecordError(f"a batch of {len(buffer)} bytes has records of {at}")
        return records


def _headers(buffer: bytes, at: int, number: int) -> tuple[Headers, int]:
    """Return the headers, at most MAX_HEADERS + 1 of `number`, and the place after them."""
    if number < 0:
        raise errors.CorruptRecordError(f"a record with {number} headers")
    found = list[tuple[str, bytes]]()
    for _ in range(min(number, MAX_HEADERS + 1)):
        size, at = decode_varint(buffer, at)
        if size < 0:
            raise errors.CorruptRecordError("a header without a name")
        name = buffer[at : at + size].decode(errors="replace")
        at += size
        size, at = decode_varint(buffer, at)
        # A header may have no value.
        size = max(size, 0)
        found.append((name, buffer[at : at + size]))
        at += size
    return tuple(found), at
