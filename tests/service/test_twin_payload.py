"""With the same noise key and version, a service that forgot publishes the bytes of one that never saw."""

import pytest
from three_topics import leaning

from embedded_service import embedded
from shared_noise import with_noise

# The second task has documents of all topics in each of its classes, so it is noised as the harder one.
TASKS = {"tasks": {"place": {"ridge": 1e-3, "tolerance": 1e-7}, "parity": {"ridge": 1e-2, "tolerance": 1e-7}}}
MODES = {
    "default": {},
    "paper": {"learner": "paper"},
    "heads": TASKS,
    "heads alone": {**TASKS, "publish": "tasks", "epsilon": 5.0},
    "theorem": {**TASKS, "learner": "paper", "guarantee": "theorem", "epsilon": 0.5},
}


def label(topic, number):
    """The labels of a document: of both tasks, of one, or none."""
    parity = {"parity": "odd" if number % 2 else "even"} if number % 5 else {}
    return {"place": topic} | parity if number % 3 else {}


DOCUMENTS = leaning(150, label=label)
GONE = [DOCUMENTS[k].id for k in (3, 7, 13)]
LEFT = [document for document in DOCUMENTS if document.id not in GONE]
OTHER_ANCHORS = [DOCUMENTS[k].id for k in (76, 94, 125)]
"""Without these another word is an anchor of the default learner."""


@pytest.fixture(params=MODES)
def opened(request, tmp_path):
    """Return a function that opens one of two services that share settings and noise key."""
    settings = {"capacity": {"rule": "fixed", "documents": 50}, **MODES[request.param]}
    return lambda name: embedded(with_noise(tmp_path / name), **settings)


def never_saw(service, left=LEFT):
    """Make the second version of a service from the documents that are left, learned cold."""
    service.add(left[:90])
    service.settle()
    service.add(left[90:])
    service.state.request("retrain")
    (version,) = service.settle().versions
    assert (version["version"], version["kind"], version["documents"]) == (2, "retrain", len(left))


def test_a_retrain_publishes_the_bytes_of_the_twin(opened, payloads):
    """Learned cold on both sides, the payload is the same to the last byte: nothing of the documents is left in it."""
    with opened("saw") as saw, opened("never") as never:
        saw.add(DOCUMENTS)
        saw.settle()
        saw.delete(GONE)
        saw.state.request("retrain")
        (version,) = saw.settle().versions
        assert version["version"] == 2
        never_saw(never)
        assert payloads(saw)[2] == payloads(never)[2]


def test_an_update_after_a_restart_publishes_the_bytes_of_the_twin(opened, payloads):
    """A process that starts anew has no model to go on from, only counts and what is kept: the twin's bytes again."""
    with opened("saw") as saw:
        saw.add(DOCUMENTS)
        saw.settle()
        saw.delete(GONE)
    with opened("saw") as saw, opened("never") as never:
        (version,) = saw.settle().versions
        assert (version["version"], version["kind"], version["forgotten"]) == (2, "unlearn", len(GONE))
        never_saw(never)
        assert payloads(saw)[2] == payloads(never)[2]


def test_an_update_of_a_running_service_publishes_the_bytes_of_the_twin(opened, payloads):
    """Carried over warm, A differs by rounding before noise, and the grid of noise takes that away: the same bytes.

    A number would have to lie within 1e-16 of the edge of a step of 5e-8 to come out otherwise. With heads alone the
    model is learned cold, since the size of their noise follows from it.
    """
    with opened("saw") as saw, opened("never") as never:
        saw.add(DOCUMENTS)
        saw.settle()
        saw.delete(GONE)
        (version,) = saw.settle().versions
        assert (version["version"], version["kind"]) == (2, "unlearn")
        never_saw(never)
        assert payloads(saw)[2] == payloads(never)[2]
        assert saw.release(2).envelope.sigma == never.release(2).envelope.sigma


@pytest.mark.parametrize("opened", ["default"], indirect=True)
def test_a_deletion_that_changes_the_anchors_is_an_update(opened, payloads, monkeypatch):
    """Other anchors need no retrain: the update of the same base publishes the bytes of the twin."""
    with opened("saw") as saw, opened("never") as never:
        saw.add(DOCUMENTS)
        saw.settle()
        before = saw.release(1)
        saw.delete(OTHER_ANCHORS)
        with monkeypatch.context() as patch:
            patch.setattr("streamtopic.service.schedule.modeller.learn", None)
            # The service's own check does learn cold; it has tests of its own.
            patch.setattr("streamtopic.service.schedule.scheduler.check_is_due", lambda *_: False)
            (version,) = saw.settle().versions
        after = saw.release(2)
        assert (version["version"], version["kind"], version["base"]) == (2, "unlearn", 1)
        assert {*after.anchors} - {*before.anchors}
        never_saw(never, [document for document in DOCUMENTS if document.id not in OTHER_ANCHORS])
        assert payloads(saw)[2] == payloads(never)[2]
        saw.delete(GONE[:1])
        (version,) = saw.settle().versions
        assert (version["version"], version["kind"], version["base"]) == (3, "unlearn", 1)
