"""Deletes as programs of others send them: whatever the form, the document is gone, and its request has a receipt."""

import json

import msgpack
import pytest
from test_ingest import opened

from streamtopic.documents.events import Delete, Document, decode, encode_add
from streamtopic.streams import Message

SOURCE = {"version": "3.0", "connector": "postgresql", "db": "shop", "table": "documents"}
DEBEZIUM = {"before": {"id": "d", "text": "gone"}, "after": None, "source": SOURCE, "op": "d", "ts_ms": 5}
SCHEMA = {"type": "struct", "fields": [], "optional": True}
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "org.example.document.deleted"}

FORMS = {
    "tombstone": None,
    "empty bytes (FastStream, KafkaFlow)": b"",
    "JSON null (Micronaut, kafka-python with json.dumps)": b"null",
    "JSON null with blanks": b" null\r\n",
    "NULL of the console producer": b"NULL",
    "JSON empty text": b'""',
    "empty map (Spring's KafkaNull through its JSON serializer)": b"{}",
    "blanks": b" \t\r\n",
    "a byte order mark": b"\xef\xbb\xbf",
    "a zero byte": b"\0",
    "msgpack nil": msgpack.packb(None),
    "msgpack empty text": msgpack.packb(""),
    "msgpack empty bytes": msgpack.packb(b""),
    "msgpack empty map": msgpack.packb({}),
    "framed by a schema registry, Avro's null": b"\0\0\0\0\x07",
    "framed by a schema registry, Avro's union": b"\0\0\0\0\x07\0",
    "framed by a schema registry, JSON null": b"\0\0\0\0\x07null",
    "framed by a schema registry, a map": b'\0\0\0\0\x07{"op": "delete"}',
    "Kafka Connect's null": b'{"schema":null,"payload":null}',
    "Kafka Connect's null without schema": b'{"payload": null}',
    "Debezium": json.dumps(DEBEZIUM).encode(),
    "Debezium with schema": json.dumps({"schema": SCHEMA, "payload": DEBEZIUM}).encode(),
    "Debezium, flattened": b'{"id": "d", "text": "gone", "__deleted": "true"}',
    "Debezium, flattened, a Boolean": b'{"id": "d", "__deleted": true}',
    "Debezium, flattened, with schema": json.dumps({"schema": SCHEMA, "payload": {"__deleted": "true"}}).encode(),
    "Debezium, flattened, with its operation": b'{"id": "d", "__op": "d"}',
    "Debezium as a CloudEvent": json.dumps(EVENT | {"type": "io.debezium.x", "iodebeziumop": "d"}).encode(),
    "CloudEvent": json.dumps(EVENT | {"data": {"id": "d", "text": "gone"}}).encode(),
    "CloudEvent, another type": json.dumps(EVENT | {"type": "Document.Delete.v2", "data": None}).encode(),
    "CloudEvent around ours": json.dumps(EVENT | {"type": "org.example", "data": {"op": "delete"}}).encode(),
    "ours": b'{"op": "delete"}',
    "ours, in other letters": b'{"op": "DELETE"}',
    "ours, names as bytes": msgpack.packb({b"op": b"delete"}),
    "ours, behind blanks": b'\n {"op": "delete"}',
    "ours, behind a byte order mark": '\ufeff{"op": "delete"}'.encode(),
    "ours, with a bad request": msgpack.packb({"op": "delete", "request": ["none"]}),
    "ours, with an add's fields": b'{"op": "delete", "text": 7, "counts": {"": -1}, "labels": 1}',
    "ours, NaN": b'{"op": "delete", "x": NaN}',
    "ours, a number of 10,000 digits": b'{"op": "delete", "x": ' + b"9" * 10_000 + b"}",
    "ours, nested": b'{"op": "delete", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "ours, nested first": b'{"x": ' + b"[" * 20_000 + b"]" * 20_000 + b', "op": "delete"}',
    "ours, trailing": b'{"op": "delete"} and more',
    "ours, cut off": b'{"op": "delete", "x": "',
    "ours, control characters": b'{"op": "delete", "x": "\x01\n"}',
    "ours, not UTF-8": b'{"op": "delete", "x": "\xff"}',
    "ours, over 4 MiB": b'{"op": "delete", "x": "' + b"x" * (5 << 20) + b'"}',
    "ours, msgpack with other keys": msgpack.packb({"op": "delete", 5: 1, None: 2}),
    "ours, msgpack nested": b"\x82\xa2op\xa6delete\xa1x" + b"\x91" * 50_000 + b"\0",
    "ours, msgpack nested first": b"\x82\xa1x" + b"\x91" * 50_000 + b"\0\xa2op\xa6delete",
    "ours, msgpack not UTF-8": b"\x82\xa1x\xa2\xff\xfe\xa2op\xa6delete",
    "ours, msgpack cut off": msgpack.packb({"op": "delete", "text": "a b"})[:-1],
    "ours, msgpack trailing": msgpack.packb({"op": "delete"}) + b"\xff",
    "ours, msgpack that lies about its size": b"\xdf\xff\xff\xff\xff\xa2op\xa6delete",
}


def test_every_form_removes_the_document(connection, tmp_path):
    """Understood or refused: nothing is left under the id, and a header `request` asks for a receipt."""
    world = opened(connection, tmp_path)
    world.send(*(encode_add(name, text="one two") for name in [*FORMS, "stays"]))
    world.drain()
    world.send(*(Message(name.encode(), value, (("request", b"r"),)) for name, value in FORMS.items()))
    told = world.drain()
    assert told["deleted"] + told["deleted_by_refusal"] == len(FORMS)
    assert world.live() == {"stays"}
    forgets = world.forgets()
    assert {forget.document.decode() for forget in forgets} == set(FORMS)
    assert all(forget.wants_receipt for forget in forgets)
    assert world.counted() == world.recounted()


NOTHING = [None, b"", b"null", b'""', b"{}", b" null\r\n", *map(msgpack.packb, (None, "", b"", {}))]


@pytest.mark.parametrize("value", NOTHING, ids=repr)
def test_a_value_without_content_is_a_tombstone(value):
    """So clients delete that cannot send null."""
    assert decode(b"d", value) == Delete("d")
    assert decode(b"d", value, (("request", b"r-1"),)) == Delete("d", "r-1")


@pytest.mark.parametrize(
    "value",
    [
        b'{"op": "add", "text": "a b", "type": "document.deleted", "specversion": "1.0"}',
        b'{"op": "add", "text": "a b", "__deleted": "true", "payload": null, "data": {"op": "delete"}}',
        msgpack.packb({"op": "add", "text": "delete d deleted null"}),
    ],
)
def test_an_add_stays_one(value):
    """Words and fields that only look like those of a delete do not make one."""
    assert isinstance(decode(b"d", value, (("ce_type", b"org.example.document.deleted"),)), Document)
