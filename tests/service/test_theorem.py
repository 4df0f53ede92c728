"""Theorem mode from end to end: Algorithm 1 in a service that forgets, restarts and is checked."""

import dataclasses
import math
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_recovery import set_back, versions
from three_topics import leaning

from crashes import copied
from embedded_service import embedded, silent
from streamtopic.documents.corpus import Document
from streamtopic.pages.version_page import version_facts, version_page
from streamtopic.paper.algorithm1 import remaining, unlearn_base
from streamtopic.service import theorem_mode as theorem
from streamtopic.service.assembly import learner_options
from streamtopic.service.verify import passed
from streamtopic.service.verify.recount import recount
from streamtopic.topics.learner import learn
from streamtopic.words.text import passages
from strict_html import Strict

DOCUMENTS = leaning(240, seed=3)
OTHERS = leaning(20, seed=8)
CONSTANTS = {"topic_imbalance": 1.3, "topic_condition": 0.5, "separability": 0.1, "base_error": 0.1}
"""Known, so that noise does not change with every few documents of a corpus this small."""
VISIBLE = 3.6e-7
"""A constant of the sensitivity, far below what is proved, at which these few documents show through the noise."""


def service(folder, **more):
    """An embedded instance in theorem mode that serves deletions at once."""
    plain = {
        "capacity": {"rule": "fixed", "documents": 10},
        "guarantee": "theorem",
        "learner": "paper",
        "epsilon": 0.5,
        "theorem": CONSTANTS | {"constant": VISIBLE},
        "epsilon_budget": 50.0,
    }
    return embedded(folder, **{**plain, **more})


def settled(instance):
    """Settle, and return the versions made: kind and reason."""
    return [(version["kind"], version["reason"]) for version in instance.settle().versions]


def record(instance, version):
    """The release record of a version."""
    return dict(instance.state.releases())[version]


def outcome(instance, name):
    """What verification found under a name: passed, detail."""
    return next((check.passed, check.detail) for check in instance.verify() if check.name == name)


def test_epsilon_is_that_of_topics_and_covariance_together(tmp_path):
    """Two matrices go out at (0.5, delta) each: the envelope says what the pair is, and versions compose from that."""
    with service(tmp_path) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        first = instance.release(None).envelope
        assert 0.5 < first.epsilon < 1
        assert first.cumulative_epsilon == pytest.approx(first.epsilon)
        assert first.scale == pytest.approx(instance.scheduler.modeller.scale)
        instance.delete([DOCUMENTS[0].id])
        instance.settle()
        assert first.epsilon < instance.release(None).envelope.cumulative_epsilon < 2 * first.epsilon


def test_every_condition_is_kept_for_the_operator_and_none_is_published(tmp_path):
    """The record holds value, relation, bound and source of each check, constants and vacuity; the release does not."""
    with service(tmp_path, theorem=CONSTANTS | {"constant": 0.9}) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        instance.delete([DOCUMENTS[1].id])
        assert [kind for kind, _ in settled(instance)] == ["unlearn"]
        kept = record(instance, 2)
        names = {check["name"] for check in kept["checks"]}
        assert {"epsilon below 1", "documents of the learner", "anchors that a retraining chooses too"} <= names
        assert {"words that entered or left the vocabulary", "measured ||Abar - A^F||_F"} <= names
        for check in kept["checks"]:
            assert set(check) == {"name", "value", "relation", "bound", "source", "holds"}
        failed = {check["name"] for check in kept["checks"] if not check["holds"]}
        assert "documents of the learner" in failed
        assert kept["covered"] is False
        assert "vacuous: use certified mode" in kept["vacuity"]
        constants = kept["constants"]
        assert (constants["m"], constants["m_U"], constants["c"]) == (240, 10, 0.9)
        assert constants["delta_A"] / math.sqrt(2) < constants["delta_formula"] <= constants["delta_A"]
        assert constants["implied_c"] < 1
        release = instance.release(None)
        assert not {"checks", "constants", "vacuity"} & {*release.payload.__slots__, *release.envelope.__slots__}
        assert release.envelope.ratio >= 1
        evidence = version_facts(instance, 2, update=silent)
    # Without its conditions the claim is open, neither proved nor refuted.
    assert [one["name"] for one in evidence["findings"] if one["passed"] is not True] == ["conditions"]
    assert (evidence["passed"], evidence["complete"]) == (True, False)
    written = version_page(evidence)
    assert sum(text == "FAILS" for _, text in Strict(written).text) == len(failed)
    assert "not proved for this version" in written
    assert "nothing to forget" in " ".join(written.split())


def test_a_base_that_bears_no_deletion_has_noise_for_one(tmp_path):
    """With T = 0 every deletion is a retrain, and its own noise is for one."""
    with service(tmp_path, capacity={"rule": "fixed", "documents": 0}) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        assert instance.status()["capacity"] == 0
        assert "capacity 0: every deletion is a retrain" in instance.status()["remarks"]
        assert record(instance, 1)["constants"]["m_U"] == 1
        instance.delete([DOCUMENTS[0].id])
        assert [kind for kind, _ in settled(instance)] == ["retrain"]
        assert instance.release(None).envelope.m == 239


def test_a_changed_anchor_is_a_retrain(tmp_path):
    """Where a retraining would choose other anchors the two could be told apart, so nothing is unlearned."""
    with service(tmp_path, capacity={"rule": "fixed", "documents": 240}) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        anchor = instance.release(None).anchors[0]
        held = [document.id for document in DOCUMENTS if f" {anchor} " in f" {document.text} "]
        instance.delete(held[: int(0.9 * len(held))])
        ((kind, reason),) = settled(instance)
        assert kind == "retrain"
        assert "anchor" in reason or "noise of another size" in reason
        assert instance.release(None).envelope.m == 240 - int(0.9 * len(held))


@pytest.mark.parametrize(("ratio", "said"), [(math.sqrt(2), "noise of another size"), (math.nan, "gives no noise")])
def test_noise_of_another_size_is_a_retrain(tmp_path, monkeypatch, ratio, said):
    """Where a retraining would draw other noise the two could be told apart, so nothing is unlearned."""
    examine = theorem.examine

    def other(*arguments):
        found = examine(*arguments)
        return dataclasses.replace(found, compared=dataclasses.replace(found.compared, ratio=ratio))

    with service(tmp_path) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        monkeypatch.setattr(theorem, "examine", other)
        instance.delete([DOCUMENTS[0].id])
        ((kind, reason),) = settled(instance)
        assert kind == "retrain"
        assert said in reason


def test_verification_runs_algorithm_1_again(tmp_path):
    """Counts, base model, what is kept of it, and the newest version, from the log; what was altered is found."""
    with service(tmp_path) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        assert passed(instance.verify())
        instance.delete([document.id for document in DOCUMENTS[:5]])
        # The same document once more changes nothing, so it stays one of the base.
        instance.add([DOCUMENTS[20]])
        assert [kind for kind, _ in settled(instance)] == ["unlearn"]
        checks = {check.name: check for check in instance.verify()}
        # Not all conditions of the proof hold here, which is open and no failure.
        assert {name for name, check in checks.items() if check.passed is not True} <= {"conditions"}, checks
    wrong_constant = {"theorem": CONSTANTS | {"constant": 2 * VISIBLE}}
    wrong_imbalance = {"theorem": CONSTANTS | {"constant": VISIBLE, "topic_imbalance": 2.0}}
    for name, wrong in (
        ("theorem.constant", wrong_constant),
        ("epsilon", {"epsilon": 0.25}),
        ("theorem.topic_imbalance", wrong_imbalance),
    ):
        with service(tmp_path, **wrong) as instance:
            holds, detail = outcome(instance, "version")
        assert holds is False
        assert "difference" in detail, (name, detail)
    with service(tmp_path, guarantee="certified") as instance:
        assert outcome(instance, "version") == (
            False,
            "it was made in another mode: verify with --set guarantee=theorem",
        )


def test_what_cannot_be_noised_is_no_version(tmp_path):
    """Noise past what numbers hold, or below their rounding, makes no version, and the reason is told."""
    for constant, reason in ((1e30, "too large for a release to hold"), (1e-150, "raise the constant c")):
        with service(tmp_path / reason.replace(" ", ""), theorem=CONSTANTS | {"constant": constant}) as instance:
            instance.add(DOCUMENTS)
            decision = instance.settle().decision
            assert "no model can be made" in decision
            assert reason in decision


class Oracle:
    """What a service in theorem mode must hold: live documents, and which of them are of its base model."""

    def __init__(self, instance):
        self.live, self.base, self.events = {}, {}, 0
        self.instance = instance

    def add(self, documents):
        """Add; a document that is there already unchanged stays what it is."""
        self.instance.add(documents)
        for document in documents:
            self.events += 1
            if self.live.get(document.id, ("",))[0] != document.text:
                self.live[document.id] = (document.text, self.events)

    def delete(self, ids):
        """Delete."""
        self.instance.delete(ids)
        for name in ids:
            self.live.pop(name, None)

    def settle(self):
        """Settle; a retrain makes all live documents those of the base."""
        versions = self.instance.settle().versions
        if any(version["kind"] == "retrain" for version in versions):
            self.base = dict(self.live)
        return versions

    @property
    def left(self):
        """Texts of the base model's documents that are left."""
        return [one[0] for name, one in self.base.items() if self.live.get(name) == one]


@settings(max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_any_history_gives_algorithm_1_on_what_is_left_of_the_base(tmp_path_factory, seed):
    """Adds, deletes, replacements and repetitions in two partitions: the model of a reference run on what is left.

    A replaced document is gone, and its successor waits for a retrain; one added again unchanged stays.
    """
    rng = np.random.default_rng(seed)
    folder = tmp_path_factory.mktemp("theorem")
    some = {"partitions": 2, "capacity": {"rule": "fixed", "documents": 60}, "update_after": 1.0}
    gone, replaced, repeated, again, last = np.split(rng.permutation(len(DOCUMENTS)), [5, 10, 15, 20])
    steps = [
        lambda on: on.delete([DOCUMENTS[k].id for k in gone]),
        lambda on: on.add([Document(DOCUMENTS[k].id, OTHERS[k % 20].text, {}) for k in replaced]),
        lambda on: on.add([DOCUMENTS[k] for k in repeated]),
        lambda on: on.add([Document(f"new-{k}", OTHERS[k].text, {}) for k in range(20)]),
        lambda on: (on.delete([DOCUMENTS[k].id for k in again]), on.add([DOCUMENTS[k] for k in again])),
    ]
    with service(folder, **some) as instance:
        oracle = Oracle(instance)
        oracle.add(DOCUMENTS)
        oracle.settle()
        for k in rng.permutation(len(steps)):
            steps[k](oracle)
            if rng.random() < 0.3:
                oracle.settle()
        oracle.settle()
    with service(folder, **some) as oracle.instance:
        oracle.delete([DOCUMENTS[last[0]].id])
        assert oracle.settle()
        agrees(oracle.instance, oracle.left)
    shutil.rmtree(folder)


def agrees(instance, texts):
    """The model before noise is that of a reference run on these texts, and verification finds nothing."""
    found, release = instance.scheduler.modeller.last, instance.release(None)
    options = learner_options(instance.settings)
    twin = learn(recount([tuple(passages(text)) for text in texts], options.weighting), options)
    reference = unlearn_base(remaining(twin))
    assert (release.envelope.m, release.anchors) == (len(texts), twin.anchors)
    assert found.words == reference.words
    assert np.abs(found.A - reference.A).max() < 1e-12
    assert np.abs(found.R - reference.R).max() < 1e-10
    checks = instance.verify()
    # Not all conditions of the proof hold here, which is open and no failure.
    assert all(check.passed or check.name == "conditions" for check in checks), checks


@pytest.mark.parametrize("lost", ["update", "base"])
def test_theorem_mode_goes_on_after_redis_was_set_back(tmp_path, lost):
    """What was published counts; an update stands on the base of the version before it, or a new base is learned."""
    with service(tmp_path) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        held = copied(instance.connection)
        instance.delete([DOCUMENTS[20].id])
        if lost == "base":
            instance.state.request("retrain")
        instance.settle()
        set_back(instance, held)
        instance.delete([DOCUMENTS[21].id])
        instance.settle()
        found = dict(versions(instance))
        assert sorted(found) == [1, 2, 3]
        assert found[3].m == 238
        assert (found[2].base, found[3].base) == ((2, 3) if lost == "base" else (1, 1))
        assert set(found[2].withdrawn) | set(found[3].withdrawn) == {1, 2}
        assert {receipt.version for receipt in instance.receipts()} == {2, 3}
        if lost == "update":
            assert found[3].cumulative_epsilon > found[2].cumulative_epsilon
