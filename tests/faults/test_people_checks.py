"""Checks of forgotten people and of requests through the door: silent about a sound history, loud about each lie."""

from dataclasses import replace
from types import SimpleNamespace

import msgpack
import pytest

from campaign.oracle import Oracle
from campaign.people_checks import LONGEST_HOLD_MS, check_people, open_people, said_of
from campaign.petitions import Petition, check_petitions
from campaign.reading import SUBJECT_KEY
from campaign.witness import Witness
from ledger_maker import key_of, receipt_of
from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.schedule import decide, situation
from streamtopic.settings import Settings
from streamtopic.signed import Envelope, SubjectReceipt
from streamtopic.state.deletion_requests import DeletionRequest, RequestState
from streamtopic.streams import TopicNames

SALT = b"0123456789abcdef"
KEY = SUBJECT_KEY + b"5f"
HEADERS = (("request", b"why"), ("salt", SALT))


def _add(*subjects, text="one two"):
    return msgpack.packb(
        {"op": "add", "text": text, "subjects": list(subjects)} if subjects else {"op": "add", "text": text}
    )


def _request(subject="ann"):
    return msgpack.packb({"op": "delete_subject", "subject": subject})


def _receipt(offset, version=2):
    return receipt_of(offset, "why", SALT.decode(), "m", version=version)


def _covering(**changes):
    fields = {"id": "m/subject/1", "model": "m", "request": said_of("why", SALT), "link": "", "month": ""}
    return SubjectReceipt(**(fields | {"received": 0, "documents": 2, "version": 2} | changes))


def _witness(model="m"):
    return Witness("nowhere", TopicNames(model), key_of(model).public)


@pytest.fixture
def told():
    """Two documents of a person, one of them sent while the request ran, forgotten and reported: (oracle, witness)."""
    oracle, witness = Oracle(1), _witness()
    oracle.take(0, 0, b"a", _add("ann", "bob"), ())
    oracle.take(0, 1, b"other", _add("bob"), ())
    oracle.take(0, 2, KEY, _request(), HEADERS)
    oracle.take(0, 3, b"late", _add("ann"), ())
    oracle.take(0, 4, b"a", None, HEADERS)
    oracle.take(0, 5, b"late", None, HEADERS)
    oracle.take(0, 6, KEY, None, ())
    oracle.take(0, 7, b"a", _add("ann"), ())
    witness.receipts |= {(0, 4): _receipt(4), (0, 5): _receipt(5)}
    witness.places |= {(0, 4): 7, (0, 5): 8}
    witness.covering["m/subject/1"] = (_covering(), 9)
    return oracle, witness


def test_a_person_who_was_forgotten_and_came_again_is_no_finding(told):
    """What was added behind the end of a request stays, and its receipt counts its two deletions."""
    assert check_people(*told) == open_people(*told) == []


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"documents": 1}, "counts 1 documents, its request has deleted 2"),
        ({"documents": 3}, "counts 3 documents, its request has deleted 2"),
        ({"version": 1}, "gone from version 1 on"),
        ({"version": 3}, "gone from version 3 on"),
        ({"request": "00"}, "nobody made"),
        ({"request": "00"}, "has no receipt"),
    ],
)
def test_a_wrong_receipt_of_a_person_is_found(told, changes, finding):
    """Each fact of the receipt follows from the log and from the receipts of the documents."""
    oracle, witness = told
    witness.covering["m/subject/1"] = (_covering(**changes), 9)
    assert any(finding in found for found in check_people(oracle, witness)), check_people(oracle, witness)


def test_a_receipt_that_comes_too_early_is_found(told):
    """Whoever has it has those of all documents before it."""
    oracle, witness = told
    witness.covering["m/subject/1"] = (_covering(), 8)
    assert any("before the receipt of (0, 5)" in found for found in check_people(oracle, witness))


def test_a_receipt_of_a_foreign_deletion_is_found(told):
    """A request's receipt counts no deletion that another request made."""
    oracle, witness = told
    deletions = oracle.books[0].deletions
    deletions[5] = replace(deletions[5], salt=b"another's salt!!")
    assert any("its request has deleted 1" in found for found in check_people(oracle, witness))


def test_a_document_that_was_overlooked_is_found(told):
    """A document that named the person before the end and still lives is found, also by its later name alone."""
    oracle, witness = told
    oracle.take(0, 8, b"other", _add("bob", "ann"), ())
    assert check_people(oracle, witness) == []
    oracle.take(0, 9, KEY, None, ())
    assert check_people(oracle, witness) == []
    oracle.take(0, 10, KEY, _request(), HEADERS)
    assert open_people(oracle, witness) == ["a request to forget ann lasts in partitions [0]"]
    oracle.take(0, 11, KEY, None, ())
    found = check_people(oracle, witness)
    assert [finding.partition(" ")[0] for finding in found] == ["b'other'", "b'a'"]
    # Nobody is about her any more: no deletion, and no document of hers.
    oracle.take(0, 12, b"other", _add("bob"), ())
    oracle.take(0, 13, b"a", _add(), ())
    assert check_people(oracle, witness) == []
    assert oracle.books[0].totals["unchanged"] == 3


def test_the_longest_hold_is_that_of_the_service():
    """The checks have the rules written down a second time."""
    assert LONGEST_HOLD_MS == decide.LONGEST_HOLD_MS


def _published(cut, created=0):
    """The entry of a version of the documents before a cut, as the witness holds it."""
    return SimpleNamespace(cut=cut, created=created)


@pytest.mark.parametrize(("cut", "parts"), [(2, False), (4, False), (5, True), (6, False), (8, False)])
def test_a_version_that_parts_a_person_is_found(told, cut, parts):
    """It lacks a document of hers and holds another one; a version before or behind all deletions does neither."""
    oracle, witness = told
    witness.entries[1] = _published({0: cut})
    witness.entries[2] = _published({0: 8})
    found = [finding for finding in check_people(oracle, witness) if "parts" in finding]
    assert found == (["version 1 parts the documents of ann: it holds (0, 5), and lacks others"] if parts else [])
    witness.entries[1] = _published({0: cut}, created=LONGEST_HOLD_MS)
    assert check_people(oracle, witness) == []


class _Asked:
    """The petitioner of one petition, in one state."""

    def __init__(self, petition, state):
        self.petitions = {petition.name: petition}
        self._state = state

    def ended(self):
        """The requests that Redis knows."""
        request = DeletionRequest("why", self._state, 1, 0, 0, 0) if self._state else None
        return {"why": request} if request else {}


def _petition(**changes):
    fields = {"name": "why", "salt": SALT.decode(), "documents": frozenset(["a", "late"]), "subject": ""}
    return Petition(**(fields | {"forgotten": 0} | changes))


DONE, CANCELLED = RequestState.COMPLETED, RequestState.CANCELLED


@pytest.mark.parametrize(
    ("changes", "state", "forgotten", "finding"),
    [
        ({}, DONE, 0, None),
        ({"documents": frozenset(["a", "late", "never"])}, DONE, 0, "not all of its deletes"),
        ({"documents": frozenset(["a"])}, DONE, 0, "does not name"),
        ({"salt": "fedcba9876543210"}, DONE, 0, "another salt"),
        ({"recalled": 0, "tried": True}, DONE, 0, "was cancelled, and is completed"),
        ({"recalled": 0, "tried": True}, DONE, 2, None),
        ({"recalled": 0, "tried": True}, CANCELLED, 0, "is cancelled, and its deletes are in the log"),
        ({"recalled": 0, "tried": True}, CANCELLED, 2, None),
        ({}, CANCELLED, 0, "nobody has cancelled it"),
        ({}, None, 0, "is unknown"),
        ({"documents": frozenset(), "subject": "ann"}, DONE, 0, None),
        ({"documents": frozenset(), "subject": "bob"}, DONE, 0, "not all of its deletes"),
    ],
)
def test_a_request_is_held_to_what_was_said(told, changes, state, forgotten, finding):
    """Completed is everything, cancelled is nothing, and only a Redis that forgot may have another opinion."""
    oracle, _ = told
    found = check_petitions(_Asked(_petition(**changes), state), oracle, forgotten)
    assert any(finding in one for one in found) if finding else found == []


def test_a_cancelled_request_has_no_record(told):
    """A request that was cancelled left nothing in the log."""
    oracle, _ = told
    petition = _petition(name="other", recalled=0, tried=True)
    asked = SimpleNamespace(
        petitions={"other": petition}, ended=lambda: {"other": DeletionRequest("other", CANCELLED, 1, 0, 0, 0)}
    )
    assert check_petitions(asked, oracle, 0) == []


CHOSEN = {"topics": 2, "min_df": 1, "min_share": 0.0, "max_df": 1.0, "max_forget_lag": 0.0, "partitions": 2}


@pytest.mark.parametrize("guarded", [True, False])
def test_a_service_that_parts_a_person_is_found(tmp_path, monkeypatch, guarded):
    """A scheduler that does not wait for the second partition publishes a version with half of her documents."""
    texts = [" ".join(f"w{12 * (k % 2) + (k + step) % 12}" for step in range(8)) for k in range(100)]
    if not guarded:
        monkeypatch.setattr(decide, "held", lambda *_: None)
        monkeypatch.setattr(situation, "held", lambda *_: None)
    oracle, witness = Oracle(2), _witness("default")
    with Service(Settings(dir=tmp_path, **CHOSEN)) as service:
        people = [("ann",) if k < 40 else () for k in range(100)]
        service.add(Document(f"d{k}", texts[k], subjects=people[k]) for k in range(100))
        service.settle()
        service.delete_subjects(["ann"])
        first, second = service.ingests
        second.step()
        for _ in range(3):
            list(first.drain())
        service.scheduler.step()
        service.settle()
        for logged in service.ledger.entries(range(service.ledger.ledger.size)).values():
            if isinstance(logged.entry, Envelope):
                witness.entries[logged.entry.version] = logged.entry
        for partition in range(2):
            for r in service.log.read(service.names.documents, partition, 0, 10_000):
                oracle.take(partition, r.offset, r.key, r.value, r.headers, r.timestamp_ms)
    assert max(witness.entries) == (2 if guarded else 3)
    found = [finding.partition(":")[0] for finding in check_people(oracle, witness) if "parts" in finding]
    assert found == ([] if guarded else ["version 2 parts the documents of ann"])
