"""The service checks its own updates: a false one is not published, and those before it that were not checked go."""

import logging

import pytest
from three_topics import leaning

from embedded_service import embedded
from streamtopic.service.schedule import modeller as modelling
from streamtopic.service.verify import passed

START = 1_700_000_000.0


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a service with a base, with these settings, at a time that tests set."""
    now = [START]
    running = []

    def service(**more):
        running.append(embedded(tmp_path, clock=lambda: now[0], **more).__enter__())
        running[-1].now = now
        running[-1].add(leaning(60))
        running[-1].settle()
        return running[-1]

    yield service
    for one in running:
        one.__exit__(None, None, None)


def forget(instance, number):
    """Delete a document and make the version without it; the versions that came of it."""
    instance.delete([f"doc-{number:03d}"])
    return instance.settle().versions


def grow(instance, number):
    """Add documents, so many that a version with them is made; the versions that came of it."""
    instance.add(leaning(10, prefix=f"new-{number}"))
    return instance.settle().versions


def spoil(monkeypatch, change):
    """Make updates false by applying `change` to what they give."""
    real = modelling.update

    def false(*arguments):
        outcome = real(*arguments)
        change(outcome)
        return outcome

    monkeypatch.setattr(modelling, "update", false)


def forget_a_count(fit):
    """Leave one pair count as it was before: a document that was not subtracted."""
    values = fit.q.rows.low
    values[: len(values) // 2] += 1


def move_a_topic(fit):
    """Move a topic by a little more than certificates allow."""
    fit.A[0, 0] += 1e-6


@pytest.mark.parametrize("change", [forget_a_count, move_a_topic])
def test_a_false_update_is_not_published(opened, monkeypatch, caplog, change):
    """Counts or topics that differ from those of a cold start: a cold model takes its place, loudly."""
    instance = opened(self_check=0)
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        spoil(patch, change)
        (version,) = forget(instance, 1)
    assert (version["version"], version["kind"]) == (2, "unlearn")
    assert "not borne out" in version["reason"]
    assert "was not borne out" in caplog.text
    status = instance.status()
    assert (status["self_check"]["version"], status["self_check"]["passed"]) == (2, False)
    assert any("own check" in remark for remark in status["remarks"])
    assert passed(instance.verify())
    (version,) = forget(instance, 2)
    assert version["kind"] == "unlearn"
    status = instance.status()
    assert status["self_check"]["passed"] is True
    assert not any("own check" in remark for remark in status["remarks"])


def test_versions_that_were_not_checked_before_a_false_one_are_withdrawn(opened, monkeypatch):
    """Within an interval two updates go unchecked; the third is found false, and both go. The next is checked."""
    instance = opened(self_check=3600)
    forget(instance, 1)
    assert instance.status()["self_check"]["passed"] is True
    checked = instance.status()["self_check"]["at"]
    instance.now[0] += 600
    for number in (70, 80):
        grow(instance, number)
    status = instance.status()["self_check"]
    assert (status["version"], status["at"], status["unchecked"]) == (2, checked, 2)
    instance.now[0] += 3600
    with monkeypatch.context() as patch:
        spoil(patch, forget_a_count)
        (version,) = grow(instance, 90)
    assert (version["version"], version["kind"]) == (5, "unlearn")
    assert instance.release(5).envelope.withdrawn == (3, 4)
    assert instance.status()["self_check"]["unchecked"] == 0
    assert passed(instance.verify())
    # Until one passes, each update is checked, however long the interval.
    assert instance.status()["self_check"]["passed"] is False
    forget(instance, 2)
    assert instance.status()["self_check"]["passed"] is True


def test_a_check_is_evidence(opened):
    """The report of a version that was checked says so."""
    instance = opened(self_check=0)
    forget(instance, 1)
    evidence = instance.evidence(2)
    assert evidence["record"]["self_check"]["passed"] is True
