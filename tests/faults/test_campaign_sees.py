"""Campaigns against programs with a fault of their own, which they must find."""

import re
import sys
from pathlib import Path

import pytest

from streamtopic.lab.faults import counters


def _program(name):
    """The command of a program of this folder in place of `streamtopic`."""
    return {"program": (sys.executable, str(Path(__file__).with_name(name)))}


@pytest.mark.slow
def test_the_campaign_catches_a_service_that_miscounts(campaign, monkeypatch):
    """A metric that leaves out deleted documents disagrees with the log."""
    # No waiting mends this difference. Gauges, which must agree by then, are looked up every five seconds.
    monkeypatch.setattr(counters, "_PATIENCE", 30.0)
    report = campaign(target=_program("miscounting.py"), faults=8, erode=False, quiet=False)
    assert report.faults.total() == 0
    (finding,) = report.findings
    assert re.fullmatch(r"processes counted 0 records deleted, the log says [1-9]\d*", finding)


@pytest.mark.slow
def test_the_campaign_catches_a_service_without_its_guards(campaign):
    """Commits that do not compare what they were made for are applied twice, and that is found."""
    kinds = {"lose replies": 2, "late commit": 1}
    # The oracle sees it, or a process that reads the state and refuses to go on, or a reader of what is published.
    signs = ("stored", "live", "`streamtopic rebuild`", "does not verify")
    findings = []
    # A fault does harm only where it meets a commit, so a busy machine may need more than one campaign.
    for attempt in range(3):
        report = campaign(attempt, _program("broken.py"), faults=60, kinds=kinds, rest_seconds=60, erode=False)
        findings += report.findings
        if any(sign in finding for finding in findings for sign in signs):
            return
    pytest.fail(f"three campaigns saw nothing: {findings}")
