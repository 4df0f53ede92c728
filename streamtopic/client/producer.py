"""Send documents to be counted, and to be forgotten."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from streamtopic.events import encode_add, encode_delete
from streamtopic.streams import EventLog, KafkaOptions, Message, TopicNames, open_log

__all__ = ["DocumentProducer"]


class DocumentProducer:
    """Writes to a model's documents topic; returns once the log has confirmed. Safe with several threads.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of one in
    files. new_id: makes request ids.

    Every method raises InvalidEvent for what the service would refuse, UsageError where the topics are missing
    (`streamtopic init` makes them), ComponentUnreachable where the log does not answer. Part of what was to be sent may
    have arrived then: sending it again changes nothing, but give a delete a request id of your own to know it by.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        new_id: Callable[[], str] = lambda: secrets.token_hex(12),
    ) -> None:
        self._topic = TopicNames(model).documents
        self._log, self._owned = open_log(log)
        self._new_id = new_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(
        self,
        document: str,
        *,
        text: str | None = None,
        counts: Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
        timestamp_ms: int | None = None,
    ) -> tuple[int, int]:
        """Add a document, or replace the one with this id; (partition, offset) of its record.

        Either text, or counts of words; labels: task to class. A replacement takes out what the id held before, which
        counts as a deletion where the model was trained on it; the same content again changes nothing.
        """
        message = encode_add(document, text=text, counts=counts, labels=labels, timestamp_ms=timestamp_ms)
        return self._log.append_many(self._topic, [message])[0]

    def add_many(self, documents: Iterable[tuple[str, str]], batch: int = 1000) -> int:
        """Add (id, text) pairs in batches; how many. Raises InvalidEvent at a bad one, those before it sent."""
        sent, messages = 0, list[Message]()
        try:
            for document, text in documents:
                messages.append(encode_add(document, text=text))
                if len(messages) >= batch:
                    sent += self._send(messages)
        finally:
            sent += self._send(messages)
        return sent

    def delete(self, document: str, request: str | None = None) -> str:
        """Ask for a document to be forgotten; the request id, by which its receipt is found."""
        name = request or self._new_id()
        self._log.append_many(self._topic, [encode_delete(document, name)])
        return name

    def close(self) -> None:
        """Close the log if this producer opened it."""
        if self._owned:
            self._log.close()

    def _send(self, messages: list[Message]) -> int:
        count = len(self._log.append_many(self._topic, messages)) if messages else 0
        messages.clear()
        return count
