"""The local Redis: a real server that ends with its program and keeps what it acknowledged."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from added_documents import added_documents
from streamtopic.counts import Weighting
from streamtopic.errors import ComponentUnreachable
from streamtopic.local import LocalRedis
from streamtopic.state import Applied, Connection, DocumentChanges, ModelSettings, PartitionWriter, Reader
from waiting import alive, until, until_written

HOLD = """
import sys
from streamtopic.local import LocalRedis
server = LocalRedis(sys.argv[1] or None).start()
print(server.pid, server.url, flush=True)
sys.stdin.read()
"""


def test_it_starts_answers_and_ends():
    """Inside the block it answers with the promised settings, afterwards neither process nor folder is left."""
    with LocalRedis() as server:
        folder, pid = Path(server.url.removeprefix("unix://")).parent, server.pid
        with Connection(server.url) as connection:
            assert connection.information()["maxmemory_policy"] == "noeviction"
            assert connection.information()["tcp_port"] == 0
        assert oct(folder.stat().st_mode & 0o777) == "0o700"
    assert not alive(pid)
    assert not folder.exists()
    with pytest.raises(ComponentUnreachable, match="start"):
        _ = server.url


def test_acknowledged_flushes_survive_kill_9(tmp_path):
    """Killed without warning once its file is written, the server comes back with exactly the same counts."""

    def counted(url):
        with Connection(url) as connection:
            counts = Reader(connection, "m", 1).counts()
            return list(counts.words), counts.frequency.tolist(), counts.restrict([0, 1]).values.tolist()

    with LocalRedis(tmp_path) as server, Connection(server.url) as connection:
        state = PartitionWriter.open(connection, "m", 0, ModelSettings(1, Weighting().cap))
        documents = added_documents(state, *((f"d{k}".encode(), k, [(3, {"x": 2, "y": 1})]) for k in range(20)))
        assert state.commit(state.plan(DocumentChanges(20, added=documents))) == Applied()
        before = counted(server.url)
        until_written(connection)
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not alive(server.pid))
    with LocalRedis(tmp_path) as server:
        assert counted(server.url) == before
        with Connection(server.url) as connection:
            state = PartitionWriter.open(connection, "m", 0, ModelSettings(1, Weighting().cap))
            assert (state.meta.next_offset, state.meta.documents) == (20, 20)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, None])
@pytest.mark.parametrize("kept", [True, False])
def test_the_server_ends_with_its_program(tmp_path, how, kept):
    """Neither its end, nor SIGTERM, nor kill -9 leaves a server or its temporary folder behind."""
    command = [sys.executable, "-c", HOLD, str(tmp_path) if kept else ""]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        pid, url = program.stdout.readline().split()
        assert alive(int(pid))
        if how is not None:
            program.send_signal(how)
    until(lambda: not alive(int(pid)))
    until(lambda: not Path(url.removeprefix("unix://")).parent.exists())
    # In order, so that it has written its file.
    assert not kept or b"Received SIGTERM" in (tmp_path / "redis.log").read_bytes()


def test_a_second_opener_attaches(tmp_path):
    """Two openers of one folder share one server: two would destroy each other's file."""
    with LocalRedis(tmp_path) as first, LocalRedis(tmp_path) as second:
        assert (second.url, second.pid) == (first.url, None)
        second.stop()
        with Connection(first.url) as connection:
            connection.ping()


def test_without_a_server_it_says_how_to_get_one(monkeypatch):
    """Neither wheel nor PATH has one: the message has the commands that help."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ComponentUnreachable, match="pip install"):
        LocalRedis().start()


def test_half_a_script_never_comes_back(tmp_path):
    """A file that was cut within a script, as by a power failure, holds none of it, at the next start and after."""

    def values(server):
        with Connection(server.url) as connection:
            return connection.call("MGET", "before", "x", "y", "after")

    with LocalRedis(tmp_path) as server, Connection(server.url) as connection:
        connection.call("SET", "before", 1)
        connection.script("redis.call('SET', 'x', 1) redis.call('SET', 'y', 1)", [], [])
    written = tmp_path / "appendonly.aof"
    os.truncate(written, written.stat().st_size - 60)
    with LocalRedis(tmp_path) as server:
        assert values(server) == [b"1", None, None, None]
        with Connection(server.url) as connection:
            connection.call("SET", "after", 1)
    with LocalRedis(tmp_path) as server:
        assert values(server) == [b"1", None, None, b"1"]
