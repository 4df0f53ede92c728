"""One request, one version, one receipt: a person's documents leave together, whatever is killed, repeated or lost."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from crashes import copied, killed_beside, put_back
from embedded_service import embedded, two_topics
from streamtopic.cli import main
from streamtopic.client import Deletion, DocumentProducer
from streamtopic.documents.corpus import Document
from streamtopic.documents.events import encode_add
from streamtopic.service.schedule.decide import Wait
from streamtopic.signed import RequestReceipt, request_digest
from streamtopic.state.connection import ModelKeys
from streamtopic.state.deletion_requests import RequestState

SALT = "0123456789abcdef"


@pytest.fixture
def service(tmp_path):
    """A service with 40 documents of alice and 60 others, and its first version."""
    with embedded(tmp_path / "instance", topics=2, min_df=1, partitions=3) as running:
        running.add([*two_topics(0, 60), *two_topics(0, 40, "alice", prefix="a")])
        running.settle()
        yield running


def ask(service, subject="alice", request="r-1"):
    """Ask to forget somebody."""
    with DocumentProducer(service.log, model=service.settings.model) as producer:
        return producer.delete_subject(subject, request, salt=SALT)


def live(service):
    """Ids of the documents that are counted."""
    return {name.decode() for one in service.ingests for ids in one.state.live_ids() for name in ids}


def of_alice(service):
    """Those of them that begin with a."""
    return {name for name in live(service) if name.startswith("a")}


def own_receipts(service, request="r-1"):
    """The receipts of the documents of a request that were there, and that of the request."""
    receipts = service.reader_of_receipts()
    found = [receipt for receipt in receipts.find(request, salt=SALT) if receipt.found]
    return found, receipts.covering(request, salt=SALT)


def names_anybody(service, text=b"alice"):
    """Whether Redis or a topic holds a text once the topics are compacted."""
    for topic in (service.names.documents, service.names.requests):
        service.log.compact(topic)
        for partition in range(service.log.partitions(topic)):
            records = service.log.read(topic, partition, service.log.begin(topic, partition), 100_000)
            if any(text in (record.key or b"") + (record.value or b"") for record in records):
                return True
    return any(text in content for content in copied(service.connection).values())


def forget_alice(service):
    """Ask for all documents of a person to go; return request id and salt."""
    received = service.door.receive((), subjects=["alice"])
    return Deletion(received.request.id, received.salt)


def test_a_person_leaves_in_one_version_with_one_receipt(service, tmp_path, capsys):
    """40 documents in three partitions: one version, 40 receipts, and one that covers them, which the CLI proves."""
    request = forget_alice(service)
    before = len(service.versions())
    settled = service.settle()
    assert (len(settled.versions), settled.receipts) == (1, 40)
    assert len(service.versions()) == before + 1
    receipts = service.reader_of_receipts()
    found = receipts.find(request)
    assert len(found) == 40
    assert {receipt.version for receipt in found} == {settled.versions[0]["version"]}
    covering = receipts.covering(request)
    assert (covering.documents, covering.version) == (40, settled.versions[0]["version"])
    assert receipts.covering(str(request), salt="another salt, as long") is None
    assert service.door.requests.get(str(request)).state is RequestState.COMPLETED
    assert not names_anybody(service)
    service._stack.close()
    place = ["--dir", str(service.settings.dir), "--set", "partitions=3"]
    for salt in ([], ["--salt", request.salt]):
        assert main(["receipt", str(request), "--json", *salt, *place]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [request["documents"] for request in shown["requests"]] == [40]
        assert len(shown["receipts"]) == 40
    proof = str(tmp_path / "alice.tlog-proof")
    assert main(["receipt", str(request), "--proof", proof, *place]) == 0
    text = capsys.readouterr().out
    assert "40 documents, each with a receipt of its own (--json)" in text
    key = str(service.public_key)
    assert main(["verify", proof, "--key", key, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 40


def test_no_version_parts_the_documents_of_a_request(service):
    """While a partition still holds some, the scheduler waits; also if the request came after its decision."""
    ask(service)
    service.leader.move_requests()
    list(service.ingests[0].drain())
    decision = service.scheduler.step().decision
    assert isinstance(decision, Wait)
    assert "request" in decision.reason
    assert not service.leader.move_requests()
    assert service.door.requests.get("r-1").state is RequestState.SENT
    cut = {one.partition: one.state.meta.next_offset for one in service.ingests}
    assert service.scheduler._situation.splits(cut) is not None
    settled = service.settle()
    assert [version["documents"] for version in settled.versions] == [60]


def test_what_comes_while_the_request_runs_goes_too(service):
    """An add after the request, and one that overtakes its tombstones; what comes after its end stays."""
    ask(service)
    service.add(two_topics(0, 3, "alice", prefix="late"))
    service.leader.move_requests()
    service.add([Document("a0", "apple", subjects=("alice",)), *two_topics(0, 2, "alice", prefix="later")])
    service.settle()
    assert live(service) == {f"d{k}" for k in range(60)}
    service.add(two_topics(0, 1, "alice", prefix="a"))
    service.settle()
    assert of_alice(service) == {"a0"}


def test_documents_that_keep_coming_hold_no_request_open(service, monkeypatch):
    """After some rounds all that is left came later than the request."""
    monkeypatch.setattr("streamtopic.service.requests.request_mover.MOST_ROUNDS", 3)
    request, rounds = forget_alice(service), []
    for k in range(4):
        service.leader.move_requests()
        rounds.append(service.door.requests.get(str(request)).rounds)
        service.add(two_topics(0, 1, "alice", prefix=f"late{k}-"))
        service.count()
    assert rounds == [1, 2, 3, 3]
    assert service.door.requests.get(str(request)).state is RequestState.COUNTED


@pytest.mark.parametrize("moment", ["at once", "sent", "after"])
def test_a_request_that_is_sent_twice_is_one(service, moment):
    """Whenever a client repeats it: one receipt of the request, and what came after its end stays."""
    ask(service)
    if moment == "sent":
        service.leader.move_requests()
    if moment == "after":
        service.settle()
        service.add(two_topics(0, 2, "alice", prefix="a"))
        service.settle()
    ask(service)
    service.settle()
    assert of_alice(service) == ({"a0", "a1"} if moment == "after" else set())
    assert [receipt.documents for receipt in service.entries(RequestReceipt)] == [40]
    service.forget_parts()
    service.settle()
    assert len(service.entries(RequestReceipt)) == 1
    assert not service.door.requests.open()


APPENDS = [("documents", at) for at in range(5)] + [("requests", 0)] + [("ledger", at) for at in range(4)]
"""Appends of one request, from its record to its receipt: topic, and which append to it."""


@pytest.mark.parametrize(("topic", "at"), APPENDS)
@pytest.mark.parametrize("written", [False, True])
def test_a_process_that_is_killed_at_any_append_leaves_nothing_half_done(service, monkeypatch, topic, at, written):
    """The next process goes on: nothing is left, no document has two receipts, the request has one."""
    monkeypatch.setattr("streamtopic.service.requests.request_mover._AT_ONCE", 7)
    ask(service)
    with killed_beside(service.log, getattr(service.names, topic), at, written=written):
        service.settle()
    service.forget_parts()
    service.settle()
    service.settle()
    assert live(service) == {f"d{k}" for k in range(60)}
    found, whole = own_receipts(service)
    assert set(Counter(receipt.document for receipt in found).values()) == {1}
    assert (len(found), whole.documents, len(service.entries(RequestReceipt))) == (40, 40, 1)
    assert service.door.requests.get("r-1").state is RequestState.COMPLETED
    assert not names_anybody(service)


@pytest.mark.parametrize("moment", ["taken", "sent", "counted", "completed"])
def test_a_redis_that_is_set_back_ends_in_the_same_receipt(service, moment):
    """The requests in Redis come back as they were: the ledger tells which are done, and nothing is done twice."""
    request = forget_alice(service)
    keys = [ModelKeys(service.settings.model).named(f"deletions:{name}") for name in ("open", "ended")]
    before = copied(service.connection, *keys)
    service.leader.move_requests()
    if moment != "taken":
        before = copied(service.connection, *keys)
    if moment == "counted":
        service.count()
        service.leader.move_requests()
        before = copied(service.connection, *keys)
    service.settle()
    service.add(two_topics(0, 3, "alice", prefix="a"))
    service.settle()
    if moment == "completed":
        before = copied(service.connection, *keys)
    put_back(service.connection, before, *keys)
    service.forget_parts()
    service.settle()
    assert of_alice(service) == {"a0", "a1", "a2"}
    assert not service.door.requests.open()
    about = request_digest(request, request.salt)
    assert [(one.documents, one.request) for one in service.entries(RequestReceipt)] == [(40, about)]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("moment", ["before", "sent", "counted", "after"])
def test_a_rebuild_finishes_the_request(service, moment, compacted):
    """With the whole state gone, an open request is still carried out, and one that is done is not begun again."""
    ask(service)
    if moment != "before":
        service.leader.move_requests()
    if moment == "counted":
        service.count()
    if moment == "after":
        service.settle()
        service.add(two_topics(0, 2, "alice", prefix="a"))
        service.settle()
    if compacted:
        service.log.compact(service.names.documents)
        service.log.compact(service.names.requests)
    model = service.settings.model
    service.connection.call("DEL", *(ModelKeys(model).named(f"deletions:{name}") for name in ("open", "ended")))
    service.rebuild(lambda *_: None)
    service.forget_parts()
    service.settle()
    assert of_alice(service) == ({"a0", "a1"} if moment == "after" else set())
    # Compaction has erased the documents with the log's knowledge that there were any.
    documents_told = 0 if moment == "sent" and compacted else 40
    assert [receipt.documents for receipt in service.entries(RequestReceipt)] == [documents_told]


@pytest.fixture
def wall(service, monkeypatch):
    """Partition to the end of what can be read: what stands after it is hidden by somebody's open transaction."""
    log, topic = service.log, service.names.documents
    kind, wall = type(log), {}
    end, read = kind.end, kind.read

    def readable(self, to, partition):
        return min(end(self, to, partition), wall.get(partition, 1 << 60) if to == topic else 1 << 60)

    def records(self, to, partition, offset, *arguments, **options):
        last = readable(self, to, partition)
        return [one for one in read(self, to, partition, offset, *arguments, **options) if one.offset < last]

    for name, act in (("end", readable), ("read", records), ("written_end", end)):
        monkeypatch.setattr(kind, name, act)
    return wall


def test_a_request_whose_tombstones_are_hidden_is_not_done(service, wall):
    """What stands after an open transaction is not counted yet: neither a version nor a receipt comes early."""
    wall[1] = service.log.end(service.names.documents, 1)
    ask(service)
    assert service.leader.move_requests()["sent"] == 1
    for _ in range(3):
        service.settle()
    assert service.door.requests.get("r-1").state is RequestState.SENT
    assert [version["documents"] for version in service.versions()] == [100]
    wall.clear()
    service.settle()
    assert [version["documents"] for version in service.versions()] == [100, 60]
    assert [receipt.documents for receipt in service.entries(RequestReceipt)] == [40]


def test_a_request_waits_for_what_nobody_can_read(service, wall):
    """A hidden record may give a document to somebody else, who did not ask for its end."""
    wall[1] = service.log.end(service.names.documents, 1)
    service.send([replace(encode_add("bob", text="apple"), partition=1)])
    ask(service)
    assert not service.leader.move_requests()["sent"]
    wall.clear()
    service.count()
    assert service.leader.move_requests()["sent"] == 1
