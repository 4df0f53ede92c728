"""Requests for deletions move through hold and brake to their receipts, whatever happens on the way."""

import dataclasses

import pytest
from watched_service import Clock, Watched, documents, opened

from ledger_maker import SALT, receipt_of
from streamtopic.client import Receipts
from streamtopic.documents.deletion_record import Misplaced, Wanted, encode_misplaced, encode_request
from streamtopic.documents.events import encode_delete
from streamtopic.errors import UsageError
from streamtopic.service.requests.request_mover import _is_done
from streamtopic.signed import Logged
from streamtopic.state.connection import ModelKeys
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.streams import partition_of

IDS = [document.id for document in documents()]


@pytest.fixture
def clock():
    """Time that the test moves on."""
    return Clock()


@pytest.fixture
def started(tmp_path, clock):
    """Open an instance with 60 documents and a version, with these settings."""
    made = []

    def start(**settings):
        context = opened(tmp_path / "instance", Watched(), clock, **settings)
        service = context.__enter__()
        made.append(context)
        service.add(documents())
        service.settle()
        return service

    yield start
    for context in made:
        context.__exit__(None, None, None)


def tombstones(service):
    """Keys of the deletes in the documents topic."""
    records = service.log.read(service.names.documents, 0, 0, 10_000)
    return [record.key.decode() for record in records if record.value is None]


def state(service, name):
    """Where a request stands."""
    return service.door.requests.get(name).state


def test_a_request_waits_for_its_hold_and_gets_its_receipts(started, clock):
    """Nothing is sent before; then one request id and one salt find all receipts, and ids are gone."""
    service = started(hold_seconds=600.0)
    received = service.door.receive(IDS[:3])
    name, salt = received.request.id, received.salt
    service.settle()
    assert (state(service, name), tombstones(service)) == (RequestState.WAITING, [])
    clock.ahead += 601
    assert service.settle().ingested == {"deleted": 3}
    assert state(service, name) is RequestState.COMPLETED
    receipts = Receipts(service.log, model="default", public_key=service.keys)
    found = receipts.find(name, salt=salt)
    assert (len(found), receipts.covering(name, salt=salt).documents) == (3, 3)
    assert all(any(receipt.is_about(document, salt) for receipt in found) for document in IDS[:3])
    assert service.door.pending(name) is None
    service.settle()
    assert tombstones(service) == IDS[:3]


def test_a_cancelled_request_deletes_nothing(started, clock):
    """Not later either; and what was sent cannot be cancelled."""
    service = started(hold_seconds=600.0)
    cancelled = service.door.receive(IDS[:2]).request.id
    kept = service.door.receive(IDS[2:3]).request.id
    service.door.cancel(cancelled)
    clock.ahead += 601
    assert service.leader.move_requests()["sent"] == 1
    with pytest.raises(UsageError, match="cannot be cancelled"):
        service.door.cancel(kept)
    service.settle()
    assert tombstones(service) == IDS[2:3]
    # Nor does the log name its documents any longer than those of a request that was done.
    assert service.door.pending(cancelled) is None
    with pytest.raises(UsageError, match="no request"):
        service.door.cancel("nobody")


def test_a_wave_is_paused_until_somebody_looks(started, clock):
    """All requests of the wave stay, the first ones too; others before and after it pass; approval lets it through.

    Just the share of the documents is no wave yet.
    """
    service = started(brake_share=0.1)
    alone = service.door.receive(IDS[:6]).request.id
    assert service.leader.move_requests()["sent"] == 1
    clock.ahead += 7200
    wave = [service.door.receive([document]).request.id for document in IDS[6:14]]
    assert service.leader.move_requests()["paused"] == 8
    service.look()
    assert service.watch.samples()["streamtopic_forget_pending", ("paused",)] == 8
    clock.ahead += 7200
    later = service.door.receive(IDS[14:16]).request.id
    service.settle()
    assert [state(service, one) for one in (alone, later)] == [RequestState.COMPLETED] * 2
    assert {state(service, one) for one in wave} == {RequestState.PAUSED}
    service.door.approve(wave[0])
    service.door.cancel(wave[1])
    service.settle()
    assert state(service, wave[0]) is RequestState.COMPLETED
    assert state(service, wave[1]) is RequestState.CANCELLED
    assert sorted(tombstones(service)) == sorted([*IDS[:7], *IDS[14:16]])


def test_a_wave_of_people_counts_those_who_are_gone_already(started):
    """The index knows nobody any more who was deleted a moment ago, and the next request is one of the same wave."""
    service = started(brake_share=0.1)
    service.add([one._replace(id=f"p-{one.id}", subjects=(f"s{k % 2}",)) for k, one in enumerate(documents()[:8])])
    service.settle()
    first = service.door.receive([], subjects=["s0"]).request.id
    service.settle()
    second = service.door.receive([], subjects=["s1"]).request.id
    service.settle()
    assert [state(service, one) for one in (first, second)] == [RequestState.COMPLETED, RequestState.PAUSED]
    # Who has to decide is told how many documents it is about.
    assert service.door.requests.get(second).known == 4


def test_the_first_record_of_a_request_counts(started, clock):
    """Whatever is written under its id later, and whatever is refused before: that is what its requester was told."""
    service = started(hold_seconds=600.0)
    first, second = (encode_request(Wanted("r-1", 16 * salt, (one,))) for salt, one in zip("ab", IDS[:2], strict=True))
    refused = dataclasses.replace(first, value=b"{}")
    service.log.append_many(service.names.requests, [refused, first, second])
    assert service.door.pending("r-1").salt == 16 * "a"
    service.settle()
    clock.ahead += 601
    service.settle()
    assert tombstones(service) == IDS[:1]


@pytest.mark.parametrize(
    ("limit", "most", "named"),
    [
        ("MOST_OPEN", 1, {"documents": IDS[:1]}),
        ("MOST_OPEN_DOCUMENTS", 2, {"documents": IDS[2:4]}),
        ("MOST_OPEN_DOCUMENTS", 2, {"documents": (), "subjects": ("s0", "s1")}),
    ],
)
def test_as_many_requests_are_open_as_may_be(started, monkeypatch, limit, most, named):
    """Others wait in their topic until one has ended."""
    monkeypatch.setattr(f"streamtopic.service.requests.request_mover.{limit}", most)
    service = started(hold_seconds=600.0)
    first = service.door.receive(**named).request.id
    assert service.leader.move_requests()["taken"] == 1
    second = service.door.receive(IDS[1:2]).request.id
    assert service.leader.move_requests()["taken"] == 0
    service.door.cancel(first)
    service.leader.move_requests()
    assert service.leader.move_requests()["taken"] == 1
    assert [one.id for one in service.door.requests.open()] == [second]


@pytest.mark.parametrize("behind", ["many records are not counted", "a transaction is open"])
def test_people_wait_for_records_that_nobody_has_counted(started, monkeypatch, behind):
    """A record may give a document to somebody else, so many of them are counted first, and hidden ones waited for."""
    service = started()
    service.add([documents()[0]._replace(subjects=("s0",))])
    service.settle()
    service.door.receive([], subjects=["s0"])
    service.add(documents()[1:3])
    with monkeypatch.context() as patch:
        if behind == "a transaction is open":
            patch.setattr(type(service.log), "written_end", lambda log, *place: log.end(*place) + 1)
        else:
            patch.setattr("streamtopic.service.requests.request_mover._MOST_BEHIND", 1)
        assert service.leader.move_requests()["sent"] == 0
    assert service.leader.move_requests()["sent"] == 1


def test_who_leads_no_more_deletes_nothing(started, monkeypatch):
    """Another scheduler may have carried the request out, and a producer may have used the ids again since."""
    service = started()
    name = service.door.receive(IDS[:2]).request.id
    with monkeypatch.context() as patch:
        patch.setattr(DeletionRequests, "is_led", lambda *_: False)
        service.leader.move_requests()
    assert tombstones(service) == []
    service.settle()
    assert (state(service, name), tombstones(service)) == (RequestState.COMPLETED, IDS[:2])


def test_a_topic_of_requests_that_was_made_again_is_read_from_its_beginning(started):
    """Else the record of the next request would lie before the place where this process goes on."""
    service = started()
    for name in IDS[:2]:
        service.door.receive([name])
        service.settle()
    service.log.remove(service.names.requests)
    service.log.create(service.names.requests, 1)
    last = service.door.receive(IDS[2:3]).request.id
    service.settle()
    assert (state(service, last), tombstones(service)) == (RequestState.COMPLETED, IDS[:3])


def test_misplaced_deletes_are_not_held_and_a_wave_of_them_is_paused(started):
    """The documents topic holds nothing back; but a producer with another hash may not delete half of the documents."""
    service = started(hold_seconds=600.0, brake_share=0.1, partitions=2)

    def misplace(ids):
        gone = [encode_delete(one, f"r-{one}", b"0123456789abcdef") for one in ids]
        placed = [dataclasses.replace(one, partition=1 - partition_of(one.key, 2)) for one in gone]
        service.log.append_many(service.names.documents, placed)
        service.settle()

    misplace(IDS[:2])
    assert service.status()["documents"] == 58
    misplace(IDS[2:12])
    assert service.status()["documents"] == 58
    # One request for each partition in which deletes were found.
    wave = [one.id for one in service.door.paused()]
    for name in wave:
        service.door.approve(name)
    service.settle()
    assert service.status()["documents"] == 48
    assert {state(service, name) for name in wave} == {RequestState.COMPLETED}
    assert {receipt.found for receipt in service.receipts()} == {True}
    assert len(service.receipts()) == 12


def test_misplaced_deletes_have_no_receipt_of_a_request_after_a_set_back(started):
    """A Redis that was set back holds them as sent, and the leader that has completed them has dropped their record."""
    service = started()
    service.log.append_many(service.names.requests, encode_misplaced([Misplaced("nobody", 0, True, "request-1")]))
    service.leader.move_requests()
    (sent,) = service.door.requests.open()
    assert sent.state is RequestState.SENT
    service.settle()
    assert state(service, sent.id) is RequestState.COMPLETED
    service.connection.call("HDEL", ModelKeys(service.settings.model).named("deletions:ended"), sent.id)
    service.door.requests.receive(sent)
    service.settle()
    assert state(service, sent.id) is RequestState.COMPLETED
    # The deletion has its own.
    assert len(service.receipts()) == 1
    assert not service.ledger.find([sent.digest])


@pytest.mark.parametrize(("ahead_ms", "done"), [(-5, True), (60_000, True), (60_001, False)])
def test_a_misplaced_deletion_is_done_by_a_receipt_of_a_clock_that_is_behind(ahead_ms, done):
    """Two brokers may be a minute apart; an older receipt is that of an earlier deletion."""
    receipt = receipt_of(7)
    one = Misplaced("d-7", receipt.received + ahead_ms, True, "r-7", SALT.encode())
    assert _is_done(one, 0, [Logged(0, receipt, "")]) is done
    assert not _is_done(one, 1, [Logged(0, receipt, "")])
