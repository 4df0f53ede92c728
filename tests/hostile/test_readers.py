"""Readers of every format, given bytes of anyone: each record is an event or has a reason, and the process goes on."""

import msgpack
import pytest

from streamtopic.documents import events
from streamtopic.documents.events import Delete, encode_add
from streamtopic.service.ingest.decode import decode_all
from streamtopic.state import Lexicon
from streamtopic.streams import Record

PLAIN = encode_add("plain", text="one two").value

DIGITS, DEEP, NUMBERS = b"9" * 5_000, b"[" * 20_000, [10**4_000, 1e308, -1, 0.1, 2**63]


def outcomes(values):
    """Return the event of each value, or its refusal, as ingest reads them in one batch; a plain add follows each."""
    records = []
    for value in values:
        records += [Record("t", 0, len(records), b"d", value, (), 0)]
        records += [Record("t", 0, len(records), b"plain", PLAIN, (), 0)]
    decoded = decode_all(records, Lexicon("test"), 1)
    assert not any(k % 2 for k in decoded.others)
    return [decoded.others.get(2 * k) for k in range(len(values))]


FAULTS = [MemoryError, RecursionError, OverflowError, ValueError, KeyError, ZeroDivisionError]
SAID = [None, b"", b"null", b"\x81\xa2op\xa6delete", b'{"op": "delete", "text": "a b", "x": [1]}']
ADDS = [msgpack.packb({"op": "add", "text": "é", "labels": {"t": "c"}}), b'{"op": "add", "text": "a", "labels": {}}']


def failing(monkeypatch, reader, fault, spared):
    """Give a reader of `events` a defect, which meets all values but one."""
    sound = getattr(events, reader)

    def read(value):
        if value == spared:
            return sound(value)
        raise fault("secret words of the record")

    monkeypatch.setattr(events, reader, read)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_record_that_no_parser_takes_is_refused(monkeypatch, fault):
    """Whatever the parser raises: the reason names the exception and no word; a tombstone needs no parser."""
    failing(monkeypatch, "parse", fault, PLAIN)
    *gone, event = outcomes([None, b"", ADDS[0]])
    assert gone == [Delete("d"), Delete("d")]
    assert event.reason == "format"
    assert fault.__name__ in str(event)
    assert "secret" not in str(event)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_defect_costs_the_record_that_meets_it(monkeypatch, fault):
    """A delete is known before a field is read; an add is refused with the kind of the exception, and nothing else."""
    failing(monkeypatch, "check_labels", fault, None)
    *gone, packed, row = outcomes([*SAID, *ADDS])
    assert gone == [Delete("d")] * len(SAID)
    for event in (packed, row):
        assert event.reason == "reader"
        assert str(event) == f"the record cannot be read: {fault.__name__}"
