"""Ten clients and their formats: adds, deletes and damaged records of one document, as each client writes them."""

import json
from dataclasses import dataclass, field

import msgpack

ROW = {"body": "text", "section": "sport"}


def framed(number, content):
    """Content behind the frame of a schema registry."""
    return b"\0" + number.to_bytes(4, "big") + content


def written(value):
    """JSON as bytes."""
    return json.dumps(value).encode()


@dataclass(frozen=True)
class Pair:
    """A client and its format.

    input: the setting.
    key: of document 5.
    add: function, text to value.
    deletes: (value, headers) each.
    damaged: (value, headers, reason) each, under the same key.
    """

    input: dict
    key: bytes
    add: object
    deletes: list
    damaged: list = field(default_factory=list)
    headers: tuple = ()


def change(op, text):
    """What Debezium captures of a change."""
    row = None if text is None else {"id": 5, "body": text, "section": "sport"}
    before = {"id": 5, "body": "before", "section": "sport"} if op in "ud" else None
    return {"before": before, "after": row, "source": {"table": "docs"}, "op": op, "ts_ms": 1_700_000_000_000}


def event(kind, data):
    """A structured CloudEvent."""
    fields = {"specversion": "1.0", "id": "e-1", "source": "/docs", "type": kind, "time": "2023-11-14T22:13:20Z"}
    return written(fields if data is None else fields | {"data": data})


BODY = {"text": "body", "labels": {"section": "section"}}
TOMBSTONE = (None, ())
BROKEN = (b'{"body": "te', (), "format")
NO_TEXT = (written({"section": "sport"}), (), "path")
NUMBER = (written({"body": 5}), (), "text-type")
CUT = (b"\0\0\0\1", (), "format")

PAIRS = {
    "kafka-python, JSON rows": Pair(
        {"format": "json", **BODY, "operation": "action"},
        b"5",
        lambda text: written(ROW | {"body": text, "action": "upsert"}),
        [TOMBSTONE, (b"null", ()), (written({"action": "DELETE"}), ()), (written({"op": "delete"}), ())],
        [BROKEN, NO_TEXT, NUMBER, CUT, (b"[1]", (), "format"), (b"\xff\xff", (), "format")],
    ),
    "msgpack of this service": Pair(
        {"format": "json", **BODY},
        b"5",
        lambda text: msgpack.packb({"op": "add", "text": text, "labels": {"section": "sport"}}),
        [TOMBSTONE, (msgpack.packb({"op": "delete"}), ()), (b"\xc0", ())],
        [(msgpack.packb({"op": "burn"}), (), "op"), (b"\x82\xa2op", (), "format")],
    ),
    "Debezium, with schemas": Pair(
        {"format": "debezium", **BODY},
        b"5",
        lambda text: written({"schema": {"type": "struct"}, "payload": change("u", text)}),
        [TOMBSTONE, (written({"schema": {}, "payload": change("d", None)}), ()), (b'{"schema":{},"payload":null}', ())],
        [BROKEN, (written({"schema": {}, "payload": change("u", None) | {"after": 5}}), (), "path")],
    ),
    "Debezium, unwrapped": Pair(
        {"format": "debezium", **BODY},
        b"5",
        lambda text: written({"id": 5, **ROW, "body": text, "__deleted": "false"}),
        [TOMBSTONE, (written({"id": 5, "body": "x", "__deleted": "true"}), ()), (b'{"__op": "d", "body": "te', ())],
        [BROKEN, NO_TEXT, NUMBER],
    ),
    "CloudEvents, binary": Pair(
        {"format": "cloudevents", **BODY},
        b"5",
        lambda text: written(ROW | {"body": text}),
        [TOMBSTONE, (written(ROW), (("ce_type", b"com.example.doc.deleted"),))],
        [BROKEN, NO_TEXT, NUMBER],
        headers=(("ce_type", b"com.example.doc.updated"), ("ce_time", b"2023-11-14T22:13:20Z")),
    ),
    "CloudEvents, structured": Pair(
        {"format": "cloudevents", **BODY},
        b"5",
        lambda text: event("doc.updated", ROW | {"body": text}),
        [TOMBSTONE, (event("com.example.doc.deleted.v1", None), ()), (event("doc.delete", ROW), ())],
        [BROKEN, (event("doc.updated", None), (), "path"), (event("doc.updated", {"body": 5}), (), "text-type")],
    ),
    "Confluent, JSON Schema": Pair(
        {"format": "json", **BODY},
        b"5",
        lambda text: framed(3, written(ROW | {"body": text})),
        [TOMBSTONE, (framed(3, b"null"), ()), (framed(3, written({"__deleted": True})), ())],
        [CUT, (framed(3, b'{"body": "te'), (), "format"), (framed(3, written({"body": None})), (), "path")],
    ),
    "Kafka Connect, JSON converter": Pair(
        {"format": "json", **BODY},
        b"5",
        lambda text: written({"schema": {"type": "struct"}, "payload": ROW | {"body": text}}),
        [TOMBSTONE, (b'{"schema": null, "payload": null}', ()), (b'{"schema": {}, "payload": {"__op": "d"}}', ())],
        [BROKEN, (written({"schema": {}, "payload": "just a text"}), (), "path")],
    ),
    "strings": Pair(
        {"format": "json", "text": ""},
        b"5",
        lambda text: text.encode(),
        [TOMBSTONE, (b"", ()), (b"  ", ()), (b'{"op": "delete"}', ()), (b'{"op": "delete", "cu', ())],
        [(b"\xff\xfe", (), "format")],
    ),
}
"""By the name of the client."""
