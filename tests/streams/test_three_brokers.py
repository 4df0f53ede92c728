"""Three brokers, of which two must confirm each record: losing one costs no record, and stops nobody."""

import threading
from contextlib import closing

import numpy as np
import pytest
from kafka import KafkaAdminClient

from appending import append, everything
from embedded_service import Service, silent
from plain_counts import plain_counts
from servers.kafka_broker import LocalKafkaCluster
from streamtopic.client import DocumentProducer
from streamtopic.errors import ComponentUnreachable, StreamtopicError
from streamtopic.settings import load
from streamtopic.streams import KafkaLog, KafkaOptions

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


def settings_of(cluster, folder, redis_server):
    """Return settings of a service that reaches the cluster."""
    return load(
        {
            "dir": folder,
            "model": "three",
            "kafka": cluster.servers,
            "redis_url": redis_server.url,
            "min_df": 1,
            "max_df": 1.0,
        }
    )


def digest_of(service):
    """Return the digest of all counts."""
    counts = service.reader.counts()
    return plain_counts(counts.restrict(np.arange(len(counts.words))), counts.words)


class Flow(threading.Thread):
    """A producer that goes on adding and deleting, and tells when a part of it is done."""

    def __init__(self, options):
        super().__init__(daemon=True)
        self._options = options
        self.begun = threading.Event()
        self.fault = None

    def run(self):
        try:
            with DocumentProducer(self._options, model="three") as producer:
                for number in range(DOCUMENTS):
                    producer.add(f"d{number}", text=f"word{number % 7} word{number % 5} apple banana")
                    if number in DELETED:
                        producer.delete(f"d{number}")
                    if number == DOCUMENTS // 4:
                        self.begun.set()
        except StreamtopicError as error:
            self.fault = error
        finally:
            self.begun.set()


def test_a_broker_is_lost_while_events_flow(cluster, redis_server, tmp_path):
    """Killed is the one that leads. Every event is in the log once, in order, and is counted once."""
    options = KafkaOptions(cluster.servers, patience=120.0)
    with Service(settings_of(cluster, tmp_path / "service", redis_server)) as service:
        _ = service.state
        topic = service.names.documents
        ingest = service.open_ingest(0)
        flow = Flow(options)
        flow.start()
        assert flow.begun.wait(300)
        lost = cluster.nodes[leader_of(options, topic) - 1]
        lost.kill()
        while flow.is_alive():
            list(ingest.drain())
        assert flow.fault is None
        cluster.start()
        while ingest.lag:
            list(ingest.drain())
        found = [(record.key, record.value is None) for record in everything(service.log, topic)]
        keys = [(f"d{number}".encode(), gone) for number in range(DOCUMENTS) for gone in (False, True)]
        assert [one for one in found if one[0].startswith(b"d")] == [
            (key, gone) for key, gone in keys if not gone or int(key[1:]) in DELETED
        ]
        counted = digest_of(service)
        assert service.rebuild(silent).documents == DOCUMENTS - len(DELETED)
        assert digest_of(service) == counted


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
    refused = pytest.raises(ComponentUnreachable, match=r"too few replicas in sync \(2 of 3\).*bring its")
    with KafkaLog(impatient) as log, refused:
        append(log, topic, b"k", b"meanwhile")
    with KafkaLog(KafkaOptions(cluster.servers, patience=120.0)) as log:
        assert log.read(topic, 0, 0)[0].value == b"before"
        cluster.start()
        append(log, topic, b"k", b"after")
        values = [record.value for record in everything(log, topic)]
        assert (values[0], values[-1]) == (b"before", b"after")
