"""Makes records that nobody should send: with forged headers, or with contents that hurt a careless reader.

The same generator and documents make the same records. `reading` says what each of them means.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgpack

from campaign.reading import LARGEST, home
from streamtopic.streams import Message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

__all__ = ["bombs", "forged", "poison", "strange"]

_LONG_KEY = 2 << 20
# Bytes of a batch of one record beside key and value, at most.
_AROUND = 100
_MARKS = "\u0316\u0300"

# Names that the service itself writes, and sizes at the edges of what a request and a salt may have.
_RESERVED = (
    ("st-origin", b"1/999999999999999"),
    ("st-origin", b"0/0"),
    ("st-mac", b"\0" * 32),
    ("st-refused", b"1"),
    ("st-unknown", b"\xff"),
    ("version", b"1"),
    ("chunk", b"0"),
    ("salt", b"short"),
    ("salt", b"x" * 4_000),
    ("salt", b"sixteen bytes ok"),
    ("request", b""),
    ("request", b"\xff" * 600),
    ("request", b"forged-request"),
    ("", b"nameless"),
)
_RESERVED_IDS = (b"st:statement", b"st:keys", b"st:heartbeat-not", b"1/0")


def strange(rng: Random, documents: Sequence[str], size: int) -> list[Message]:
    """Return plain records about these documents and about new ones: adds, changes and deletes."""
    return [_plain(rng, documents) for _ in range(size)]


def forged(rng: Random, documents: Sequence[str], partitions: int, size: int = 20) -> list[Message]:
    """Return records with headers that only the service writes, some of them in the partition of another key."""
    # Whatever the headers say, each record means what its key and its value say.
    made = []
    for _ in range(size):
        plain = _plain(rng, documents)
        key = rng.choice(_RESERVED_IDS) if rng.random() < 0.1 else plain.key
        headers = (*plain.headers, *rng.sample(_RESERVED, rng.randrange(1, 5)))
        made.append(Message(key, plain.value, headers, _partition(rng, key or b"", partitions, 0.2)))
    made.append(Message(b"st:heartbeat", msgpack.packb({"op": "heartbeat"}), _RESERVED[:2], rng.randrange(partitions)))
    return made


def poison(rng: Random, documents: Sequence[str], partitions: int, size: int = 6) -> list[Message]:
    """Return records that could end a careless reader, more than half of them under the ids of these documents."""
    made = []
    for turn in range(size):
        key = _id(rng, documents)
        # One giant only, so that a campaign's log keeps a size that can be read again and again.
        kinds = _giants(key) if turn == 0 else _small(key, rng)
        key, value = rng.choice(kinds)
        request = (("request", b"poison-%d" % rng.randrange(10**9)),) if rng.random() < 0.3 else ()
        made.append(Message(key, value, request, _partition(rng, key, partitions, 0.4)))
    return made


def bombs(rng: Random, documents: Sequence[str], partitions: int) -> list[Message]:
    """Return records that are small while they are compressed: one that must be counted, and one that is too large."""
    made = []
    for size in (3 << 20, LARGEST + (2 << 20)):
        key = _id(rng, documents)
        value = _filled({"op": "add", "text": "t0w1 t0w2 t0w3", "meta": ""}, size)
        made.append(Message(key, value, (), _partition(rng, key, partitions, 0.3)))
    return made


def _plain(rng: Random, documents: Sequence[str]) -> Message:
    key = _id(rng, documents)
    if rng.random() < 0.4:
        return Message(key, None, (("request", b"stranger-%d" % rng.randrange(10**9)),))
    words = [f"t{rng.randrange(4)}w{rng.randrange(40)}" for _ in range(20)]
    return Message(key, msgpack.packb({"op": "add", "text": " ".join(words)}))


def _giants(key: bytes) -> list[tuple[bytes, bytes | None]]:
    room = LARGEST - _AROUND - len(key)
    return [
        (b"k" * _LONG_KEY, msgpack.packb({"op": "add", "text": "some text"})),
        (b"k" * _LONG_KEY, None),
        (b"\xff" * _LONG_KEY, b"{}"),
        (key, _filled({"op": "add", "text": "t0w1 t0w2", "meta": ""}, room)),
        (key, msgpack.packb({"op": "add", "text": "x" * (room - 30)})),
        (key, b"\0" * room),
        (key, b"{" * room),
    ]


def _small(key: bytes, rng: Random) -> list[tuple[bytes, bytes]]:
    # Around the deepest that a record may be, 64, and beyond what a recursive parser survives.
    deep = rng.choice([60, 70, 1_000, 20_000])
    nested = b'{"op": "add", "text": "t1w1 t1w2", "meta": ' + b"[" * deep + b"]" * deep + b"}"
    add = b'{"op": "add", "text": "t1w1 t1w2", '
    infinite = float("inf")
    return [
        (key, _text("t2w1 " + "y" * 70 + _MARKS * 60_000 + " t2w2")),
        (key, _text(" ".join("y" * 70 + _MARKS * 16 for _ in range(500)) + " t2w1 t2w2")),
        (key, nested),
        (key, b'{"a":' * deep),
        (key, b"\x91" * deep + b"\0"),
        (key, add + b'"meta": [' + b"0," * 100_000 + b"0]}"),
        (key, msgpack.packb({"op": "add", "text": "t1w1 t1w2", "meta": [0] * 100_000})),
        (key, b"\x83\xa2op\xa3add\xa4text\xa5t1 t2\xa4meta\xdd\xff\xff\xff\xff"),
        (key, add + b'"ts": 1e999}'),
        (key, add + b'"ts": -Infinity}'),
        (key, add + b'"meta": 1e999}'),
        (key, add + b'"ts": ' + b"9" * 5_000 + b"}"),
        (key, msgpack.packb({"op": "add", "text": "t1w1 t1w2", "ts": infinite})),
        (key, msgpack.packb({"op": "add", "text": "t1w1 t1w2", "ts": infinite - infinite})),
        (key, msgpack.packb({"op": "add", "text": "t1w1 t1w2", "meta": -infinite})),
        (key, msgpack.packb({"op": "add", "counts": {"t1w1": infinite}})),
        (key, b'{"op": "add", "counts": {"t1w1": 1e999}}'),
    ]


def _text(text: str) -> bytes:
    return json.dumps({"op": "add", "text": text}, ensure_ascii=False).encode()


def _filled(fields: dict[str, str], size: int) -> bytes:
    """Return this map as JSON of `size` bytes: its `meta` fills the rest."""
    short = json.dumps(fields).encode()
    return json.dumps(fields | {"meta": "m" * (size - len(short))}).encode()


def _id(rng: Random, documents: Sequence[str]) -> bytes:
    if documents and rng.random() < 0.6:
        return rng.choice(documents).encode()
    return b"stranger-%d" % rng.randrange(200)


def _partition(rng: Random, key: bytes, partitions: int, share: float) -> int:
    """Return the partition of a key, or for this share of records another partition."""
    at = home(key, partitions)
    if partitions > 1 and rng.random() < share:
        return (at + rng.randrange(1, partitions)) % partitions
    return at
