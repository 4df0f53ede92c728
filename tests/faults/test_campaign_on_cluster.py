"""The whole service under faults on a Redis Cluster."""

import pytest

from campaign.alarms import promtool

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


@pytest.mark.slow
def test_nothing_is_lost_while_masters_are_replaced_and_slots_move(campaign):
    """On a Redis Cluster too, health gives no false alarm, numbers agree, and no log line says who or what."""
    report = campaign(sharded=True, faults=4, kinds=_SHARDED, round_faults=4, erode=False, quiet=False)
    assert report.findings == []
    assert report.faults.total() == 4
    assert report.health_asked > 25
    assert report.alerts == bool(promtool())
