"""Checks of forgotten people and of requests through the door: silent about a sound history, loud about each lie."""

import hashlib
from dataclasses import replace
from types import SimpleNamespace

import msgpack
import pytest

from streamtopic.documents.corpus import Document
from streamtopic.lab.faults.oracle import Oracle
from streamtopic.lab.faults.people_checks import LONGEST_HOLD_MS, check_people, open_people, said_of
from streamtopic.lab.faults.petitions import Petition, check_petitions
from streamtopic.lab.faults.reading import SUBJECT_KEY
from streamtopic.lab.faults.witness import Witness
from streamtopic.service.app import Service
from streamtopic.service.schedule import decide, situation
from streamtopic.settings import Settings
from streamtopic.signed import Receipt, SubjectReceipt
from streamtopic.state.deletion_requests import DeletionRequest, RequestState
from streamtopic.streams import TopicNames

SALT = b"0123456789abcdef"
KEY = SUBJECT_KEY + b"5f"
HEADERS = (("request", b"why"), ("salt", SALT))
DIGESTS = {1: "01" * 32, 2: "02" * 32}


def _add(*subjects, text="one two"):
    return msgpack.packb(
        {"op": "add", "text": text, "subjects": list(subjects)} if subjects else {"op": "add", "text": text}
    )


def _request(subject="ann"):
    return msgpack.packb({"op": "delete_subject", "subject": subject})


def _receipt(offset, sequence, version=2):
    return Receipt(
        sequence=sequence, previous="", model="m", partition=0, offset=offset, request=said_of("why", SALT),
        document="", received=0, applied=0, found=True, version=version, mode="certified", certificate=0.0, sigma=1.0,
        epsilon=1.0, delta=1e-6, cumulative_epsilon=1.0, capacity_used=0, capacity_left=0,
    )  # fmt: skip


def _covering(**changes):
    digest = hashlib.sha256(b"streamtopic covered receipts\0" + bytes.fromhex(DIGESTS[1] + DIGESTS[2])).hexdigest()
    fields = {
        "id": "m/subject/1",
        "model": "m",
        "request": said_of("why", SALT),
        "link": "",
        "month": "",
        "received": 0,
    }
    fields |= {"documents": 2, "version": 2, "receipts": (1, 2), "digest": digest}
    return SubjectReceipt(**(fields | changes))


@pytest.fixture
def told():
    """Two documents of a person, one of them sent while the request ran, forgotten and reported: (oracle, witness)."""
    oracle, witness = Oracle(1), Witness("nowhere", TopicNames("m"), None)
    oracle.take(0, 0, b"a", _add("ann", "bob"), ())
    oracle.take(0, 1, b"other", _add("bob"), ())
    oracle.take(0, 2, KEY, _request(), HEADERS)
    oracle.take(0, 3, b"late", _add("ann"), ())
    oracle.take(0, 4, b"a", None, HEADERS)
    oracle.take(0, 5, b"late", None, HEADERS)
    oracle.take(0, 6, KEY, None, ())
    oracle.take(0, 7, b"a", _add("ann"), ())
    witness.receipts |= {(0, 4): _receipt(4, 1), (0, 5): _receipt(5, 2)}
    witness.digests |= DIGESTS
    witness.covering["m/subject/1"] = (_covering(), 2)
    return oracle, witness


def test_a_person_who_was_forgotten_and_came_again_is_no_finding(told):
    """What was added behind the end of a request stays, and its receipt covers its two deletions."""
    assert check_people(*told) == open_people(*told) == []


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"documents": 1, "receipts": (1, 1), "digest": hashlib.sha256(b"").hexdigest()}, "does not cover (0, 5)"),
        ({"documents": 3, "receipts": (1, 3)}, "covers 2 receipts and says 3"),
        ({"version": 1}, "gone from version 1 on"),
        ({"digest": "00"}, "another digest"),
        ({"request": "00"}, "nobody made"),
        ({"request": "00"}, "no covering receipt"),
    ],
)
def test_a_wrong_covering_receipt_is_found(told, changes, finding):
    """Each fact of the receipt follows from the log and from the receipts of the documents."""
    oracle, witness = told
    witness.covering["m/subject/1"] = (_covering(**changes), 2)
    assert any(finding in found for found in check_people(oracle, witness)), check_people(oracle, witness)


def test_a_receipt_of_a_foreign_deletion_is_found(told):
    """A request's receipt covers no deletion that another request made."""
    oracle, witness = told
    deletions = oracle.books[0].deletions
    deletions[5] = replace(deletions[5], salt=b"another's salt!!")
    assert any("covers (0, 5), which its request has not" in found for found in check_people(oracle, witness))


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
    """A version of the documents before a cut, as the witness holds it."""
    return {"digest": SimpleNamespace(envelope=SimpleNamespace(cut=cut, created=created))}


@pytest.mark.parametrize(("cut", "parts"), [(2, False), (4, False), (5, True), (6, False), (8, False)])
def test_a_version_that_parts_a_person_is_found(told, cut, parts):
    """It lacks a document of hers and holds another one; a version before or behind all deletions does neither."""
    oracle, witness = told
    witness.versions[1] = _published({0: cut})
    witness.versions[2] = _published({0: 8})
    found = [finding for finding in check_people(oracle, witness) if "parts" in finding]
    assert found == (["version 1 parts the documents of ann: it holds (0, 5), and lacks others"] if parts else [])
    witness.versions[1] = _published({0: cut}, created=LONGEST_HOLD_MS)
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
    oracle, witness = Oracle(2), Witness("nowhere", TopicNames("default"), None)
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
        service.publisher.drain()
        # A version that holds deleted documents leaves the log, and the witness reads all the time.
        early = list(service.releases())
        service.settle()
        for release in [*early, *service.releases()]:
            witness.versions[release.version] = {"digest": release}
        for partition in range(2):
            for r in service.log.read(service.names.documents, partition, 0, 10_000):
                oracle.take(partition, r.offset, r.key, r.value, r.headers, r.timestamp_ms)
    assert max(witness.versions) == (2 if guarded else 3)
    found = [finding.partition(":")[0] for finding in check_people(oracle, witness) if "parts" in finding]
    assert found == ([] if guarded else ["version 2 parts the documents of ann"])
