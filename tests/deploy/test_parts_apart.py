"""The parts as processes of their own, as deploy/ runs them: each with its own users, passwords and keys."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml
from watched_service import asked

from embedded_service import two_topics
from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts
from waiting import PATIENCE, until

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
PARTS = ("ingest", "ingest", "schedule", "schedule")
MODEL_NAME = "apart"


@pytest.fixture
def start(tmp_path, deployed_kafka, give_rules, secrets):
    """Start a command of the program as a role, as compose would: with its variables, its users and its passwords."""
    give_rules(MODEL_NAME)
    variables = {
        "keys": str(secrets),
        "model": MODEL_NAME,
        "kafka": deployed_kafka.servers,
        "partitions": "4",
        "topics": "2",
    }
    # A leader that compiles on a busy machine keeps its lease.
    variables |= {"min_df": "1", "max_df": "1.0", "max_forget_lag": "0", "lease": "120"}
    variables["kafka_ssl_cafile"] = deployed_kafka.authority

    def command(name, role, *arguments):
        folder = tmp_path / role
        folder.mkdir(exist_ok=True)
        (folder / "streamtopic_redis_url").write_text((secrets / f"{role}.url").read_text())
        (folder / "streamtopic_kafka_sasl_password").write_text(deployed_kafka.password(role))
        settings = {f"STREAMTOPIC_{key.upper()}": value for key, value in variables.items()}
        shipped = SERVICES.get(role, SERVICES["operator"])["environment"]
        run = {**os.environ, **shipped, **settings, "STREAMTOPIC_SECRETS_DIR": str(folder)}
        run |= {"STREAMTOPIC_KAFKA_SASL_USERNAME": role, "STREAMTOPIC_METRICS_ADDRESS": ""}
        run |= {"STREAMTOPIC_METRICS_ADDRESS": "127.0.0.1:0"} if name in PARTS else {}
        example = DEPLOY / "streamtopic.example.toml"
        words = [sys.executable, "-m", "streamtopic", name, *arguments, "--config", str(example), "--json"]
        log = tmp_path / f"{name}-{time.monotonic_ns()}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(words, env=run, stdout=output, stderr=subprocess.STDOUT)
        process.log = log
        return process

    return command


def _hears(process):
    """Return whether a process has a handler for SIGTERM by now: until then the signal just ends it."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return int(caught, 16) >> (signal.SIGTERM - 1) & 1


def events(process, kind):
    """Events of a kind that a process has printed."""
    lines = process.log.read_text().splitlines(keepends=True)
    found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
    return [event for event in found if event.get("event") == kind]


def shared(ingests):
    """Whether each of two ingests has partitions, and both together have all."""
    told = [events(ingest, "partitions") for ingest in ingests]
    last = [found[-1]["partitions"] if found else [] for found in told]
    return all(last) and sorted(chain(*last)) == [0, 1, 2, 3]


def shows(process, line):
    """Wait until a process is ready and has a line among its metrics."""
    (address,) = [event["address"] for event in events(process, "metrics")]
    until(lambda: asked(address, "/readyz") == (200, "ok\n"), "ready")
    until(lambda: line in asked(address, "/metrics")[1], line)


def test_a_document_comes_and_goes(start, deployed_kafka, secrets, tmp_path):
    """Counted, learned, received, deleted, forgotten, receipted, shown and verified: each role with its own rights.

    Both ingests have partitions, one scheduler leads, each is ready and shows what it knows, and no process writes a
    password into what it says.
    """
    assert start("init", "operator").wait(PATIENCE) == 0, _said(tmp_path, "init")
    public, model = secrets / "signing.pub", MODEL_NAME
    writes, reads = deployed_kafka.options("producer"), deployed_kafka.options("subscriber")
    with ExitStack() as stack:
        parts = [start(name, name) for name in PARTS]
        parts.append(start("serve", "serve", "--port", "0"))
        for part in parts:
            stack.callback(part.wait)
            stack.callback(part.kill)
        producer = stack.enter_context(DocumentProducer(writes, model=model))
        producer.add_many((one.id, one.text) for one in two_topics(0, 60))
        subscriber = stack.enter_context(ModelSubscriber(reads, model=model, public_key=public))
        first = until(subscriber.poll, "first version")
        request = producer.delete("d1")
        receipts = stack.enter_context(Receipts(reads, model=model, public_key=public))
        (receipt,) = until(lambda: receipts.find(request), "receipt")
        assert receipt.found
        assert receipt.version > first.version
        ingests, schedulers = parts[:2], parts[2:4]
        until(lambda: shared(ingests), "a fair share")
        for ingest in ingests:
            shows(ingest, 'streamtopic_lag_records{kind="readable",partition="')
        for scheduler in schedulers:
            shows(scheduler, "streamtopic_documents 59.0")
        assert sorted(bool(events(scheduler, "staged")) for scheduler in schedulers) == [False, True]
        _read_pages(until(lambda: _address(tmp_path), "address of the server"), receipt.version)
        assert start("doctor", "operator").wait(PATIENCE) == 0, _shown(tmp_path, "doctor")
        assert start("verify", "operator").wait(PATIENCE) == 0, _said(tmp_path, "verify")
        # On a busy machine a second process may still load, while the first one does all the work.
        for part in parts:
            until(lambda part=part: _hears(part), "handler of SIGTERM")
            part.send_signal(signal.SIGTERM)
        assert [part.wait(PATIENCE) for part in parts] == [0] * len(parts)
    logs = [path.read_text() for path in tmp_path.glob("*.log")]
    assert not any("Traceback" in log or "NOPERM" in log for log in logs)
    passwords = [deployed_kafka.password(role) for role in ("ingest", "schedule", "operator", "subscriber")]
    passwords += [path.read_text().split(":")[2].partition("@")[0] for path in secrets.glob("*.url")]
    assert not any(password in log for password in passwords for log in logs)


def _address(folder):
    """Where the server answers, once it has said so."""
    said = "".join(log.read_text() for log in folder.glob("serve-*.log"))
    return (re.findall(r'"address": "([^"]+)"', said) or [None])[0]


def _read_pages(address, version):
    """Every page can be read with the rights of the role, and the overview sees who works."""
    for page in ("", "deletions", "versions", f"versions/{version}", "rejected"):
        with urlopen(f"{address}{page}", timeout=PATIENCE) as answer:  # noqa: S310  the server of this test
            text = answer.read().decode()
        assert "<h1" in text
        assert "refuses this user" not in text, page
        assert "cannot be seen" not in text, page
        assert "No scheduler leads" not in text


def _said(folder, name):
    return [log.read_text()[-2000:] for log in folder.glob(f"{name}-*.log")]


def _shown(folder, name):
    (log,) = folder.glob(f"{name}-*.log")
    return [finding for finding in json.loads(log.read_text())["findings"] if not finding["passed"]]
