"""One request, one version, one receipt: a person's documents leave together, and one receipt covers them all."""

import json
import re
import time

import pytest

from streamtopic.cli import main
from streamtopic.client import DocumentProducer, Receipts
from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.schedule.decide import Wait
from streamtopic.service.schedule.situation import LogClock, SituationReader
from streamtopic.settings import Settings
from streamtopic.state import SubjectRequests
from streamtopic.state.redis_keys import ModelKeys

CHOSEN = {"topics": 2, "min_df": 1, "min_share": 0.0, "max_df": 1.0, "max_forget_lag": 0.0, "partitions": 3}
WORDS = [f"w{number}" for number in range(24)]


def documents(number, subject=None, prefix="d"):
    """Documents of two topics; with a subject, all are about it."""
    made = []
    for k in range(number):
        words = WORDS[12 * (k % 2) : 12 * (k % 2) + 12]
        text = " ".join(words[(k // 2 + step) % 12] for step in range(8))
        made.append(Document(f"{prefix}{k}", text, subjects=() if subject is None else (subject,)))
    return made


@pytest.fixture
def service(tmp_path):
    """A service with 40 documents of alice and 60 others, and its first version."""
    with Service(Settings(dir=tmp_path / "instance", **CHOSEN)) as running:
        running.add([*documents(60), *documents(40, "alice", "a")])
        running.settle()
        yield running


def requests_left(service):
    """Requests that wait for their receipt in Redis."""
    found = SubjectRequests(service.connection, service.settings.model, service.settings.partitions).read()
    return sum(map(len, found.values()))


@pytest.fixture
def dropped(monkeypatch):
    """Partition to the requests that were removed from Redis there, the newest last."""
    found = {}
    drop = SubjectRequests.drop

    def noted(self, partition, requests):
        found.setdefault(partition, []).extend(requests)
        drop(self, partition, requests)

    monkeypatch.setattr(SubjectRequests, "drop", noted)
    return found


def put_back(service, dropped, partition):
    """Let Redis be set back in a partition to before it last lost a request."""
    one = dropped[partition][-1]
    key = ModelKeys(service.settings.model).partition(partition).subject_requests
    service.connection.call("HSET", key, one.name, one.pack())
    service.ingests[partition]._subjects.read_again()


def receipts_of(service):
    """The receipts as a subscriber reads them."""
    return Receipts(service.log, model=service.settings.model, public_key=service.public_key)


def test_a_person_leaves_in_one_version_with_one_receipt(service, tmp_path, capsys):
    """40 documents in three partitions: one version, 40 receipts, and one that covers them, which the CLI proves."""
    (request,) = service.delete_subjects(["alice"])
    before = len(service.versions())
    settled = service.settle()
    assert (len(settled.versions), settled.receipts) == (1, 40)
    assert len(service.versions()) == before + 1
    receipts = receipts_of(service)
    found = receipts.find(request)
    assert len(found) == 40
    assert {receipt.version for receipt in found} == {settled.versions[0]["version"]}
    covering = receipts.covering(request)
    assert (covering.documents, covering.version) == (40, settled.versions[0]["version"])
    assert receipts.covering(str(request), salt="another salt, as long") is None
    assert requests_left(service) == 0
    service._stack.close()
    place = ["--dir", str(service.settings.dir), "--set", "partitions=3"]
    for salt in ([], ["--salt", request.salt]):
        assert main(["receipt", str(request), "--json", *salt, *place]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert [subject["documents"] for subject in shown["subjects"]] == [40]
        assert len(shown["receipts"]) == 40
    proof = str(tmp_path / "alice.tlog-proof")
    assert main(["receipt", str(request), "--proof", proof, *place]) == 0
    text = capsys.readouterr().out
    assert "40, each with a receipt of its own" in text
    assert "and 30 more receipts" in text
    key = str(service.public_key)
    assert main(["receipts", "verify", proof, "--key", key, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["documents"] == 40


def test_a_subject_without_documents_has_a_receipt_of_none(service):
    """The request is answered as well: no document of that subject was there."""
    (request,) = service.delete_subjects(["nobody"])
    service.settle()
    assert receipts_of(service).covering(request).documents == 0


def test_no_version_parts_the_documents_of_a_subject(service):
    """While a partition still holds some, the scheduler waits; also where the request comes after its decision."""
    with DocumentProducer(service.log, model=service.settings.model) as producer:
        producer.delete_subject("alice")
    for ingest in service.ingests:
        ingest.step()
    (first, *_) = service.ingests
    list(first.drain())
    decision = service.scheduler.step().decision
    assert isinstance(decision, Wait)
    assert "subject" in decision.reason
    cut = {ingest.partition: ingest.state.meta.next_offset for ingest in service.ingests}
    assert service.situation.splits(cut) is not None
    assert service.situation.splits(dict.fromkeys(cut, 0)) is None
    settled = service.settle()
    assert len(settled.versions) == 1
    assert settled.versions[0]["documents"] == 60


def ask_in_one_partition(service, subject):
    """Ask to forget somebody, with a producer that is killed behind the first of its records."""
    with DocumentProducer(service.log, model=service.settings.model) as producer:
        log = producer._log
        append = log.append_many
        log.append_many = lambda topic, messages: append(topic, messages[:1])
        try:
            producer.delete_subject(subject)
        finally:
            del log.append_many


def test_a_request_that_one_partition_never_got_holds_nothing_for_long(tmp_path):
    """A producer that was killed in between leaves a request that some partitions lack: five minutes are the most."""
    now = [1_700_000_000.0]
    with Service(Settings(dir=tmp_path, **CHOSEN), clock=lambda: now[0]) as service:
        service.add([*documents(60), *documents(10, "alice", "a")])
        service.settle()
        ask_in_one_partition(service, "alice")
        service.delete(["d1"])
        assert not service.settle().versions
        now[0] += 301
        assert service.settle().versions
        assert requests_left(service) == 1
        now[0] += 8 * 86_400
        service.delete(["d2"])
        service.settle()
        service.publisher.step()
        assert requests_left(service) == 0


@pytest.mark.parametrize("days", [-400, 400])
def test_a_wrong_clock_parts_nobodys_documents(service, days):
    """A scheduler whose time of day is a year wrong waits for the rest of a subject's documents, by the log's clock."""
    service.delete_subjects(["alice"])
    for ingest in service.ingests:
        ingest.step()
    list(service.ingests[0].drain())
    own = service.situation
    wrong = SituationReader(
        service.reader,
        service.state,
        own._mode,
        own._policy,
        own._delta,
        lambda: time.time() + days * 86_400,
        log_clock=LogClock(),
    )
    cut = {ingest.partition: ingest.state.meta.next_offset for ingest in service.ingests}
    for reader in (own, wrong):
        assert "subject" in reader.decide(reader.read()).reason
        assert reader.splits(cut) is not None


def test_a_request_that_was_abandoned_parts_nobody_elses_documents(tmp_path):
    """A killed producer's request waits for days in some partitions: the next person still leaves in one version."""
    now = [1_700_000_000.0]
    with Service(Settings(dir=tmp_path, **CHOSEN), clock=lambda: now[0]) as service:
        service.add([*documents(60), *documents(40, "alice", "a"), *documents(10, "bob", "b")])
        service.settle()
        ask_in_one_partition(service, "bob")
        service.settle()
        now[0] += 3_600
        service.settle()
        service.delete_subjects(["alice"])
        for ingest in service.ingests:
            ingest.step()
        list(service.ingests[0].drain())
        cut = {ingest.partition: ingest.state.meta.next_offset for ingest in service.ingests}
        assert service.situation.splits(cut) is not None
        assert "subject" in service.scheduler.step().decision.reason
        assert len(service.settle().versions) == 1


def test_a_clock_that_is_ahead_ends_no_request_that_runs(tmp_path):
    """A request that one partition has not counted yet lasts, whatever time the publisher's machine has."""
    now = [1_700_000_000.0]
    with Service(Settings(dir=tmp_path, **CHOSEN), clock=lambda: now[0]) as service:
        service.add([*documents(60), *documents(40, "alice", "a")])
        service.settle()
        (request,) = service.delete_subjects(["alice"])
        (first, *_) = service.ingests
        for _ in range(3):
            list(first.drain())
        now[0] += 30 * 86_400
        service.publisher.step()
        now[0] -= 30 * 86_400
        service.settle()
        assert receipts_of(service).covering(request).documents == 40


def test_a_process_that_is_killed_behind_the_receipt_writes_no_second_one(service, monkeypatch):
    """Killed before the request leaves Redis: the ledger has one receipt, and no request stays."""
    (request,) = service.delete_subjects(["alice"])

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SubjectRequests, "drop", killed)
        with pytest.raises(KeyboardInterrupt):
            service.settle()
    assert requests_left(service) == 3
    service.settle()
    assert receipts_of(service).covering(request).documents == 40
    assert requests_left(service) == 0
    entries = service.ledger.find([receipts_of(service).covering(request).id])
    assert len(next(iter(entries.values()))) == 1


@pytest.mark.parametrize("again", [(1,), (0, 2), (0, 1, 2)])
def test_a_request_that_comes_back_behind_its_receipt_holds_no_version(service, dropped, again):
    """Where a part of Redis is set back, or a publisher is killed while it removes a request, versions go on."""
    (request,) = service.delete_subjects(["alice"])
    service.settle()
    assert (sorted(dropped), requests_left(service)) == ([0, 1, 2], 0)
    for partition in again:
        put_back(service, dropped, partition)
    service.delete(["d1"])
    # The first publishes no version, and removes the request.
    service.settle()
    service.settle()
    assert service.versions()[-1]["documents"] == 59
    assert requests_left(service) == 0
    assert receipts_of(service).covering(request).documents == 40


def test_a_request_that_is_sent_again_behind_its_receipt_is_carried_out(service):
    """The receipt of the first time does not end the second one: what came since goes as well."""
    with DocumentProducer(service.log, model=service.settings.model) as producer:
        request = producer.delete_subject("alice")
        service.settle()
        service.add(documents(6, "alice", "b"))
        service.settle()
        producer.delete_subject("alice", request=request)
    settled = service.settle()
    assert [version["documents"] for version in settled.versions] == [60]
    assert requests_left(service) == 0


@pytest.mark.parametrize("back", [0, 1, 2])
def test_a_request_that_comes_back_and_is_sent_again_is_one_request_everywhere(service, dropped, back):
    """A partition that still knows the first time does not leave the others waiting, and nothing of them stays."""
    with DocumentProducer(service.log, model=service.settings.model) as producer:
        request = producer.delete_subject("alice")
        service.settle()
        put_back(service, dropped, back)
        producer.delete_subject("alice", request=request, salt=request.salt)
    # This partition is done with it before the others have counted its record, and the publisher looks then.
    for _ in range(3):
        list(service.ingests[back].drain())
    service.publisher.step()
    service.settle()
    assert requests_left(service) == 0
    # The second time has a receipt of its own, so what comes back of it is known as well.
    put_back(service, dropped, back)
    service.delete(["d1"])
    service.settle()
    service.settle()
    assert requests_left(service) == 0
    assert service.versions()[-1]["documents"] == 59


def test_the_command_forgets_a_person(tmp_path, capsys):
    """`add` reads `subjects` from JSON lines, `delete --subject` forgets one, and says how to ask for the receipt."""
    place = ["--dir", str(tmp_path / "instance")]
    for name in ("topics=2", "min_df=1", "min_share=0", "max_df=1", "max_forget_lag=0"):
        place += ["--set", name]
    path = tmp_path / "documents.jsonl"
    some = [*documents(30), *documents(8, "alice", "a")]
    lines = [{"id": one.id, "text": one.text, "subjects": list(one.subjects) or None} for one in some]
    path.write_text("\n".join(map(json.dumps, [*lines, {"id": "bad", "text": "x", "subjects": "alice"}])))
    assert main(["add", str(path), "--json", *place]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == 1
    assert main(["delete", "--subject", "alice", "--subject", "alice", *place]) == 0
    text = capsys.readouterr().out
    assert "8 deleted" in text
    request, salt = re.search(r"subject alice: request (\S+), salt (\S+)", text).groups()
    assert main(["receipt", request, "--salt", salt, "--json", *place]) == 0
    assert json.loads(capsys.readouterr().out)["subjects"][0]["documents"] == 8
    assert main(["delete", "--subject", "", *place]) == 2
    assert main(["delete", *place]) == 2
