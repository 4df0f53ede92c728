"""Requests beside a real Kafka with several partitions."""

import itertools
import time

import pytest

from streamtopic.client import DocumentProducer
from streamtopic.service.app import Service
from streamtopic.service.instance import provision
from streamtopic.service.requests.request_mover import Brake, RequestMover
from streamtopic.settings import Settings
from streamtopic.signed import SigningKey
from streamtopic.state import ModelState
from streamtopic.state.deletion_requests import RequestState

PARTITIONS = 3
_numbers = itertools.count()


@pytest.fixture
def service(kafka_server, redis_server, tmp_path):
    """A service with 12 documents in three partitions; nobody counts them."""
    public = tmp_path / "signing.pub"
    model = f"requests{next(_numbers)}"
    public.write_text(str(SigningKey.generate(model).public))
    settings = Settings(
        model=model,
        kafka=kafka_server.servers,
        redis_url=redis_server.url,
        partitions=PARTITIONS,
        hold_seconds=60.0,
        public_key=public,
    )
    with Service(settings) as service:
        provision(service.log, service.names, PARTITIONS, service.topic_settings)
        with DocumentProducer(kafka_server.servers, model=settings.model) as producer:
            producer.add_many([(f"doc-{n}", f"word{n} other") for n in range(12)])
        yield service


def newest(service):
    """Key to whether its newest record is a document."""
    found = {}
    for partition in range(PARTITIONS):
        for record in service.log.read(service.names.documents, partition, 0, 10_000):
            found[record.key.decode()] = record.value is not None
    return found


def test_a_request_reaches_the_partition_of_each_key(service):
    """After its hold each of its deletes stands where the document stands."""
    now = [time.time()]
    state = ModelState.open(service.connection, service.settings.model, service.fixed)
    lease = state.acquire("test", 60_000)
    received = service.door.receive([f"doc-{n}" for n in range(6)])
    mover = RequestMover(
        service.connection, service.names, PARTITIONS, Brake(0.0, 60_000), service.reader, service.log,
        service.send, service.ledger, lambda: now[0],
    )  # fmt: skip
    assert mover.step(lease).taken == 1
    assert not mover.step(lease)
    now[0] += 61
    assert mover.step(lease).sent == 1
    assert service.door.requests.get(received.request.id).state is RequestState.SENT
    assert newest(service) == {f"doc-{n}": n >= 6 for n in range(12)}
    for partition in range(PARTITIONS):
        records = service.log.read(service.names.documents, partition, 0, 10_000)
        gone = {record.key for record in records if record.value is None}
        assert gone <= {record.key for record in records if record.value is not None}
