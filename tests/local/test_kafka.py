"""The local Kafka: a real broker that ends with its program, and can be started again where tests need that."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from servers.kafka_broker import KafkaBroker
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


def test_it_comes_up_again_after_kill_9(tmp_path):
    """Killed by itself or by others, it starts again in its folder on its port."""
    with KafkaBroker(tmp_path) as server:
        servers = server.servers
        server.kill()
        assert not answers(servers)
        server.start()
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not answers(servers))
        server.stop()
        server.start()
        assert server.servers == servers
        assert answers(servers)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_broker_ends_when_its_program_is_killed(how):
    """Neither SIGTERM nor kill -9 of the program leaves a broker or its temporary folder behind."""
    program = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    pid, servers, folder = program.stdout.readline().split()
    assert alive(int(pid))
    program.send_signal(how)
    program.wait()
    program.stdout.close()
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
