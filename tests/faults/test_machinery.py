"""The tools of the campaign: each does the harm that it says, and no more."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import redis

from campaign.inject import STAGE, newest_leader, staged_late
from campaign.processes import Guard, Worker
from campaign.proxy import Proxy
from campaign.server import RedisServer, written_out
from servers.ports import quiet_port
from streamtopic.state import Connection, ModelSettings, ModelState, scripts
from waiting import PATIENCE, until


@pytest.fixture
def guard():
    """Ends what a test started."""
    with Guard() as guard:
        yield guard


@pytest.fixture
def server(tmp_path, guard):
    """A Redis to do harm to."""
    server = RedisServer(tmp_path / "redis", quiet_port(), guard)
    server.start()
    yield server
    server.client.close()
    server.kill()


@pytest.fixture
def proxy(server):
    """A proxy in front of it."""
    with Proxy() as proxy:
        proxy.open(server.door, server.port)
        yield proxy


@pytest.fixture
def client(proxy, server):
    """A client that repeats nothing by itself."""
    with redis.Redis(port=server.door, protocol=2, retry=None, socket_timeout=PATIENCE) as client:
        yield client


def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_redis_is_set_back_to_a_copy(server, tmp_path):
    """An older copy replaces everything that came after it."""
    server.client.set("a", 1)
    server.copy(tmp_path / "copy")
    server.client.set("a", 2)
    server.client.set("b", 2)
    server.restore(tmp_path / "copy")
    assert (server.client.get("a"), server.client.get("b")) == (b"1", None)


def test_redis_loses_the_last_it_wrote_but_never_half_a_script(server):
    """A cut inside what a script wrote takes all of it back, also when the server starts once more."""
    server.client.set("before", 1)
    server.client.eval("redis.call('SET', 'x', 1) redis.call('SET', 'y', 1)", 0)
    server.lose(60)
    assert server.client.mget("before", "x", "y") == [b"1", None, None]
    server.client.set("after", 1)
    written_out(server.client)
    server.kill()
    server.start()
    assert server.client.mget("before", "x", "y", "after") == [b"1", None, None, b"1"]


def test_only_replies_to_the_named_command_are_lost(proxy, client, server):
    """A fault can wait for the command that it is meant for; the client sees a cut, and Redis has done the command."""
    proxy.lose_reply(b"EVAL")
    client.incr("n")
    with pytest.raises(redis.exceptions.ConnectionError):
        client.eval("return redis.call('INCR', 'n')", 0)
    assert server.client.get("n") == b"2"
    proxy.lose_reply(b"EVAL")
    proxy.disarm()
    assert client.eval("return redis.call('INCR', 'n')", 0) == 3


def test_a_command_that_is_held_back_arrives_after_its_sender_is_gone(proxy, client, server):
    """The command is done although the connection that sent it ended long before."""
    held = proxy.hold(b"INCR", b"late", seconds=1.0)
    client.incr("other")
    with socket.create_connection(("127.0.0.1", server.door)) as hasty:
        start = time.monotonic()
        hasty.sendall(b"*2\r\n$4\r\nINCR\r\n$4\r\nlate\r\n")
        assert held.begun.wait(PATIENCE)
    # A machine that stops for longer than the command is held lets it arrive first.
    assert server.client.get("late") is None or time.monotonic() - start >= 1.0
    until(lambda: server.client.get("late") == b"1")
    assert held.over.wait(PATIENCE)
    assert held.reply == b":1\r\n"


@pytest.mark.parametrize("fenced", [True, False])
def test_a_version_that_arrives_when_another_leads_is_told_from_its_answer(proxy, server, monkeypatch, fenced):
    """Redis refuses it; without the comparison of tokens it takes it, and the injector says so."""
    if not fenced:
        whole = re.compile(r"^if \(redis\.call\('GET', fence\).*?^end\n", re.MULTILINE | re.DOTALL)
        script, number = whole.subn("", scripts.STAGE_VERSION)
        assert number == 1
        monkeypatch.setattr(scripts, "STAGE_VERSION", script)
    urls = (f"redis://127.0.0.1:{port}/0" for port in (server.door, server.port))
    slow, quick = (_model_at(url) for url in urls)
    first = slow.acquire("first", 600_000)
    server.client.script_load(scripts.STAGE_VERSION)
    held = proxy.hold(*STAGE, seconds=3.0)
    sender = threading.Thread(target=lambda: slow.stage(first, 1, release={}, records=[]))
    sender.start()
    assert held.begun.wait(PATIENCE)
    before = newest_leader(server, "late")
    quick.release(first)
    assert quick.acquire("second", 600_000)
    found = newest_leader(server, "late")
    sender.join()
    for state in (slow, quick):
        state.connection.close()
    assert bool(staged_late(held, before, found)) is not fenced
    assert not staged_late(held, before, before)


def _model_at(url):
    """The global state of a model, over a connection of its own."""
    return ModelState.open(Connection(url), "late", ModelSettings(1, 256))


def _sleeper(tmp_path, guard, program="import time; print('up', flush=True); time.sleep(600)"):
    return Worker("sleeper", [sys.executable, "-c", program], tmp_path / "out", guard, os.environ)


def test_a_death_that_nobody_asked_for_is_noted(tmp_path, guard):
    """A program that ends by itself is a finding, and can be started again."""
    worker = _sleeper(tmp_path, guard, "raise SystemExit(3)")
    worker.start()
    until(lambda: worker.check() or worker.deaths)
    assert (worker.deaths, worker.running) == ([3], False)


def test_programs_end_with_this_one(tmp_path):
    """Nothing outlives a campaign that was killed; what was taken off the list is left alone."""
    program = (
        "import subprocess, sys, time; from campaign.processes import Guard; guard = Guard()\n"
        "made = [subprocess.Popen(['sleep', '600']) for _ in range(3)]\n"
        "[guard.watch(one.pid) for one in made]; guard.forget(made[1].pid)\n"
        "print(*[one.pid for one in made], flush=True); time.sleep(600)"
    )
    told = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=told) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    try:
        until(lambda: [_alive(pid) for pid in pids] == [False, True, False])
    finally:
        for pid in pids:
            if _alive(pid):
                os.kill(pid, 9)
