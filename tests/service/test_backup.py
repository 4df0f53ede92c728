"""Backups as docs/operations.md says: Redis's own file, the keys and the log, on another machine."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from embedded_service import Service
from plain_counts import plain_counts
from streamtopic.documents.corpus import Document
from streamtopic.local import LocalRedis
from streamtopic.local.local_redis import find_server
from streamtopic.service.verify import passed
from streamtopic.settings import load
from streamtopic.state.model_state import leader
from waiting import until

pytestmark = pytest.mark.slow

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
WORDS = [["apple", "banana", "cherry", "damson"], ["iron", "copper", "silver", "gold"]]


def documents(first, count):
    """Return documents of two subjects."""
    texts = [" ".join(WORDS[n % 2][(n // 2 + k) % 4] for k in range(3)) for n in range(first, first + count)]
    return [Document(f"d{first + n}", text, {}) for n, text in enumerate(texts)]


def opened(folder, url):
    """Open an instance of two partitions in a folder, with its state at an address."""
    given = {"dir": folder, "redis_url": url, "model": "saved", "topics": 2, "min_df": 1, "max_df": 1.0}
    return Service(load(given | {"partitions": 2, "max_forget_lag": 86400, "capacity": {"share": 0.5}}))


def digest(service):
    """Return the digest of all counts in Redis."""
    counts = service.reader.counts()
    return plain_counts(counts.restrict(np.arange(len(counts.words))), counts.words)


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
        service.add(documents(0, 40))
        service.settle()
        service.delete(["d1", "d2"])
        service.settle()
        for command in documented(server.url.removeprefix("unix://"))[0]:
            _shell(command, folder)
        service.add(documents(40, 10))
        service.delete(["d3", "d41", "d0"])
        service.state.request("unlearn")
        service.settle()
        wanted, newest = digest(service), service.state.releases(1)[0][0]
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
                assert digest(service) == wanted
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
