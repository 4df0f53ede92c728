"""Backups as docs/operations.md says: Redis's own file, the keys and the log, on another machine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from embedded_service import SMALL, Service, two_topics
from plain_counts import all_counts
from streamtopic.local import LocalRedis
from streamtopic.local.local_redis import find_server
from streamtopic.service.verify import passed
from streamtopic.settings import load
from streamtopic.state.model_state import leader
from waiting import until

pytestmark = pytest.mark.slow

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def opened(folder, url):
    """Open an instance of two partitions in a folder, with its state at an address."""
    return Service(load(SMALL | {"dir": folder, "redis_url": url, "model": "saved", "partitions": 2}))


def documented(socket):
    """Return the commands of the page that save, and those that restore, for a Redis at a socket."""
    section = OPERATIONS.read_text("utf-8").partition("\n### Backups\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    save, restore = (block.replace("-h redis", f"-s {socket}").splitlines() for block in blocks)
    return save, restore


def _shell(command, folder):
    """Run a command of the page, and return what it prints."""
    done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="backups: needs redis-cli")
def test_a_service_goes_on_from_redis_s_own_file(tmp_path):
    """Nothing counts twice, no receipt comes twice, and the ledger knows the versions that Redis has forgotten."""
    folder, machine = tmp_path / "old", tmp_path / "new"
    folder.mkdir()
    saved = folder / "saved"
    saved.mkdir()
    with LocalRedis() as server, opened(folder, server.url) as service:
        service.add(two_topics(0, 40))
        service.settle()
        service.delete(["d1", "d2"])
        service.settle()
        for command in documented(server.url.removeprefix("unix://"))[0]:
            _shell(command, folder)
        service.add(two_topics(40, 10))
        service.delete(["d3", "d41", "d0"])
        service.state.request("unlearn")
        service.settle()
        wanted, newest = all_counts(service.reader.counts()), service.state.releases(1)[0][0]
        receipts = [receipt.id for receipt in service.receipts()]
    machine.mkdir()
    shutil.copytree(folder / "log", machine / "log")
    keys = machine / "keys"
    shutil.copytree(saved, keys, ignore=lambda _, names: [name for name in names if name == "redis.rdb"])
    (keys / "complete").touch()
    socket = tmp_path / "redis.sock"
    start, then = documented(socket)[1]
    # Any server of the machine serves here, on a socket of its own.
    start = start.replace("redis-server", f"{find_server()} --port 0 --unixsocket {socket}", 1)
    with subprocess.Popen(start.split(), cwd=folder, stdout=subprocess.DEVNULL) as restored:
        try:
            until(lambda: "PONG" in _shell(f"redis-cli -s {socket} PING || true", folder), "a Redis on the file")
            _shell(then, folder)
            with opened(machine, f"unix://{socket}") as service:
                assert service.state.releases(1)[0][0] < newest, "Redis is older than the ledger"
                until(lambda: leader(service.connection, "saved") is None, "the end of the lease that was saved")
                service.settle()
                assert all_counts(service.reader.counts()) == wanted
                assert [receipt.id for receipt in service.receipts()] == receipts
                service.delete(["d5"])
                service.state.request("unlearn")
                service.settle()
                records = dict(service.state.releases())
                assert records[newest]["reason"] == "read back from the ledger"
                assert max(records) > newest
                assert len(list(service.receipts())) == len(receipts) + 1
                findings = service.verify()
                assert passed(findings), findings
        finally:
            restored.terminate()
