"""Campaigns of tests: real Kafka, real Redis, real processes.

FAULTS_SEED draws other faults than the usual ones; the seed is printed. A long campaign: `python tests/campaign`.
"""

import os
from contextlib import ExitStack

import pytest

from campaign.cluster import Cluster
from campaign.rounds import run
from streamtopic.errors import ComponentUnreachable

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
