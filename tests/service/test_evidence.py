"""Evidence about versions of every kind: what holds passes, what is off by a little fails."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from three_topics import leaning

from embedded_service import embedded
from streamtopic.pages.version_page import version_facts, version_page
from streamtopic.service.schedule.payload import Ingredients, TaskOptions
from streamtopic.service.verify.ledger_checks import InLog, WholeLedger, release_findings
from streamtopic.service.verify.relearn import published_differ
from streamtopic.signed import Envelope, Head, LedgerProof, Payload, Release, line_of
from streamtopic.topics.heads import HeadTask
from strict_html import Strict

HOSTILE = "</script><script>alert(1)</script>\u202e"
SUBJECTS = {"garden": "garden", "harbour": "harbour", "kitchen": HOSTILE}
DOCUMENTS = leaning(150, label=lambda topic, _: {"subject": SUBJECTS[topic]})
"""One subject's name is markup."""


@pytest.mark.parametrize("publish", ["topics", "tasks"])
def test_tasks_are_evidence_too(tmp_path, publish):
    """With heads beside topics, or in their place, the evidence is complete, and a hostile class stays a word."""
    with embedded(tmp_path, publish=publish, tasks={"subject": {"ridge": 1e-3}, "other": {}}) as service:
        service.add(DOCUMENTS)
        service.settle()
        service.delete(["doc-000", "doc-001"])
        service.settle()
        evidence = version_facts(service, 2)
    assert [one for one in evidence["findings"] if one["passed"] is not True] == []
    assert evidence["published"] == publish
    (head,) = evidence["tasks"]["heads"]
    assert (head["task"], head["classes"], head["documents"]) == ("subject", sorted(SUBJECTS.values()), 148)
    assert list(evidence["tasks"]["unfitted"]) == ["other"]
    assert bool(evidence["pictures"]) is (publish == "topics")
    assert (head["sigma"] is None) is (publish == "topics")
    written = version_page(evidence)
    assert "script" not in Strict(written).tags
    assert "alert" in written


def version(**changes):
    """Payload and envelope of an update that is in order; keyword arguments change the envelope."""
    rng = np.random.default_rng(1)
    words = tuple(f"w{k:02d}" for k in range(12))
    A = rng.dirichlet(np.ones(12), 3).T.astype(np.float32)
    R, shares = np.eye(3, dtype=np.float32) / 3, np.full(3, 1 / 3)
    payload = Payload(words, A, R, shares, (words[:3],) * 3, {}, anchors=words[:3])
    envelope = Envelope(
        model="m", version=2, kind="unlearn", parent=1, base=1, cut={0: 9}, m=8, n=12, r=3, guarantee="certified",
        epsilon=1.0, delta=1e-6, sigma=8.45e-7, tolerance=1e-7, certificate=1e-11,
        forgotten=1, capacity=3, capacity_rule="fixed", cumulative_epsilon=1.46, withdrawn=(1,), created=1,
        scale=4.2247,
    )  # fmt: skip
    return payload, dataclasses.replace(envelope, **changes)


def outcomes(payload, envelope, record=None, standing=(2,)):
    """Findings by name. record: in Redis; standing: versions whose bytes are in the log."""
    proof = LedgerProof(line_of(envelope), 0, (), "a note").text
    base = dataclasses.replace(version()[1], version=1, kind="retrain", withdrawn=())
    whole = WholeLedger(SimpleNamespace(withdrawn=frozenset({1})), versions={1: base, 2: envelope})
    release = Release(payload, envelope, proof=proof)
    found = release_findings(InLog(release, frozenset(standing), whole, record or {}))
    return {finding.name: finding.passed for finding in found}


def test_a_version_in_order_passes():
    """Nothing fails where nothing is wrong."""
    assert set(outcomes(*version()).values()) == {True}


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"sigma": 8.0e-7}, {"noise"}),
        ({"scale": 4.22}, {"noise"}),
        ({"scale": 0.0}, {"noise"}),
        ({"slack": -1e-6}, {"noise"}),
        ({"epsilon": 0.99}, {"noise"}),
        ({"delta": 1e-7}, {"noise", "composition"}),
        ({"slack": 1e-6}, {"noise", "composition"}),
        ({"cumulative_epsilon": 1.45}, {"composition"}),
    ],
)
def test_numbers_that_do_not_carry_the_claim_fail(changes, failing):
    """Noise a little off, no noise at all, less epsilon than was spent: each fails its own check."""
    found = outcomes(*version(**changes))
    assert {name for name, passed in found.items() if passed is False} == failing


def test_noise_of_theorem_mode_is_held_against_its_own_delta():
    """Sigma below that of the proof for the recorded Delta fails, at it passes; without constants nothing is told."""
    payload, envelope = version(guarantee="theorem", epsilon=0.75, scale=7.5, sigma=5.0, covered=True)
    constants = {"delta_A": 0.5, "epsilon_each": 0.5}
    needed = 0.5 * (2 * np.log(1.25e6)) ** 0.5 / 0.5
    for sigma, expected in ((needed * 1.001, True), (needed * 0.999, False)):
        found = outcomes(payload, dataclasses.replace(envelope, sigma=float(sigma)), {"constants": constants})
        assert (found["noise"], found["conditions"]) == (expected, True)


def test_withheld_heads_need_the_noise_of_all_together():
    """Two heads, each with noise enough for one alone, do not carry the claim; with sqrt(2) times as much they do."""
    words = version()[0].words
    B = np.ones((12, 2), np.float32)
    payload = Payload(words, heads={name: Head(words[:3], ("a", "b"), 5, B=B) for name in ("s", "t")})
    _, envelope = version()
    for factor, expected in ((1.0, False), (2**0.5, True)):
        heads = {name: {"sigma": factor * 4.2247 * 3.0, "sensitivity": 3.0} for name in ("s", "t")}
        assert outcomes(payload, envelope, {"heads": heads})["noise"] is expected


def test_every_published_number_is_compared():
    """A and heads by more than rounding on the grid, all else by anything: each part that differs is named."""
    payload, _ = version()
    made = Ingredients(noise=None, read=None)
    plan = SimpleNamespace(payload=payload, grid=2.0**-25, covariance_grid=None, facts={})
    assert published_differ(payload, plan, made) is None
    A, R, shares = payload.A.copy(), payload.R.copy(), payload.shares.copy()
    A[0, 0] += 1e-6
    R[0, 1] += 1e-4
    shares[0] = np.nan
    head = Head(payload.anchors[:1], ("a", "b"), 5, w=np.ones((1, 2)))
    for changes, said in (
        ({"A": A}, "A: largest difference"),
        ({"R": R}, "R: largest difference"),
        ({"shares": shares}, "shares: largest difference"),
        ({"top_words": (*payload.top_words[:2], payload.words[3:6])}, "top words"),
        ({"words": (*payload.words[:-1], "w99")}, "other words"),
        ({"anchors": payload.anchors[::-1]}, "other anchors"),
        ({"A": None}, "A has another shape"),
        ({"heads": {"s": head}}, "head of task 's' has other topics"),
    ):
        problem = published_differ(dataclasses.replace(payload, **changes), plan, made)
        assert problem is not None
        assert said in problem


def test_withheld_heads_are_compared_within_their_sensitivity():
    """Two that were made alike lie that far apart at most, and a step of their grid."""
    words = version()[0].words
    made = Ingredients(noise=None, read=None, tasks=TaskOptions({"s": HeadTask()}, withheld=True))

    def heads(more):
        B = np.ones((12, 2), np.float32)
        B[3, 1] += more
        return Payload(words, heads={"s": Head(words[:3], ("a", "b"), 5, B=B)}, anchors=words[:3])

    plan = SimpleNamespace(
        payload=heads(0), grid=0.25, covariance_grid=None, facts={"heads": {"s": {"sensitivity": 0.5, "grid": 0.25}}}
    )
    assert published_differ(heads(0.75), plan, made) is None
    assert "heads/s/B: largest difference" in published_differ(heads(0.76), plan, made)


def test_words_that_were_forgotten_are_not_in_a_report(tmp_path):
    """Where an anchor's documents go, neither the reason of the version nor a report names its word."""
    # Without the documents of an anchor two of the three subjects are left.
    with embedded(tmp_path, topics=2) as service:
        service.add(DOCUMENTS)
        service.settle()
    with embedded(tmp_path, topics=2) as service:
        anchor = service.release(1).anchors[0]
        service.delete([document.id for document in DOCUMENTS if anchor in document.text.split()])
        (made,) = service.settle().versions
        evidence = version_facts(service, made["version"])
    assert anchor not in made["reason"].replace(":", " ").replace(",", " ").split()
    assert made["kind"] == "unlearn"
    assert not re.search(rf"\b{anchor}\b", json.dumps(evidence) + version_page(evidence))
