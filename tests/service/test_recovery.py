"""A Redis set back to an earlier moment: what was published and what was forgotten stay so."""

import pytest
from three_topics import leaning

from crashes import copied, put_back
from embedded_service import embedded
from streamtopic.signed import Envelope

DOCUMENTS = leaning(90)


@pytest.fixture
def service(tmp_path):
    """An embedded service that serves deletions at once."""
    with embedded(tmp_path, update_after=1.0) as service:
        service.add(DOCUMENTS)
        service.settle()
        yield service


def set_back(service, held):
    """Put Redis back to a copy, as a restore from a backup does; processes start again after it."""
    put_back(service.connection, held)
    service.forget_parts()


def versions(service):
    """Each version in the ledger, withdrawn ones as well: number and envelope."""
    return [(entry.version, entry) for entry in service.entries(Envelope)]


def test_forgotten_versions_are_read_back_and_their_numbers_not_used_again(service):
    """Every number has one release, epsilon never falls within a base, and what was forgotten stays forgotten."""
    held = copied(service.connection)
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
    held = copied(service.connection)
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
    service.count()
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
    service.delete([document.id for document in DOCUMENTS[2:]])
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
