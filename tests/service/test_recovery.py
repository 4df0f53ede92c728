"""A Redis set back to an earlier moment: what was published and what was forgotten stay so."""

from dataclasses import replace

import pytest

from streamtopic.client import Receipts
from streamtopic.documents.corpus import Document
from streamtopic.documents.events import encode_delete
from streamtopic.errors import ComponentUnreachable, StateMismatch
from streamtopic.service.app import Service
from streamtopic.service.schedule.decide import Policy, Situation, Wait, decide
from streamtopic.settings import Settings
from streamtopic.signed import Envelope, parse_line
from streamtopic.streams import partition_of

TOPICS = (
    ["rose", "tulip", "soil", "seed", "bloom", "compost", "spade", "hedge"],
    ["oven", "flour", "butter", "knead", "simmer", "roast", "spoon", "salt"],
    ["anchor", "vessel", "tide", "crew", "cargo", "mast", "rope", "gull"],
)


def corpus(number=90):
    """Texts of one topic each, with a word of the next."""
    return [
        Document(f"doc-{k:03d}", " ".join([*(TOPICS[k % 3] * 3)[k % 5 :][:16], TOPICS[(k + 1) % 3][k % 8]]), {})
        for k in range(number)
    ]


@pytest.fixture
def service(tmp_path):
    """An embedded service that serves deletions at once."""
    settings = Settings(
        dir=tmp_path,
        topics=3,
        max_forget_lag=0.0,
        capacity={"rule": "fixed", "documents": 50},
        max_df=1.0,
        update_after=1.0,
    )
    with Service(settings) as service:
        service.add(corpus())
        service.settle()
        yield service


def moment(service):
    """Everything that Redis holds now."""
    keys = service.connection.call("KEYS", "*")
    return {key: service.connection.call("DUMP", key) for key in keys}


def set_back(service, held):
    """Put Redis back to an earlier moment, as a restore from a backup does; processes start again after it."""
    service.connection.call("FLUSHALL")
    for key, value in held.items():
        service.connection.call("RESTORE", key, 0, value)
    for part in ("ingests", "scheduler", "publisher", "request_mover", "suppressions"):
        service.__dict__.pop(part, None)


def versions(service):
    """Each version in the log, withdrawn ones as well: number and envelope."""
    return [(release.version, release.envelope) for release in service.releases()]


def test_forgotten_versions_are_read_back_and_their_numbers_not_used_again(service):
    """Every number has one release, epsilon never falls within a base, and what was forgotten stays forgotten."""
    held = moment(service)
    service.delete(["doc-001", "doc-002"])
    service.settle()
    assert [v["version"] for v in service.versions()] == [1, 2]
    set_back(service, held)
    assert [v["version"] for v in service.versions()] == [1]
    service.delete(["doc-003"])
    settled = service.settle()
    records = service.state.releases()
    assert [version for version, _ in records] == [1, 2, 3], settled.decision
    assert records[1][1]["reason"] == "read back from the ledger"
    found = dict(versions(service))
    assert sorted(found) == [1, 2, 3]
    assert found[3].m == 87
    assert set(found[2].withdrawn) | set(found[3].withdrawn) == {1, 2}
    if found[2].base == found[3].base:
        assert found[3].cumulative_epsilon > found[2].cumulative_epsilon


def test_a_base_model_that_redis_forgot_is_trained_anew(service):
    """An update never stands on an older base than the version before it."""
    held = moment(service)
    service.state.request("retrain")
    service.settle()
    assert service.versions()[-1]["base"] == 2
    set_back(service, held)
    service.delete(["doc-004"])
    settled = service.settle()
    assert service.versions()[-1]["kind"] == "retrain"
    assert "set back" in settled.versions[-1]["reason"]


def test_each_deletion_keeps_its_one_receipt(service):
    """Deletions counted out again after Redis was set back do not get a second receipt."""
    held = moment(service)
    requests = service.delete(["doc-005", "doc-006", "unknown"])
    service.settle()
    before = {receipt.id: receipt for receipt in service.receipts()}
    assert len(before) == len(requests)
    set_back(service, held)
    service.settle()
    assert {receipt.id: receipt for receipt in service.receipts()} == before


def test_a_delete_in_a_wrong_partition_keeps_its_one_receipt(tmp_path):
    """It is found by the producer's own request and salt; a Redis that was set back carries nothing out again."""
    settings = Settings(
        dir=tmp_path, topics=3, max_forget_lag=0.0, capacity={"rule": "fixed"}, max_df=1.0, partitions=2
    )
    with Service(settings) as service:
        service.add(corpus())
        service.settle()
        held = moment(service)
        salt = b"0123456789abcdef"
        gone = [encode_delete(name, f"mine-{name}", salt) for name in ("doc-005", "doc-006", "unknown")]
        placed = [replace(one, partition=1 - partition_of(one.key, 2)) for one in gone]
        service.log.append_many(service.names.documents, placed)
        service.settle()
        before = {receipt.id: receipt for receipt in service.receipts()}
        assert sorted(receipt.found for receipt in before.values()) == [False, True, True]
        receipts = Receipts(service.log, model="default", public_key=service.keys)
        assert all(len(receipts.find(f"mine-{one.key.decode()}", salt=salt)) == 1 for one in gone)
        set_back(service, held)
        service.settle()
        assert {receipt.id: receipt for receipt in service.receipts()} == before


def test_a_document_whose_add_has_left_the_log_is_deleted_from_elsewhere(tmp_path, monkeypatch):
    """Its time cannot be compared any more, and it is older than what retention keeps."""
    settings = Settings(
        dir=tmp_path, topics=3, max_forget_lag=0.0, capacity={"rule": "fixed"}, max_df=1.0, partitions=2
    )
    with Service(settings) as service:
        service.add(corpus())
        service.settle()
        read, gone = service.log.read, encode_delete("doc-005", "mine", b"0123456789abcdef")
        service.log.append_many(service.names.documents, [replace(gone, partition=1 - partition_of(gone.key, 2))])
        asked = []

        def retained(topic, partition, offset, *most, **named):
            # Whoever compares a deletion with its document asks for one record; others name their bounds.
            if topic == service.names.documents and most == (1,):
                asked.append(offset)
                raise StateMismatch("its records have left the log")
            return read(topic, partition, offset, *most, **named)

        for ingest in service.ingests:
            list(ingest.drain())
        monkeypatch.setattr(service.log, "read", retained)
        while service.move_requests():
            pass
        monkeypatch.undo()
        service.settle()
        assert asked
        assert [receipt.found for receipt in service.receipts()] == [True]


@pytest.mark.parametrize("how", ["unlearn", "retrain"])
def test_redis_set_back_while_a_version_is_made_costs_that_attempt_only(service, monkeypatch, how):
    """Nothing is staged, and the next step reads the ledger and goes on."""
    releases = "{st:default}:releases"
    held = service.connection.call("DUMP", releases)
    service.delete(["doc-001"])
    service.settle()
    published = dict(versions(service))
    service.delete(["doc-002"])
    for ingest in service.ingests:
        list(ingest.drain())
    scheduler = service.scheduler
    make = getattr(scheduler.modeller, how)

    def made_while_redis_is_set_back(*given):
        made = make(*given)
        service.connection.call("RESTORE", releases, 0, held, "REPLACE")
        return made

    with monkeypatch.context() as patch:
        patch.setattr(scheduler.modeller, how, made_while_redis_is_set_back)
        step = scheduler.step(how)
    assert step.version is None
    assert "Redis was set back" in step.decision.reason
    service.settle()
    assert dict(versions(service))[2] == published[2]
    assert max(dict(versions(service))) == 3
    assert service.versions()[-1]["documents"] == 88


def test_nothing_is_decided_until_counting_has_caught_up():
    """Counts that are behind the last version would look like deletions."""
    standing = Situation(80, base_documents=100, forget_set=20, capacity=5, unserved=1, behind="partition 0 up to 100")
    assert decide(standing, Policy(), 0) == Wait("partition 0 up to 100")


def test_versions_that_hold_forgotten_documents_go_even_where_no_model_can_follow(service):
    """When what remains is too little to learn from, what holds the forgotten documents is withdrawn all the same."""
    service.delete([document.id for document in corpus()[2:]])
    settled = service.settle()
    assert "no model can be made" in settled.decision
    assert service.state.withdrawn() == {1}
    assert list(service.subscriber()) == []
    assert service.versions()[0]["withdrawn"]


def test_old_versions_are_retired_and_not_withdrawn(service):
    """The log keeps as many versions as settings say; erasing the others does not call them withdrawn."""
    settings = service.settings.model_copy(update={"keep_versions": 2})
    service.settings = settings
    service.__dict__.pop("scheduler", None)
    for _ in range(3):
        service.state.request("retrain")
        service.settle()
    service.log.compact(service.names.releases)
    assert [release.version for release in service.subscriber()] == [3, 4]
    assert service.state.withdrawn() == set()
    assert [v["version"] for v in service.versions()] == [1, 2, 3, 4]


def counted(service, *deleted):
    """Delete documents, and count them out without a new version."""
    service.delete(deleted)
    for ingest in service.ingests:
        list(ingest.drain())


def entry_of(service):
    """The entry of the newest version in Redis."""
    return parse_line(service.state.releases(1)[0][1]["entry"])


def entries(service):
    """The versions in the ledger: number and entry, in their order."""
    ledger = service.ledger
    ledger.catch_up()
    found = [logged.entry for logged in ledger.entries(range(ledger.ledger.size)).values()]
    return [(entry.version, entry) for entry in found if isinstance(entry, Envelope)]


@pytest.mark.parametrize("how", ["unlearn", "retrain"])
def test_a_staged_version_gives_way_to_the_one_that_the_ledger_has(service, how):
    """A publisher sleeps while Redis is set back, and writes a version whose number is another's by then.

    Nobody gets the bytes of either: the next version follows the one of the ledger, whose epsilon is spent.
    """
    held = moment(service)
    counted(service, "doc-001")
    assert service.scheduler.step(how).version == 2
    late = entry_of(service)
    set_back(service, held)
    counted(service, "doc-002")
    assert service.scheduler.step(how).version == 2
    assert entry_of(service).release != late.release
    assert service.ledger.append([late])
    settled = service.settle()
    assert [version["version"] for version in settled.versions] == [3]
    assert entries(service)[1:] == [(2, late), (3, entry_of(service))]
    published = dict(versions(service))
    assert sorted(published) == [1, 3]
    assert 2 in published[3].withdrawn
    assert service.state.releases()[1][1]["digest"] == late.release
    assert published[3].m == 88
    if published[3].base == late.base:
        assert published[3].cumulative_epsilon > late.cumulative_epsilon
    assert service.settle().versions == []
    assert service.state.outbox() == []


def test_a_version_whose_bytes_are_lost_before_they_are_sent_gets_a_successor(service, monkeypatch):
    """Its number stays used and its epsilon spent; subscribers need not wait for the next deletion."""
    held = moment(service)
    counted(service, "doc-001")
    assert service.scheduler.step().version == 2

    def fail(topic, messages):
        if topic == service.names.releases:
            raise ComponentUnreachable("down")
        return append(topic, messages)

    append = service.log.append_many
    with monkeypatch.context() as patch:
        patch.setattr(service.log, "append_many", fail)
        with pytest.raises(ComponentUnreachable):
            service.publish()
    assert [version for version, _ in entries(service)] == [1, 2]
    set_back(service, held)
    settled = service.settle()
    assert [version["version"] for version in settled.versions] == [3]
    assert 2 in dict(versions(service))[3].withdrawn
    assert [receipt.version for receipt in service.receipts()] == [2]
    assert next(iter(service.subscriber())).version == 3
    assert service.settle().versions == []


def test_tombstones_that_redis_forgot_are_written_again(service):
    """The bytes of a withdrawn version are erased although its withdrawal was lost with Redis."""
    held = moment(service)
    counted(service, "doc-001")
    assert service.scheduler.step().version == 2
    records = service.state.outbox()
    service.state.confirm([entry for entry in records if entry.record.value is None])
    service.publish()
    service.log.compact(service.names.releases)
    assert {release.version for release in service.releases()} == {1, 2}
    set_back(service, held)
    service.settle()
    service.log.compact(service.names.releases)
    assert {release.version for release in service.releases()} == {2}


def test_one_version_waits_for_the_ledger_at_a_time(service):
    """So what Redis holds and the ledger lacks is the newest version alone."""
    counted(service, "doc-001")
    assert service.scheduler.step().version == 2
    counted(service, "doc-002")
    step = service.scheduler.step()
    assert (step.version, step.decision) == (None, Wait("version 2 is on its way to the ledger"))
    service.publish()
    assert service.scheduler.step().version == 3


def test_a_redis_that_forgot_many_versions_has_them_all_again(service, monkeypatch):
    """Also those that the ledger's own memory of the newest versions does not reach back to."""
    held = moment(service)
    for _ in range(4):
        service.settle(requested="retrain")
    set_back(service, held)
    # As if the ledger had gone on for much longer.
    monkeypatch.setattr("streamtopic.signed.ledger._VERSIONS", 1)
    service.__dict__.pop("ledger", None)
    service.settle(requested="retrain")
    assert [version for version, _ in service.state.releases()] == [1, 2, 3, 4, 5, 6]
    assert [record["digest"] for _, record in service.state.releases()] == [one.release for _, one in entries(service)]
