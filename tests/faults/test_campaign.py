"""The whole service under faults, on one Redis."""

import pytest

from campaign.alarms import promtool

# Each fires an alert of its own. Long campaigns do all drills.
_DRILLS = ("lose redis", "fill redis", "refuse a change", "misplace records")


@pytest.mark.slow
def test_nothing_is_lost_counted_twice_or_kept_through_faults(campaign):
    """After each round of faults, and after compaction, a lost key and retention, all is what the log calls for.

    Faults fire their alerts. That no other alert fires is asked of campaigns on a quiet machine: tests of other files
    run at the same time.
    """
    drills = _DRILLS if promtool() else ()
    report = campaign(faults=8, drills=drills, losses=("changes",), quiet=False)
    assert report.findings == []
    assert report.faults.total() == 8
    assert report.compactions == 1
    assert report.versions > 1
    assert report.deletions > 25
    assert report.alerts == (len(drills) + 1 if promtool() else 0)
