"""Writing to Kafka: confirmed by all replicas, once, and in order within each partition."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kafka import KafkaProducer, errors

from streamtopic.errors import StreamtopicError, UsageError
from streamtopic.streams.base import Message
from streamtopic.streams.kafka_client import connect, mapped, retried
from streamtopic.streams.kafka_options import KafkaOptions

__all__ = ["Writer"]

# The topics' own limits decide; this one must not be below any of them.
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


class Writer:
    """An idempotent producer that is made anew after an error.

    An idempotent producer that met an error may refuse everything after it; and what it still holds must not arrive
    later, behind records of the next one.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._producer: Any = None
        self._mutex = threading.Lock()

    def append(self, topic: str, messages: Sequence[Message], partitions: Sequence[int]) -> list[int]:
        """Offsets of the messages, each written to its partition, once all are confirmed.

        Raises UsageError for a message that the topic does not take, ComponentUnreachable after
        the options' patience.
        """
        with self._mutex:
            if self._producer is None:
                self._producer = retried(self._connect, self._options)
            try:
                return self._send(topic, messages, partitions)
            except BaseException:
                self._discard()
                raise

    def close(self) -> None:
        """Give the connection back; nothing is pending, since every append waits."""
        with self._mutex:
            self._discard()

    def _connect(self) -> Any:  # noqa: ANN401 - kafka-python is untyped
        patience_ms = int(self._options.patience * 1000)
        return connect(
            KafkaProducer, self._options, **_OPTIONS, delivery_timeout_ms=patience_ms, max_block_ms=patience_ms
        )

    def _send(self, topic: str, messages: Sequence[Message], partitions: Sequence[int]) -> list[int]:
        futures = []
        for message, partition in zip(messages, partitions, strict=True):
            try:
                futures.append(
                    self._producer.send(
                        topic, message.value, message.key, headers=list(message.headers), partition=partition
                    )
                )
            except (errors.KafkaError, ValueError, TypeError) as error:
                raise self._explained(error, topic, message) from error
        with suppress(errors.KafkaTimeoutError):  # what is unconfirmed by then has failed, as found below
            self._producer.flush(self._options.patience + 10)
        failed = [
            (future.exception, message)
            for message, future in zip(messages, futures, strict=True)
            if not future.succeeded()
        ]
        if failed:
            # One bad record fails all of its batch; only its own error says what is wrong.
            cause, message = next((entry for entry in failed if isinstance(entry[0], _REFUSED)), failed[0])
            raise self._explained(cause or errors.KafkaTimeoutError("not confirmed"), topic, message) from cause
        return [int(future.value.offset) for future in futures]

    def _explained(self, error: Exception, topic: str, message: Message) -> StreamtopicError:
        named = repr(message.key[:80]) if message.key else "without a key"
        match error:
            case _ if isinstance(error, _TOO_LARGE):
                size = len(message.key or b"") + len(message.value or b"")
                return UsageError(
                    f"record {named} of {size} bytes is larger than {topic} takes: split the document, or raise the "
                    "topic's max.message.bytes"
                )
            case _ if isinstance(error, (*_REFUSED, ValueError, TypeError)):
                return UsageError(
                    f"{topic} does not take record {named} ({error}): a compacted topic needs a key, and records go to "
                    "partitions that exist"
                )
            case _:
                return mapped(error, self._options.servers)

    def _discard(self) -> None:
        if self._producer is not None:
            producer, self._producer = self._producer, None
            # Nothing that waits may be sent any more: whoever was refused decides what is written next.
            producer._sender.force_close()  # noqa: SLF001 - its own close waits for what is pending, or fails over it
            with suppress(Exception):
                producer.close(timeout=1)
