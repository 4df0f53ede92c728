"""Versions from before certificates were proven: what `verify` and reports say of them, and that they go."""

import json
import random

import pytest

from streamtopic.documents.corpus import Document
from streamtopic.report.model_page import model_page
from streamtopic.report.version_report import read_report
from streamtopic.service.app import Service
from streamtopic.service.schedule import scheduler, situation
from streamtopic.service.schedule import version as staging
from streamtopic.service.verify import gather
from streamtopic.settings import Settings
from streamtopic.signed import REVISION

SETTINGS = {"topics": 3, "min_df": 1, "min_share": 0.0, "max_df": 1.0, "capacity_share": 0.2, "max_forget_lag": 0.0}
FIELD = "revision"


def corpus(number=90):
    """Documents of three themes."""
    rng = random.Random(5)
    themes = [[f"w{theme}{chr(97 + k)}" for k in range(20)] for theme in range(3)]
    texts = [" ".join(rng.choices(themes[i % 3] + themes[(i + 1) % 3][:5], k=40)) for i in range(number)]
    return [Document(f"doc-{i:03d}", text) for i, text in enumerate(texts)]


def without_field(function):
    """Wrap a maker of a record or of an envelope's facts, so that it says no revision, as older programs did."""

    def made(*arguments, **named):
        return {name: value for name, value in function(*arguments, **named).items() if name != FIELD}

    return made


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A service whose versions, a base and an update, are as an older program made them; the program is new again."""
    with Service(Settings(dir=tmp_path, **SETTINGS)) as running:
        with monkeypatch.context() as older:
            older.setattr(scheduler, "describe", without_field(staging.describe))
            older.setattr(scheduler, "release_record", without_field(staging.release_record))
            running.add(corpus())
            running.settle()
            running.delete(["doc-001"])
            running.settle()
        assert [version["kind"] for version in running.versions()] == ["retrain", "unlearn"]
        yield running


def open_findings(evidence):
    """Findings that neither passed nor failed, by name."""
    return {one["name"]: one for one in evidence["findings"] if one["passed"] is None}


def test_a_version_says_which_proof_it_rests_on(tmp_path):
    """What this program makes has the revision of docs/proof.md, signed and recorded, and is not called unproven."""
    with Service(Settings(dir=tmp_path, **SETTINGS)) as running:
        running.add(corpus())
        running.settle()
        envelope, (record,) = running.release(1).envelope, dict(running.state.releases()).values()
        assert envelope.revision == record["revision"] == REVISION > 0
        assert not envelope.unproven
        assert not situation.unproven(record)
        assert not open_findings(gather(running.sources, 1, verify=running.verify))


def test_an_older_version_is_not_called_proven(service):
    """Its certificate is open, with the remedy, and so is making it again; nothing of it is said to have failed."""
    evidence = gather(service.sources, 2, verify=service.verify)
    found = open_findings(evidence)
    assert set(found) == {"certificate", "base model", "newest version"}
    assert evidence["passed"] is True
    assert evidence["complete"] is False
    assert all("older program" in one["detail"] for one in found.values())
    assert all("`streamtopic retrain`" in one["remedy"] for one in found.values())
    assert "was not a proof" in evidence["claim"]["assumptions"][-1]


def test_only_certified_versions_before_the_proof_are_unproven():
    """A record without a revision is one from before; theorem mode rests on no certificate."""
    record = {"guarantee": "certified"}
    assert situation.unproven(record)
    assert situation.unproven(record | {FIELD: REVISION - 1})
    assert not situation.unproven(record | {FIELD: REVISION})
    assert not situation.unproven({"guarantee": "theorem"})


def test_a_subscriber_sees_that_a_version_is_older(service):
    """The sentence on the guarantee and the page of a version say it, of older versions only."""
    assert "was not a proof" in str(service.release(2).guarantee)
    assert "was not a proof" in model_page(service.release(2))
    service.state.request("retrain")
    service.settle()
    assert "was not a proof" not in str(service.release(3).guarantee) + model_page(service.release(3))


def test_the_next_version_withdraws_older_ones(service):
    """Nothing needs to have been forgotten since: a retrain takes the place of what was not proven, and then all is."""
    assert service.state.withdrawn() == {1}
    service.state.request("retrain")
    service.settle()
    assert service.state.withdrawn() == {1, 2}
    assert [release.version for release in service.subscriber()] == [3]
    assert not open_findings(gather(service.sources, 3, verify=service.verify))


def test_an_update_of_an_older_base_says_that_the_sum_is_not_proven(service):
    """Its own certificate is a proof; what the versions of its base add up to rests on theirs."""
    service.delete(["doc-002"])
    service.settle()
    assert service.versions()[-1]["kind"] == "unlearn"
    assert service.state.withdrawn() == {1, 2}
    found = open_findings(gather(service.sources, 3))
    assert set(found) == {"composition"}
    assert "version 1, of the same base" in found["composition"]["detail"]


def test_a_report_of_an_older_program_is_no_forgery(service, tmp_path):
    """It lacks the field and the sentence about it, which is no reason to distrust it; the certificate is open."""
    evidence = gather(service.sources, 2)
    del evidence["envelope"][FIELD]
    evidence["claim"]["assumptions"].pop()
    path = tmp_path / "report.json"
    path.write_text(json.dumps(evidence), encoding="utf-8")
    checks = {one.name: one.passed for one in read_report(path).check(service.public_key)}
    assert checks == {"signature": True, "facts": True, "wording": True, "certificate": None, "bound": True}


def test_a_report_may_not_leave_the_field_out_where_it_was_signed(tmp_path):
    """A signed revision that a report does not show is a change of signed facts."""
    with Service(Settings(dir=tmp_path, **SETTINGS)) as running:
        running.add(corpus())
        running.settle()
        evidence = gather(running.sources, 1)
        key = running.public_key
    del evidence["envelope"][FIELD]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(evidence), encoding="utf-8")
    checks = {one.name: one.passed for one in read_report(path).check(key)}
    assert checks["facts"] is False
