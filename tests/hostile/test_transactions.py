"""A transaction that is left open hides what came behind it: the service says so, and loses nothing when it ends."""

import itertools
import time
import warnings

import pytest

import waiting
from embedded_service import Service, made_on_kafka
from streamtopic.documents.events import encode_add
from streamtopic.service.inspection import facts
from streamtopic.service.log_history import hidden
from streamtopic.settings import load
from waiting import until

_numbers = itertools.count()
PATIENCE = 0.5


@pytest.fixture
def service(tmp_path, kafka_server, redis_server, monkeypatch):
    """A service next to Kafka, with one document counted, which soon takes hidden records for a fault."""
    monkeypatch.setattr(facts, "STALLED_AFTER", PATIENCE)
    config = made_on_kafka(tmp_path, kafka_server, redis_server, f"open{next(_numbers)}")
    with Service(load(config=config)) as made:
        made.send([encode_add("victim", text="some plain words")])
        list(made.ingests[0].drain())
        yield made


@pytest.fixture
def producer(kafka_server):
    """A producer with a transaction of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import KafkaProducer
    found = KafkaProducer(
        bootstrap_servers=kafka_server.servers,
        transactional_id=f"hostile{next(_numbers)}",
        # The broker ends one that takes longer.
        transaction_timeout_ms=600_000,
        acks="all",
    )
    found.init_transactions()
    yield found
    found.close(timeout=1)


def test_a_delete_behind_an_open_transaction_is_seen_and_said(service, producer):
    """Lag is 0 and nothing can be read; but status and doctor are not healthy, and name what to do."""
    assert service.status()["hidden"] == []
    producer.begin_transaction()
    producer.send(service.names.documents, key=b"victim", value=None, partition=0).get(timeout=waiting.PATIENCE)
    time.sleep(2 * PATIENCE)
    assert list(service.ingests[0].drain()) == []
    status = service.status()
    assert (status["lag"], status["documents"], status["healthy"]) == (0, 1, False)
    (found,) = status["hidden"]
    assert (found["partition"], found["records"]) == (0, 1)
    (remark,) = [one for one in status["remarks"] if "hidden by an open transaction since 20" in one]
    assert "kafka-transactions" in remark
    producer.commit_transaction()
    _await_its_end(service)
    list(service.ingests[0].drain())
    status = service.status()
    assert (status["documents"], status["hidden"], status["healthy"]) == (0, [], True)


def _await_its_end(service):
    """Wait until the broker has written what ends the transaction, which it does behind the answer to the producer."""
    until(lambda: not hidden(service.log, service.names.documents, [0]), "the end of the transaction")
