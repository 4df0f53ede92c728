"""With the same noise key and version, a service that forgot publishes the bytes of one that never saw."""

import secrets

import numpy as np
import pytest

from streamtopic.corpus import Document
from streamtopic.release import Assembled, Assembler
from streamtopic.service.runner import Service
from streamtopic.settings import Settings
from streamtopic.signing import unseal

TOPICS = {
    "garden": ["rose", "tulip", "soil", "seed", "bloom", "compost", "spade", "hedge"],
    "kitchen": ["oven", "flour", "butter", "knead", "simmer", "roast", "spoon", "salt"],
    "harbour": ["anchor", "vessel", "tide", "crew", "cargo", "mast", "rope", "gull"],
}
SHARED = ["morning", "people", "river", "light", "small", "great", "quiet", "stone"]
TASK = {"tasks": {"place": {"ridge": 1e-3, "tolerance": 1e-7}}}
MODES = {
    "default": {},
    "paper": {"learner": "paper"},
    "heads": TASK,
    "heads alone": {**TASK, "publish": "tasks", "epsilon": 5.0},
}


def _documents(number=150, seed=0):
    rng = np.random.default_rng(seed)
    names, documents = list(TOPICS), []
    for k in range(number):
        shares = rng.dirichlet([0.2] * len(names))
        words = [str(rng.choice(TOPICS[names[topic]])) for topic in rng.choice(3, 30, p=shares)]
        words += [str(word) for word in rng.choice(SHARED, 6)]
        labels = {"place": names[int(shares.argmax())]} if k % 3 else {}
        documents.append(Document(f"doc-{k:03d}", " ".join(words), labels))
    return documents


DOCUMENTS = _documents()
GONE = [DOCUMENTS[k].id for k in (7, 31, 64)]
LEFT = [document for document in DOCUMENTS if document.id not in GONE]


@pytest.fixture(params=MODES)
def opened(request, tmp_path):
    """Return a function that opens one of two services that share settings and noise key."""
    key = tmp_path / "noise.key"
    key.write_bytes(secrets.token_hex(32).encode())
    key.chmod(0o600)
    settings = {
        "topics": 3,
        "max_df": 1.0,
        "max_forget_lag": 0.0,
        "capacity": "fixed",
        "capacity_fixed": 50,
        "noise_key": key,
        **MODES[request.param],
    }
    return lambda name: Service(Settings(dir=tmp_path / name, **settings))


def payloads(service):
    """The payload bytes of each version in the releases topic."""
    assembler, found = Assembler(), {}
    for record in service.log.read(service.names.releases, 0, service.log.begin(service.names.releases, 0), 10_000):
        if isinstance(whole := assembler.take(record), Assembled):
            found[whole.version] = unseal("release", whole.data, service.public_key)["payload"]
    return found


def never_saw(service):
    """Make the second version of a service from the documents that are left, learned cold."""
    service.add(LEFT[:90])
    service.settle()
    service.add(LEFT[90:])
    (version,) = service.settle(requested="retrain").versions
    assert (version["version"], version["kind"], version["documents"]) == (2, "retrain", len(LEFT))
    return payloads(service)[2], service.release(2)


def test_a_retrain_publishes_the_bytes_of_the_twin(opened):
    """Learned cold on both sides, the payload is the same to the last byte: nothing of the documents is left in it."""
    with opened("saw") as saw, opened("never") as never:
        saw.add(DOCUMENTS)
        saw.settle()
        saw.delete(GONE)
        (version,) = saw.settle(requested="retrain").versions
        assert version["version"] == 2
        twin, _ = never_saw(never)
        assert payloads(saw)[2] == twin


def test_an_update_after_a_restart_publishes_the_bytes_of_the_twin(opened):
    """A process that starts anew has no model to go on from, solves cold, and publishes the twin's bytes."""
    with opened("saw") as saw:
        saw.add(DOCUMENTS)
        saw.settle()
        saw.delete(GONE)
    with opened("saw") as saw, opened("never") as never:
        (version,) = saw.settle().versions
        assert (version["version"], version["kind"], version["forgotten"]) == (2, "unlearn", len(GONE))
        twin, _ = never_saw(never)
        assert payloads(saw)[2] == twin


def test_an_update_of_a_running_service_is_within_the_grid(opened):
    """Carried over warm, every noised number is the twin's or a neighbour of it on the grid; all else is exact."""
    with opened("saw") as saw, opened("never") as never:
        saw.add(DOCUMENTS)
        saw.settle()
        saw.delete(GONE)
        (version,) = saw.settle().versions
        assert version["kind"] == "unlearn"
        one = saw.release(2)
        _, twin = never_saw(never)
        assert one.words == twin.words
        assert one.envelope.anchors == twin.envelope.anchors
        assert one.heads == twin.heads
        for a, b in _numbers(one, twin):
            # Before the grid the two differ by 1e-14, so by one step after it; a projection spreads no more than that.
            assert np.abs(a - b).max() <= 2 * one.envelope.sigma / 16 + 1e-7 * np.abs(b).max()


def _numbers(one, twin):
    if one.payload.A is not None:
        yield one.A, twin.A
    for task in one.heads:
        yield one.task_weights(task), twin.task_weights(task)
