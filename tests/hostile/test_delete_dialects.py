"""Deletes as the programs of others send them: none is refused, whatever else its value holds."""

import json

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.documents.deletes import salvaged
from streamtopic.documents.events import Add, Delete, decode
from streamtopic.errors import InvalidEvent

SOURCE = {"version": "3.0", "connector": "postgresql", "db": "shop", "table": "documents"}
DEBEZIUM = {"before": {"id": "d", "text": "gone"}, "after": None, "source": SOURCE, "op": "d", "ts_ms": 5}
SCHEMA = {"type": "struct", "fields": [], "optional": True}
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "org.example.document.deleted"}

DIALECTS = {
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
    "ours, with an add's fields": b'{"op": "delete", "text": 7, "counts": {"": -1}, "labels": 1, "ts": "x"}',
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


def event(value, headers=()):
    """Return the event of a record, or the reason why there is none."""
    try:
        return decode(b"d", value, headers)
    except InvalidEvent as error:
        return error.reason


@pytest.mark.parametrize("value", DIALECTS.values(), ids=DIALECTS)
def test_every_dialect_is_a_delete(value):
    """Each way in which the named programs say it deletes, and a header names its request."""
    assert event(value) == Delete("d")
    assert event(value, (("request", b"r-1"),)) == Delete("d", "r-1")


@pytest.mark.parametrize("name", ["ce_type", "ce_iodebeziumop"])
def test_a_cloud_event_in_binary_mode_deletes_by_its_header(name):
    """Whatever its value is: even a sound add."""
    said = b"org.example.document.deleted" if name == "ce_type" else b"d"
    for value in (b"{", b"\xff", msgpack.packb({"op": "add", "text": "one two"}), b'{"id": "d"}'):
        assert event(value, (("x", b""), (name, said), ("request", b"r"))) == Delete("d", "r")


@pytest.mark.parametrize(
    "value",
    [
        b'{"op": "add", "text": "a b", "type": "document.deleted"}',
        b'{"op": "add", "text": "a b", "__deleted": "false", "payload": null, "data": {"op": "delete"}}',
        json.dumps({"specversion": "1.0", "type": "document.undeleted", "op": "add", "text": "a b"}).encode(),
        msgpack.packb({"op": "add", "text": "delete d deleted null"}),
    ],
)
def test_an_add_stays_one(value):
    """Words and fields that only look like those of a delete do not make one."""
    assert isinstance(event(value, (("ce_type", b"org.example.document.created"),)), Add)


GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.binary() | st.integers(0, 9), inner),
    max_leaves=20,
)
NAMES = st.text().filter(lambda name: name not in {"op", "request"}) | st.sampled_from(["text", "ts", "payload"])


@settings(max_examples=80)
@given(garbage=st.dictionaries(NAMES, GARBAGE, max_size=5), cut=st.integers(0, 300), first=st.booleans())
def test_no_garbage_hides_a_delete(garbage, cut, first):
    """A map that says `op: delete` is one with anything around it, and as far as it is there if its end is missing."""
    said = {"op": "delete", "request": "r-1"}
    whole = msgpack.packb(said | garbage if first else garbage | said)
    assert event(whole) == Delete("d", "r-1")
    start = len(msgpack.packb(said)) + 4
    if first:
        assert event(whole[: start + cut]) == Delete("d", "r-1")


@settings(max_examples=200)
@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda tail: b"{" + tail))
def test_salvage_never_fails(value):
    """Whatever the bytes, the fields before the damage are found or none are."""
    assert isinstance(salvaged(value), dict)


@pytest.mark.parametrize("piece", [b'"\\', b'"\\"', b"[", b"[]", b'"":"",', b"\x82", b"\xdf\xff\xff\xff\xff", b"\xa0"])
def test_salvage_is_cheap(piece):
    """Four mebibytes of anything take a fraction of a second: only their beginning is read."""
    import time

    for head in (b"{", b"\xdf\xff\xff\xff\xff", b""):
        value = (head + piece * ((4 << 20) // len(piece)))[: 4 << 20]
        start = time.process_time()
        salvaged(value)
        assert time.process_time() - start < 0.3
