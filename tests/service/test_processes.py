"""The parts as processes of their own, over a real Kafka and a real Redis."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from watched_service import asked

from embedded_service import Service, made_on_kafka
from streamtopic.client import DocumentProducer, ModelSubscriber, Receipts
from streamtopic.documents.corpus import Document
from streamtopic.errors import StreamtopicError
from streamtopic.service import processes
from streamtopic.service.instance import key_ring
from streamtopic.service.opened import open_ledger
from streamtopic.service.processes import Leading, run_part
from streamtopic.service.watching import Watch
from streamtopic.settings import Settings, load
from streamtopic.signed import Alive, Receipt
from streamtopic.state.connection import ModelKeys
from waiting import PATIENCE, until

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


def shows(process, line):
    """Wait until a process is ready and has a line among its metrics."""
    (address,) = [event["address"] for event in events(process) if event["event"] == "metrics"]
    until(lambda: asked(address, "/readyz") == (200, "ok\n"), "ready")
    until(lambda: line in asked(address, "/metrics")[1], line)


@pytest.fixture
def cluster(request, tmp_path, kafka_server, redis_server):
    """Topics, keys and settings of a fresh model over three partitions; its parameter is the lease, in seconds."""
    # A leader that compiles on a busy machine keeps its lease, unless a test waits for its end.
    lease = getattr(request, "param", 120)
    model = f"parts-{os.getpid()}-{tmp_path.name[-8:].strip('_')}".replace("_", "-")
    numbers = f"partitions = 3\ntopics = 3\nmax_forget_lag = 0.0\nmax_df = 1.0\nsession_timeout = 6\nlease = {lease}"
    others = "update_after = 0.001", 'capacity = {rule = "fixed", documents = 50}', 'metrics_address = "127.0.0.1:0"'
    cluster = Cluster(made_on_kafka(tmp_path, kafka_server, redis_server, model, numbers, *others))
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


@pytest.mark.slow
def test_the_parts_work_together_and_leave_when_told(cluster):
    """Two ingests share the partitions, one of two schedulers leads, a delete ends in a version and a receipt.

    Each of them is ready, and shows what it knows: ingest its partitions, a scheduler the model.
    """
    parts = [cluster.start(part) for part in ("ingest", "ingest", "schedule", "schedule")]
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
    for process in parts[:2]:
        shows(process, 'streamtopic_lag_records{kind="readable",partition="')
    for process in parts[2:]:
        shows(process, "streamtopic_documents 89.0")
    staged = [[e for e in events(p) if e["event"] == "staged"] for p in parts[2:4]]
    assert sorted(map(bool, staged)) == [False, True]
    for process in parts:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(timeout=PATIENCE) for process in parts] == [0] * 4


@pytest.mark.parametrize("why", ["counted", "published", "told to end"])
def test_the_scheduler_waits_no_longer_than_until_something_changes(why):
    """More is counted, the last version is published, or the process is told to end: none waits for an interval."""
    offsets = iter([{0: 3}, {0: 3}, {0: 4}] if why == "counted" else [{0: 3}] * 100)
    scheduler = SimpleNamespace(offsets=lambda: next(offsets))
    undecided, due, stop = threading.Event(), threading.Event(), threading.Event()
    leading = SimpleNamespace(leader=SimpleNamespace(scheduler=scheduler), _undecided=undecided, _due=due)
    timer = threading.Timer(0.05, {"published": undecided, "told to end": stop}.get(why, threading.Event()).set)
    timer.start()
    start = time.monotonic()
    Leading.wait(leading, {0: 3}, stop, 60.0)
    assert time.monotonic() - start < 30
    assert due.is_set() == (why == "counted")
    timer.join()


def test_a_retrain_of_minutes_delays_no_receipt_and_no_word_of_the_service(tmp_path, monkeypatch):
    """Receipts of versions that are there, and what readers know a service by, are written while a model is made."""
    settings = Settings(
        dir=tmp_path, topics=3, max_df=1.0, max_forget_lag=0.0, capacity={"rule": "fixed", "documents": 50}
    )
    monkeypatch.setattr(processes, "ALIVE_EVERY", 1.0)
    begun, end = threading.Event(), threading.Event()
    with Service(settings) as service:
        service.add([Document(f"doc-{k}", text(k)) for k in range(90)])
        service.settle()
    with (
        Service(settings, resident=True) as service,
        _leading(service) as leading,
    ):
        scheduler = leading.leader.scheduler
        ledger = open_ledger(service.opened, service.connect(), key_ring(service.settings))
        learn = scheduler.modeller.retrain

        def slow(*given):
            begun.set()
            assert end.wait(PATIENCE)
            return learn(*given)

        def entries(kind):
            ledger.catch_up()
            found = ledger.entries(range(ledger.ledger.size)).values()
            return [logged.entry for logged in found if isinstance(logged.entry, kind)]

        def delete(document):
            service.delete([document])
            for ingest in service.ingests:
                list(ingest.drain())

        def retrain():
            # A version that waits for the ledger comes first.
            while not begun.is_set():
                scheduler.step()

        monkeypatch.setattr(scheduler.modeller, "retrain", slow)
        delete("doc-1")
        assert scheduler.step().version == 2
        service.state.request("retrain")
        thread = threading.Thread(target=retrain)
        thread.start()
        try:
            assert begun.wait(PATIENCE)
            until(lambda: [receipt.version for receipt in entries(Receipt)] == [2], "the receipt of a version")
            delete("unknown")
            until(lambda: [receipt.version for receipt in entries(Receipt)] == [2, 2], "a receipt at once")
            words = len(entries(Alive))
            until(lambda: len(entries(Alive)) > words + 2, "words of the service")
            assert thread.is_alive()
        finally:
            end.set()
            thread.join()
        until(lambda: ledger.catch_up() or ledger.ledger.newest == 3, "the version")
        leading.check()


class Rounds(Watch):
    """Counts the rounds of the loop that publishes, and what it waited for."""

    def __init__(self):
        super().__init__()
        self.rounds = 0
        self.waited = []
        moved = self.health.moved

        def counted(loop=""):
            self.rounds += loop == "publish"
            moved(loop)

        self.health.moved = counted

    def waits(self, error, reason, loop=""):  # noqa: ARG002 - as Watch
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
    """Schedule and publish in threads; (what was done, how to end it, its error)."""
    # It would end the process of the tests.
    monkeypatch.setattr(processes, "leave_in_time", lambda _stop: None)
    seen, stop, errors = Rounds(), threading.Event(), []

    def work():
        try:
            run_part("schedule", settings, stop, lambda _event: None, watch=seen)
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


def _leading(service):
    return closing(Leading(service.opened, service.watch, lambda _event: None))


def test_only_the_leader_publishes(tmp_path, redis_server, kafka_server, monkeypatch):
    """A scheduler that stands by writes nothing, and goes on where the leader has left off."""
    model = f"standby-{os.getpid()}"
    settings = load(config=made_on_kafka(tmp_path, kafka_server, redis_server, model, "lease = 30"))
    with Service(settings, resident=True) as leader, Service(settings, resident=True) as standby:
        with _leading(leader) as leading:
            until(lambda: leader.ledger.catch_up() or leader.ledger.ledger.alive, "a word of the leader")
            lease = ModelKeys(model).named("lease")
            assert leader.connection.call("GET", lease).decode() == leader.holder
            # The next word of the one that stands by is due at once.
            monkeypatch.setattr(processes, "ALIVE_EVERY", 0.01)
            with _leading(standby) as waiting:
                size = leader.log.end(leader.names.ledger, 0)
                time.sleep(0.3)
                assert leader.log.end(leader.names.ledger, 0) == size
                waiting.check()
            leading.check()
        with _leading(standby):
            until(lambda: (standby.connection.call("GET", lease) or b"").decode() == standby.holder, "its turn")
