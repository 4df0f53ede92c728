"""What commands write to the log: documents that are added or deleted, and who is suppressed."""

from __future__ import annotations

import contextlib
import secrets
from itertools import islice
from typing import TYPE_CHECKING

from streamtopic.client import Deletion
from streamtopic.documents.events import MAX_SUBJECT, encode_add, encode_delete, is_subject
from streamtopic.documents.suppression import Suppression
from streamtopic.errors import InvalidEvent, StateMismatch, StateMissing, UsageError
from streamtopic.service.ingest.suppressions import Suppressions
from streamtopic.service.instance import suppression_key
from streamtopic.service.log_history import departures
from streamtopic.state import Reader
from streamtopic.streams import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamtopic.documents.corpus import Document
    from streamtopic.service.opened import Opened

__all__ = ["add", "check_deletable", "delete", "send", "silent", "suppress"]

BATCH = 1000


def silent(*_: object) -> None:
    """Report to nobody."""


def send(service: Opened, messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Append records to the documents topic, each to its key's partition; return (partition, offset) of each.

    Raises StateMismatch if an instance's log is not the one that was counted: a record might be where nobody reads it.
    """
    topic, log, settings = service.names.documents, service.log, service.settings
    # Other producers write to Kafka without asking, and ingest refuses the log there.
    if settings.dir is not None:
        with contextlib.suppress(StateMissing):
            positions = Reader(service.connection, settings.model, settings.partitions).positions()
            if found := departures(log, topic, settings.partitions, positions):
                raise StateMismatch(f"nothing was written: {found[0].text}")
    return log.append_many(topic, messages)


def add(
    service: Opened, documents: Iterable[Document], update: Callable[[int, int | None], None] = silent
) -> list[tuple[str, str]]:
    """Write add events. Documents that ingest would refuse are not written; return (id, reason) of each of them.

    update: told how many events were written.
    """
    todo = iter(documents)
    sent = 0
    refused = list[tuple[str, str]]()
    while batch := list(islice(todo, BATCH)):
        messages = []
        for document in batch:
            try:
                messages.append(_message(document))
            except InvalidEvent as error:
                refused.append((document.id, str(error)))
        sent += len(send(service, messages))
        update(sent, None)
    return refused


def _message(document: Document) -> Message:
    """Return the add event of a document. Raises InvalidEvent."""
    text = document.text
    return encode_add(
        document.id,
        text=text if isinstance(text, str) else None,
        counts=None if isinstance(text, str) else text,
        labels=document.labels,
        subjects=document.subjects,
    )


def delete(service: Opened, ids: Iterable[str]) -> list[Deletion]:
    """Write delete events; return request ids and salts, by which their receipts are found.

    Raises UsageError for an id that no document can have. Nothing is written then.
    """
    documents = list(ids)
    # All first: a wrong id must not leave some of the documents deleted, and their requests unknown.
    check_deletable(documents, ())
    requests = [Deletion(secrets.token_hex(12), secrets.token_hex(16)) for _ in documents]
    pairs = zip(documents, requests, strict=True)
    send(service, [encode_delete(document, request, request.salt.encode()) for document, request in pairs])
    return requests


def check_deletable(ids: Iterable[str], subjects: Iterable[str]) -> None:
    """Raise UsageError for an id or a subject that no document can have."""
    for document in ids:
        try:
            encode_delete(document, "checked")
        except InvalidEvent as error:
            raise UsageError(f"cannot delete {document[:80]!r}: {error}") from None
    for subject in subjects:
        if not is_subject(subject):
            raise UsageError(f"cannot forget {subject[:80]!r}: a subject is a text of 1 to {MAX_SUBJECT} characters")


def suppress(service: Opened, documents: Iterable[str], subjects: Iterable[str], *, suppressed: bool = True) -> int:
    """Suppress ids and subjects, or lift that; return how many were named.

    Raises UsageError for a text that no document and no subject can have, and if the model has no suppressions.
    Nothing is written then.
    """
    key = suppression_key(service.settings)
    if key is None:
        raise UsageError(
            "there is no suppression.key here: `streamtopic keys suppression` makes it, for every `ingest` too; "
            "restore a lost one from your backup"
        )
    ids, people = list(documents), list(subjects)
    check_deletable(ids, people)
    known = Suppressions(service.connection, service.log, service.settings.model, key)
    known.check()
    digests = list({*(key.of_document(one.encode()) for one in ids), *map(key.of_subject, people)})
    # The clock that made the statement before may be ahead of this one, and an older statement changes nothing.
    made_ms = max(int(service.clock() * 1000), known.made_ms(digests) + 1)
    said = [Suppression(digest, suppressed, made_ms) for digest in sorted(digests)]
    for start in range(0, len(said), BATCH):
        some = said[start : start + BATCH]
        service.log.append_many(service.names.requests, [Message(one.key, key.value(one), partition=0) for one in some])
    known.catch_up()
    return len(said)
