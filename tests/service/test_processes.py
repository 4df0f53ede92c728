"""The parts as processes of their own, over a real Kafka and a real Redis."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from watched_service import Watched

from streamtopic.cli import main
from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts
from streamtopic.documents.corpus import Document
from streamtopic.documents.events import encode_add
from streamtopic.errors import StreamtopicError
from streamtopic.local import LocalRedis
from streamtopic.service import processes
from streamtopic.service.app import Service
from streamtopic.service.processes import run_ingest, run_publish, run_schedule
from streamtopic.service.schedule.scheduler import Scheduler
from streamtopic.service.watching import Watch
from streamtopic.settings import Settings
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.streams import KafkaLog, KafkaOptions

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


def test_ingest_that_cannot_reach_its_group_is_not_well(redis_server, monkeypatch):
    """A process that owns no partition, since Kafka is away, makes no progress: it is never ready, and says why."""
    monkeypatch.setattr(processes, "leave_in_time", lambda _stop: None)
    model = f"alone-{os.getpid()}"
    given = {"model": model, "kafka": "127.0.0.1:9", "redis_url": redis_server.url}
    stop, watch = threading.Event(), Watched("ingest")
    thread = threading.Thread(
        target=run_ingest, args=(Settings(**given), stop, lambda _event: None), kwargs={"watch": watch}
    )
    thread.start()
    try:
        seen = until(lambda: (now := watch.verdict()) and (now.ready or now.waiting) and now, "a sign")
        assert not seen.ready
        assert "group" in seen.waiting or "Kafka" in seen.waiting
    finally:
        stop.set()
        thread.join()


def test_a_server_is_named_before_the_service_is_closed(tmp_path, monkeypatch):
    """Closing waits for the server that is away once more, and `/livez` may be red by then."""
    monkeypatch.setattr(processes, "leave_in_time", lambda _stop: None)
    named, close = [], Scheduler.close
    stop, watch = threading.Event(), Watched("schedule")

    def closed(scheduler):
        named.append(watch.verdict().waiting)
        stop.set()
        close(scheduler)

    monkeypatch.setattr(Scheduler, "close", closed)
    with LocalRedis() as server:
        settings = Settings(dir=tmp_path / "instance", redis_url=server.url)
        tell = {"interval": 0.05, "watch": watch}
        thread = threading.Thread(target=run_schedule, args=(settings, stop, lambda _event: None), kwargs=tell)
        thread.start()
        until(lambda: watch.verdict().ready, "its work")
        server.stop()
        thread.join()
    assert len(named) == 1
    assert "does not answer" in named[0]


class Rounds(Watch):
    """Counts the rounds of a part, and what it waited for."""

    def __init__(self):
        self.rounds = 0
        self.waited = []

    def moved(self, name):  # noqa: ARG002 - as Watch
        """Take a round."""
        self.rounds += 1

    def waits(self, error, reason):
        """Take a pause."""
        self.waited.append((str(error), reason))


@pytest.fixture
def limited(tmp_path, redis_server, connection):
    """Settings of an instance with a Redis user of its own, and a function that gives this user its rights."""

    def give(*rights):
        connection.call("ACL", "SETUSER", "limited", "on", ">word", "~*", *rights)

    give("+@all")
    url = redis_server.url.replace("unix://", "unix://limited:word@")
    yield Settings(dir=tmp_path / "instance", model=f"limited-{os.getpid()}", redis_url=url), give
    connection.call("ACL", "DELUSER", "limited")


def _publishing(settings, monkeypatch):
    """Publish in a thread; (what it did, how to end it, its error)."""
    # It would end the process of the tests.
    monkeypatch.setattr(processes, "leave_in_time", lambda _stop: None)
    seen, stop, errors = Rounds(), threading.Event(), []

    def work():
        try:
            run_publish(settings, stop, lambda _event: None, interval=0.05, watch=seen)
        except StreamtopicError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()

    def end():
        stop.set()
        thread.join()

    return seen, end, errors


def test_a_right_that_is_taken_away_is_waited_for(limited, monkeypatch):
    """A part whose user or password changes while it works says so, and goes on by itself once that is mended."""
    settings, give = limited
    # Seconds of work after which a part was well.
    monkeypatch.setattr(processes, "LONGEST_PAUSE", 0.05)
    seen, end, errors = _publishing(settings, monkeypatch)
    try:
        until(lambda: seen.rounds > 3, "its work")
        give("-@scripting", "-@read")
        until(lambda: seen.waited, "saying so")
        give("+@all")
        before = seen.rounds
        until(lambda: seen.rounds > before + 3, "its work again")
    finally:
        end()
    assert errors == []
    assert {("refuses this user" in text, reason) for text, reason in seen.waited} == {(True, "refused")}


def test_a_topic_that_takes_no_record_of_this_size_is_waited_for(tmp_path, kafka_server, redis_server, monkeypatch):
    """The publisher says what the releases topic refuses and why, and goes on once the topic is mended."""
    monkeypatch.setattr(processes, "LONGEST_PAUSE", 0.05)
    model = f"small-{os.getpid()}"
    given = {"dir": tmp_path / "instance", "model": model, "kafka": kafka_server.servers}
    settings = Settings(**given, redis_url=redis_server.url)
    with Service(settings) as service:
        service.settle()
        releases = service.names.releases
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        # Even the first signed statement is larger.
        log.configure(releases, {"max.message.bytes": "100"})
        seen, end, errors = _publishing(settings, monkeypatch)
        try:
            until(lambda: seen.waited, "saying so")
            log.configure(releases, {"max.message.bytes": "1048576"})
            before = seen.rounds
            until(lambda: seen.rounds > before + 3, "its work again")
        finally:
            end()
    assert errors == []
    assert {("max.message.bytes" in text, reason) for text, reason in seen.waited} == {(True, "refused")}


def test_a_right_that_was_never_there_ends_the_part_at_its_start(limited, monkeypatch):
    """Settings that cannot work are told at once and not waited for."""
    settings, give = limited
    give("-@scripting", "-@read")
    seen, end, errors = _publishing(settings, monkeypatch)
    until(lambda: errors, "its end")
    end()
    assert ("refuses this user" in str(errors[0]), seen.rounds) == (True, 0)


def test_a_record_that_has_just_come_is_not_a_standstill(tmp_path, redis_server, connection):
    """After a quiet hour, `status` is healthy in the moment before a record is counted, and is not an hour later."""
    now = [time.time()]
    model = f"quiet-{os.getpid()}"
    settings = Settings(dir=tmp_path / "instance", model=model, redis_url=redis_server.url)
    with Service(settings, clock=lambda: now[0]) as service:
        service.add([Document("d0", "rose tulip", {})])
        service.settle()
        key = ModelKeys(model).partition(0).meta
        connection.call("HSET", key, "moved", 1)
        service.send([encode_add("d1", text="oven flour")])
        facts = service.status()
        assert (facts["lag"], facts["healthy"], facts["stalled_partitions"]) == (1, True, [])
        # A record of an hour ago, by the clock of the log, that nobody has counted.
        service.settle()
        connection.call("HSET", key, "moved", 1)
        now[0] -= 3600
        service.send([encode_add("d2", text="anchor vessel")])
        facts = service.status()
        assert (facts["lag"], facts["healthy"], facts["stalled_partitions"]) == (1, False, [0])
