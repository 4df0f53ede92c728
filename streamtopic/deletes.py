"""Which values and headers are a delete, in the dialects that programs really send (table in docs/messages.md).

Whoever may write to an id may delete it, so where a value can be read in two ways, it is a delete. A delete must never
be refused for what else its value holds: where a value cannot be parsed, `salvaged` reads the fields that stand before
the damage.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["RULES", "headers_ask", "holds_nothing", "map_asks", "salvaged", "unframed"]

RULES = 1
"""The number of these rules: state that was counted under others is counted anew."""

Fields = dict[Any, Any]

# A value in another encoding than ours may be framed: a zero byte, and four bytes that name its schema.
_FRAME = 5
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n\v\f\0"
# Nothing, null, an empty text and an empty map: JSON's, then those of msgpack.
# The blanks at its end are gone by then, and so is the length of msgpack's empty bytes, C4 00.
_NOTHING = frozenset({b"", b"null", b'""', b"{}", b"\xc0", b"\xa0", b"\xc4", b"\x80"})
_LONGEST_NOTHING = max(map(len, _NOTHING))
_EVENT_TYPE = re.compile(r"(?:\A|[./:_-])deleted?(?:[.:]v?\d+)*\Z", re.IGNORECASE)
_LONGEST_TYPE = 1_000

# Damage is looked behind no further: a delete is short, and a flood of damaged records must stay cheap.
_SALVAGED = 64 << 10
_STRING = r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)'
_TOKEN = re.compile(rf"{_STRING}|[\[{{]|[\]}}]", re.DOTALL)
_COLON = re.compile(r"\s*:\s*")
_SCALAR = re.compile(rf"{_STRING}|true", re.DOTALL)


def unframed(value: bytes) -> bytes:
    """Return a value without the frame of a schema registry, if it has one; no value of ours begins with zero."""
    return value[_FRAME:] if len(value) >= _FRAME and value[0] == 0 else value


def holds_nothing(value: bytes) -> bool:
    """Return whether a value is a tombstone of a client that cannot send null: blanks, null, "" or an empty map."""
    rest = value.removeprefix(_BOM).strip(_BLANK)
    return len(rest) <= _LONGEST_NOTHING and rest.lower() in _NOTHING


def headers_ask(headers: Sequence[tuple[str, bytes]]) -> bool:
    """Return whether headers are those of a CloudEvent, in binary mode, that deletes."""
    for name, value in headers:
        if name == "ce_type" and _is_event_of_deletion(value):
            return True
        if name == "ce_iodebeziumop" and value == b"d":
            return True
    return False


def map_asks(fields: Mapping[Any, Any]) -> bool:
    """Return whether a value that is a map is a delete, whatever else it holds."""
    if _says_delete(fields):
        return True
    if _text(fields, "op") == "add":
        return False
    if _has(fields, "payload"):
        # Kafka Connect: beside its schema, or alone.
        payload = _of(fields, "payload")
        return payload is None or (isinstance(payload, dict) and _says_delete(payload))
    if _has(fields, "specversion"):
        data = _of(fields, "data")
        return isinstance(data, dict) and bool(data) and _says_delete(data)
    return False


def _says_delete(fields: Mapping[Any, Any]) -> bool:
    """Return whether the fields themselves say so: ours, Debezium's, those of a CloudEvent; or there are none."""
    if not fields or _text(fields, "op") in {"delete", "d"} or _text(fields, "__op") == "d":
        return True
    if _of(fields, "__deleted") is True or _text(fields, "__deleted") == "true":
        return True
    if not _has(fields, "specversion"):
        return False
    return _is_event_of_deletion(_of(fields, "type")) or _text(fields, "iodebeziumop") == "d"


def _is_event_of_deletion(name: object) -> bool:
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    return isinstance(text, str) and len(text) <= _LONGEST_TYPE and _EVENT_TYPE.search(text) is not None


def _has(fields: Mapping[Any, Any], name: str) -> bool:
    return name in fields or name.encode() in fields


def _of(fields: Mapping[Any, Any], name: str) -> object:
    """Return a field; old msgpack clients send names as bytes."""
    return fields[name] if name in fields else fields.get(name.encode())


def _text(fields: Mapping[Any, Any], name: str) -> str | None:
    """Return a short field in lower case, None for anything else."""
    found = _of(fields, name)
    if isinstance(found, bytes):
        found = found[:_LONGEST_TYPE].decode(errors="replace")
    return found.lower() if isinstance(found, str) and len(found) <= _LONGEST_TYPE else None


def salvaged(value: bytes) -> Fields:
    """Return the fields of a map, those that are text or true, of a value that cannot be parsed; {} without any.

    Only the first 64 KiB are read, in one pass.
    """
    start = value[:_SALVAGED]
    if start.removeprefix(_BOM).lstrip()[:1] == b"{":
        return _salvaged_json(start.decode(errors="replace"))
    return _salvaged_msgpack(start)


def _salvaged_json(text: str) -> Fields:
    fields, depth, at = Fields(), 0, 0
    while token := _TOKEN.search(text, at):
        at = token.end()
        if token[1] is None:
            depth += 1 if token[0] in "[{" else -1
        elif depth == 1 and (colon := _COLON.match(text, at)):
            at = colon.end()
            if scalar := _SCALAR.match(text, at):
                at = scalar.end()
                fields[_plain(token[1])] = True if scalar[1] is None else _plain(scalar[1])
    return fields


def _plain(inside: str) -> str:
    """Return what the inside of a JSON string means, as it stands where it means nothing."""
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        return inside


def _salvaged_msgpack(data: bytes) -> Fields:
    fields = Fields()
    try:
        pairs, at = _map_at(data)
        for _ in range(pairs):
            name, at = _scalar_at(data, at)
            value, at = _scalar_at(data, at)
            if isinstance(name, str) and value is not None:
                fields[name] = value
    except IndexError:
        pass
    return fields


def _map_at(data: bytes) -> tuple[int, int]:
    """Return how many pairs a map has, 0 for another value, and where they begin."""
    kind = data[0]
    if 0x80 <= kind <= 0x8F:
        return kind & 0x0F, 1
    if kind in {0xDE, 0xDF}:
        return _size(data, 1, 2 if kind == 0xDE else 4)
    return 0, 1


def _size(data: bytes, at: int, width: int) -> tuple[int, int]:
    if at + width > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + width], "big"), at + width


def _scalar_at(data: bytes, at: int) -> tuple[str | bool | None, int]:
    """Return the text or `true` at `at`, None for anything else, and where it ends. Raises IndexError at the end."""
    kind = data[at]
    size, start, _ = _shape(data, at)
    if start + size > len(data):
        raise IndexError
    if 0xA0 <= kind <= 0xBF or kind in {0xC4, 0xC5, 0xC6, 0xD9, 0xDA, 0xDB}:
        return data[start : start + size].decode(errors="replace"), start + size
    return (True if kind == 0xC3 else None), _behind(data, at)


def _behind(data: bytes, at: int) -> int:
    """Return where the value at `at` ends, however deep it is nested."""
    waiting = 1
    while waiting:
        size, start, inside = _shape(data, at)
        at = start + size
        waiting += inside - 1
    return at


# Behind the first byte: bytes that follow, for kinds of a fixed size.
_FIXED = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
# Width of the length of kinds that have one; an extension has a byte for its type beside.
_WIDTH = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}


def _shape(data: bytes, at: int) -> tuple[int, int, int]:  # noqa: PLR0911 -- a format is branches
    """Return how many bytes a value holds, where they begin, and how many values are inside of it."""
    kind = data[at]
    if kind <= 0x7F or kind >= 0xE0:
        return 0, at + 1, 0
    if kind <= 0x8F:
        return 0, at + 1, 2 * (kind & 0x0F)
    if kind <= 0x9F:
        return 0, at + 1, kind & 0x0F
    if kind <= 0xBF:
        return kind & 0x1F, at + 1, 0
    if kind in _FIXED:
        return _FIXED[kind], at + 1, 0
    if kind in _WIDTH:
        size, start = _size(data, at + 1, _WIDTH[kind])
        return size + (0xC7 <= kind <= 0xC9), start, 0
    if kind in _LISTS or kind in _MAPS:
        inside, start = _size(data, at + 1, (_LISTS | _MAPS)[kind])
        return 0, start, inside * (1 + (kind in _MAPS))
    return 0, at + 1, 0
