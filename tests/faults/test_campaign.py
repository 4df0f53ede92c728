"""The whole service under faults, on one Redis and on a Redis Cluster: real Kafka, real Redis, real processes.

FAULTS_SEED draws other faults than the usual ones; the seed is printed. A long campaign: `python tests/campaign`.
"""

import os
from contextlib import ExitStack

import pytest

from campaign.cluster import Cluster
from campaign.rounds import run
from streamtopic.errors import ComponentUnreachable

pytestmark = pytest.mark.slow

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


SEED = int(os.environ.get("FAULTS_SEED", "1"))


@pytest.fixture
def campaign(tmp_path):
    """Return a function that runs a campaign. sharded: on a Redis Cluster. options: of the campaign."""

    def made(*, sharded=False, **options):
        print(f"seed {SEED}, data in {tmp_path}")  # noqa: T201  a failure is looked into with these
        with ExitStack() as stack:
            try:
                started = Cluster(tmp_path, stack, sharded=sharded)
            except ComponentUnreachable as error:
                if os.environ.get("CI"):
                    raise
                pytest.skip(str(error))
            return run(started, SEED, say=print, **options)

    return made


def test_nothing_is_lost_counted_twice_or_kept_through_faults(campaign):
    """After each round of faults, all is what the log calls for."""
    report = campaign(faults=8)
    assert report.findings == []
    assert report.faults.total() == 8
    assert report.figures["versions"] > 1
    assert report.figures["receipts"] > 25


def test_nothing_is_lost_while_masters_are_replaced_and_slots_move(campaign):
    """On a Redis Cluster too, after each round, all is what the log calls for."""
    report = campaign(sharded=True, faults=4, kinds=_SHARDED, round_faults=4)
    assert report.findings == []
    assert report.faults.total() == 4
    assert report.figures["receipts"] > 5
