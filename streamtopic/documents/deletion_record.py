"""Requests to forget documents or people, as records of the requests topic.

A record has the request id as its key and JSON as its value. The service writes a tombstone under the key once the
request has ended, so that the log forgets whom it named. Only the service's own tombstones mean anything.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from streamtopic.documents.events import MAX_SALT, MIN_SALT, encode_delete, refuses_alone
from streamtopic.documents.subjects import MAX_SUBJECT, is_subject
from streamtopic.documents.suppression import is_suppression_key
from streamtopic.errors import InvalidEvent
from streamtopic.monitoring.tracing import HEADER, trace_of
from streamtopic.streams.event_log import Message, Record

__all__ = ["MOST_DOCUMENTS", "MOST_SUBJECTS", "Wanted", "decode_request", "encode_request", "is_request_id"]

MOST_DOCUMENTS = 1_000
"""Documents of one request: the record stays below a megabyte."""
MOST_SUBJECTS = 100
"""Subjects of one request."""
_MOST_BYTES = 1 << 20
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for: documents by their ids, or all documents of some people.

    id: request id, under which its receipts are found.
    salt: of the requester, who checks the receipts with it.
    documents: ids.
    subjects: in the place of documents: people whose documents all go.
    trace: W3C `traceparent` of the span that asks for it; b"" without one.
    """

    id: str
    salt: str
    documents: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    trace: bytes = b""

    def is_same(self, other: "Wanted | None") -> bool:
        """Return whether both name the same documents or subjects, in whatever order."""
        if other is None:
            return False
        return set(self.documents) == set(other.documents) and set(self.subjects) == set(other.subjects)


def is_request_id(name: str) -> bool:
    """Return whether a text can be the id of a request."""
    return _ID.fullmatch(name) is not None


def encode_request(wanted: Wanted) -> Message:
    """Return the record of a request. Raises InvalidEvent for one out of its limits."""
    _check(wanted)
    named = {"subjects": wanted.subjects} if wanted.subjects else {"documents": wanted.documents}
    value = json.dumps({"salt": wanted.salt, **named}, ensure_ascii=False).encode()
    headers = ((HEADER, wanted.trace),) if wanted.trace else ()
    return Message(wanted.id.encode(), value, headers, partition=0)


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
    found = Wanted(name, salt, documents, subjects, trace_of(record.headers))
    _check(found)
    return found


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _check(wanted: Wanted) -> None:
    """Raise InvalidEvent for a request out of its limits."""
    if not is_request_id(wanted.id):
        shown = repr(wanted.id[:100])
        raise InvalidEvent("request", f"request id {shown}: use 1 to 100 letters, digits, dashes and underscores")
    salt = wanted.salt.encode(errors="replace")
    if not MIN_SALT <= len(salt) <= MAX_SALT:
        raise InvalidEvent("request", f"a salt has {MIN_SALT} to {MAX_SALT} bytes, not {len(salt)}")
    if wanted.subjects:
        if wanted.documents or len(wanted.subjects) > MOST_SUBJECTS:
            raise InvalidEvent("request", f"a request names documents, or up to {MOST_SUBJECTS} subjects: send several")
        if not all(map(is_subject, wanted.subjects)):
            raise InvalidEvent("subject", f"a subject must be a text of 1 to {MAX_SUBJECT} characters")
    elif not 0 < len(wanted.documents) <= MOST_DOCUMENTS:
        number = len(wanted.documents)
        raise InvalidEvent("request", f"a request names 1 to {MOST_DOCUMENTS} documents, not {number}: send several")
    for document in wanted.documents:
        # Refused now: nobody would be there to be told when its tombstone is written.
        if is_suppression_key(encode_delete(document, wanted.id, salt).key):
            raise InvalidEvent("key-reserved", "ids that begin with st:suppress: are reserved: delete it directly")
