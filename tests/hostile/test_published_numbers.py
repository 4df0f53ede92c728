"""What a version says in public tells no candidate for a deleted document from another."""

import dataclasses
import json
import math
import secrets

import msgpack
import numpy as np
import pytest

from streamtopic.documents.corpus import Document
from streamtopic.privacy.noise import NoisedMatrix, plan_noise
from streamtopic.service.app import Service
from streamtopic.service.schedule.payload import ReleaseNoise, head_ratio
from streamtopic.service.verify import gather
from streamtopic.settings import Settings

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
    "heads alone": {**TASK, "publish": "tasks", "epsilon": 5.0},
    # Constants that are estimated may lie on both sides of a step, and then another base is due: here they are set.
    "theorem": {
        "learner": "paper",
        "guarantee": "theorem",
        "epsilon": 0.5,
        "imbalance": 4.0,
        "conditioning": 0.05,
        "separability": 0.05,
    },
}
CANDIDATES = [
    "rose tulip tulip soil morning",
    "oven oven oven flour people river",
    "anchor tide rose butter great small",
    "gull gull gull gull gull gull quiet",
]
OWN = {"previous"}
"""Fields of an envelope that may differ: the digest of the version before, which held the candidate, under noise."""


def corpus(number=150, seed=0):
    """Texts that lean to one of three topics each, two in three of them labelled."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    for k in range(number):
        shares = rng.dirichlet([0.2] * len(names))
        words = [str(rng.choice(TOPICS[names[topic]])) for topic in rng.choice(3, 30, p=shares)]
        words += [str(word) for word in rng.choice(SHARED, 6)]
        yield Document(f"doc-{k:03d}", " ".join(words), {"place": names[int(shares.argmax())]} if k % 3 else {})


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens an instance by name; instances share the noise key unless one is named."""

    def key(name):
        path = tmp_path / f"{name}.key"
        if not path.exists():
            path.write_bytes(secrets.token_hex(32).encode())
            path.chmod(0o600)
        return path

    def service(name, noise="shared", **more):
        plain = {"topics": 3, "max_df": 1.0, "max_forget_lag": 0.0, "capacity": "fixed", "capacity_fixed": 50}
        settings = Settings(dir=tmp_path / name, noise_key=key(noise), **{**plain, **more})
        return Service(settings, clock=lambda: 1_700_000_000.0)

    return service


def after_forgetting(instance, candidate):
    """Publish a base with a candidate and an update without it; what is public of the update."""
    instance.add([*corpus(), Document("doc-gone", candidate, {})])
    instance.settle()
    instance.delete(["doc-gone"])
    (version,) = instance.settle().versions
    assert (version["version"], version["kind"]) == (2, "unlearn")
    release, evidence = instance.release(2), gather(instance.sources, 2, verify=instance.verify)
    (receipt,) = instance.receipts()
    return release.envelope, version, receipt, evidence


@pytest.mark.parametrize("mode", MODES)
def test_four_candidates_for_a_deleted_document_leave_one_envelope(opened, mode):
    """Whichever of four documents was forgotten, the update says the same of itself; certificates were four floats."""
    said, told, issued, reported = [], [], [], []
    # An update under the theorem keeps the anchors of its base, which odd documents may change.
    ordinary = [document.text for document in corpus(4, seed=3)]
    for k, candidate in enumerate(ordinary if mode == "theorem" else CANDIDATES):
        with opened(f"saw-{k}", **MODES[mode]) as instance:
            envelope, version, receipt, evidence = after_forgetting(instance, candidate)
        said.append({name: value for name, value in dataclasses.asdict(envelope).items() if name not in OWN})
        told.append({name: value for name, value in version.items() if name != "seconds"})
        issued.append({name: getattr(receipt, name) for name in ("certificate", "sigma", "epsilon", "capacity_left")})
        findings = [one for one in evidence["findings"] if one["source"] in {"signed", "relearned"}]
        reported.append(json.dumps([one for one in findings if one["name"] not in {"signature", "chain"}]))
    for seen in (said, told, issued, reported):
        assert all(one == seen[0] for one in seen[1:])


def test_a_certificate_is_what_was_claimed_and_a_margin_a_power_of_two(opened):
    """No digit of the model before noise is in them, wherever they are shown."""
    with opened("one") as instance:
        envelope, version, receipt, _ = after_forgetting(instance, CANDIDATES[0])
    assert {envelope.certificate, version["certificate"], receipt.certificate} == {envelope.tolerance}
    assert math.log2(envelope.margin).is_integer()


@pytest.mark.parametrize("ratio", [head_ratio, lambda noised: ReleaseNoise.of(noised).ratio], ids=["heads", "topics"])
def test_a_number_on_the_next_point_of_the_grid_leaves_the_envelope_as_it_was(ratio):
    """Two candidates are two paths to one head, 1e-9 apart, which one rounding in a few hundred tells apart."""
    plan, rng = plan_noise(7.3e-5, 5.0, 1e-6), np.random.default_rng(0)
    B = np.round(rng.normal(size=(32, 3)) / plan.grid) * plan.grid
    said = ratio(NoisedMatrix(B, B, plan))
    for place in range(B.size):
        moved = B.copy()
        moved.flat[place] += plan.grid
        assert ratio(NoisedMatrix(moved, moved, plan)) == said


def test_digests_in_redis_are_keyed(opened):
    """Whoever has the very documents, and not the noise key, cannot compute what Redis keeps of counts and base."""
    counts, bases = [], []
    for name, noise in (("one", "shared"), ("two", "shared"), ("three", "other")):
        with opened(name, noise) as instance:
            instance.add(corpus())
            instance.settle()
            counts.append(instance.state.ledger()[1]["digest"])
            head = instance.connection.call("HGET", "{st:default}:base", "head")
            bases.append(msgpack.unpackb(head)["sha256"])
    assert counts[0] == counts[1] != counts[2]
    assert bases[0] == bases[1] != bases[2]
