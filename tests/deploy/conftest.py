"""A Redis with the users of deploy/, and the secrets that belong to them."""

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamtopic.local.local_redis import find_server

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def secrets(request, tmp_path_factory):
    """The folder that make-secrets.sh makes, for a Redis that runs with its users until the tests of a file end."""
    folder = tmp_path_factory.mktemp("users")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    made = folder / "secrets"
    run = {**os.environ, "STREAMTOPIC": shlex.join([sys.executable, "-m", "streamtopic"])}
    run |= {"MODEL": getattr(request.module, "MODEL_NAME", "default"), "REDIS_VERSION": _version()}
    script = ["sh", str(DEPLOY / "make-secrets.sh"), str(made), f"127.0.0.1:{port}"]
    subprocess.run(script, env=run, check=True, capture_output=True)
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "save": "", "appendonly": "yes",
               "aclfile": str(made / "redis-users.acl"), "maxmemory-policy": "noeviction"}  # fmt: skip
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    log = folder / "redis.log"
    with log.open("wb") as output:
        server = subprocess.Popen([str(find_server()), *words], stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        while b"Ready to accept" not in log.read_bytes():
            assert server.poll() is None, log.read_text()
        yield made
    finally:
        server.kill()
        server.wait()


def _version():
    """The number before the first dot of the version of the server that the tests have."""
    said = subprocess.run([str(find_server()), "--version"], capture_output=True, text=True, check=True).stdout
    return said.partition("v=")[2].partition(".")[0]


@pytest.fixture(scope="module")
def users(secrets):
    """Role to the address of Redis with its user and password."""
    return {path.stem: path.read_text() for path in secrets.glob("*.url")}
