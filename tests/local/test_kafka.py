"""The local Kafka: a real broker that ends with its program."""

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamtopic.errors import ComponentUnreachable
from streamtopic.local import LocalKafka
from streamtopic.local.local_kafka import find_java
from waiting import alive, until

pytestmark = pytest.mark.slow

HOLD = """
import time
from streamtopic.local import LocalKafka
server = LocalKafka().start()
print(server.pid, server.servers, server._temporary, flush=True)
time.sleep(120)
"""


def answers(servers):
    """Return whether something listens there."""
    host, port = servers.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_the_broker_ends_when_its_program_is_killed():
    """Kill -9 of the program leaves no broker and no temporary folder behind."""
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as program:
        pid, servers, folder = program.stdout.readline().split()
        assert alive(int(pid))
        assert answers(servers)
        program.kill()
    until(lambda: not alive(int(pid)))
    assert not answers(servers)
    until(lambda: not Path(folder).exists())


def test_without_java_it_says_how_to_get_one(monkeypatch):
    """Neither wheel nor PATH has one: the message has the command that helps."""
    monkeypatch.setenv("PATH", "")
    assert find_java().parts[-3:] == ("java-runtime", "bin", "java")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ComponentUnreachable, match="pip install 'streamtopic"):
        LocalKafka().start()
