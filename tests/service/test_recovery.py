"""A Redis set back to an earlier moment: what was published and what was forgotten stay so."""

import pytest

from embedded_service import Service
from streamtopic.documents.corpus import Document
from streamtopic.service.instance import key_ring
from streamtopic.settings import Settings
from streamtopic.signed import Envelope, LedgerReader

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
    service.forget_parts()


def versions(service):
    """Each version in the ledger, withdrawn ones as well: number and envelope."""
    every = [
        logged.entry
        for logged in LedgerReader(service.log, service.settings.model, key_ring(service.settings)).catch_up()
    ]
    return [(entry.version, entry) for entry in every if isinstance(entry, Envelope)]


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
        service.state.request(how)
        step = scheduler.step()
    assert step.version is None
    assert "was not staged: version 1 is the last one" in step.decision.reason
    service.settle()
    assert dict(versions(service))[2] == published[2]
    assert max(dict(versions(service))) == 3
    assert service.versions()[-1]["documents"] == 88


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
    service.settings = service.opened.settings = settings
    service.forget_parts()
    for _ in range(3):
        service.state.request("retrain")
        service.settle()
    service.log.compact(service.names.releases)
    assert [release.version for release in service.subscriber()] == [3, 4]
    assert service.state.withdrawn() == set()
    assert [v["version"] for v in service.versions()] == [1, 2, 3, 4]
