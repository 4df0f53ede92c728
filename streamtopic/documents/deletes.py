"""Values and headers that are a delete, in the dialects that programs really send (table in docs/messages.md).

A writer who may change a document may delete it, so a value that can be read in two ways is a delete. A delete must
never be refused for the rest of its value: if a value cannot be parsed, `salvaged` reads the fields before the
damage.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "RULES",
    "damaged_delete",
    "fields_ask",
    "headers_ask",
    "holds_nothing",
    "map_asks",
    "reader_of",
    "salvaged",
    "unframed",
    "values_in",
]

RULES = 2
"""Version of these rules: counts that were made by other rules are made again."""

Fields = dict[Any, Any]

# A schema registry puts a frame around a value: a zero byte, and four bytes that name the schema.
_FRAME = 5
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\v\f\0"
# Nothing, null, an empty text and an empty map: JSON's, then msgpack's. Blanks at the end are stripped by then, and
# with them the length of msgpack's empty bytes, C4 00.
_NOTHING = frozenset({b"", b"null", b'""', b"{}", b"\xc0", b"\xa0", b"\xc4", b"\x80"})
_LONGEST_NOTHING = max(map(len, _NOTHING))
_EVENT_TYPE = re.compile(r"(?:\A|[./:_-])deleted?(?:[.:]v?\d+)*\Z", re.IGNORECASE)
# Longer names are not types of events, and a search in them would cost time.
_LONGEST_TYPE = 1_000

# Bytes of a damaged record to examine: a delete is short, and a flood of damaged records must stay cheap.
_SALVAGED = 64 << 10
_STRING = r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)'
_TOKEN = re.compile(rf"{_STRING}|[\[{{]|[\]}}]", re.DOTALL)
_COLON = re.compile(r"\s*:\s*")
_SCALAR = re.compile(rf"{_STRING}|true", re.DOTALL)

# First bytes in msgpack. Clients of old msgpack send text as bytes.
_TEXTS = frozenset({0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB})
_TRUE = 0xC3
_SHORT_LIST, _LISTS = range(0x90, 0xA0), (0xDC, 0xDD)
_SHORT_MAP, _MAPS = range(0x80, 0x90), (0xDE, 0xDF)


def unframed(value: bytes) -> bytes:
    """Return a value without the frame of a schema registry, if it has one."""
    # A value of this service begins with a map, and never with a zero byte.
    if len(value) >= _FRAME and value[0] == 0:
        return value[_FRAME:]
    return value


def holds_nothing(value: bytes) -> bool:
    """Return whether a value is a tombstone of a client that cannot send null: blanks, null, "" or an empty map."""
    rest = value.removeprefix(_BOM).strip(_BLANK)
    # Long values are not brought to lower case, which would copy them.
    return len(rest) <= _LONGEST_NOTHING and rest.lower() in _NOTHING


def headers_ask(headers: Sequence[tuple[str, bytes]]) -> bool:
    """Return whether headers are of a CloudEvent in binary mode that deletes."""
    for name, value in headers:
        if name == "ce_type" and _is_event_of_deletion(value):
            return True
        if name == "ce_iodebeziumop" and value == b"d":
            return True
    return False


def map_asks(fields: Mapping[Any, Any]) -> bool:
    """Return whether a value that is a map is a delete; its other fields do not matter."""
    if fields_ask(fields):
        return True
    # An add of this service is an add, whatever `payload` or `data` it has besides.
    if _text(fields, "op") == "add":
        return False
    if _has(fields, "payload"):
        # Kafka Connect: with its schema, or alone.
        payload = _of(fields, "payload")
        return payload is None or (isinstance(payload, dict) and fields_ask(payload))
    if _has(fields, "specversion"):
        data = _of(fields, "data")
        return isinstance(data, dict) and bool(data) and fields_ask(data)
    return False


def fields_ask(fields: Mapping[Any, Any]) -> bool:
    """Return whether the fields themselves ask for a delete: ours, Debezium's, a CloudEvent's, or an empty map."""
    if not fields:
        return True
    if _text(fields, "op") in {"delete", "d"} or _text(fields, "__op") == "d":
        return True
    if _of(fields, "__deleted") is True or _text(fields, "__deleted") == "true":
        return True
    if not _has(fields, "specversion"):
        return False
    kind = _of(fields, "type")
    return _is_event_of_deletion(kind) or _text(fields, "iodebeziumop") == "d"


def _is_event_of_deletion(name: object) -> bool:
    """Return whether the type of a CloudEvent names a deletion."""
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    if not isinstance(text, str) or len(text) > _LONGEST_TYPE:
        return False
    return _EVENT_TYPE.search(text) is not None


def _has(fields: Mapping[Any, Any], name: str) -> bool:
    """Return whether a map has a field, under a name that is text or bytes."""
    return name in fields or name.encode() in fields


def _of(fields: Mapping[Any, Any], name: str) -> object:
    """Return a field, None without it."""
    # Old msgpack clients send names as bytes.
    return fields[name] if name in fields else fields.get(name.encode())


def _text(fields: Mapping[Any, Any], name: str) -> str | None:
    """Return a short field in lower case, None for other values."""
    found = _of(fields, name)
    if isinstance(found, bytes):
        found = found[:_LONGEST_TYPE].decode(errors="replace")
    if not isinstance(found, str) or len(found) > _LONGEST_TYPE:
        return None
    return found.lower()


def damaged_delete(value: bytes) -> Fields | None:
    """Return the fields of a delete whose value cannot be parsed, None for another damaged value."""
    fields = salvaged(value)
    return fields if fields and map_asks(fields) else None


def salvaged(value: bytes) -> Fields:
    """Return the fields with a text or `true` of a map that cannot be parsed; {} for another value.

    It reads the first 64 KiB, in one pass.
    """
    start = value[:_SALVAGED]
    first = start.removeprefix(_BOM).lstrip()[:1]
    if first == b"{":
        return _salvaged_json(start.decode(errors="replace"))
    return _salvaged_msgpack(start)


def _salvaged_json(text: str) -> Fields:
    """Return the fields of the outermost map of damaged JSON."""
    fields = Fields()
    depth = 0
    at = 0
    while token := _TOKEN.search(text, at):
        at = token.end()
        name = token[1]
        if name is None:
            depth += 1 if token[0] in "[{" else -1
            continue
        # Fields of maps within the map are not the record's own.
        colon = _COLON.match(text, at) if depth == 1 else None
        if colon is None:
            continue
        at = colon.end()
        scalar = _SCALAR.match(text, at)
        if scalar is not None:
            at = scalar.end()
            fields[_plain(name)] = True if scalar[1] is None else _plain(scalar[1])
    return fields


def _plain(inside: str) -> str:
    """Return the text that a JSON string represents; its inside as it is, if that is not valid."""
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        return inside


def _salvaged_msgpack(data: bytes) -> Fields:
    """Return the fields of a map in damaged msgpack."""
    fields = Fields()
    unpacker = reader_of(data)
    try:
        for _ in range(unpacker.read_map_header()):
            name = _scalar(unpacker, data)
            value = _scalar(unpacker, data)
            if isinstance(name, str) and value is not None:
                fields[name] = value
    except (ValueError, IndexError, msgpack.UnpackException):
        # The fields before the damage count.
        pass
    return fields


def _scalar(unpacker: msgpack.Unpacker, data: bytes) -> str | bool | None:
    """Return the text or `true` that comes next, None for another value, which is passed over."""
    kind = data[unpacker.tell()]
    if 0xA0 <= kind <= 0xBF or kind in _TEXTS or kind == _TRUE:
        found = unpacker.unpack()
        return found.decode(errors="replace") if isinstance(found, bytes) else True
    for _ in values_in(unpacker, data):
        pass
    return None


def reader_of(value: bytes) -> msgpack.Unpacker:
    """Return a reader of msgpack that can pass parts over, and gives texts as bytes."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(value), raw=True)
    unpacker.feed(value)
    return unpacker


def values_in(unpacker: msgpack.Unpacker, data: bytes) -> Iterator[None]:
    """Pass the next value over, one step for it and for each value within it.

    Nesting of any depth costs no stack, and a list that claims to be longer than the data no memory.
    """
    left = 1
    while left:
        yield
        left -= 1
        kind = data[unpacker.tell()]
        if kind in _SHORT_LIST or kind in _LISTS:
            left += unpacker.read_array_header()
        elif kind in _SHORT_MAP or kind in _MAPS:
            left += 2 * unpacker.read_map_header()
        else:
            unpacker.skip()
