"""Reads records of documents and of requests a second time, by the rules of docs/messages.md.

The rules are written down again on purpose: nothing is shared with the code that decodes. Bounds that no record of a
campaign or of tests/hostile comes near are left out, and texts are taken for ASCII.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import msgpack

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.partitioner.default import murmur2

Passage = tuple[int, dict[str, int]]

_WORD = re.compile("[a-z0-9]{2,}")
_LONGEST_WORD, _LONGEST_PASSAGE, _LARGEST_TEXT = 64, 8192, 1_000_000
_LONGEST_KEY = 512
_MOST_HEADERS = 256
_MOST_SUBJECTS, _LONGEST_NAME = 8, 256
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
    subjects: the people that it names.
    asked_ms: time of its record, milliseconds since 1970.
    erased: whether the newest record under its id is a tombstone, so that compaction takes the others.
    """

    request: str
    salt: bytes
    subjects: frozenset[str]
    asked_ms: int
    erased: bool = False


class _Wrong(ValueError):
    """A record breaks a rule."""


def understand(key, value, headers):
    """Return what a record asks for."""
    if not key or len(key) > _LONGEST_KEY or not _is_text(key):
        return Asked("refused")
    if key == b"st:heartbeat":
        try:
            return Asked("refused" if value is not None and _map(value).get("op") == "add" else "nothing")
        except _Wrong:
            return Asked("refused")
    named = _named(dict(headers))
    try:
        fields = _map(value) if value else {}
        if not fields or fields.get("op") == "delete":
            own = _named(fields)
            return Asked("delete", **{name: own[name] or value for name, value in named.items()})
        _demand(fields.get("op") == "add" and len(headers) <= _MOST_HEADERS)
        subjects = _names(fields["subjects"]) if fields.get("subjects") is not None else frozenset()
        return Asked("add", _passages(fields), _labels(fields.get("labels")), subjects=subjects)
    except _Wrong:
        return Asked("refused", **named)


def demanded(key, value, time_ms):
    """Return the request in a record of the requests topic, None for one that is refused."""
    try:
        fields = json.loads(value)
        _demand(isinstance(fields, dict) and key is not None and _REQUEST_ID.fullmatch(key))
        subjects, salt = _names(fields.get("subjects")), _named(fields)["salt"]
        _demand(salt)
    except (ValueError, RecursionError):
        return None
    return Demand(key.decode(), salt, subjects, time_ms)


def _demand(condition):
    if not condition:
        raise _Wrong


def _map(value):
    """Return the map in a value, {} for one without content."""
    try:
        fields = json.loads(value, parse_constant=_refuse) if value[:1] in b"{n" else msgpack.unpackb(value)
    except Exception as error:  # whatever a parser says of hostile bytes, they are not a map
        raise _Wrong from error
    _demand(not fields or isinstance(fields, dict))
    return fields or {}


def _refuse(constant):
    raise _Wrong(constant)


def _is_text(key):
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _named(fields):
    """Return the request id and the salt that a record has, each empty if it is not sound."""
    request, salt = (_bytes(fields.get(name)) for name in ("request", "salt"))
    return {
        "request": request.decode(errors="replace") if len(request) <= _LONGEST_KEY else "",
        "salt": salt if 16 <= len(salt) <= 64 else b"",
    }


def _bytes(value):
    raw = value.encode(errors="replace") if isinstance(value, str) else value
    return raw if isinstance(raw, bytes) else b""


def _passages(fields):
    text, counts = fields.get("text"), fields.get("counts")
    _demand((text is None) != (counts is None))
    if counts is not None:
        return _counted(counts)
    _demand(isinstance(text, str) and len(text.encode(errors="replace")) <= _LARGEST_TEXT)
    words = _WORD.findall(text.lower())
    parts = -(-len(words) // _LONGEST_PASSAGE)
    cuts = [len(words) * part // parts for part in range(parts + 1)] if parts else []
    pieces = [words[cuts[k] : cuts[k + 1]] for k in range(parts)]
    # A word that is too long counts as a token alone.
    return tuple((len(piece), dict(Counter(word for word in piece if len(word) <= _LONGEST_WORD))) for piece in pieces)


def _counted(counts):
    _demand(isinstance(counts, dict))
    for word, number in counts.items():
        _demand(_is_name(word, _LONGEST_WORD))
        # True is an int in Python, but not a number in JSON.
        _demand(type(number) is int and number >= 1)
    length = sum(counts.values())
    _demand(length <= _LONGEST_PASSAGE)
    return ((length, dict(counts)),) if counts else ()


def _labels(labels):
    if labels is None:
        return {}
    _demand(isinstance(labels, dict))
    _demand(all(_is_name(task) and _is_name(label) for task, label in labels.items()))
    return dict(labels)


def _names(found):
    _demand(isinstance(found, list) and 0 < len(found) <= _MOST_SUBJECTS and all(map(_is_name, found)))
    return frozenset(found)


def _is_name(name, longest=_LONGEST_NAME):
    # A lone surrogate is no text.
    return isinstance(name, str) and 0 < len(name) <= longest and name.encode(errors="replace").decode() == name


def home(key, partitions):
    """Return the partition of a key, as Kafka's own clients find it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
