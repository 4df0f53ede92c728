"""Two versions of the program side by side in a campaign."""

import os
import sys
from collections import Counter
from contextlib import ExitStack

import pytest

from streamtopic.errors import ComponentUnreachable, UsageError
from streamtopic.lab import bench
from streamtopic.lab.faults.campaign import Options, run
from streamtopic.lab.faults.cluster import Cluster

# A Python that notes what it was asked to run.
_NOTING = """#!/bin/sh
echo "$*" >>"{noted}"
exec "{python}" "$@"
"""


@pytest.fixture
def other(tmp_path):
    """Return the path of a Python that stands for another environment, and of the file where it notes its commands."""
    python, noted = tmp_path / "other" / "python", tmp_path / "noted"
    python.parent.mkdir()
    python.write_text(_NOTING.format(noted=noted, python=sys.executable))
    python.chmod(0o700)
    return python, noted


@pytest.mark.slow
def test_the_other_version_does_a_half_of_the_work(tmp_path, other):
    """One of each two processes is of the other version, and so is the publisher at every second start."""
    python, noted = other
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(Cluster(tmp_path / "cluster", beside=python))
        except ComponentUnreachable as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        kinds = {"kill publish": 1, "kill ingest": 1, "wrong clocks": 1}
        options = Options(3, faults=0, seconds=1.0, kinds=kinds, round_faults=6, erode=False, quiet=False)
        report = run(cluster, options, print)
        starts = {worker.name: worker.starts for worker in cluster.staff}
    assert report.findings == []
    # The time was over within the first round, which was done to its end.
    assert report.faults.total() == 6
    ran = Counter(line.split(" --config")[0].split()[-1] for line in noted.read_text().splitlines())
    assert ran["schedule"] == starts["schedule-1"]
    assert ran["ingest"] >= starts["ingest-1"]
    assert ran["publish"] == starts["publish-0"] // 2


def test_what_is_no_python_with_a_program_is_told_before_anything_starts(tmp_path):
    """A file that is not there and a Python without the program are errors that name both and the remedy."""
    with pytest.raises(UsageError, match=r"there is no program .*nowhere"):
        bench.run("faults", options={"beside": str(tmp_path / "nowhere")})
    bare = tmp_path / "bare"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o700)
    with pytest.raises(UsageError, match="bare has no streamtopic; install"):
        bench.run("faults", options={"beside": str(bare)})
