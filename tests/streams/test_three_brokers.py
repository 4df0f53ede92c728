"""Three brokers, of which two must confirm each record: losing one costs no record, and stops nobody."""

import threading
from contextlib import closing

import numpy as np
import pytest
from kafka import KafkaAdminClient

from servers.kafka_cluster import LocalKafkaCluster
from streamtopic.client import DocumentProducer
from streamtopic.errors import ComponentUnreachable, SettingsError, StreamtopicError
from streamtopic.service.app import Service, silent
from streamtopic.service.inspection.examination import Level, examine_log
from streamtopic.settings import load
from streamtopic.streams import KafkaLog, KafkaOptions
from waiting import until

pytestmark = pytest.mark.slow

DOCUMENTS = 240
DELETED = range(0, DOCUMENTS, 8)


@pytest.fixture(scope="module")
def brokers():
    """Three brokers with TLS, passwords and rules."""
    made = LocalKafkaCluster(3, secured=True)
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


def administrator(cluster, patience=120.0):
    """Return how the user without limits logs in: by a certificate."""
    files = {"ssl_cafile": str(cluster.authority.file), "ssl_certfile": str(cluster.administrator)}
    return KafkaOptions(cluster.administration, "SSL", **files, patience=patience)


def leader_of(options, topic):
    """Return the number of the broker that leads partition 0."""
    with closing(KafkaAdminClient(**options.client())) as admin:
        (found,) = admin.describe_topics([topic])
        return found["partitions"][0]["leader_id"]


def settings_of(cluster, folder, redis_server):
    """Return settings of a service that reaches the cluster as the administrator."""
    return load(
        {
            "dir": folder,
            "model": "three",
            "kafka": cluster.administration,
            "kafka_security_protocol": "SSL",
            "kafka_ssl_cafile": cluster.authority.file,
            "kafka_ssl_certfile": cluster.administrator,
            "redis_url": redis_server.url,
            "min_df": 1,
            "max_df": 1.0,
        }
    )


def digest_of(service):
    """Return the digest of all counts."""
    counts = service.reader.counts()
    return counts.restrict(np.arange(len(counts.words))).digest(counts.words)


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
    options = administrator(cluster)
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


def everything(log, topic):
    """Return all records of partition 0."""
    records, offset = [], log.begin(topic, 0)
    while offset < log.end(topic, 0):
        read = log.read(topic, 0, offset)
        records += read
        offset = read[-1].next_offset
    return records


def test_too_few_replicas_are_told_and_writing_goes_on_once_they_are_back(cluster):
    """A topic that all three must confirm takes nothing without one of them; readers go on, and nothing is lost."""
    topic = "all-three"
    with KafkaLog(administrator(cluster)) as log:
        log.create(topic, 1, {"min.insync.replicas": "3"})
        assert log.append(topic, b"k", b"before") == (0, 0)
    impatient = administrator(cluster, patience=12.0)
    lost = cluster.nodes[leader_of(impatient, topic) % 3]
    lost.kill()
    cluster.await_brokers(2)
    refused = pytest.raises(ComponentUnreachable, match=r"too few replicas in sync \(2 of 3\).*bring its")
    with KafkaLog(impatient) as log, refused:
        log.append(topic, b"k", b"meanwhile")
    with KafkaLog(administrator(cluster)) as log:
        assert log.read(topic, 0, 0)[0].value == b"before"
        cluster.start()
        log.append(topic, b"k", b"after")
        values = [record.value for record in everything(log, topic)]
        assert (values[0], values[-1]) == (b"before", b"after")


def test_the_doctor_looks_at_copies(cluster, redis_server, tmp_path):
    """Three copies of which two confirm are fine; one that confirms alone, and three that must, are not."""
    with Service(settings_of(cluster, tmp_path / "service", redis_server)) as service:
        topics = service.names.documents, service.names.releases, service.names.ledger
        for topic, least in zip(topics, ("2", "1", "3"), strict=True):
            service.log.configure(topic, {"min.insync.replicas": least})
        found = {}

        def levels():
            found.update({one.name: one for one in examine_log(service.log, service.settings, service.topic_settings)})
            return [found[f"copies of {topic}"].level for topic in topics]

        # Brokers tell each other of settings: the one that is asked may not have heard of them yet.
        until(lambda: levels() == [Level.OK, Level.WARN, Level.WARN], lambda: f"right levels in place of {levels()}")
        assert found["kafka tls"].level is Level.OK
        for topic in topics:
            service.log.configure(topic, {"min.insync.replicas": "2"})


def test_a_user_with_a_password_has_no_right_until_rules_give_it_one(cluster):
    """Each broker asks for the password that one of them was told, and knows rules by name."""
    cluster.add_user("somebody", "password-somebody")
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "somebody", "sasl_password": "password-somebody"}
    for servers in cluster.servers.split(","):
        options = KafkaOptions(servers, "SASL_SSL", ssl_cafile=str(cluster.authority.file), **login)
        with KafkaLog(options) as log, pytest.raises(SettingsError, match="somebody lacks the right Describe"):
            log.partitions("t")
