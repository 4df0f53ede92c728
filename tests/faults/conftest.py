"""Campaigns of tests: real Kafka, real Redis, real processes.

FAULTS_SEED draws other faults than the usual ones; the seed is printed. A long campaign: `streamtopic bench faults`.
"""

import os
from contextlib import ExitStack

import pytest

from streamtopic.errors import ComponentUnreachable
from streamtopic.lab.faults.campaign import Options, run
from streamtopic.lab.faults.cluster import Cluster

SEED = int(os.environ.get("FAULTS_SEED", "1"))


@pytest.fixture
def campaign(tmp_path):
    """Return a function that runs a campaign in a folder of its own.

    attempt: number of the campaign in its test, which draws other faults.
    target: arguments of `Cluster`. options: of the campaign.
    """

    def made(attempt=0, target=None, **options):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        print(f"seed {SEED + attempt}, data in {folder}")  # noqa: T201  a failure is looked into with these
        with ExitStack() as stack:
            try:
                started = stack.enter_context(Cluster(folder, **(target or {})))
            except ComponentUnreachable as error:
                if os.environ.get("CI"):
                    raise
                pytest.skip(str(error))
            return run(started, Options(SEED + attempt, **options), print)

    return made
