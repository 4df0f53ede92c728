"""Adding documents to a model, and deleting them."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from streamtopic.documents.deletion_record import Wanted, encode_request
from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.monitoring.tracing import producing
from streamtopic.streams import EventLog, KafkaOptions, Message, TopicNames, open_log
from streamtopic.streams.event_log import Closing

__all__ = ["Deletion", "DocumentProducer"]


class Deletion(str):
    """The request id of a delete, usable as text, with the salt of its receipt.

    Keep both: with them one finds the receipt and can show which document it speaks of. Without the salt, which only
    the requester and the log know, nobody can.
    """

    __slots__ = ("salt",)

    salt: str

    def __new__(cls, request: str, salt: str) -> Self:
        """Join a request id and a salt."""
        made = super().__new__(cls, request)
        made.salt = salt
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """Return how to make a copy: without this, pickle would lose the salt."""
        return type(self), (str(self), self.salt)


class DocumentProducer(Closing):
    """Writes to a model's topics of documents and requests. A call returns once the log has confirmed.

    It is safe with several threads.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of a log
        in files.
    model: name of the model.
    new_id: makes request ids.
    new_salt: makes salts of receipts, at least 16 bytes that nobody can guess.

    Every method raises InvalidEvent for a record that the service would refuse, UsageError if the topics are missing
    (`streamtopic init` makes them), ComponentUnreachable if the log does not answer. A part of the records may have
    arrived then. Send all again: that changes nothing. Give a delete a request id of your own, so that both records
    have the same.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        new_id: Callable[[], str] = lambda: secrets.token_hex(12),
        new_salt: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        names = TopicNames(model)
        self._topic = names.documents
        self._requests = names.requests
        self._log, self._owned = open_log(log)
        self._new_id = new_id
        self._new_salt = new_salt

    def add(
        self,
        document: str,
        *,
        text: str | None = None,
        counts: Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
        subjects: Sequence[str] = (),
    ) -> tuple[int, int]:
        """Add a document, or replace the one with this id; return (partition, offset) of its record.

        document: its id.
        text: the text of the document.
        counts: word to its count, in the place of a text.
        labels: task to class.
        subjects: the people that the document is about, for `delete_subject`: at most 8 texts.

        A replacement takes the document before it out of the counts; if the model has learned from that document,
        this counts as a deletion. The same content again changes nothing.
        """
        message = encode_add(document, text=text, counts=counts, labels=labels, subjects=subjects)
        return self._append([message])[0]

    def add_many(self, documents: Iterable[tuple[str, str]], batch: int = 1000) -> int:
        """Add documents given as (id, text), in batches; return their number.

        Raises InvalidEvent at a bad one, after those before it were sent.
        """
        sent = 0
        messages = list[Message]()
        try:
            for document, text in documents:
                messages.append(encode_add(document, text=text))
                if len(messages) >= batch:
                    sent += self._send(messages)
        finally:
            # Also after a bad document: the caller learns which one it was, and those before it are sent.
            sent += self._send(messages)
        return sent

    def delete(self, document: str, request: str | None = None, *, salt: str | None = None) -> Deletion:
        """Delete a document; return the request id and the salt, by which its receipt is found.

        document: its id.
        request: a request id of your own.
        salt: a salt of your own, text of 16 to 64 bytes, as hard to guess as a password.

        Give both if you may send the same delete again, so that both receipts are found.
        """
        # The salt travels in the record, so that the service can make a receipt which only its holder can match.
        made = Deletion(request or self._new_id(), salt or self._new_salt())
        with producing("streamtopic delete") as trace:
            record = encode_delete(document, made, made.salt.encode(), trace)
            self._append([record])
        return made

    def delete_subject(self, subject: str, request: str | None = None, *, salt: str | None = None) -> Deletion:
        """Delete all documents of a subject, in all partitions; return the request id and the salt.

        subject: as the documents were added with it.
        request, salt: as of `delete`.

        Documents of the subject that are added while the request is carried out go as well. All of them leave in one
        version. Each has a receipt of its own under this request, and one more receipt covers them all.

        The record goes to the requests topic, which is a right of its own.
        """
        made = Deletion(request or self._new_id(), salt or self._new_salt())
        with producing("streamtopic delete subject") as trace:
            record = encode_request(Wanted(str(made), made.salt, subjects=(subject,), trace=trace))
            self._log.append_many(self._requests, [record])
        return made

    def close(self) -> None:
        """Close the log if this producer opened it."""
        if self._owned:
            self._log.close()

    def _append(self, messages: list[Message]) -> list[tuple[int, int]]:
        return self._log.append_many(self._topic, messages)

    def _send(self, messages: list[Message]) -> int:
        count = len(self._append(messages)) if messages else 0
        messages.clear()
        return count
