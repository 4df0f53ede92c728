"""The parts as processes of their own, over a real Kafka and a real Redis."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamtopic.cli import main
from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts

PATIENCE = 240
TOPICS = (
    ["rose", "tulip", "soil", "seed", "bloom", "compost", "spade", "hedge"],
    ["oven", "flour", "butter", "knead", "simmer", "roast", "spoon", "salt"],
    ["anchor", "vessel", "tide", "crew", "cargo", "mast", "rope", "gull"],
)


def text(k):
    """A text of one topic, with a word of the next."""
    return " ".join([*(TOPICS[k % 3] * 3)[k % 5 :][:16], TOPICS[(k + 1) % 3][k % 8]])


class Cluster:
    """Processes of one service, each with the lines that it printed."""

    def __init__(self, config):
        self.config = config
        self.processes = []

    def start(self, part):
        """Start one more process of a part."""
        command = [sys.executable, "-m", "streamtopic", part, "--config", str(self.config), "--json"]
        log = self.config.with_name(f"{part}-{len(self.processes)}.log").open("w+")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        process.log = log
        self.processes.append(process)
        return process

    def stop(self):
        """End all, hard."""
        for process in self.processes:
            process.kill()
            process.wait()
            process.log.close()


def events(process):
    """Events that a process has printed."""
    lines = Path(process.log.name).read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]


def until(condition, what):
    """Wait for something to be true, and say what did not happen."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {PATIENCE} s")


@pytest.fixture
def cluster(tmp_path, kafka_server, redis_server):
    """Topics, keys and settings of a fresh model over three partitions."""
    model = f"parts-{os.getpid()}-{tmp_path.name[-8:].strip('_')}".replace("_", "-")
    config = tmp_path / "streamtopic.toml"
    config.write_text(
        f'model = "{model}"\nkafka = "{kafka_server.servers}"\nredis_url = "{redis_server.url}"\npartitions = 3\n'
        "topics = 3\nmax_forget_lag = 0.0\nmax_df = 1.0\nupdate_after = 0.001\nsession_timeout = 6\nlease = 2\n"
        'capacity = "fixed"\ncapacity_fixed = 50\n'
        'signing_key = "keys/signing.pem"\nnoise_key = "keys/noise.key"\nreceipt_key = "keys/receipt.key"\n'
    )
    assert main(["keys", "new", "--to", str(tmp_path / "keys"), "--json"]) == 0
    assert main(["init", "--config", str(config), "--json"]) == 0
    cluster = Cluster(config)
    cluster.model, cluster.servers, cluster.public = model, kafka_server.servers, tmp_path / "keys" / "signing.pub"
    try:
        yield cluster
    finally:
        cluster.stop()


def newest(subscriber, documents):
    """Wait for the version that holds so many documents."""

    def look():
        while (release := subscriber.poll()) is not None:
            if release.envelope.m == documents:
                return release
        return None

    return until(look, f"a version of {documents} documents")


def test_the_parts_work_together_and_leave_when_told(cluster):
    """Two ingests share the partitions, one of two schedulers leads, a delete ends in a version and a receipt."""
    parts = [cluster.start(part) for part in ("ingest", "ingest", "schedule", "schedule", "publish")]
    with DocumentProducer(cluster.servers, model=cluster.model) as producer:
        producer.add_many((f"doc-{k}", text(k)) for k in range(90))
        with ModelSubscriber(cluster.servers, model=cluster.model, public_key=cluster.public) as subscriber:
            first = newest(subscriber, 90)
            request = producer.delete("doc-7")
            second = newest(subscriber, 89)
        assert second.version > first.version
        with Receipts(cluster.servers, model=cluster.model, public_key=cluster.public) as receipts:
            (receipt,) = until(lambda: receipts.find(request), "the receipt")
        assert (receipt.found, receipt.version) == (True, second.version)

    def shared():
        last = [
            next((e["partitions"] for e in reversed(events(p)) if e["event"] == "partitions"), []) for p in parts[:2]
        ]
        return sorted(last[0] + last[1]) == [0, 1, 2] and all(last)

    until(shared, "sharing the partitions")
    staged = [[e for e in events(p) if e["event"] == "staged"] for p in parts[2:4]]
    assert sorted(map(bool, staged)) == [False, True]
    for process in parts:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=15) for process in parts] == [0] * 5


def test_a_standby_takes_over_from_a_killed_leader(cluster):
    """After kill -9 of the leader, a deletion still ends in a version; after that of an ingest, records are counted."""
    ingests = [cluster.start("ingest") for _ in range(2)]
    cluster.start("publish")
    schedulers = [cluster.start("schedule")]
    with (
        DocumentProducer(cluster.servers, model=cluster.model) as producer,
        ModelSubscriber(cluster.servers, model=cluster.model, public_key=cluster.public) as subscriber,
    ):
        producer.add_many((f"doc-{k}", text(k)) for k in range(90))
        newest(subscriber, 90)
        schedulers.append(cluster.start("schedule"))
        schedulers[0].kill()
        ingests[0].kill()
        producer.delete("doc-8")
        producer.delete("doc-9")
        newest(subscriber, 88)
    until(lambda: any(e["event"] == "staged" for e in events(schedulers[1])), "the standby's version")


def test_one_process_does_the_work_of_all(cluster):
    """`run` begins on an empty Redis, counts, learns, forgets and publishes, and leaves when told."""
    process = cluster.start("run")
    with (
        DocumentProducer(cluster.servers, model=cluster.model) as producer,
        ModelSubscriber(cluster.servers, model=cluster.model, public_key=cluster.public) as subscriber,
    ):
        producer.add_many((f"doc-{k}", text(k)) for k in range(90))
        newest(subscriber, 90)
        request = producer.delete("doc-7")
        newest(subscriber, 89)
    with Receipts(cluster.servers, model=cluster.model, public_key=cluster.public) as receipts:
        until(lambda: receipts.find(request), "the receipt")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=15) == 0


def test_unreachable_components_are_waited_for(tmp_path):
    """Without Kafka a process says in one line what it waits for, again and again, and leaves when told."""
    assert main(["keys", "new", "--to", str(tmp_path / "keys"), "--json"]) == 0
    config = tmp_path / "streamtopic.toml"
    config.write_text('kafka = "127.0.0.1:9"\nredis_url = "redis://127.0.0.1:9"\n')
    cluster = Cluster(config)
    try:
        process = cluster.start("ingest")
        waits = until(lambda: [e for e in events(process) if e["event"] == "waiting"][:2], "saying so")
        assert "does not answer" in waits[0]["reason"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=15) == 0
    finally:
        cluster.stop()
