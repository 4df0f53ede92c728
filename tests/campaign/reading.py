"""Reads records of documents and of requests a second time, by the rules of docs/messages.md.

The rules are written down again on purpose: nothing is shared with the code that decodes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import msgpack

Passage = tuple[int, dict[str, int]]

_WORD = re.compile("[a-z0-9]{2,}")
_LONGEST = 8192
_DEEPEST, _MOST_VALUES = 64, 65_536
# The rules keep 30 of a run of combining marks. Here all are dropped, since the stream has them only in words that are
# too long to count anyway.
_MARKS = re.compile("[\u0300-\u036f]+")

LONGEST_KEY = 512
LARGEST = 4 << 20
"""The most bytes of a value."""
_MOST_SUBJECTS, _LONGEST_SUBJECT = 8, 256
_REQUEST_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a record asks for.

    kind: of the request.
    passages: (L, word counts) of an add.
    labels: task to class, of an add.
    request, salt: of a delete, or of a refused record that ends the document of its id; empty if there is none.
    subjects: the people that an add is about.
    """

    kind: Literal["add", "delete", "nothing", "refused"]
    passages: tuple[Passage, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    request: str = ""
    salt: bytes = b""
    subjects: frozenset[str] = frozenset()


@dataclass(slots=True)
class Demand:
    """A request of the requests topic.

    request, salt: its id, and the salt of the requester.
    documents, subjects: what it names, the one or the other.
    asked_ms: time of its record, milliseconds since 1970.
    erased: whether the newest record under its id is a tombstone, so that compaction takes the others.
    """

    request: str
    salt: bytes
    documents: frozenset[str]
    subjects: frozenset[str]
    asked_ms: int
    erased: bool = False


# Their own checks refuse nested values.
_CHECKED = frozenset({"text", "counts", "labels", "subjects"})
_REFUSED, _NOTHING = Asked("refused"), Asked("nothing")


def understand(key, value, headers):
    """Return what a record asks for. Texts are taken for ASCII, as the stream makes them."""
    if not key or len(key) > LONGEST_KEY or not _is_text(key):
        return _REFUSED
    asked = _named(dict(headers))
    if key == b"st:heartbeat":
        beat = {} if value is None else _map(value)
        return _REFUSED if beat is None or beat.get("op") == "add" else _NOTHING
    fields = _map(value) if value else {}
    if fields is None:
        return Asked("refused", **asked)
    read = _asked(fields, asked)
    return Asked("refused", **asked) if read.kind == "add" and len(headers) > 256 else read


def demanded(key, value, time_ms):
    """Return the request in a record of the requests topic, None for one that is refused."""
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or key is None or not _REQUEST_ID.fullmatch(key):
        return None
    lists = fields.get("documents", []), fields.get("subjects", [])
    if not all(isinstance(names, list) and all(map(_is_subject, names)) for names in lists):
        return None
    documents, subjects = (frozenset(names) for names in lists)
    salt = _named({"salt": fields.get("salt")})["salt"]
    # The stream makes none that names too many.
    sound = salt and bool(documents) != bool(subjects)
    return Demand(key.decode(), salt, documents, subjects, time_ms) if sound else None


def _asked(fields, headers):
    if not fields or fields.get("op") == "delete":
        own = _named(fields)
        return Asked("delete", **{name: own[name] or value for name, value in headers.items()})
    passages, labels, subjects = _passages(fields), _labels(fields.get("labels")), _subjects(fields)
    sound = passages is not None and labels is not None and subjects is not None
    if fields.get("op") != "add" or not sound:
        return Asked("refused", **headers)
    return Asked("add", passages or (), labels or {}, subjects=subjects or frozenset())


def _map(value):
    """Return the map in a value, {} for one without content, None for any other."""
    if len(value) > LARGEST:
        return None
    try:
        fields = json.loads(value, parse_constant=_refuse) if value[:1] in b"{n" else msgpack.unpackb(value)
    except Exception:  # noqa: BLE001  whatever a parser says of hostile bytes, they are not a map
        return None
    if not fields:
        return {}
    return fields if isinstance(fields, dict) and _is_bounded(fields) else None


def _is_bounded(fields):
    """Whether a map has at most as many values, and at most as deep ones, as a record may have."""
    # Level by level, so that the depth is counted on the way.
    level = [value for name, value in fields.items() if name not in _CHECKED]
    values = 1 + 2 * len(fields)
    for depth in range(_MOST_VALUES):
        inside = []
        for outer in level:
            if isinstance(outer, dict):
                inside += outer.values()
                values += 2 * len(outer)
            elif isinstance(outer, list):
                inside += outer
                values += len(outer)
        if not any(isinstance(outer, dict | list) for outer in level) or values > _MOST_VALUES:
            break
        if depth >= _DEEPEST:
            return False
        level = inside
    return values <= _MOST_VALUES


def _refuse(constant):
    raise ValueError(constant)


def _is_text(key):
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _named(fields):
    salt = fields.get("salt")
    data = salt.encode(errors="replace") if isinstance(salt, str) else salt
    sound = isinstance(data, bytes) and 16 <= len(data) <= 64
    return {"request": _request(fields.get("request")), "salt": data if sound else b""}


def _request(value):
    raw = value.encode(errors="replace") if isinstance(value, str) else value
    return raw.decode(errors="replace") if isinstance(raw, bytes) and 0 < len(raw) <= 512 else ""


def _passages(fields):
    text, counts = fields.get("text"), fields.get("counts")
    if (text is None) == (counts is None):
        return None
    if counts is not None:
        return _counted(counts)
    if not isinstance(text, str) or len(text.encode(errors="replace")) > 1_000_000:
        return None
    words = _WORD.findall(_MARKS.sub("", text.lower()))
    # The first distinct words count, in the order of the text.
    first = dict.fromkeys(word for word in words if len(word) <= 64)
    held = frozenset(list(first)[:65536])
    longest = 8192
    cut = _cut(words, held, longest)
    while longest > 32 and sum(len(counts) * (len(counts) - 1) // 2 for _, counts in cut) > 8_386_560:
        longest //= 2
        cut = _cut(words, held, longest)
    return cut


def _cut(words, held, longest):
    parts = -(-len(words) // longest)
    cuts = [len(words) * part // parts for part in range(parts + 1)] if parts else []
    pieces = [words[cuts[k] : cuts[k + 1]] for k in range(parts)]
    return tuple((len(piece), dict(Counter(word for word in piece if word in held))) for piece in pieces)


def _counted(counts):
    if not isinstance(counts, dict) or len(counts) > 4096:
        return None
    for word, number in counts.items():
        if not isinstance(word, str) or not 0 < len(word) <= 64 or not _encodable(word):
            return None
        # True is an int in Python, but not a number in JSON.
        if type(number) is not int or not 1 <= number <= 8192:
            return None
    length = sum(counts.values())
    if length > _LONGEST:
        return None
    return ((length, dict(counts)),) if counts else ()


def _labels(labels):
    if labels is None:
        return {}
    if not isinstance(labels, dict) or len(labels) > 64:
        return None
    good = all(isinstance(n, str) and 0 < len(n) <= 256 and _encodable(n) for pair in labels.items() for n in pair)
    return dict(labels) if good else None


def _subjects(fields):
    found = fields.get("subjects")
    if found is None:
        return frozenset()
    if not isinstance(found, list):
        return None
    good = 0 < len(found) <= _MOST_SUBJECTS and all(_is_subject(name) for name in found)
    return frozenset(found) if good else None


def _is_subject(name):
    return isinstance(name, str) and 0 < len(name) <= _LONGEST_SUBJECT and _encodable(name)


def _encodable(text):
    return text.encode(errors="replace").decode() == text


def home(key, partitions):
    """Return the partition of a key: Kafka's murmur2, from its definition."""
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
