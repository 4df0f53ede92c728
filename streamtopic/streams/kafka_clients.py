"""Kafka's clients. All are made, repeated and closed in the same way.

SharedClient  a client for several threads
Writer        records: confirmed by all replicas, once, and in order within each partition
TopicReader   reads the partitions of a topic from any offset, in order, some megabytes at a time

Errors of kafka-python become this package's here (`mapped`).
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors

from streamtopic.errors import (
    ComponentUnreachable,
    SettingsError,
    StateCorrupt,
    StateMismatch,
    StreamtopicError,
    UsageError,
)
from streamtopic.security.tls_faults import tls_fault
from streamtopic.streams.event_log import EventLog, Message, Record, check_offset, within
from streamtopic.streams.kafka_compat import REFUSED, NetClient, TlsRefused, give_up, read_all_records, records_in
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["TRANSIENT", "SharedClient", "TopicReader", "Writer", "connect", "consumer_of", "mapped", "retried"]

T = TypeVar("T")
_REQUEST_MS = 10_000
_BOOTSTRAP_MS = 5_000
# Errors that may pass by themselves: a broker restarts, a leader moves, a connection breaks.
TRANSIENT = (
    errors.RetriableError,
    errors.BrokerNotAvailableError,
    errors.InvalidReceiveError,
    errors.UnknownBrokerIdError,
    errors.IncompatibleBrokerVersion,
    OSError,
)

logger = logging.getLogger("streamtopic.streams")


def mapped(error: Exception, options: KafkaOptions, right: str = "") -> StreamtopicError:
    """Return this package's error for one of kafka-python's, with the remedy.

    right: the right that the call needs, such as "Read of topic t".
    """
    servers = options.servers
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    refusal = error if isinstance(error, StreamtopicError) else _refusal(error, options, text, right)
    if refusal is not None:
        return refusal
    match error:
        case errors.UnsupportedCodecError():
            return StateMismatch(
                f"Kafka at {servers} holds records that are compressed, or older than Kafka 0.11 ({text}), and a small "
                "one may unfold into gigabytes: set compression.type of the topic to `uncompressed` (`streamtopic "
                "init`), send their documents again, and delete the old records (kafka-delete-records.sh)"
            )
        case errors.CorruptRecordError():
            return StateCorrupt(f"Kafka at {servers} gave a damaged record ({text}): check the disks of its brokers")
        case errors.OffsetOutOfRangeError() | errors.LogTruncationError():
            return StateMismatch(
                f"Kafka at {servers} no longer holds the next record ({text}): its log was shortened; run `streamtopic "
                "rebuild`"
            )
        case errors.KafkaTimeoutError() if right.startswith("Write"):
            # kafka-python does not say why a record was not confirmed.
            return ComponentUnreachable(
                f"Kafka at {servers} does not answer, or has too few replicas in sync ({text}): start its brokers, or "
                "compare min.insync.replicas (`streamtopic doctor` does)"
            )
        case _:
            return ComponentUnreachable(
                f"Kafka at {servers} does not answer ({text}): start it, or correct its address or protocol"
            )


def _refusal(error: Exception, options: KafkaOptions, text: str, right: str) -> SettingsError | None:
    """Return the error of a user or a client that is refused; None if it is not."""
    servers = options.servers
    fault = error.args[0] if isinstance(error, TlsRefused) else tls_fault(error)
    if fault is not None:
        return SettingsError(f"Kafka at {servers} cannot be reached safely; {fault}")
    told = f"Kafka at {servers} refuses this user ({text})"
    # A producer without any right to write gets an error of another class, whose text names the reason.
    if isinstance(error, errors.AuthorizationError) or "AuthorizationFailed" in text:
        user = options.sasl_username or "it"
        return SettingsError(f"{told}; {user} lacks the right {right}: give it by a rule (deploy/kafka-acls.sh)")
    if isinstance(error, REFUSED):
        settings = "kafka_sasl_username, kafka_sasl_password and kafka_sasl_mechanism"
        return SettingsError(f"{told}: check {settings}")
    return None


def connect(kind: Callable[..., T], options: KafkaOptions, **arguments: Any) -> T:  # noqa: ANN401 - kafka-python's arguments
    """Return a client of kafka-python that is ready.

    kind: KafkaConsumer, KafkaProducer or KafkaAdminClient.
    arguments: of its constructor, besides those that follow from the options.

    Raises kafka-python's own errors.
    """
    # A constructor that fails leaves a thread that tries to connect for ever, unless its network is closed.
    made: list[Any] = []

    def client(**configuration: Any) -> Any:  # noqa: ANN401 - as above
        made.append(NetClient(**configuration))
        return made[-1]

    patience_ms = int(options.patience * 1000)
    limits = {
        "request_timeout_ms": min(_REQUEST_MS, patience_ms),
        "bootstrap_timeout_ms": min(_BOOTSTRAP_MS, patience_ms),
        "reconnect_backoff_max_ms": 1000,
    }
    try:
        return kind(kafka_client=client, **options.client(), **limits, **arguments)
    except BaseException:
        for network in made:
            with suppress(Exception):
                network.close()
        raise


def retried(call: Callable[[], T], options: KafkaOptions, right: str = "") -> T:
    """Return the result of a function, which is called again while its errors may pass by themselves.

    call: may safely be called twice.
    right: that the call needs, for the error of a user who lacks it.

    Raises StreamtopicError, after `options.patience` at the latest.
    """
    deadline = time.monotonic() + options.patience
    pause = 0.05
    while True:
        try:
            return call()
        except (*TRANSIENT, errors.KafkaError, RuntimeError, ValueError) as error:
            refused = isinstance(error, (*REFUSED, TlsRefused))
            lasting = refused or tls_fault(error)
            passing = isinstance(error, TRANSIENT) and not lasting
            if not passing or time.monotonic() + pause > deadline:
                raise mapped(error, options, right) from error
            extra = {"event": "kafka_retried"}
            logger.debug("Kafka at %s: %s; trying again", options.servers, error, extra=extra)
        time.sleep(pause)
        pause = min(2 * pause, 1.0)


class SharedClient:
    """A client for several threads, which use it in turn. It is made when it is first needed, and again after an error.

    A client that failed may hold a broken connection for as long as it lives, or refuse everything.

    make: returns the client.
    limits: arguments of its `close`.
    """

    def __init__(self, make: Callable[[], Any], **limits: Any) -> None:  # noqa: ANN401 - kafka-python's arguments
        self._make, self._limits = make, limits
        self._client: Any = None
        self._mutex = threading.Lock()

    def ask(self, question: Callable[[Any], T]) -> T:
        """Return what a function of the client returns."""
        with self._mutex:
            if self._client is None:
                self._client = self._make()
            try:
                return question(self._client)
            except BaseException:
                self._discard()
                raise

    def close(self) -> None:
        """Give the connection back."""
        with self._mutex:
            self._discard()

    def _discard(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            give_up(client, **self._limits)


# Topics have limits of their own. This one must be above all of them, or it would decide.
_MAX_REQUEST = 16 << 20
_BATCH = 256 << 10
_OPTIONS = {
    "acks": "all",
    "enable_idempotence": True,
    "linger_ms": 0,
    "batch_size": _BATCH,
    "max_request_size": _MAX_REQUEST,
    "allow_auto_create_topics": False,
    "metrics_enabled": False,
}
_TOO_LARGE = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
_REFUSED = (*_TOO_LARGE, errors.InvalidRecordError, errors.InvalidTimestampError)


class Writer(SharedClient):
    """An idempotent producer. Nothing is pending between two calls, since every append waits for its confirmations."""

    def __init__(self, options: KafkaOptions) -> None:
        # After an error its pending records must not be sent: the caller learns of it, and may send others.
        super().__init__(self._connect, timeout=1)
        self._options = options

    def append(self, topic: str, messages: Sequence[Message], partitions: Sequence[int]) -> list[int]:
        """Append messages; return the offset of each once all are confirmed.

        partitions: of each message.

        Raises UsageError for a message that the topic does not take, ComponentUnreachable after the options' patience.
        """
        return self.ask(lambda producer: self._send(producer, topic, messages, partitions))

    def _connect(self) -> Any:  # noqa: ANN401 - kafka-python is untyped
        patience_ms = int(self._options.patience * 1000)
        limits = {**_OPTIONS, "delivery_timeout_ms": patience_ms, "max_block_ms": patience_ms}
        return retried(lambda: connect(KafkaProducer, self._options, **limits), self._options)

    def _send(
        self,
        producer: Any,  # noqa: ANN401 - as above
        topic: str,
        messages: Sequence[Message],
        partitions: Sequence[int],
    ) -> list[int]:
        futures = []
        for message, partition in zip(messages, partitions, strict=True):
            headers = list(message.headers)
            try:
                future = producer.send(topic, message.value, message.key, headers=headers, partition=partition)
                futures.append(future)
            except (errors.KafkaError, ValueError, TypeError) as error:
                raise self._explained(error, topic, message) from error
        # A record that is not confirmed by then has failed, as is found below.
        with suppress(errors.KafkaTimeoutError):
            producer.flush(self._options.patience + 10)
        pairs = zip(messages, futures, strict=True)
        failed = [(future.exception, message) for message, future in pairs if not future.succeeded()]
        if failed:
            # One bad record fails all of its batch; only its own error names the reason.
            refused = [entry for entry in failed if isinstance(entry[0], _REFUSED)]
            cause, message = (refused or failed)[0]
            fault = cause or errors.KafkaTimeoutError("not confirmed")
            raise self._explained(fault, topic, message) from cause
        return [int(future.value.offset) for future in futures]

    def _explained(self, error: Exception, topic: str, message: Message) -> StreamtopicError:
        """Return this package's error for one that a message met, with the remedy."""
        named = repr(message.key[:80]) if message.key else "without a key"
        match error:
            case _ if isinstance(error, _TOO_LARGE):
                size = len(message.key or b"") + len(message.value or b"")
                # Somebody can mend the topic while a part of the service waits.
                return SettingsError(
                    f"record {named} of {size} bytes is larger than {topic} takes: set the topic's max.message.bytes "
                    "right (`streamtopic init` does), or split the document if it is one"
                )
            case _ if isinstance(error, (*_REFUSED, ValueError, TypeError)):
                return UsageError(
                    f"{topic} does not take record {named} ({error}): a compacted topic needs a key, and records go to "
                    "partitions that exist"
                )
            case _:
                return mapped(error, self._options, f"Write of topic {topic}")


# A broker holds a request for this long if nothing is new, and the next one of the same thread waits for it.
_HOLD_MS = 200
# One answer, which is held as a whole; a longer batch comes alone.
_FETCH_BYTES = 4 << 20
# As many batches as any answer has, so that nothing of an answer is left behind in the consumer.
_POLL_RECORDS = _FETCH_BYTES
# A partition that was not read for so long belongs to another process, or was read once, to its end.
_IDLE_SECONDS = 120.0
# Answers in a row without a record. The first may be one to an earlier request, from before the end was known.
_CERTAIN = 3
# read_committed: records of an aborted transaction do not count.
_CONSUMER = {
    "group_id": None,
    "enable_auto_commit": False,
    "auto_offset_reset": "none",
    "allow_auto_create_topics": False,
    "isolation_level": "read_committed",
    "metrics_enabled": False,
    # Without sessions each answer names every partition, also without new records.
    "enable_incremental_fetch_sessions": False,
}


def consumer_of(options: KafkaOptions, answered: Callable[[], None] = lambda: None, **more: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    """Return a consumer without a group, which can read any record.

    answered: called for each answer about a partition.
    more: of its arguments.
    """
    consumer = connect(KafkaConsumer, options, **(_CONSUMER | more))
    read_all_records(consumer, answered)
    return consumer


class _Buffer:
    """The records of one partition that were fetched.

    start, position: `records` are all records of the log from `start`, where the next read begins, up to `position`.
    end: of the partition as far as it is known, -1 before it was asked for.
    used: time of the last read, seconds.
    """

    __slots__ = ("end", "position", "records", "start", "used")

    def __init__(self, start: int) -> None:
        self.start = self.position = start
        self.end = -1
        self.used = 0.0
        self.records: deque[Record] = deque()

    def put(self, found: list[Any]) -> None:
        """Append the records that a poll has found."""
        self.records += records_in(found, self.position)
        self.position = found[-1].offset + 1

    def take(self, max_records: int, max_bytes: int) -> list[Record]:
        """Remove and return the first records within both limits, at least one."""
        taken = within(self.records, max_records, max_bytes)
        for record in taken:
            self.records.popleft()
            self.start = record.next_offset
        return taken


class TopicReader:
    """Reads the partitions of a topic for one thread. Of each partition it holds one answer, about 4 MB.

    offsets: tells the first and the last offset of partitions, over another connection.
    clock: monotonic seconds.

    Raises StateMismatch for an offset that the log does not hold, and kafka-python's own errors. After these it can be
    used again.
    """

    def __init__(self, options: KafkaOptions, offsets: EventLog, topic: str, *, clock: Callable[[], float]) -> None:
        self._options, self._offsets, self._topic, self._clock = options, offsets, topic, clock
        self._consumer: Any = None
        self._buffers: dict[int, _Buffer] = {}
        self._answers = 0

    def read(self, partition: int, offset: int, max_records: int, max_bytes: int) -> list[Record]:
        """See EventLog.read."""
        buffer = self._buffer(partition, offset)
        if not buffer.records and offset >= buffer.end:
            begin, buffer.end = (ask(self._topic, partition) for ask in (self._offsets.begin, self._offsets.end))
            check_offset(self._topic, partition, offset, begin, buffer.end)
        if not buffer.records and offset < buffer.end:
            try:
                self._fetch(partition, buffer)
            except Exception:
                # A consumer that failed is not used again: nobody knows which records it holds.
                self.close()
                raise
        return buffer.take(max_records, max_bytes)

    def wait(self, positions: Mapping[int, int], seconds: float) -> None:
        """See EventLog.wait."""
        buffers = {TopicPartition(self._topic, one): self._buffer(one, offset) for one, offset in positions.items()}
        if any(buffer.records for buffer in buffers.values()):
            return
        try:
            self._go_to({place: buffer.position for place, buffer in buffers.items()})
            for place, found in self._consumer.poll(timeout_ms=int(seconds * 1000)).items():
                buffers[place].put(found)
        except (errors.KafkaError, OSError):
            # An error ends the wait: the read that follows meets it too, and handles it.
            self.close()

    def close(self) -> None:
        """Give connection and memory back."""
        self._buffers.clear()
        if self._consumer is not None:
            consumer, self._consumer = self._consumer, None
            give_up(consumer, autocommit=False, timeout_ms=0)

    def _buffer(self, partition: int, offset: int) -> _Buffer:
        """Return the buffer of a partition, which begins at `offset` from now on; those that are left idle go."""
        now = self._clock()
        for left in [one for one, buffer in self._buffers.items() if now - buffer.used > _IDLE_SECONDS]:
            del self._buffers[left]
        buffer = self._buffers.get(partition)
        if buffer is None or buffer.start != offset:
            buffer = self._buffers[partition] = _Buffer(offset)
        buffer.used = now
        return buffer

    def _fetch(self, partition: int, buffer: _Buffer) -> None:
        """Fetch the next records before the end, unless compaction has left none there."""
        place = TopicPartition(self._topic, partition)
        deadline = self._clock() + self._options.patience
        self._go_to({place: buffer.position})
        while not buffer.records and buffer.position < buffer.end and not self._is_gap(place, buffer.end):
            if self._clock() > deadline:
                raise errors.KafkaTimeoutError(f"no records of {self._topic}/{partition} in time")
            found = self._consumer.poll(timeout_ms=_HOLD_MS).get(place)
            # If compaction or a transaction took records out, the position moves on without a record.
            position = self._consumer.position(place, timeout_ms=0) or 0
            if found:
                buffer.put(found)
            elif position > buffer.position:
                buffer.position, self._answers = position, 0

    def _go_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Fetch these places from now on, each from its offset, and no others."""
        if self._consumer is None:
            limits = {"max_partition_fetch_bytes": _FETCH_BYTES, "max_poll_records": _POLL_RECORDS}
            self._consumer = consumer_of(self._options, self._answered, fetch_max_wait_ms=_HOLD_MS, **limits)
        known = set(self._consumer.assignment())
        self._consumer.assign(list(offsets))
        for place, offset in offsets.items():
            if place not in known or self._consumer.position(place, timeout_ms=0) != offset:
                self._consumer.seek(place, offset)
        self._answers = 0

    def _is_gap(self, place: TopicPartition, end: int) -> bool:
        """Return whether the answers say that no record is left before `end`."""
        # A broker that leads since a moment ago may not know yet how far it may give records out.
        return self._answers >= _CERTAIN and int(self._consumer.highwater(place) or 0) >= end

    def _answered(self) -> None:
        self._answers += 1
