"""Each class of faults alone, and the alerts that it fires."""

import pytest

from streamtopic.lab.faults.alarms import promtool


@pytest.mark.slow
def test_a_class_of_faults_fires_its_own_alert(campaign):
    """The rules see a Redis that is lost or full, and records that are refused or misplaced.

    That no other alert fires is asked of campaigns on a quiet machine: tests of other files run beside this one.
    """
    if promtool() is None:
        pytest.skip("promtool is not installed: it comes with Debian's package `prometheus`")
    drills = ("lose redis", "fill redis", "refuse a change", "misplace records")
    report = campaign(faults=0, drills=drills, erode=False, quiet=False)
    assert report.findings == []
    assert report.alerts == len(drills) + 1
