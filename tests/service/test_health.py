"""Health: a process is well while its work moves, and says otherwise soon, but never without cause."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_service import asked

from silent_crowd import crowd
from streamtopic.documents.events import encode_add
from streamtopic.errors import ComponentUnreachable
from streamtopic.local import LocalRedis
from streamtopic.service.watching import Health, Watch, serving
from streamtopic.streams import FileLog
from waiting import PATIENCE, until

LIMIT, LATEST = 60.0, 75.0


class Ticks:
    """Seconds that a test lets pass."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        """Return the time."""
        return self.now


@pytest.fixture
def ticks():
    """A clock of the test's own."""
    return Ticks()


@given(rounds=st.lists(st.floats(0.01, 4.9), min_size=1, max_size=30))
@settings(max_examples=100)
def test_a_stall_is_red_between_60_and_75_s_after_it_began(rounds):
    """Whatever the rhythm of the work before, and although another loop goes on."""
    ticks = Ticks()
    health = Health(LIMIT, ("ingest", "publish"), ticks)
    for seconds in rounds:
        ticks.now += seconds
        health.moved()
        health.moved("publish")
        assert health.verdict.live
    # The next round would have ended some time after this one; nobody knows when in between the stall began.
    ended, began = ticks.now, ticks.now + rounds[-1]
    while health.verdict.live:
        ticks.now += 0.5
        health.moved("publish")
    assert LIMIT <= ticks.now - began <= ticks.now - ended <= LATEST
    assert [finding.split(" has")[0] for finding in health.verdict.findings] == ["ingest"]


def test_long_work_is_no_stall(ticks):
    """Recovering and learning may take hours, and the time that they took counts for nothing afterwards."""
    health = Health(LIMIT, ("run",), ticks)
    health.moved("run")
    # What was begun before goes on counting: else a process that makes model after model would never be red.
    ticks.now += 30
    with health.exempt("recovering"):
        ticks.now += 10_000
        assert health.verdict.live
        assert health.verdict.busy == {"recovering": 10_000}
    ticks.now += 30
    assert health.verdict.live
    ticks.now += 6
    assert not health.verdict.live


def test_a_process_is_ready_once_all_its_loops_have_begun(ticks):
    """Not while it recovers, or waits for a server."""
    health = Health(LIMIT, ("run", "publish"), ticks)
    health.moved("run")
    assert not health.verdict.ready
    health.moved("publish")
    assert health.verdict.ready
    with health.exempt("recovering"):
        assert not health.verdict.ready
    health.waits("away")
    assert (health.verdict.ready, health.verdict.live) == (False, True)
    health.moved()
    assert health.verdict.ready


def test_a_stall_is_told_over_http_with_its_reason(ticks):
    """A probe gets 503 and a line for people, without the password of the address that does not answer."""
    watch = Watch("ingest")
    watch.health = Health(LIMIT, ("ingest",), ticks)
    watch.waits(ComponentUnreachable("Redis at redis://ingest:hunter2@db:6379 does not answer"), "unreachable")
    ticks.now += 70
    with serving("127.0.0.1:0", watch) as address:
        for path in ("/livez", "/readyz"):
            code, said = asked(address, path)
            assert code == 503
            assert "ingest has made no progress for 70 s: Redis at" in said
        shown = "".join(asked(address, path)[1] for path in ("/livez", "/readyz", "/metrics"))
    assert "hunter2" not in shown
    assert "streamtopic_live 0.0" in shown
    assert 'streamtopic_interruptions_total{reason="unreachable"} 1.0' in shown


def test_silent_readers_shut_nobody_out():
    """80 connections that never send a whole request come again and again; a probe is always answered."""
    with serving("127.0.0.1:0", Watch()) as address, crowd(address.split(":")[1], sent=b"GET /livez HTTP/1.1\r\n"):
        assert [asked(address, "/livez")[0] for _ in range(55)] == [200] * 55


def _started(*arguments, before=""):
    """Start a process, after some code of Python; return it with the address of its metrics."""
    code = f"{before}from streamtopic.__main__ import start; raise SystemExit(start())"
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in process.stdout:
        event = json.loads(line)
        if event.get("event") == "metrics":
            return process, event["address"]
    raise AssertionError(f"{arguments[0]} ended with {process.wait()}")


def _end(process):
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    assert process.wait(timeout=PATIENCE) == 0
    process.stdout.close()


@pytest.mark.slow
def test_a_stopped_redis_turns_livez_red_in_time_and_back(tmp_path):
    """A real stall of a real process: not red before the limit, red after it with its reason, and green again."""
    limit = 6.0
    with LocalRedis(tmp_path / "redis") as server:
        plain = ["--set", f"redis_url={server.url}", "--set", "metrics_address=0"]
        hasty = f"from streamtopic.service import watching; watching.STALLED_AFTER = {limit}; "
        process, address = _started("ingest", "--dir", str(tmp_path / "instance"), *plain, before=hasty)
        try:
            until(lambda: asked(address, "/readyz")[0] == 200, "ready")
            time.sleep(2 * limit)
            # One that took idle time for a stall would stay red; one that was itself stopped may be for a moment.
            until(lambda: asked(address, "/livez") == (200, "ok\n"), "green while idle")
            with FileLog(tmp_path / "instance" / "log") as log:
                os.kill(server.pid, signal.SIGSTOP)
                began = time.monotonic()
                log.append_many("default.documents", [encode_add("x", text="apple banana")])
            until(lambda: asked(address, "/livez")[0] == 503, "red")
            assert time.monotonic() - began >= limit
            assert "ingest has made no progress" in asked(address, "/livez")[1]
            os.kill(server.pid, signal.SIGCONT)
            until(lambda: asked(address, "/livez")[0] == 200, "green")
        finally:
            os.kill(server.pid, signal.SIGCONT)
            _end(process)
