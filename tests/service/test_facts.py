"""What is known of a running model is read and judged once: status, doctor, overview and gauges do not disagree."""

import time

import pytest
from watched_service import Clock, Watched, documents

from embedded_service import embedded
from streamtopic.documents.corpus import Document
from streamtopic.service.inspection.doctor import concerns, judge
from streamtopic.service.inspection.facts import show_gauges


@pytest.fixture
def service(tmp_path):
    """An instance with a version, whose deletions may not wait, and whose brake pauses every request."""
    with embedded(tmp_path, clock=Clock(), topics=2, min_df=1, brake_share=0.001) as service:
        service.add(documents())
        service.settle()
        yield service


def failed(findings):
    """Names of the findings that failed."""
    return {one.name for one in findings if one.passed is False}


def test_records_that_nobody_counts_are_a_fault_where_somebody_should(service):
    """A lag alone is none, and at rest a command counts them when it is called."""
    # After a quiet hour the last commit is old, and nothing is wrong.
    service.clock.ahead += 3600.0
    service.add([Document("late", "apple banana", {})])
    assert service.status()["healthy"] is True
    service.clock.ahead += 120.0
    status = service.status()
    assert (status["lag"], status["stalled_partitions"], status["healthy"]) == (1, [0], False)
    assert "partition 0" in failed(concerns(service.facts(served=True)))
    assert "partition 0" not in failed(service.examine())


def test_a_late_deletion_and_a_paused_request_are_said_by_all(service):
    """Doctor, status and overview have the same words, and the gauges the same numbers."""
    for document in documents()[3:5]:
        service.delete([document.id])
        service.count()
        service.clock.ahead += 60.0
    assert 120.0 <= service.facts().waiting.age < 180.0
    service.door.receive([documents()[5].id])
    service.leader.move_requests()
    assert failed(concerns(service.facts(served=True))) >= {"deletions", "requests"}
    found = concerns(service.facts())
    assert {one.name for one in found if one.passed is None} >= {"deletions"}
    assert failed(found) == failed(service.examine()) == {"requests"}
    assert [one.text for one in found] == service.status()["remarks"]
    watch = Watched()
    show_gauges(service.facts(), watch)
    shown = watch.samples()
    assert shown["streamtopic_forget_pending", ("counted",)] == service.status()["receipts_waiting"] == 2
    assert shown["streamtopic_forget_pending", ("paused",)] == 1
    assert shown["streamtopic_forget_oldest_timestamp_seconds", ("counted",)] <= time.time()


def test_a_server_says_that_nothing_runs(service):
    """Where a server stays, the parts should run; what a folder's own commands do needs nobody."""
    assert failed(concerns(service.facts(served=True))) == {"scheduler", "ingest"}
    assert failed(concerns(service.facts())) == set()


def test_the_doctor_names_who_leads(service):
    """Of a service: the holder of the lease; nobody is in the group of a log in files."""
    with service.scheduler.leading() as lease:
        assert lease is not None
        facts = service.facts(served=True)
        facts.settings = facts.settings.model_copy(update={"dir": None})
        found = {one.name: one for one in judge(facts)}
    assert (found["scheduler"].passed, found["ingest"].passed) == (True, False)
    assert service.holder in found["scheduler"].detail


def test_a_new_instance_is_known_before_its_first_record(tmp_path):
    """Whoever looks first makes its state: that of a model without documents, of which nothing is wrong."""
    with embedded(tmp_path) as service:
        assert service.facts().documents == 0
        status = service.status()
        assert (status["documents"], status["version"], status["healthy"]) == (0, None, True)
