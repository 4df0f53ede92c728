"""The whole service under faults. Campaigns stand in files of their own, so that several can run side by side."""

import pytest


@pytest.mark.slow
def test_nothing_is_lost_counted_twice_or_kept_through_faults(campaign):
    """After each round of faults, and after compaction, rebuild and retention, all is what the log calls for."""
    report = campaign(faults=24, quiet=False)
    assert report.findings == []
    assert report.faults.total() == 24
    assert report.compactions == 1
    assert report.versions > 1
    assert report.deletions > 50
