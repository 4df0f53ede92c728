"""Values and headers that are a delete, in the dialects that programs really send (table in docs/messages.md).

A writer who may change a document may delete it, so a value that can be read in two ways is a delete. A delete must
never be refused for the rest of its value: if a value cannot be parsed, `salvaged` reads the fields before the
damage.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["RULES", "damaged_delete", "fields_ask", "headers_ask", "holds_nothing", "map_asks", "salvaged", "unframed"]

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
    try:
        pairs, at = _map_at(data)
        for _ in range(pairs):
            name, at = _scalar_at(data, at)
            value, at = _scalar_at(data, at)
            if isinstance(name, str) and value is not None:
                fields[name] = value
    except IndexError:
        # The fields before the damage count.
        pass
    return fields


def _map_at(data: bytes) -> tuple[int, int]:
    """Return the number of pairs of a map, 0 for another value, and the position of the first pair."""
    kind = data[0]
    if 0x80 <= kind <= 0x8F:
        return kind & 0x0F, 1
    if kind in {0xDE, 0xDF}:
        return _size(data, 1, 2 if kind == 0xDE else 4)
    return 0, 1


def _size(data: bytes, at: int, width: int) -> tuple[int, int]:
    """Return a length of `width` bytes and the position after it. Raises IndexError at the end of the data."""
    end = at + width
    if end > len(data):
        raise IndexError
    return int.from_bytes(data[at:end], "big"), end


def _scalar_at(data: bytes, at: int) -> tuple[str | bool | None, int]:
    """Return the text or `true` at `at`, None for another value, and its end. Raises IndexError past the data."""
    kind = data[at]
    size, start, _ = _shape(data, at)
    end = start + size
    if end > len(data):
        raise IndexError
    if 0xA0 <= kind <= 0xBF or kind in _TEXTS:
        return data[start:end].decode(errors="replace"), end
    value = True if kind == 0xC3 else None
    return value, _behind(data, at)


def _behind(data: bytes, at: int) -> int:
    """Return the end of the value at `at`."""
    # A count of open values instead of a recursion: nesting of any depth costs no stack.
    waiting = 1
    while waiting:
        size, start, inside = _shape(data, at)
        at = start + size
        waiting += inside - 1
    return at


# Texts and bytes; clients of old msgpack send text as bytes.
_TEXTS = frozenset({0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB})
# Bytes after the first byte, for kinds of a fixed size.
_FIXED = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
# Bytes of the length of kinds that have one; an extension has one byte more, for its type.
_WIDTH = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}


def _shape(data: bytes, at: int) -> tuple[int, int, int]:  # noqa: PLR0911 -- a format is branches
    """Return the size of a value's own bytes, their position, and the number of values inside the value."""
    kind = data[at]
    after = at + 1
    if kind <= 0x7F or kind >= 0xE0:
        return 0, after, 0
    if kind <= 0x8F:
        return 0, after, 2 * (kind & 0x0F)
    if kind <= 0x9F:
        return 0, after, kind & 0x0F
    if kind <= 0xBF:
        return kind & 0x1F, after, 0
    if kind in _FIXED:
        return _FIXED[kind], after, 0
    if kind in _WIDTH:
        size, start = _size(data, after, _WIDTH[kind])
        is_extension = 0xC7 <= kind <= 0xC9
        return size + is_extension, start, 0
    if kind in _LISTS:
        items, start = _size(data, after, _LISTS[kind])
        return 0, start, items
    if kind in _MAPS:
        pairs, start = _size(data, after, _MAPS[kind])
        return 0, start, 2 * pairs
    return 0, after, 0
