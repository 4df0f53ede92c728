"""A group shares the partitions of a topic: each has an owner, whoever comes, goes, dies or is stopped."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

import waiting
from servers.kafka_broker import KafkaBroker
from streamtopic.streams import KafkaOptions, kafka_membership
from streamtopic.streams.kafka_log import KafkaLog

pytestmark = pytest.mark.slow

# A machine that stops for a moment puts no member out of its group.
SESSION_MS = 60_000
SHORT_MS = 3_000
MEMBER = """
import sys
from streamtopic.streams import KafkaOptions
from streamtopic.streams.kafka_log import KafkaLog
member = KafkaLog(KafkaOptions(sys.argv[1])).join(sys.argv[2], f"group-{sys.argv[2]}", int(sys.argv[3]))
while True:
    print(sorted(member.poll(0.1)), flush=True)
"""


@pytest.fixture
def topic(log, name):
    """A topic of 4 partitions."""
    log.create(name, 4)
    return name


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Members notice soon that their group shares out anew, however long their sessions are."""
    monkeypatch.setattr(kafka_membership, "_HEARTBEAT_MS", 500)


@contextlib.contextmanager
def member(log, topic, session_ms=SESSION_MS):
    """A member that leaves at the end; topics have groups of their own."""
    membership = log.join(topic, f"group-{topic}", session_ms)
    try:
        yield membership
    finally:
        membership.leave()


def until(condition, *members):
    """Let members take part until the condition holds for what they own."""
    owned = []

    def polled():
        owned[:] = [member.poll(0.05) for member in members]
        return condition(*owned)

    waiting.until(polled, lambda: f"the end of members that own {owned}", 0.0)


def shared(*owned):
    """Whether each of four partitions has exactly one owner, and the shares are even."""
    return sorted(itertools.chain(*owned)) == [0, 1, 2, 3] and max(map(len, owned)) - min(map(len, owned)) <= 1


def test_members_share_and_keep(log, topic):
    """A second member gets half, what stays with the first is never taken from it; who leaves gives its share back."""
    with member(log, topic) as first:
        until(shared, first)
        with member(log, topic) as second:
            seen = []
            until(lambda *owned: seen.append(owned[0]) or shared(*owned), first, second)
            assert len(frozenset.intersection(*seen)) == 2
        until(shared, first)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_dead_and_the_stopped_lose_their_share(log, topic, kafka_server, how):
    """After the session timeout the others own everything; a member that goes on takes part again."""
    arguments = [sys.executable, "-c", MEMBER, kafka_server.servers, topic, str(SHORT_MS)]
    lines = []
    with member(log, topic, SHORT_MS) as first, subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as other:
        reader = threading.Thread(target=lambda: lines.extend(map(json.loads, other.stdout)))
        reader.start()
        try:
            until(lambda owned: len(owned) == 2 and bool(lines) and len(lines[-1]) == 2, first)
            os.kill(other.pid, how)
            until(shared, first)
            if how is signal.SIGSTOP:
                os.kill(other.pid, signal.SIGCONT)
                until(lambda owned: len(owned) == 2 and len(lines[-1]) == 2 and not owned & {*lines[-1]}, first)
        finally:
            other.kill()
            reader.join()


def test_a_restarted_broker_is_no_end(tmp_path):
    """While the broker is away a member keeps trying and says so; afterwards it owns its partitions again."""
    with KafkaBroker(tmp_path) as server, KafkaLog(KafkaOptions(server.servers)) as log:
        log.create("t", 4)
        with member(log, "t", SHORT_MS) as first:
            assert "not joined" in first.lost
            until(shared, first)
            until(lambda _owned: first.lost == "", first)
            server.kill()
            until(lambda _owned: first.lost != "", first)
            server.start()
            until(lambda owned: shared(owned) and first.lost == "", first)
