"""Readers of every format, given bytes of anyone: each record is an event or has a reason, and the process goes on."""

import json

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ingest import opened

from streamtopic.documents import events
from streamtopic.documents.dialects import OWN, Dialect, InputMapping
from streamtopic.documents.events import Delete, encode_add, encode_delete
from streamtopic.errors import InvalidEvent
from streamtopic.service.ingest.decode import decode_all
from streamtopic.service.ingest.rejections import rejections
from streamtopic.state import AddedDocument, Lexicon
from streamtopic.streams import Message, Record

FIELDS = {
    "text": ("text", "row.text"),
    "labels": (("task", "label"),),
    "time": "at",
    "operation": "action",
    "subject": "who",
}
DIALECTS = {
    "own": OWN,
    "json": Dialect(InputMapping("json", **FIELDS)),
    "whole values": Dialect(InputMapping("json", text=("",))),
    "debezium": Dialect(InputMapping("debezium", **FIELDS)),
    "cloudevents": Dialect(InputMapping("cloudevents", **FIELDS)),
}
EVERY = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
PLAIN = encode_add("plain", text="one two").value

DIGITS, DEEP, NUMBERS = b"9" * 5_000, b"[" * 20_000, [10**4_000, 1e308, -1, 0.1, 2**63]
NAMES = ("text", "label", "at", "action", "who", "op", "after", "payload", "data", "data_base64", "specversion", "x")
VALUES = [None, True, "", "\ud800", "0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59", [], [[]], {}, *NUMBERS]


def outcomes(dialect, values):
    """Return the event of each value, or its refusal, as ingest reads them in one batch; a plain add follows each."""
    records = []
    for value in values:
        records += [Record("t", 0, len(records), b"d", value, (), 0)]
        records += [Record("t", 0, len(records), b"plain", PLAIN, (), 0)]
    found = decode_all(records, Lexicon("test"), 1, dialect=dialect).events
    assert all(isinstance(event, AddedDocument) for event in found[1::2])
    return found[::2]


trees = st.recursive(
    st.sampled_from(VALUES) | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@EVERY
@settings(max_examples=50, deadline=None)
@given(
    tree=st.dictionaries(st.sampled_from(NAMES), trees), cut=st.integers(0, 400), frame=st.booleans(), data=st.data()
)
def test_any_map_is_an_event_or_refused(dialect, tree, cut, frame, data):
    """Maps of the fields that readers know, with any values, whole and damaged."""
    whole = b"\0\0\0\0\1" * frame + json.dumps(tree).encode()
    damaged = bytearray(whole)
    damaged[cut % len(whole)] = data.draw(st.integers(0, 255))
    found = outcomes(dialect, [whole, whole[:cut], bytes(damaged)])
    assert "reader" not in {event.reason for event in found if isinstance(event, InvalidEvent)}


FAULTS = [MemoryError, RecursionError, OverflowError, ValueError, KeyError, ZeroDivisionError]
SAID = [None, b"", b"null", b"\0\0\0\0\1", b"\x81\xa2op\xa6delete", b'{"op": "delete", "text": "a b", "x": [1]}']
# Not ASCII, so that compiled code leaves it to the readers.
ADDS = [msgpack.packb({"op": "add", "text": "é"}), b'{"op": "add", "text": "a b"}']


def failing(fault):
    """A reader with a defect."""

    def read(*_, **__):
        raise fault("secret words of the record")

    return read


@EVERY
@pytest.mark.parametrize("fault", FAULTS)
def test_a_record_that_no_parser_takes_is_refused_unless_it_is_a_delete(monkeypatch, dialect, fault):
    """Whatever the parser raises: the bytes say what is a delete, and another record names the exception."""
    monkeypatch.setattr(events, "parse", failing(fault))
    *gone, event = outcomes(dialect, [*SAID, ADDS[0]])
    assert gone == [Delete("d")] * len(SAID)
    assert event.reason == "format"
    assert fault.__name__ in str(event)
    assert "secret" not in str(event)


@EVERY
@pytest.mark.parametrize("fault", FAULTS)
def test_a_defect_costs_the_record_that_meets_it(monkeypatch, dialect, fault):
    """A delete is known before a field is read; an add is refused with the kind of the exception, and nothing else."""
    monkeypatch.setattr(events, "check_labels", failing(fault))
    monkeypatch.setattr("streamtopic.documents.dialects._encodable", failing(fault))
    monkeypatch.setattr("streamtopic.documents.dialects._whole_text", failing(fault))
    whole = dialect.mapping.text == ("",)
    said = [value for value in SAID if not whole or value != SAID[-1]]
    *gone, packed, row = outcomes(dialect, [*said, *ADDS])
    assert gone == [Delete("d")] * len(said)
    for event in (packed, row):
        assert event.reason == "reader"
        assert str(event) == f"the record cannot be read: {fault.__name__}"


def test_ingest_goes_on_past_a_record_that_no_reader_takes(connection, tmp_path, monkeypatch):
    """The document of its id goes, as for every refused change; the pointer has the reason, others are counted."""
    world = opened(connection, tmp_path)
    world.send(*(encode_add(name, text="one two") for name in ("a", "b")))
    world.drain()
    monkeypatch.setattr(events, "check_labels", failing(MemoryError))
    world.send(Message(b"a", ADDS[0]), encode_delete("b", "r-1"))
    assert world.drain() == {"rejected": 1, "deleted_by_refusal": 1, "deleted": 1}
    (pointer,) = rejections(world.log, world.topics)
    assert (pointer.reason, pointer.document) == ("reader", b"a")
