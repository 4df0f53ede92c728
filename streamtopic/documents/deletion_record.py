"""Requests to forget documents or people, as records of the requests topic.

A record has the request id as its key and JSON as its value. The service writes a tombstone under the key once the
request has ended, so that the log forgets whom it named. Only the service's own tombstones mean anything.

Ingest writes requests too: for deletions in another partition than that of their document (docs/decisions/0007).
"""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamtopic.documents.events import MAX_SALT, MAX_SUBJECT, MIN_SALT, encode_delete, is_subject, refuses_alone
from streamtopic.errors import InvalidEvent
from streamtopic.monitoring.tracing import HEADER, trace_of
from streamtopic.streams.event_log import Message, Record

__all__ = [
    "MOST_DOCUMENTS",
    "MOST_SUBJECTS",
    "Misplaced",
    "Wanted",
    "decode_request",
    "encode_misplaced",
    "encode_request",
]

MOST_DOCUMENTS = 1_000
"""Documents of one request: the record stays below a megabyte."""
MOST_SUBJECTS = 100
"""Subjects of one request."""
_MOST_BYTES = 1 << 20
# Misplaced deletions of one record: each takes up to 8 kB, if its id and request are characters that JSON escapes.
_AT_ONCE = 100
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A deletion in another partition than that of its document.

    document: its id.
    time_ms: of the record, milliseconds since 1970: a document that was added later stays.
    asked: whether it was a delete. A change that was refused deletes only what is there.
    request, salt, trace: as in the headers of the delete; empty without one.
    """

    document: str
    time_ms: int
    asked: bool
    request: str = ""
    salt: bytes = b""
    trace: bytes = b""

    @property
    def key(self) -> bytes:
        """The key of the document's records."""
        return self.document.encode()

    @property
    def tombstone(self) -> Message:
        """The record that deletes the document at home."""
        headers = ("request", self.request.encode()), ("salt", self.salt), (HEADER, self.trace)
        return Message(self.key, None, tuple((name, value) for name, value in headers if value))

    def fields(self) -> list[object]:
        """Return it as JSON has it."""
        return [self.document, self.time_ms, self.asked, self.request, self.salt.hex(), self.trace.hex()]

    @classmethod
    def of(cls, fields: list[Any]) -> "Misplaced":
        """Undo `fields`. Raises ValueError, TypeError."""
        document, time_ms, asked, request, *secret = fields
        salt, trace = map(bytes.fromhex, secret)
        if not isinstance(document, str) or type(time_ms) is not int or not isinstance(request, str):
            raise TypeError("a misplaced deletion is an id, a time, and texts")
        encode_delete(document, request or "none", salt)
        return cls(document, time_ms, bool(asked), request, salt, trace)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for: documents by their ids, all documents of some people, or misplaced deletions.

    id: request id, under which its receipts are found.
    salt: of the requester, who checks the receipts with it.
    documents: ids.
    subjects: in the place of documents: people whose documents all go.
    misplaced: in the place of both, from ingest. They have no receipt but that of each deletion.
    trace: W3C `traceparent` of the span that asks for it; b"" without one.
    """

    id: str
    salt: str
    documents: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    misplaced: tuple[Misplaced, ...] = ()
    trace: bytes = b""

    def is_same(self, other: "Wanted | None") -> bool:
        """Return whether both name the same documents or subjects, in whatever order."""
        if other is None:
            return False
        return set(self.documents) == set(other.documents) and set(self.subjects) == set(other.subjects)


def encode_request(wanted: Wanted) -> Message:
    """Return the record of a request. Raises InvalidEvent for one out of its limits."""
    _check(wanted)
    named: dict[str, object] = {"documents": wanted.documents}
    if wanted.subjects:
        named = {"subjects": wanted.subjects}
    elif wanted.misplaced:
        named = {"misplaced": [one.fields() for one in wanted.misplaced]}
    value = json.dumps({"salt": wanted.salt, **named}, ensure_ascii=False).encode()
    headers = ((HEADER, wanted.trace),) if wanted.trace else ()
    return Message(wanted.id.encode(), value, headers, partition=0)


def encode_misplaced(found: Sequence[Misplaced]) -> list[Message]:
    """Return the records that ask for misplaced deletions."""
    records = []
    for start in range(0, len(found), _AT_ONCE):
        misplaced = tuple(found[start : start + _AT_ONCE])
        wanted = Wanted(f"misplaced-{secrets.token_hex(12)}", secrets.token_hex(16), misplaced=misplaced)
        records.append(encode_request(wanted))
    return records


@refuses_alone
def decode_request(record: Record) -> Wanted:
    """Return the request in a record. Raises InvalidEvent, and no other exception.

    record: with a value.
    """
    name = (record.key or b"").decode(errors="replace")
    value = record.value or b""
    if len(value) > _MOST_BYTES:
        raise InvalidEvent("value-size", f"a request has at most {_MOST_BYTES} bytes")
    fields: Any = json.loads(value)
    if not isinstance(fields, dict):
        raise InvalidEvent("format", "a request is an object of JSON")
    lists = [fields.get(field, []) for field in ("documents", "subjects")]
    if not all(map(_is_texts, lists)):
        raise InvalidEvent("request", "`documents` and `subjects` of a request are lists of texts")
    documents, subjects = (tuple(dict.fromkeys(named)) for named in lists)
    salt = fields.get("salt")
    if not isinstance(salt, str):
        raise InvalidEvent("request", "a request has a text as its `salt`")
    misplaced = tuple(map(Misplaced.of, fields.get("misplaced", [])))
    found = Wanted(name, salt, documents, subjects, misplaced, trace_of(record.headers))
    _check(found)
    return found


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _check(wanted: Wanted) -> None:
    """Raise InvalidEvent for a request out of its limits."""
    if not _ID.fullmatch(wanted.id):
        shown = repr(wanted.id[:100])
        raise InvalidEvent("request", f"request id {shown}: use 1 to 100 letters, digits, dashes and underscores")
    salt = wanted.salt.encode(errors="replace")
    if not MIN_SALT <= len(salt) <= MAX_SALT:
        raise InvalidEvent("request", f"a salt has {MIN_SALT} to {MAX_SALT} bytes, not {len(salt)}")
    if wanted.misplaced:
        if wanted.documents or wanted.subjects or len(wanted.misplaced) > MOST_DOCUMENTS:
            raise InvalidEvent("request", f"a request of ingest has up to {MOST_DOCUMENTS} deletions, and no others")
    elif wanted.subjects:
        if wanted.documents or len(wanted.subjects) > MOST_SUBJECTS:
            raise InvalidEvent("request", f"a request names documents, or up to {MOST_SUBJECTS} subjects: send several")
        if not all(map(is_subject, wanted.subjects)):
            raise InvalidEvent("subject", f"a subject must be a text of 1 to {MAX_SUBJECT} characters")
    elif not 0 < len(wanted.documents) <= MOST_DOCUMENTS:
        number = len(wanted.documents)
        raise InvalidEvent("request", f"a request names 1 to {MOST_DOCUMENTS} documents, not {number}: send several")
    for document in wanted.documents:
        # Refused now: nobody would be there to be told when its tombstone is written.
        encode_delete(document, wanted.id, salt)
