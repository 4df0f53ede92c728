"""Checks of requests: silent about a sound history, loud about each lie."""

import json

import pytest

from campaign.oracle import Oracle
from campaign.people_checks import check_people, said_of
from campaign.witness import Witness
from ledger_maker import key_of, receipt_of
from streamtopic.signed import RequestReceipt

SALT = b"0123456789abcdef"
HEADERS = (("request", b"why"), ("salt", SALT))


def _add(*subjects):
    return json.dumps({"op": "add", "text": "one two"} | ({"subjects": subjects} if subjects else {})).encode()


def _request(subject="ann"):
    return json.dumps({"salt": SALT.decode(), "subjects": [subject]}).encode()


def _cover(witness, index=9, **changes):
    """Let the ledger hold a receipt of the request, and none before it."""
    witness.covering.clear()
    fields = {"id": "m/request/1", "model": "m", "request": said_of("why", SALT), "link": "", "month": ""}
    witness._entry(index, RequestReceipt(**(fields | {"received": 0, "documents": 2, "version": 2} | changes)))


@pytest.fixture
def told():
    """Two documents of a person, one of them sent while the request ran, forgotten and reported: (oracle, witness)."""
    oracle, witness = Oracle(1), Witness(key_of("m").public, "m")
    records = [
        (b"a", _add("ann", "bob"), ()),
        (b"other", _add("bob"), ()),
        (b"late", _add("ann"), ()),
        (b"a", None, HEADERS),
        (b"late", None, HEADERS),
        (b"a", _add("ann"), ()),
    ]
    for offset, (key, value, headers) in enumerate(records):
        oracle.take(0, offset, key, value, headers, 10 * offset)
    for value, time_ms in ((_request(), 15), (_request("bob"), 16), (None, 60)):
        oracle.take_request(b"why", value, time_ms)
    for offset in (3, 4):
        witness._entry(4 + offset, receipt_of(offset, "why", SALT.decode(), "m", version=2))
    _cover(witness)
    return oracle, witness


def test_a_person_who_was_forgotten_and_came_again_is_no_finding(told):
    """What was added after the end of a request stays, and its receipt counts its two deletions."""
    assert check_people(*told) == []


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"documents": 1}, "counts 1 documents, its request has deleted 2"),
        ({"documents": 3}, "counts 3 documents, its request has deleted 2"),
        ({"version": 1}, "gone from version 1 on"),
        ({"version": 3}, "gone from version 3 on"),
        ({"request": "00"}, "nobody made"),
        ({"request": "00"}, "has no receipt"),
        ({"index": 8}, "before the receipt of (0, 4)"),
    ],
)
def test_a_wrong_receipt_of_a_request_is_found(told, changes, finding):
    """Each fact of the receipt follows from the log and from the receipts of the documents."""
    oracle, witness = told
    _cover(witness, **changes)
    assert any(finding in found for found in check_people(oracle, witness)), check_people(oracle, witness)
