"""A Redis set back to an earlier moment: what was published and what was forgotten stay so."""

import dataclasses

import pytest

from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.schedule.decide import Policy, Situation, Wait, decide
from streamtopic.settings import Settings
from streamtopic.streams import Message

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
        dir=tmp_path, topics=3, max_forget_lag=0.0, capacity="fixed", capacity_fixed=50, max_df=1.0, update_after=1.0
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
    for part in ("ingests", "scheduler", "publisher"):
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
    assert records[1][1]["reason"] == "read back from the log"
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


@pytest.mark.parametrize("how", ["unlearn", "retrain"])
@pytest.mark.parametrize("doubled", [False, True])
def test_redis_set_back_while_a_version_is_made_costs_that_attempt_only(service, monkeypatch, how, doubled):
    """Subscribers hold its number by then: nothing is staged, and the next step reads the log and goes on."""
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
        # Two contents of version 2 stand in the log: the next version withdraws it, and must come after it.
        if doubled:
            scheduler._published.rivals.append(dataclasses.replace(published[2], created=1))
        return made

    with monkeypatch.context() as patch:
        patch.setattr(scheduler.modeller, how, made_while_redis_is_set_back)
        step = scheduler.step(how)
    assert step.version is None
    assert "version 2 stands already" in step.decision.reason
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


def test_a_version_that_was_published_late_under_a_number_given_again_is_replaced_and_paid_for(service):
    """A publisher that sleeps while Redis is set back appends a version whose number is another's by then."""
    held = moment(service)
    service.delete(["doc-001"])
    for ingest in service.ingests:
        list(ingest.drain())
    assert service.scheduler.step().version == 2
    in_hand = [entry.record for entry in service.state.outbox()]
    set_back(service, held)
    service.delete(["doc-002"])
    service.settle()
    service.log.append_many(service.names.releases, [Message(r.key, r.value, r.headers, 0) for r in in_hand])
    before = dict(versions(service))
    settled = service.settle()
    assert [version["version"] for version in settled.versions] == [3]
    found = dict(versions(service))
    assert found[2] == before[2]
    assert 2 in found[3].withdrawn
    assert (len(service.state.ledger()), len(service.state.spent())) == (3, 4)
    assert service.settle().versions == []
