"""The parts as processes of their own, as deploy/ runs them: each with its own user of Redis and its own keys."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "deploy" / "streamtopic.example.toml"
PARTS = ("ingest", "ingest", "schedule", "schedule", "publish")
ROLES = {"init": "operator", "doctor": "operator", "ingest": "ingest", "schedule": "scheduler", "publish": "publisher"}
DEADLINE = 120.0
MODEL_NAME = "apart"


@pytest.fixture
def start(tmp_path, kafka_server, secrets):
    """Start a command of the program as compose would: its user in a folder of secrets, the example's settings."""
    keys = {"signing_key": "signing.pem", "noise_key": "noise.key", "receipt_key": "receipt.key"}
    given = {"public_key": "signing.pub"} | keys
    variables = {name: str(secrets / file) for name, file in given.items()}
    variables |= {"model": "apart", "kafka": kafka_server.servers, "partitions": "4", "topics": "2", "min_df": "1"}
    variables |= {"max_df": "1.0", "max_forget_lag": "0", "session_timeout": "6"}

    def command(name):
        folder = tmp_path / ROLES[name]
        folder.mkdir(exist_ok=True)
        (folder / "streamtopic_redis_url").write_text((secrets / f"{ROLES[name]}.url").read_text())
        settings = {f"STREAMTOPIC_{key.upper()}": value for key, value in variables.items()}
        run = {**os.environ, **settings, "STREAMTOPIC_SECRETS_DIR": str(folder)}
        words = [sys.executable, "-m", "streamtopic", name, "--config", str(EXAMPLE), "--json"]
        with (tmp_path / f"{name}-{time.monotonic_ns()}.log").open("wb") as output:
            return subprocess.Popen(words, env=run, stdout=output, stderr=subprocess.STDOUT)

    return command


def _await(found, what):
    deadline = time.monotonic() + DEADLINE
    while not (result := found()):
        assert time.monotonic() < deadline, f"no {what} within {DEADLINE} s"
        time.sleep(0.2)
    return result


def test_a_document_comes_and_goes(start, kafka_server, secrets, tmp_path):
    """Counted, learned and received; deleted, forgotten in the next version, and receipted; then all leave."""
    assert start("init").wait(DEADLINE) == 0
    public = secrets / "signing.pub"
    words = [["apple", "banana", "cherry", "damson", "elder"], ["iron", "copper", "silver", "gold", "tin"]]
    with ExitStack() as stack:
        parts = [start(name) for name in PARTS]
        for part in parts:
            stack.callback(part.wait)
            stack.callback(part.kill)
        producer = stack.enter_context(DocumentProducer(kafka_server.servers, model="apart"))
        producer.add_many((f"d{n}", " ".join(words[n % 2][(n // 2 + k) % 5] for k in range(4))) for n in range(60))
        subscriber = stack.enter_context(ModelSubscriber(kafka_server.servers, model="apart", public_key=public))
        first = _await(subscriber.poll, "first version")
        request = producer.delete("d1")
        receipts = stack.enter_context(Receipts(kafka_server.servers, model="apart", public_key=public))
        (receipt,) = _await(lambda: receipts.find(request), "receipt")
        assert receipt.found
        assert receipt.version > first.version
        assert start("doctor").wait(DEADLINE) == 0, _shown(tmp_path, "doctor")
        for part in parts:
            part.send_signal(signal.SIGTERM)
        assert [part.wait(15) for part in parts] == [0] * len(parts)
    logs = [path.read_text() for path in tmp_path.glob("*.log")]
    assert not any("Traceback" in log or "NOPERM" in log for log in logs)


def _shown(folder, name):
    (log,) = folder.glob(f"{name}-*.log")
    return [finding for finding in json.loads(log.read_text())["findings"] if finding["level"] != "ok"]
