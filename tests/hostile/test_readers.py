"""Readers of every format, given bytes of anyone: each record is an event or has a reason, and the process goes on."""

import json

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ingest import opened

from streamtopic.documents import events
from streamtopic.documents.events import Delete, encode_add, encode_delete
from streamtopic.errors import InvalidEvent
from streamtopic.service.ingest.decode import decode_all
from streamtopic.service.ingest.rejections import rejections
from streamtopic.state import Lexicon
from streamtopic.streams import Message, Record

PLAIN = encode_add("plain", text="one two").value

DIGITS, DEEP, NUMBERS = b"9" * 5_000, b"[" * 20_000, [10**4_000, 1e308, -1, 0.1, 2**63]
NAMES = ("op", "text", "counts", "labels", "ts", "subjects", "request", "salt", "x")
VALUES = [None, True, "", "\ud800", "0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59", [], [[]], {}, *NUMBERS]


def outcomes(values):
    """Return the event of each value, or its refusal, as ingest reads them in one batch; a plain add follows each."""
    records = []
    for value in values:
        records += [Record("t", 0, len(records), b"d", value, (), 0)]
        records += [Record("t", 0, len(records), b"plain", PLAIN, (), 0)]
    decoded = decode_all(records, Lexicon("test"), 1)
    assert not any(k % 2 for k in decoded.others)
    return [decoded.others.get(2 * k) for k in range(len(values))]


trees = st.recursive(
    st.sampled_from(VALUES) | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(tree=st.dictionaries(st.sampled_from(NAMES), trees), cut=st.integers(0, 400), data=st.data())
def test_any_map_is_an_event_or_refused(tree, cut, data):
    """Maps of the fields that readers know, with any values, whole and damaged."""
    whole = json.dumps(tree).encode()
    damaged = bytearray(whole)
    damaged[cut % len(whole)] = data.draw(st.integers(0, 255))
    found = outcomes([whole, whole[:cut], bytes(damaged)])
    assert "reader" not in {event.reason for event in found if isinstance(event, InvalidEvent)}


FAULTS = [MemoryError, RecursionError, OverflowError, ValueError, KeyError, ZeroDivisionError]
SAID = [None, b"", b"null", b"\x81\xa2op\xa6delete", b'{"op": "delete", "text": "a b", "x": [1]}']
# Not ASCII, so that they are not plain.
ADDS = [msgpack.packb({"op": "add", "text": "é"}), '{"op": "add", "text": "a é"}'.encode()]


def failing(fault):
    """A reader with a defect."""

    def read(*_, **__):
        raise fault("secret words of the record")

    return read


@pytest.mark.parametrize("fault", FAULTS)
def test_a_record_that_no_parser_takes_is_refused(monkeypatch, fault):
    """Whatever the parser raises: the reason names the exception and no word; a tombstone needs no parser."""
    monkeypatch.setattr(events, "parse", failing(fault))
    *gone, event = outcomes([None, b"", ADDS[0]])
    assert gone == [Delete("d"), Delete("d")]
    assert event.reason == "format"
    assert fault.__name__ in str(event)
    assert "secret" not in str(event)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_defect_costs_the_record_that_meets_it(monkeypatch, fault):
    """A delete is known before a field is read; an add is refused with the kind of the exception, and nothing else."""
    monkeypatch.setattr(events, "check_labels", failing(fault))
    *gone, packed, row = outcomes([*SAID, *ADDS])
    assert gone == [Delete("d")] * len(SAID)
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
