"""The whole service under faults: real Kafka, real Redis, real processes.

FAULTS_SEED draws other faults than the usual ones; the seed is printed. A long campaign: `streamtopic bench faults`.
"""

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamtopic.errors import ComponentUnreachable
from streamtopic.lab.faults.alarms import promtool
from streamtopic.lab.faults.campaign import Options, run
from streamtopic.lab.faults.cluster import Cluster

SEED = int(os.environ.get("FAULTS_SEED", "1"))

# What only a cluster has, most of it, and what everybody has.
_SHARDED = {
    "fail over": 2,
    "kill master": 2,
    "stalled node": 2,
    "move slots": 2,
    "forgetful replica": 1,
    "lose replies": 2,
    "kill ingest": 1,
}


def _campaign(folder, options, **cluster):
    print(f"seed {options.seed}, data in {folder}")  # noqa: T201  a failure is looked into with these
    with ExitStack() as stack:
        try:
            started = stack.enter_context(Cluster(folder, **cluster))
        except ComponentUnreachable as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        return run(started, options, print)


@pytest.mark.slow
def test_nothing_is_lost_counted_twice_or_kept_through_faults(tmp_path):
    """After each round of faults, and after compaction, rebuild and retention, all is what the log calls for."""
    report = _campaign(tmp_path, Options(SEED, faults=24, quiet=False))
    assert report.findings == []
    assert report.faults.total() == 24
    assert report.compactions == 1
    assert report.versions > 1
    assert report.deletions > 50


@pytest.mark.slow
def test_nothing_is_lost_while_masters_are_replaced_and_slots_move(tmp_path):
    """On a Redis Cluster too, health gives no false alarm, numbers agree, and no log line says who or what."""
    report = _campaign(
        tmp_path, Options(SEED, faults=8, kinds=_SHARDED, round_faults=4, erode=False, quiet=False), sharded=True
    )
    assert report.findings == []
    assert report.faults.total() == 8
    assert report.health_asked > 50
    assert report.alerts == bool(promtool())


@pytest.mark.slow
def test_a_class_of_faults_fires_its_own_alert(tmp_path):
    """The rules see a Redis that is lost or full, and records that are refused or misplaced.

    That no other alert fires is asked of campaigns on a quiet machine: tests of other files run beside this one.
    """
    if promtool() is None:
        pytest.skip("promtool is not installed: it comes with Debian's package `prometheus`")
    drills = ("lose redis", "fill redis", "refuse a change", "misplace records")
    report = _campaign(tmp_path, Options(SEED, faults=0, drills=drills, erode=False, quiet=False))
    assert report.findings == []
    assert report.alerts == len(drills) + 1


@pytest.mark.slow
def test_the_campaign_catches_a_service_that_miscounts(tmp_path):
    """A metric that leaves out deleted documents disagrees with the log."""
    miscounting = (sys.executable, str(Path(__file__).with_name("miscounting.py")))
    report = _campaign(tmp_path, Options(SEED, faults=8, erode=False, quiet=False), program=miscounting)
    assert report.faults.total() == 0
    (finding,) = report.findings
    assert re.fullmatch(r"processes counted 0 records deleted, the log says [1-9]\d*", finding)


@pytest.mark.slow
def test_the_campaign_catches_a_service_without_its_guards(tmp_path):
    """Commits that do not compare what they were made for are applied twice, and that is found."""
    kinds = {"lose replies": 2, "late commit": 1}
    broken = (sys.executable, str(Path(__file__).with_name("broken.py")))
    # The oracle sees it, or a process that reads the state and refuses to go on, or a reader of what is published.
    signs = ("stored", "live", "`streamtopic rebuild`", "does not verify")
    findings = []
    # A fault does harm only where it meets a commit, so a busy machine may need more than one campaign.
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        report = _campaign(
            folder, Options(SEED + attempt, faults=60, kinds=kinds, rest_seconds=60, erode=False), program=broken
        )
        findings += report.findings
        if any(sign in finding for finding in findings for sign in signs):
            return
    pytest.fail(f"three campaigns saw nothing: {findings}")
