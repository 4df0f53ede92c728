"""The document id in a record's key: alone, in quotes, in a map, or behind the frame of a schema registry.

A tombstone has nothing but its key, so the id comes from the key alone. Several forms of a key name the same document:
`5`, `"5"`, `{"id": 5}` and the same behind a frame. Which form a connector writes depends on its settings and on the
version of its schema.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from streamtopic.documents.events import HEARTBEAT_KEY, MAX_KEY
from streamtopic.errors import InvalidEvent
from streamtopic.sources.input_mapping import ANY_FIELD, at_path

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FRAME", "MAX_FORM", "Decoder", "frame_of", "id_in"]

FRAME = 5
"""Bytes of the frame of a schema registry: a zero byte, and the number of the schema."""

MAX_FORM = 4096
"""The longest structured key, in bytes: a connector may write the whole schema of the key beside the id."""

_RESERVED = HEARTBEAT_KEY[:3].decode()


class Decoder(Protocol):
    """Reads values whose schema is in a schema registry."""

    def value(self, number: int, data: bytes) -> object:
        """Return the value in data that the schema of this number wrote.

        Raises InvalidEvent for data that the schema did not write, ComponentUnreachable.
        """


def frame_of(data: bytes) -> int | None:
    """Return the number of the schema in front of framed data, None for data without a frame.

    Raises InvalidEvent for a frame that is cut off.
    """
    if data[:1] != b"\0":
        return None
    if len(data) < FRAME:
        raise InvalidEvent("frame", f"the frame of a schema registry has {FRAME} bytes, and the record ends before it")
    return int.from_bytes(data[1:FRAME], "big")


def id_in(key: bytes | None, path: str, decoder: Decoder | None) -> bytes:
    """Return the document id in a key, as UTF-8.

    key: of a record.
    path: of the id in a structured key, or ANY_FIELD for its only field.
    decoder: reads keys in Avro; None where keys are JSON.

    Raises InvalidEvent for a key without a usable id, ComponentUnreachable.
    """
    if not key:
        raise InvalidEvent("key-missing", "the record has no key: a document's id comes from its key alone")
    if len(key) > MAX_FORM:
        raise InvalidEvent("key-size", f"the key has {len(key)} bytes; at most {MAX_FORM} are allowed")
    found = _value(key, decoder)
    # A bare key is the id, as the service's own clients send it. `streamtopic delete` works beside any connector.
    if found is None:
        return _checked(_utf8(key), reserved=True)
    return _checked(_text(_chosen(found, path)), reserved=False)


def _value(key: bytes, decoder: Decoder | None) -> object:
    """Return the value in a structured key, None for a bare key. Raises as `id_in`."""
    try:
        number = frame_of(key)
    except InvalidEvent as error:
        raise InvalidEvent("key-format", f"in the key: {error}") from None
    if number is not None and decoder is not None:
        return _named(decoder, number, key[FRAME:])
    content = key if number is None else key[FRAME:]
    if number is None and content[:1] not in {b"{", b'"'}:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidEvent("key-format", f"the structured key is not JSON: {type(error).__name__}") from None


def _named(decoder: Decoder, number: int, data: bytes) -> object:
    """Return the value in an Avro key. Raises as `id_in`."""
    try:
        found = decoder.value(number, data)
    except InvalidEvent as error:
        raise InvalidEvent("key-format", f"in the key: {error}") from None
    return {} if found is None else found


def _chosen(found: object, path: str) -> object:
    """Return the id's value in a structured key. Raises InvalidEvent where it is not there."""
    # Kafka Connect writes a schema beside the value.
    if isinstance(found, dict) and found.keys() == {"schema", "payload"}:
        found = found["payload"]
    if not isinstance(found, dict):
        return found
    if path == ANY_FIELD:
        return _only(found)
    value = at_path(found, path)
    if value is None:
        raise InvalidEvent("key-path", f"the key has no field `{path}`: set `input.key` to the path of the id")
    return value


def _only(fields: Mapping[str, Any]) -> object:
    """Return the value of the only field of a key. Raises InvalidEvent for a key of several fields, or none."""
    if len(fields) != 1:
        raise InvalidEvent(
            "key-path", f"the key has {len(fields)} fields, not one: set `input.key` to the path of the id"
        )
    (value,) = fields.values()
    return value


def _text(value: object) -> str:
    """Return an id as text. Raises InvalidEvent for a value that is neither text nor a whole number."""
    if isinstance(value, bytes):
        return _utf8(value)
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole and not isinstance(value, str | UUID):
        raise InvalidEvent("key-type", f"the id in the key is a {type(value).__name__}, not text or a whole number")
    return str(value)


def _utf8(data: bytes) -> str:
    """Return bytes as text. Raises InvalidEvent for other bytes than UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidEvent("key-encoding", "the document id is not UTF-8") from None


def _checked(text: str, *, reserved: bool) -> bytes:
    """Return an id as bytes. Raises InvalidEvent for ids that the service does not take.

    reserved: whether the id may begin as the service's own keys do.
    """
    try:
        document = text.encode()
    except UnicodeEncodeError:
        raise InvalidEvent("key-encoding", "a document id must not hold half a surrogate pair") from None
    if not 0 < len(document) <= MAX_KEY:
        raise InvalidEvent("key-size", f"the document id has {len(document)} bytes; 1 to {MAX_KEY} are allowed")
    # Such an id would be taken for a record of the service itself once it stands alone.
    if text.startswith(_RESERVED) and not reserved:
        raise InvalidEvent("key-reserved", f"document ids that begin with {_RESERVED} are reserved; choose another")
    return document
