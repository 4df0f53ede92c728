"""Records that nobody should send: a seeded generator, for every part that reads records from anyone.

    for key, value, headers in hostile(seed=1, count=10_000): ...

Each kind below is one way of being wrong, or nearly wrong; deletes of `doc-0` to `doc-99` are among them. Sizes are
mostly small, so that ten thousand fit in memory; a few of each kind are at the limits.
"""

import json
import math
import random
from collections.abc import Callable, Iterator

import msgpack

__all__ = ["DOCUMENTS", "KINDS", "Hostile", "hostile"]

Hostile = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]
DOCUMENTS = [b"doc-%d" % number for number in range(100)]
MAX_TEXT, MAX_WORD, MAX_COUNT, MAX_DISTINCT = 1_000_000, 64, 8_192, 4_096
SCALARS: list[object] = [
    None,
    True,
    -1,
    0,
    2**63,
    2**64 - 1,
    -(2**63),
    0.0,
    1e308,
    math.nan,
    math.inf,
    "",
    "add",
    b"",
    b"\xff",
    [],
    {},
    [[]],
    {"": ""},
    {b"\xff": 1},
    "\x00",
    "\u202e",
    "𝕬" * 20,
    "a" * 300,
]


def hostile(seed: int, count: int) -> Iterator[Hostile]:
    """`count` records; the same seed gives the same ones."""
    rng = random.Random(seed)
    for _ in range(count):
        yield rng.choice(KINDS)(rng)


def _key(rng: random.Random) -> bytes:
    return rng.choice(DOCUMENTS)


def _pack(rng: random.Random, fields: object) -> bytes:
    """Msgpack, or JSON where it can say it."""
    if rng.random() < 0.5:
        try:
            return json.dumps(fields).encode(errors="replace")
        except (TypeError, ValueError):
            pass
    return msgpack.packb(fields, unicode_errors="surrogatepass")


def _add(rng: random.Random, **fields: object) -> Hostile:
    return _key(rng), _pack(rng, {"op": "add", **fields}), ()


def noise(rng: random.Random) -> Hostile:
    """Bytes without any meaning."""
    return _key(rng), rng.randbytes(rng.randrange(200)), ()


def noise_key(rng: random.Random) -> Hostile:
    """Keys that are missing, empty, too long, or not UTF-8."""
    key = rng.choice([None, b"", b"\xff\xfe", rng.randbytes(20), b"k" * 513, b"k" * 512, b"\x00", "é".encode()[:1]])
    return key, rng.choice([None, msgpack.packb({"op": "add", "text": "one two"}), b"{}", b""]), ()


def tombstone(rng: random.Random) -> Hostile:
    """Deletes with headers of any kind; each is a delete all the same."""
    value = rng.choice([b"", b"r-1", b"\xff\xfe", b"r" * 512, b"r" * 513, rng.randbytes(8)])
    name = rng.choice(["request", "request", "st-unknown", "", "é", "\x00"])
    return _key(rng), None, ((name, value),) * rng.randrange(4)


def delete(rng: random.Random) -> Hostile:
    """Deletes as maps, with anything else in them."""
    fields = {"op": "delete", "request": rng.choice(SCALARS), "text": rng.choice(SCALARS), "op2": rng.choice(SCALARS)}
    return _key(rng), _pack(rng, fields), ()


def reserved(rng: random.Random) -> Hostile:
    """Heartbeats, and documents under their key."""
    fields = rng.choice([{"op": "heartbeat"}, {"op": "add", "text": "x y"}, {"op": rng.choice(["drop", ""])}, {}])
    return b"st:heartbeat", rng.choice([None, _pack(rng, fields), b"\x00"]), ()


def wrong_shape(rng: random.Random) -> Hostile:
    """Whole values of another kind than a map."""
    return _key(rng), _pack(rng, rng.choice(SCALARS)), ()


def wrong_operation(rng: random.Random) -> Hostile:
    """Operations that do not exist."""
    return _key(rng), _pack(rng, {"op": rng.choice(SCALARS), "text": "x"}), ()


def wrong_content(rng: random.Random) -> Hostile:
    """Text and counts: none, both, or of another kind."""
    fields = {name: rng.choice(SCALARS) for name in rng.sample(["text", "counts", "labels", "ts", "meta"], 3)}
    return _add(rng, **fields)


def wrong_counts(rng: random.Random) -> Hostile:
    """Counts with words and numbers that are not allowed, or just about."""
    word = rng.choice(["", "w" * MAX_WORD, "w" * (MAX_WORD + 1), "\ud800", "é" * MAX_WORD, 7, b"w", None, True])
    number = rng.choice([0, -1, 1, MAX_COUNT, MAX_COUNT + 1, 2**64 - 1, 1.5, True, None, "1", [1], math.inf])
    return _add(rng, counts={word: number, **({"ok": 1} if rng.random() < 0.5 else {})})


def wrong_labels(rng: random.Random) -> Hostile:
    """Labels of any kind."""
    labels = rng.choice(
        [{"t": rng.choice(SCALARS)}, {"": "c"}, {"t" * 300: "c"}, {str(k): "c" for k in range(65)}, [1]]
    )
    return _add(rng, text="x y", labels=labels)


def wrong_time(rng: random.Random) -> Hostile:
    """Times that are none."""
    return _add(rng, text="x y", ts=rng.choice([*SCALARS, 2**53, 2**53 + 1, -0.5, 1e400]))


def deep(rng: random.Random) -> Hostile:
    """Nested without end."""
    depth = rng.choice([100, 1_000, 20_000])
    nested = rng.choice([b"\x91" * depth + b"\x00", b'{"a":' * depth, b'{"a":' + b"[" * depth + b"]" * depth + b"}"])
    return _key(rng), nested, ()


def lying_lengths(rng: random.Random) -> Hostile:
    """Msgpack that announces more than there is."""
    head = rng.choice([b"\xdf", b"\xdd", b"\xc6", b"\xdb", b"\xc9"])
    return _key(rng), head + rng.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x00\x01\x00\x00"]) + rng.randbytes(5), ()


def odd_json(rng: random.Random) -> Hostile:
    """JSON that is none, or says things twice."""
    text = rng.choice(
        [
            '{"op": "add", "text": "a b", "ts": NaN}',
            '{"op": "add", "text": "a b", "ts": ' + "9" * 5_000 + "}",
            '{"op": "add", "op": "delete"}',
            '{"op": "add", "text": "\\ud800 lone"}',
            '{"op": "add", "text": "a b"} trailing',
            '{"op": "add", "text": "a b",}',
            "{'op': 'add'}",
            '{"op": "add", "counts": {"a": 1, "a": 2}}',
            '{"op": "add", "counts": {"a": 1e999}}',
            '\ufeff{"op": "add", "text": "a b"}',
        ]
    )
    return _key(rng), text.encode(), ()


def truncated(rng: random.Random) -> Hostile:
    """Good records with their end missing or a bit turned."""
    value = bytearray(_pack(rng, {"op": "add", "text": "one two three", "labels": {"a": "b"}, "ts": 5}))
    if rng.random() < 0.5:
        return _key(rng), bytes(value[: rng.randrange(len(value))]), ()
    value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
    return _key(rng), bytes(value), ()


def odd_text(rng: random.Random) -> Hostile:
    """Texts of odd characters; most are allowed."""
    words = ["one", "\x00", "\u200b", "e\u0301" * 5, "𝕬𝖓", "w" * 80, "Ω" * 80, "\ud83d", "1" * 70, "مرحبا", "\u0000a"]
    return _add(rng, text=" ".join(rng.choices(words, k=rng.randrange(12))))


def large(rng: random.Random) -> Hostile:
    """Rarely: at the limits of text and counts, and just past them."""
    if rng.random() < 0.97:
        return odd_text(rng)
    words = MAX_DISTINCT + rng.randrange(2)
    content = rng.choice(
        [
            {"text": "x" * (MAX_TEXT + rng.randrange(2))},
            {"text": "é" * (MAX_TEXT // 2 + rng.randrange(2))},
            {"counts": {f"w{number}": 1 for number in range(words)}},
            {"counts": {f"w{number}": MAX_COUNT for number in range(2)}},
        ]
    )
    return _add(rng, **content)


KINDS: list[Callable[[random.Random], Hostile]] = [
    noise,
    noise_key,
    tombstone,
    delete,
    reserved,
    wrong_shape,
    wrong_operation,
    wrong_content,
    wrong_counts,
    wrong_labels,
    wrong_time,
    deep,
    lying_lengths,
    odd_json,
    truncated,
    odd_text,
    large,
]
