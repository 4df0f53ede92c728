"""Commands on a kept instance, one story after the demo: add, delete, look, verify, export, run."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from crashes import skip_records
from streamtopic.client import DocumentProducer
from streamtopic.local import LocalRedis
from streamtopic.state import Connection
from streamtopic.state.connection import ModelKeys
from waiting import PATIENCE, until


@pytest.fixture
def on(commands, kept):
    """Run a command on the instance of this module."""
    return commands(kept)


def test_an_instance_can_be_gone_on_with(on, sample, tmp_path):
    """Added documents and deletions appear in new versions, and everything agrees with a recount."""
    more = tmp_path / "more.jsonl"
    more.write_text("\n".join(sample[600:]), encoding="utf-8")
    added = on("add", more)
    assert added["ingested"] == {"added": 100}
    assert [version["documents"] for version in added["versions"]] == [697]
    deleted = on("delete", "doc-1", "nobody")
    assert deleted["ingested"] == {"deleted": 1, "not_found": 1}
    assert [version["documents"] for version in deleted["versions"]] == [696]
    assert deleted["receipts"] == len(deleted["requests"]) == 2
    again = on("delete", "doc-1")
    assert (again["ingested"], again["versions"]) == ({"not_found": 1}, [])
    status = on("status")
    assert (status["documents"], status["lag"], status["healthy"]) == (696, 0, True)
    assert status["version"] == on("versions")["versions"][-1]["version"]
    assert on("verify")["passed"] is True


def test_topics_and_exports_are_those_of_the_release(on, tmp_path, monkeypatch):
    """Other programs read the model that `topics` shows, as the quickstart says; the card names its facts."""
    shown = on("topics", "--top", 3)
    version = shown["version"]
    folder = tmp_path / "model"
    for _ in range(2):
        assert on("export", version, "--to", folder)["topics"] == 4
    page = Path(__file__).parents[2] / "docs" / "quickstart.md"
    block = re.search(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)[1]
    monkeypatch.chdir(tmp_path)
    read = {}
    exec(block, read)  # noqa: S102  it is ours
    assert set(load_file(folder / "model.safetensors")) == {"A", "R", "shares"}
    assert read["A"].shape == (len(read["words"]), 4)
    assert np.allclose(read["A"].sum(axis=0), 1, atol=1e-5)
    assert {word for topic in shown["topics"] for word in topic["words"]} <= set(read["words"])
    card = (folder / "README.md").read_text(encoding="utf-8")
    facts = next(entry for entry in on("versions")["versions"] if entry["version"] == version)
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    for said in (digest, f"version {version}", f"{facts['epsilon']:g}", "not privacy", *shown["topics"][0]["words"]):
        assert said in card


def test_withdrawn_and_missing_versions_are_refused(on, tmp_path):
    """Nobody gets a model that holds forgotten documents by accident."""
    assert "withdrawn" in on("export", 1, "--to", tmp_path / "m", status=2)
    assert "no version 99" in on("topics", "--version", 99, status=2)
    assert on("versions")["versions"][0]["withdrawn"] is True


def test_a_tampered_log_fails_verification(on, program, kept, tmp_path):
    """A document that the counts never saw makes `verify` fail with status 1."""
    copy = tmp_path / "copy"
    shutil.copytree(kept, copy)
    with DocumentProducer(copy / "log", model="default") as producer:
        producer.add("smuggled", text="some words that were never counted in any way")
    # The offset is moved on as if the record had been counted.
    with LocalRedis(copy / "redis") as redis, Connection(redis.url) as connection:
        skip_records(connection, ModelKeys("default").partition(0), 1)
    status, out, _ = program("verify", "--dir", copy, "--json")
    assert status == 1
    checks = {check["name"]: check["passed"] for check in json.loads(out)["checks"]}
    assert checks["counts"] is False


def test_a_running_service_takes_events_from_commands(on, program, kept, sample):
    """`run` follows the log; meanwhile `delete` only sends, and SIGTERM ends it with status 0."""
    before = on("versions")["versions"][-1]["version"]
    command = [sys.executable, "-m", "streamtopic", "run", "--dir", str(kept)]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        told = [json.loads(service.stdout.readline()) for _ in range(2)]
        assert [one["event"] for one in told] == ["partitions", "decided"]
        assert on("delete", "doc-2")["running"] is True
        until(lambda: on("versions")["versions"][-1]["version"] != before, "a version")
        assert on("versions")["versions"][-1]["version"] == before + 1
        assert on("status")["running"] is True
        assert on("run", status=2).startswith("streamtopic: another process")
    finally:
        service.send_signal(signal.SIGTERM)
        _, err = service.communicate(timeout=PATIENCE)
    assert (service.returncode, "Traceback" in err) == (0, False), err
    assert on("verify")["passed"] is True
