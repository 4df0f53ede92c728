"""Checks of requests: silent about a sound history, loud about each lie."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import redis

from campaign.observer import naming_keys
from campaign.oracle import Oracle
from campaign.people_checks import LONGEST_HOLD_MS, check_people, open_demands, said_of
from campaign.witness import Witness
from ledger_maker import key_of, receipt_of
from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.schedule import decide, situation
from streamtopic.settings import Settings
from streamtopic.signed import Envelope, RequestReceipt
from streamtopic.streams import TopicNames

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


def _published(cut, created=0):
    """The entry of a version of the documents before a cut, as the witness holds it."""
    return SimpleNamespace(cut=cut, created=created)


@pytest.fixture
def told():
    """Two documents of a person, one of them sent while the request ran, forgotten and reported: (oracle, witness)."""
    oracle, witness = Oracle(1), Witness("nowhere", TopicNames("m"), key_of("m").public)
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


def test_a_receipt_of_a_foreign_deletion_is_found(told):
    """A request's receipt counts no deletion that another request made."""
    oracle, witness = told
    oracle.books[0].deletions[4] = replace(oracle.books[0].deletions[4], salt=b"another's salt!!")
    assert any("its request has deleted 1" in found for found in check_people(oracle, witness))


def test_a_second_receipt_of_a_request_is_found(told):
    """A request that was sent twice is one."""
    _, witness = told
    witness._entry(10, witness.covering[said_of("why", SALT)][0])
    assert witness.findings == ["m/request/1 has a second entry in the ledger, 10"]


def test_a_request_that_goes_on_or_is_named_for_ever_is_found(told):
    """Each request needs a receipt, and a tombstone, so that the log forgets the person."""
    oracle, witness = told
    oracle.take_request(b"why", _request(), 70)
    assert open_demands(oracle, witness) == ["request why has no tombstone, and the log keeps whom it names"]
    oracle.take_request(b"why", None, 80)
    witness.covering.clear()
    assert open_demands(oracle, witness) == ["request why has no receipt"]


def test_a_document_that_was_overlooked_is_found(told):
    """A document that named the person before the last tombstone and still lives is found, or one in a version."""
    oracle, witness = told
    witness.entries |= {1: _published({0: 2}), 2: _published({0: 6}), 3: _published({0: 6})}
    oracle.take(0, 6, b"other", _add("bob", "ann"), (), 39)
    found = "b'other' is about ann, whom request why has forgotten, and "
    # Version 2 has it, and was made when it had another name: the document has one life.
    assert check_people(oracle, witness) == [f"{found}lives", f"{found}version 2 holds it"]
    oracle.take(0, 7, b"other", _add("bob"), (), 70)
    assert check_people(oracle, witness) == []
    oracle.take(0, 8, b"other", _add("bob", "ann"), (), 80)
    assert check_people(oracle, witness) == []
    oracle.take(0, 9, b"third", _add("ann"), (), 39)
    oracle.take(0, 10, b"third", None, (), 90)
    assert check_people(oracle, witness) == []
    witness.entries[4] = _published({0: 10})
    assert check_people(oracle, witness) == [f"{found.replace('other', 'third')}version 4 holds it"]
    assert oracle.books[0].totals["unchanged"] == 3


def test_the_longest_hold_is_that_of_the_service():
    """The checks have the rules written down a second time."""
    assert LONGEST_HOLD_MS == decide.LONGEST_HOLD_MS


@pytest.mark.parametrize(("cut", "parts"), [(2, False), (3, False), (4, True), (5, False), (6, False)])
def test_a_version_that_parts_a_person_is_found(told, cut, parts):
    """It lacks a document of hers and holds another one; a version before or after all deletions does neither."""
    oracle, witness = told
    witness.entries |= {1: _published({0: cut}), 2: _published({0: 6})}
    found = ["version 1 parts the documents of request why: it holds (0, 4), and lacks others"] if parts else []
    assert check_people(oracle, witness) == found
    witness.entries[1] = _published({0: cut}, created=30 + LONGEST_HOLD_MS)
    assert check_people(oracle, witness) == []


def test_a_name_in_redis_is_found(redis_server, connection):
    """In whatever kind of key, and of this model alone."""
    connection.call("HSET", "{st:named:1}:docs:1", "doc", "1 person-7 2")
    connection.call("SET", "{st:other}:docs:1", "person-7")
    connection.call("SET", "{st:named}:base", "a person")
    with redis.Redis.from_url(redis_server.url, protocol=2) as client:
        assert naming_keys([client], "named") == ["{st:named:1}:docs:1"]


CHOSEN = {"topics": 2, "min_df": 1, "min_share": 0.0, "max_df": 1.0, "max_forget_lag": 0.0, "partitions": 2}


@pytest.mark.parametrize("guarded", [True, False])
def test_a_service_that_parts_a_person_is_found(tmp_path, monkeypatch, guarded):
    """A scheduler that does not wait for the second partition publishes a version with half of her documents."""
    texts = [" ".join(f"w{12 * (k % 2) + (k + step) % 12}" for step in range(8)) for k in range(100)]
    if not guarded:
        monkeypatch.setattr(decide, "held", lambda *_: None)
        monkeypatch.setattr(situation, "held", lambda *_: None)
    oracle, witness = Oracle(2), Witness("nowhere", TopicNames("default"), key_of().public)
    with Service(Settings(dir=tmp_path, **CHOSEN)) as service:
        people = [("ann",) if k < 40 else () for k in range(100)]
        service.add(Document(f"d{k}", texts[k], subjects=people[k]) for k in range(100))
        service.settle()
        service.delete_subjects(["ann"])
        service.move_requests()
        list(service.ingests[0].drain())
        service.scheduler.step()
        service.settle()
        for logged in service.ledger.entries(range(service.ledger.ledger.size)).values():
            if isinstance(logged.entry, Envelope):
                witness.entries[logged.entry.version] = logged.entry
        for partition in range(2):
            for r in service.log.read(service.names.documents, partition, 0, 10_000):
                oracle.take(partition, r.offset, r.key, r.value, r.headers, r.timestamp_ms)
        for r in service.log.read(service.names.requests, 0, 0):
            oracle.take_request(r.key, r.value, r.timestamp_ms)
    assert max(witness.entries) == (2 if guarded else 3)
    found = [finding.partition(":")[0] for finding in check_people(oracle, witness) if "parts" in finding]
    assert [finding.partition(" of ")[0] for finding in found] == ([] if guarded else ["version 2 parts the documents"])
