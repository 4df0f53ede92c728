"""What a record of the documents topic asks for, told a second time.

The rules are those of docs/messages.md, written down again on purpose: nothing is shared with the code that decodes.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Asked", "Passage", "home", "understand"]

Passage = tuple[int, dict[str, int]]

_WORD = re.compile("[a-z0-9]{2,}")
_LONGEST = 8192


@dataclass(frozen=True, slots=True)
class Asked:
    """What a record asks for; passages and labels are an add's, request is a delete's ("" for none)."""

    kind: Literal["add", "delete", "nothing", "refused"]
    passages: tuple[Passage, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    request: str = ""


_REFUSED, _NOTHING = Asked("refused"), Asked("nothing")


def understand(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> Asked:
    """Read a record. Texts are taken to be ASCII, as those of the stream are."""
    if not key or len(key) > 512 or not _is_text(key):
        return _REFUSED
    if value is None and key != b"st:heartbeat":
        found = dict(headers)
        return _NOTHING if "st-moved" in found else Asked("delete", request=_request(found.get("request")))
    fields = {} if value is None else _map(value)
    if fields is None:
        return _REFUSED
    if key == b"st:heartbeat":
        return _REFUSED if fields.get("op") == "add" else _NOTHING
    return _asked(fields)


def _asked(fields: Mapping[Any, Any]) -> Asked:
    if fields.get("op") == "delete":
        return Asked("delete", request=_request(fields.get("request")))
    passages, labels = _passages(fields), _labels(fields.get("labels"))
    if fields.get("op") != "add" or passages is None or labels is None or not _is_time(fields.get("ts")):
        return _REFUSED
    return Asked("add", passages, labels)


def _map(value: bytes) -> Mapping[Any, Any] | None:
    if len(value) > 4 << 20:
        return None
    try:
        fields = json.loads(value, parse_constant=_refuse) if value.startswith(b"{") else msgpack.unpackb(value)
    except Exception:  # noqa: BLE001  whatever a parser says of hostile bytes, they are no map
        return None
    return fields if isinstance(fields, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _request(value: object) -> str:
    raw = value.encode(errors="replace") if isinstance(value, str) else value
    return raw.decode(errors="replace") if isinstance(raw, bytes) and 0 < len(raw) <= 512 else ""


def _passages(fields: Mapping[Any, Any]) -> tuple[Passage, ...] | None:
    text, counts = fields.get("text"), fields.get("counts")
    if (text is None) == (counts is None):
        return None
    if counts is not None:
        return _counted(counts)
    if not isinstance(text, str) or len(text.encode(errors="replace")) > 1_000_000:
        return None
    words = _WORD.findall(text.lower())
    parts = -(-len(words) // _LONGEST)
    cuts = [len(words) * part // parts for part in range(parts + 1)] if parts else []
    pieces = [words[cuts[k] : cuts[k + 1]] for k in range(parts)]
    return tuple((len(piece), dict(Counter(word for word in piece if len(word) <= 64))) for piece in pieces)


def _counted(counts: object) -> tuple[Passage, ...] | None:
    if not isinstance(counts, dict) or len(counts) > 8192:
        return None
    for word, number in counts.items():
        if not isinstance(word, str) or not 0 < len(word) <= 64 or not _encodable(word):
            return None
        if type(number) is not int or not 1 <= number <= 8192:
            return None
    length = sum(counts.values())
    if length > _LONGEST:
        return None
    return ((length, dict(counts)),) if counts else ()


def _labels(labels: object) -> dict[str, str] | None:
    if labels is None:
        return {}
    if not isinstance(labels, dict) or len(labels) > 64:
        return None
    good = all(isinstance(n, str) and 0 < len(n) <= 256 and _encodable(n) for pair in labels.items() for n in pair)
    return dict(labels) if good else None


def _is_time(value: object) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 <= value <= 1 << 53


def _encodable(text: str) -> bool:
    return text.encode(errors="replace").decode() == text


def home(key: bytes, partitions: int) -> int:
    """The partition of a key: Kafka's murmur2, from its definition."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    rest = len(key) % 4
    for start in range(0, len(key) - rest, 4):
        k = (int.from_bytes(key[start : start + 4], "little") * m) & mask
        k ^= k >> 24
        h = ((h * m) & mask) ^ ((k * m) & mask)
    if rest:
        h = ((h ^ int.from_bytes(key[-rest:], "little")) * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions
