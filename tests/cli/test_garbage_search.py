"""Python's search for garbage in the processes of a service."""

import subprocess
import sys

_RUN = """
import gc, sys
from streamtopic.cli import main
main(["run", "--once", "--dir", sys.argv[1]])
print(gc.get_freeze_count(), gc.get_threshold()[0])
"""


def test_the_search_for_garbage_leaves_out_the_code_of_a_service(tmp_path):
    """A process that counts documents does not look through all objects of compiled functions every few flushes."""
    command = [sys.executable, "-c", _RUN, str(tmp_path / "instance")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    frozen, threshold = map(int, done.stdout.splitlines()[-1].split())
    assert frozen > 100_000
    assert threshold > 10_000
