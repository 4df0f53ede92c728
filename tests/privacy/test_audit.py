"""The whole audit: it passes on what is there, repeats itself, and fails when a piece is broken."""

import pytest

from streamtopic.audit.attack import AuditPlan, audit
from streamtopic.bench.synthetic import counted, planted
from streamtopic.errors import UsageError
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.topics.learner_options import LearnerOptions

OPTIONS = LearnerOptions(n_topics=3, max_df=1.0)
GUARANTEE = CalibratedGuarantee(1.0, 1e-6, 1e-7)
PLAN = AuditPlan(draws=600, whole=8)


@pytest.fixture(scope="module")
def counts():
    """Counts of 300 documents of three topics."""
    return counted(planted(300, 120, 3, 60, seed=3), 120, OPTIONS.weighting)


@pytest.fixture
def short(monkeypatch):
    """A plan of few draws, for what needs no power."""
    monkeypatch.setattr("streamtopic.audit.attack._LEAST_DRAWS", 100)
    return AuditPlan(draws=130, whole=8)


def test_an_audit_that_cannot_see_a_fault_fails(counts, short, monkeypatch):
    """Where distinguishers are blind nothing exceeds a claim, yet the controls are missed, and so the audit fails."""
    monkeypatch.setattr("streamtopic.audit.games._Look.at", lambda *_: [0.0] * 4)
    found = audit(counts, OPTIONS, GUARANTEE, short)
    assert all(played.within for played in found.games)
    assert len(found.missed) == 4
    assert not found.passed


def test_an_unlearning_that_keeps_the_document_fails_the_audit(counts, short, monkeypatch):
    """A residue in what is published bare is a failure by itself, whatever the noise hides."""
    monkeypatch.setattr("streamtopic.audit.chosen_documents._without", lambda fit, *_: (fit, ""))
    found = audit(counts, OPTIONS, GUARANTEE, short)
    assert found.different
    assert not found.passed


def test_too_few_draws_for_a_weak_claim_are_refused(counts):
    """At a small epsilon more draws are needed to see a fault: said before anything is learned, with the number."""
    weak = CalibratedGuarantee(0.05, 1e-6, 1e-7)
    with pytest.raises(UsageError, match="give at least"):
        audit(counts, OPTIONS, weak, PLAN)
    assert AuditPlan().enough(weak) > AuditPlan().enough(GUARANTEE)
    for hopeless in (CalibratedGuarantee(1e-4, 1e-6, 1e-7), CalibratedGuarantee(60.0, 1e-6, 1e-7)):
        with pytest.raises(UsageError, match="give so many yourself"):
            AuditPlan().enough(hopeless)
