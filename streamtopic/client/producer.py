"""Send documents to be counted, and to be forgotten."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from streamtopic.errors import UsageError
from streamtopic.events import encode_add, encode_delete
from streamtopic.streams import MURMUR2, PARTITIONERS, EventLog, KafkaOptions, Message, TopicNames, addressed, open_log

__all__ = ["Deletion", "DocumentProducer"]


class Deletion(str):
    """The request id of a delete, usable as text, with the salt that only the requester and the log know.

    Keep both: whoever has them can find the receipt and show which document it speaks of; nobody else can.
    """

    __slots__ = ("salt",)

    salt: str

    def __new__(cls, request: str, salt: str) -> Self:
        """Join a request id and a salt."""
        made = super().__new__(cls, request)
        made.salt = salt
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """How to make a copy."""
        return type(self), (str(self), self.salt)


class DocumentProducer:
    """Writes to a model's documents topic; returns once the log has confirmed. Safe with several threads.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of one in
    files. new_id: makes request ids. partitioner: the model's, `murmur2` or `crc32` (setting `partitioner`): an add
    in another partition than the model expects is refused. new_salt: makes salts of receipts, at least 16 bytes that
    nobody can guess.

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
        partitioner: str = MURMUR2,
        new_salt: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        if partitioner not in PARTITIONERS:
            raise UsageError(f"there is no partitioner {partitioner!r}: choose one of {', '.join(PARTITIONERS)}")
        self._topic = TopicNames(model).documents
        self._log, self._owned = open_log(log)
        self._new_id = new_id
        self._partitioner = partitioner
        self._new_salt = new_salt

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
        return self._append([message])[0]

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

    def delete(self, document: str, request: str | None = None, *, salt: str | None = None) -> Deletion:
        """Ask for a document to be forgotten; the request id, by which its receipt is found, with the receipt's salt.

        request: an id of your own. salt: text of 16 to 64 bytes of your own, as hard to guess as a password. Give both
        where the same delete is sent again, so that both receipts are found.
        """
        made = Deletion(request or self._new_id(), salt or self._new_salt())
        self._append([encode_delete(document, made, made.salt.encode())])
        return made

    def close(self) -> None:
        """Close the log if this producer opened it."""
        if self._owned:
            self._log.close()

    def _append(self, messages: list[Message]) -> list[tuple[int, int]]:
        partitions = self._log.partitions(self._topic)
        # A topic that does not exist has no partitions; appending to it says so.
        placed = addressed(messages, partitions, self._partitioner) if partitions else messages
        return self._log.append_many(self._topic, placed)

    def _send(self, messages: list[Message]) -> int:
        count = len(self._append(messages)) if messages else 0
        messages.clear()
        return count
