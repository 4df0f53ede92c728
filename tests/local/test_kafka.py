"""The local Kafka: a real broker that ends with its program and keeps what it acknowledged."""

import os
import signal
import socket
import subprocess
import sys
import unittest.mock
from pathlib import Path

import pytest

from streamtopic.errors import ComponentUnreachable
from streamtopic.local import LocalKafka, kafka_broker
from streamtopic.local.kafka_broker import broker_jars, find_java
from waiting import alive, until

pytestmark = pytest.mark.slow

HOLD = """
import sys, time
from pathlib import Path
from streamtopic.local import LocalKafka
server = LocalKafka(Path(sys.argv[1]) if sys.argv[1] else None).start()
print(server.pid, server.servers, server._temporary, flush=True)
time.sleep(120)
"""


def answers(servers):
    """Return whether something listens there."""
    host, port = servers.split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_it_starts_answers_and_ends():
    """Inside the block it listens on loopback, afterwards neither process nor folder is left."""
    with LocalKafka() as server:
        folder, pid = server._temporary, server.pid
        assert server.servers.startswith("127.0.0.1:")
        assert answers(server.servers)
        assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert not alive(pid)
    assert not folder.exists()


def test_it_comes_up_again_after_kill_9(tmp_path):
    """Killed by itself or by others, it starts again in its folder on its port."""
    with LocalKafka(tmp_path) as server:
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


@pytest.mark.parametrize(("how", "kept"), [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_the_broker_ends_when_its_program_is_killed(tmp_path, how, kept):
    """Neither SIGTERM nor kill -9 of the program leaves a broker or its temporary folder behind."""
    program = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path) if kept else ""], stdout=subprocess.PIPE, text=True
    )
    pid, servers, folder = program.stdout.readline().split()
    assert alive(int(pid))
    program.send_signal(how)
    program.wait()
    program.stdout.close()
    until(lambda: not alive(int(pid)))
    assert not answers(servers)
    assert kept or until(lambda: not Path(folder).exists())


def test_a_port_that_is_taken_is_reported(tmp_path):
    """A port that the user named is not changed silently; the broker's own words say what is wrong."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ComponentUnreachable, match=r"in use.*kafka\.log"):
            LocalKafka(tmp_path, port=other.getsockname()[1]).start()


def test_without_java_it_says_how_to_get_one(monkeypatch):
    """Neither wheel nor PATH has one: the message has the command that helps."""
    monkeypatch.setenv("PATH", "")
    assert find_java().parts[-3:] == ("java-runtime", "bin", "java")
    monkeypatch.setattr(kafka_broker.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ComponentUnreachable, match="pip install 'streamtopic"):
        LocalKafka().start()


def test_jars_that_cannot_be_fetched_are_reported(tmp_path, monkeypatch):
    """Without the fetcher, without a network or with changed jars nothing is kept, and the message says what to do."""
    with monkeypatch.context() as patch:
        patch.setattr(kafka_broker.importlib.util, "find_spec", lambda _: None)
        with pytest.raises(ComponentUnreachable, match="pip install 'streamtopic"):
            broker_jars(tmp_path)
    from jgo.env import EnvironmentBuilder
    from jgo.maven import MavenContext

    def offline(*_):
        raise ConnectionError("no route")

    monkeypatch.setattr(EnvironmentBuilder, "from_endpoint", offline)
    with pytest.raises(ComponentUnreachable, match=r"no route.*check the network"):
        broker_jars(tmp_path)

    class Changed:
        path = tmp_path / "changed"

    Changed.path.mkdir()
    (Changed.path / "kafka_2.13-4.1.0.jar").write_bytes(b"not what it was")
    (tmp_path / "kafka-tools.jar").write_bytes(b"nor is this")
    found = unittest.mock.Mock()
    found.return_value.at_version.return_value.artifact.return_value.resolve.return_value = tmp_path / "kafka-tools.jar"
    monkeypatch.setattr(EnvironmentBuilder, "from_endpoint", lambda *_: Changed)
    monkeypatch.setattr(MavenContext, "project", found)
    with pytest.raises(ComponentUnreachable, match="pinned"):
        broker_jars(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("kafka-", "fetching-"))]


def test_a_damaged_jar_is_fetched_again(tmp_path, monkeypatch, kafka_server):
    """Every start compares the jars with their pins; what differs is replaced, and only then."""
    shared = tmp_path / kafka_server.jars.name
    shared.mkdir()
    for jar in kafka_server.jars.iterdir():
        (shared / jar.name).symlink_to(jar)
    fetched = []
    monkeypatch.setattr(kafka_broker, "_fetch", fetched.append)
    assert broker_jars(tmp_path) == shared
    assert not fetched
    broken = next(shared.glob("kafka-raft*"))
    broken.unlink()
    broken.write_bytes(b"damaged")
    broker_jars(tmp_path)
    assert fetched == [shared]
