"""Three brokers, of which two must confirm each record: losing one costs no record, and stops nobody."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from kafka import KafkaAdminClient

from appending import append, everything
from embedded_service import Service, silent
from plain_counts import all_counts
from servers.kafka_broker import LocalKafkaCluster
from streamtopic.client import DocumentProducer
from streamtopic.errors import ComponentUnreachable
from streamtopic.settings import load
from streamtopic.streams import KafkaOptions
from streamtopic.streams.kafka_log import KafkaLog
from waiting import PATIENCE

pytestmark = pytest.mark.slow

DOCUMENTS = 240
DELETED = range(0, DOCUMENTS, 8)


@pytest.fixture(scope="module")
def brokers():
    """Three brokers."""
    made = LocalKafkaCluster()
    try:
        made.start()
    except ComponentUnreachable as error:
        pytest.skip(f"Kafka: needs a broker; {error}")
    with made:
        yield made


@pytest.fixture
def cluster(brokers):
    """All three of them, also after a test that lost one."""
    return brokers.start()


def leader_of(options, topic):
    """Return the number of the broker that leads partition 0."""
    with closing(KafkaAdminClient(**options.client())) as admin:
        (found,) = admin.describe_topics([topic])
        return found["partitions"][0]["leader_id"]


def produce(options, begun):
    """Go on adding and deleting, and tell when a part of it is done."""
    with DocumentProducer(options, model="three") as producer:
        for number in range(DOCUMENTS):
            producer.add(f"d{number}", text=f"word{number % 7} word{number % 5} apple banana")
            if number in DELETED:
                producer.delete(f"d{number}")
            if number == DOCUMENTS // 4:
                begun.set()


def test_a_broker_is_lost_while_events_flow(cluster, redis_server, tmp_path):
    """Killed is the one that leads. Every event is in the log once, in order, and is counted once."""
    options, begun = KafkaOptions(cluster.servers, patience=120.0), threading.Event()
    given = {"dir": tmp_path / "service", "model": "three", "kafka": cluster.servers, "redis_url": redis_server.url}
    with Service(load({**given, "min_df": 1, "max_df": 1.0})) as service, ThreadPoolExecutor(1) as pool:
        _ = service.state
        topic = service.names.documents
        ingest = service.open_ingest(0)
        flow = pool.submit(produce, options, begun)
        assert begun.wait(PATIENCE)
        lost = cluster.nodes[leader_of(options, topic) - 1]
        lost.kill()
        while not flow.done():
            list(ingest.drain())
        flow.result()
        cluster.start()
        while ingest.lag:
            list(ingest.drain())
        found = [(record.key, record.value is None) for record in everything(service.log, topic)]
        keys = [(f"d{number}".encode(), gone) for number in range(DOCUMENTS) for gone in (False, True)]
        assert [one for one in found if one[0].startswith(b"d")] == [
            (key, gone) for key, gone in keys if not gone or int(key[1:]) in DELETED
        ]
        counted = all_counts(service.reader.counts())
        assert service.rebuild(silent).documents == DOCUMENTS - len(DELETED)
        assert all_counts(service.reader.counts()) == counted


def test_too_few_replicas_are_told_and_writing_goes_on_once_they_are_back(cluster):
    """A topic that all three must confirm takes nothing without one of them; readers go on, and nothing is lost."""
    topic = "all-three"
    with KafkaLog(KafkaOptions(cluster.servers, patience=120.0)) as log:
        log.create(topic, 1, {"min.insync.replicas": "3"})
        assert append(log, topic, b"k", b"before") == (0, 0)
    impatient = KafkaOptions(cluster.servers, patience=12.0)
    lost = cluster.nodes[leader_of(impatient, topic) % 3]
    lost.kill()
    cluster.await_brokers(2)
    refused = pytest.raises(ComponentUnreachable, match=r"too few replicas in sync.*start its")
    with KafkaLog(impatient) as log, refused:
        append(log, topic, b"k", b"meanwhile")
    with KafkaLog(KafkaOptions(cluster.servers, patience=120.0)) as log:
        assert log.read(topic, 0, 0)[0].value == b"before"
        cluster.start()
        append(log, topic, b"k", b"after")
        values = [record.value for record in everything(log, topic)]
        assert (values[0], values[-1]) == (b"before", b"after")
