"""What producers send: adds, deletes and heartbeats, their codec and their limits (docs: topics and messages).

Decoding takes bytes from anyone. Whatever they are, the answer is an event or InvalidEvent with a reason code; a delete
needs nothing but a usable key. Encoding checks the same limits, so that a producer learns of a bad add at once.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgpack

from streamtopic.errors import InvalidEvent
from streamtopic.streams.base import Headers, Message, Record
from streamtopic.text import MAX_PASSAGE, MAX_WORD, passages

__all__ = [
    "HEARTBEAT_KEY",
    "MAX_KEY",
    "MAX_VALUE",
    "Add",
    "Delete",
    "Event",
    "Heartbeat",
    "Passages",
    "check_labels",
    "decode",
    "decode_record",
    "encode_add",
    "encode_delete",
    "encode_heartbeat",
    "encode_rejected",
]

HEARTBEAT_KEY = b"st:heartbeat"
MAX_KEY = 512
MAX_TEXT = 1_000_000
MAX_COUNT = 8_192
MAX_DISTINCT = 8_192
MAX_LABELS = 64
MAX_LABEL = 256
MAX_REQUEST = 512
MAX_VALUE = 4 << 20
MAX_TIMESTAMP = 1 << 53

Passages = tuple[tuple[int, Mapping[str, int]], ...]


@dataclass(frozen=True, slots=True)
class Add:
    """A document that is to be counted, in place of what its id held before.

    passages: (L, word counts) each; L counts every token, so it can exceed the sum of the counts; () without a token.
    labels: task to class. timestamp_ms: the producer's own `ts`.
    """

    document: str
    passages: Passages
    labels: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int | None = None

    @property
    def length(self) -> int:
        """Tokens of the document, over all passages."""
        return sum(length for length, _ in self.passages)


@dataclass(frozen=True, slots=True)
class Delete:
    """A document that is to be forgotten. `moved`: it lives on in another partition, where its key hashes to."""

    document: str
    request: str | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A record that only makes the partition move."""


Event = Add | Delete | Heartbeat


def decode_record(record: Record) -> Event:
    """The event in a record of the documents topic; see `decode`."""
    return decode(record.key, record.value, record.headers)


def decode(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Event:
    """The event in a record; raises InvalidEvent, with a reason code, and nothing else.

    A null value, or a map whose `op` is `delete`, is a delete whatever else it holds.
    """
    document = _document(key)
    if key == HEARTBEAT_KEY:
        return _heartbeat(value)
    if value is None:
        found = dict(headers)
        return Delete(document, _request(found.get("request")), moved="st-moved" in found)
    fields = _fields(value)
    match fields.get("op"):
        case "delete":
            return Delete(document, _request(fields.get("request")))
        case "add":
            return _add(document, fields)
        case _:
            raise InvalidEvent("op", "field `op` must be `add` or `delete`")


def encode_add(
    document: str,
    *,
    text: str | None = None,
    counts: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    timestamp_ms: int | None = None,
) -> Message:
    """The record of an add; the same arguments give the same bytes. Raises InvalidEvent like `decode`."""
    fields: dict[str, Any] = {"op": "add"}
    if text is not None:
        fields["text"] = text
    if counts is not None:
        fields["counts"] = dict(sorted(counts.items()))
    if labels:
        fields["labels"] = dict(sorted(labels.items()))
    if timestamp_ms is not None:
        fields["ts"] = timestamp_ms
    key = _key(document)
    _add(_document(key), fields, tokenized=lambda _: ())
    return Message(key, msgpack.packb(fields))


def encode_delete(document: str, request: str) -> Message:
    """The tombstone of a document; `request` names the deletion in its receipt. Raises InvalidEvent for a bad id."""
    key = _key(document)
    _document(key)
    if _request(request) is None:
        raise InvalidEvent("request", f"a request id is 1 to {MAX_REQUEST} bytes of UTF-8 text")
    return Message(key, None, (("request", request.encode()),))


def encode_heartbeat(partition: int) -> Message:
    """A heartbeat for one partition."""
    return Message(HEARTBEAT_KEY, msgpack.packb({"op": "heartbeat"}), partition=partition)


def encode_rejected(record: Record, error: InvalidEvent) -> Message:
    """The pointer that the rejected topic keeps: reason and place, never the content."""
    value = {"offset": record.offset, "partition": record.partition, "reason": error.reason, "topic": record.topic}
    return Message(record.key, msgpack.packb(value))


def check_labels(labels: object) -> Mapping[str, str]:
    """Return the labels of an add, {} for None. Raises InvalidEvent where they are none."""
    if labels is None:
        return {}
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        raise InvalidEvent("labels", f"`labels` is no map of at most {MAX_LABELS} tasks to classes")
    for name in (*labels.keys(), *labels.values()):
        if not isinstance(name, str) or not 0 < len(name) <= MAX_LABEL or not _encodable(name):
            raise InvalidEvent("labels", f"a task or class in `labels` is no text of 1 to {MAX_LABEL} characters")
    return labels


def _key(document: str) -> bytes:
    try:
        return document.encode()
    except UnicodeEncodeError as error:
        raise InvalidEvent("key-encoding", "a document id must be encodable as UTF-8") from error


def _document(key: bytes | None) -> str:
    if not key:
        raise InvalidEvent("key-missing", "the record has no key: the document id is the key")
    if len(key) > MAX_KEY:
        raise InvalidEvent("key-size", f"the document id has {len(key)} bytes; at most {MAX_KEY} are allowed")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise InvalidEvent("key-encoding", "the document id is not UTF-8") from error


def _heartbeat(value: bytes | None) -> Heartbeat:
    if value is not None and _fields(value).get("op") == "add":
        raise InvalidEvent("key-reserved", f"the document id {HEARTBEAT_KEY.decode()} is reserved; choose another")
    return Heartbeat()


def _request(value: object) -> str | None:
    """A request id, None for anything that is none: a delete must not fail over it."""
    if isinstance(value, str):
        value = value.encode(errors="replace")
    if not isinstance(value, bytes) or not 0 < len(value) <= MAX_REQUEST:
        return None
    return value.decode(errors="replace")


def _fields(value: bytes) -> Mapping[object, object]:
    if len(value) > MAX_VALUE:
        raise InvalidEvent("value-size", f"the record has {len(value)} bytes; at most {MAX_VALUE} are allowed")
    try:
        fields = json.loads(value, parse_constant=_refuse) if value[:1] == b"{" else msgpack.unpackb(value)
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidEvent("format", f"the record is neither msgpack nor JSON: {type(error).__name__}") from error
    if not isinstance(fields, dict):
        raise InvalidEvent("format", f"the record is a {type(fields).__name__}, not a map")
    return fields


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _add(
    document: str,
    fields: Mapping[Any, object],
    tokenized: Callable[[str], list[tuple[int, Any]] | tuple[()]] = passages,
) -> Add:
    text, counts = fields.get("text"), fields.get("counts")
    if (text is None) == (counts is None):
        raise InvalidEvent("content", "an add needs either `text` or `counts`")
    parts = _count_passage(counts) if text is None else tuple(tokenized(_text(text)))
    return Add(document, parts, check_labels(fields.get("labels")), _timestamp(fields.get("ts")))


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise InvalidEvent("text-type", f"`text` is a {type(text).__name__}, not a string")
    # Four bytes a character at most: most texts need not be encoded to be measured.
    size = len(text) if len(text) > MAX_TEXT or len(text) * 4 <= MAX_TEXT else len(text.encode(errors="replace"))
    if size > MAX_TEXT:
        raise InvalidEvent("text-size", f"`text` is longer than {MAX_TEXT} bytes; split the document")
    return text


def _count_passage(counts: object) -> Passages:
    if not isinstance(counts, dict):
        raise InvalidEvent("counts-type", f"`counts` is a {type(counts).__name__}, not a map of words to numbers")
    if len(counts) > MAX_DISTINCT:
        raise InvalidEvent("counts-words", f"`counts` has {len(counts)} words; at most {MAX_DISTINCT} are allowed")
    # Type by type and number by number would take three times as long.
    sound = {str}.issuperset(map(type, counts)) and all(0 < size <= MAX_WORD for size in {*map(len, counts)})
    if not sound or not _encodable("".join(counts)):
        raise InvalidEvent("word", f"a word in `counts` is no text of 1 to {MAX_WORD} characters")
    numbers = counts.values()
    if not {int}.issuperset(map(type, numbers)) or (counts and not 1 <= min(numbers) <= max(numbers) <= MAX_COUNT):
        raise InvalidEvent("count", f"a number in `counts` is not a whole number from 1 to {MAX_COUNT}")
    length = sum(counts.values())
    if length > MAX_PASSAGE:
        raise InvalidEvent("counts-length", f"`counts` has {length} tokens; at most {MAX_PASSAGE} are allowed")
    return ((length, counts),) if counts else ()


def _timestamp(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidEvent("ts", "`ts` is no number of milliseconds since 1970")
    if not 0 <= value <= MAX_TIMESTAMP:
        raise InvalidEvent("ts", f"`ts` lies outside 0 to {MAX_TIMESTAMP} milliseconds since 1970")
    return int(value)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
