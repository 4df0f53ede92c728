"""One process at a time works on a kept instance."""

import subprocess
import sys
import threading

from streamtopic.service.instance import InstanceLock

HOLD = """
import sys
from pathlib import Path
from streamtopic.service.instance import InstanceLock
lock = InstanceLock(Path(sys.argv[1]), service=sys.argv[2] == "service")
assert lock.acquire()
print("held", flush=True)
sys.stdin.readline()
"""


def _holder(folder, kind):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_running_service_keeps_its_instance(tmp_path):
    """A command that finds a service at work sends it events instead of waiting."""
    with _holder(tmp_path, "service") as holder:
        assert not InstanceLock(tmp_path, service=False).acquire()
        holder.kill()
    lock = InstanceLock(tmp_path, service=False)
    assert lock.acquire()
    lock.release()


def test_a_command_waits_for_another_command(tmp_path):
    """Two commands on one instance run one after the other."""
    with _holder(tmp_path, "command") as holder:
        timer = threading.Timer(0.3, lambda: holder.communicate("\n"))
        timer.start()
        lock = InstanceLock(tmp_path, service=False)
        assert lock.acquire()
        lock.release()
        timer.join()
