"""The parts as processes of their own, over a real Kafka and a real Redis."""

import os
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from three_topics import leaning

from embedded_service import Service, embedded, made_on_kafka
from streamtopic.errors import StreamtopicError
from streamtopic.service import processes
from streamtopic.service.processes import Leading, run_part
from streamtopic.service.watching import Watch
from streamtopic.settings import Settings, load
from streamtopic.signed import Alive, Envelope, Receipt
from streamtopic.state.connection import ModelKeys
from waiting import PATIENCE, until


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
    monkeypatch.setattr(processes, "ALIVE_EVERY", 1.0)
    begun, end = threading.Event(), threading.Event()
    with embedded(tmp_path) as service:
        service.add(leaning(90))
        service.settle()
    with (
        Service(service.settings, resident=True) as service,
        _leading(service) as leading,
    ):
        scheduler = leading.leader.scheduler
        learn = scheduler.modeller.retrain

        def slow(*given):
            begun.set()
            assert end.wait(PATIENCE)
            return learn(*given)

        def delete(document):
            service.delete([document])
            service.count()

        def retrain():
            # A version that waits for the ledger comes first.
            while not begun.is_set():
                scheduler.step()

        monkeypatch.setattr(scheduler.modeller, "retrain", slow)
        delete("doc-001")
        assert scheduler.step().version == 2
        service.state.request("retrain")
        thread = threading.Thread(target=retrain)
        thread.start()
        try:
            assert begun.wait(PATIENCE)
            until(lambda: [receipt.version for receipt in service.entries(Receipt)] == [2], "the receipt of a version")
            delete("unknown")
            until(lambda: [receipt.version for receipt in service.entries(Receipt)] == [2, 2], "a receipt at once")
            words = len(service.entries(Alive))
            until(lambda: len(service.entries(Alive)) > words + 2, "words of the service")
            assert thread.is_alive()
        finally:
            end.set()
            thread.join()
        until(lambda: service.entries(Envelope)[-1].version == 3, "the version")
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
