"""Requests and undo beside a real Kafka: several partitions, and a broker that compacts as `init` tells it."""

import itertools
import time

import pytest

from streamtopic.client import DocumentProducer
from streamtopic.service.app import Service
from streamtopic.service.instance import provision
from streamtopic.service.requests.request_mover import Brake, RequestMover
from streamtopic.service.requests.undo_deletions import starts_at, undo
from streamtopic.settings import Settings
from streamtopic.signed import ReceiptReader, SigningKey
from streamtopic.state import ModelState
from streamtopic.state.deletion_requests import RequestState

PARTITIONS = 3
_numbers = itertools.count()


@pytest.fixture
def service(kafka_server, redis_server, tmp_path):
    """A service with 12 documents in three partitions; nobody counts them."""
    public = tmp_path / "signing.pub"
    public.write_bytes(SigningKey.generate().public.pem)
    settings = Settings(
        model=f"requests{next(_numbers)}",
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


def deleted(service, *documents):
    """Delete documents as a producer does."""
    with DocumentProducer(service.settings.kafka, model=service.settings.model) as producer:
        for document in documents:
            producer.delete(document)


def test_a_request_reaches_the_partition_of_each_key(service):
    """After its hold each of its deletes stands where the document stands."""
    now = [time.time()]
    state = ModelState.open(service.connection, service.settings.model, service.fixed)
    lease = state.acquire("test", 60_000)
    received = service.door.receive([f"doc-{n}" for n in range(6)])
    mover = RequestMover(
        service.connection, service.settings.model, PARTITIONS, Brake(0.0, 1000), lambda: 12, service.send,
        lambda: ReceiptReader(service.log, service.settings.model, SigningKey.from_bytes(bytes(32)).public),
        lambda: now[0],
    )  # fmt: skip
    assert not mover.step(lease)
    now[0] += 61
    assert mover.step(lease).sent == 1
    assert service.door.requests.get(received.request.id).state is RequestState.SENT
    assert newest(service) == {f"doc-{n}": n >= 6 for n in range(12)}
    for partition in range(PARTITIONS):
        records = service.log.read(service.names.documents, partition, 0, 10_000)
        gone = {record.key for record in records if record.value is None}
        assert gone <= {record.key for record in records if record.value is not None}


def test_deletes_since_a_time_are_undone(service):
    """Only those from then on, in all partitions, and not the document that came again."""
    deleted(service, "doc-0")
    time.sleep(0.05)
    since = int(time.time() * 1000)
    time.sleep(0.05)
    deleted(service, "doc-1", "doc-2", "doc-3", "doc-4", "never-there")
    with DocumentProducer(service.settings.kafka, model=service.settings.model) as producer:
        producer.add("doc-4", text="sent again")
    starts = starts_at(service, since)
    found = undo(service, starts, append=False, update=lambda *_: None)
    assert (sorted(found.restored), found.lost, found.requested) == (["doc-1", "doc-2", "doc-3"], ["never-there"], 0)
    assert newest(service)["doc-1"] is False
    assert sorted(undo(service, starts, append=True, update=lambda *_: None).restored) == sorted(found.restored)
    alive = newest(service)
    assert [name for name, there in sorted(alive.items()) if not there] == ["doc-0", "never-there"]
    assert undo(service, starts, append=True, update=lambda *_: None).restored == []


def test_a_document_that_came_back_meanwhile_is_left_alone(service, monkeypatch):
    """What a producer sends while the log is read is newer than what undo found."""
    deleted(service, "doc-1", "doc-2")
    starts = dict.fromkeys(range(PARTITIONS), 0)
    sent = []

    def update(_read, _total):
        if not sent:
            with DocumentProducer(service.settings.kafka, model=service.settings.model) as producer:
                sent.append(producer.add("doc-1", text="of today"))

    assert undo(service, starts, append=True, update=update).restored == ["doc-2"]
    partition, offset = sent[0]
    records = service.log.read(service.names.documents, partition, 0, 10_000)
    assert max(record.offset for record in records if record.key == b"doc-1") == offset


def test_the_broker_keeps_what_was_deleted_for_the_time_of_undo(service):
    """`init` sets the shortest lag below the longest, on a topic of before as well."""
    topic = service.names.documents
    wanted = {"min.compaction.lag.ms": "43200000", "max.compaction.lag.ms": "86400000", "segment.ms": "21600000"}
    assert wanted.items() <= dict(service.log.settings(topic)).items()
    service.log.configure(topic, {"min.compaction.lag.ms": "0"})
    done = {one.topic: one for one in provision(service.log, service.names, PARTITIONS, service.topic_settings)}
    assert done[topic].changed == {"min.compaction.lag.ms": ("0", "43200000")}
