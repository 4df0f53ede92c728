"""Kafka users: each principal of deploy/kafka-acls.sh can do its job, and a real broker refuses each forbidden act."""

import contextlib

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import AuthorizationError
from kafka.structs import OffsetAndMetadata, TopicPartition

from appending import append
from streamtopic.errors import SettingsError, StreamtopicError
from streamtopic.streams.kafka_log import KafkaLog
from waiting import PATIENCE

pytestmark = pytest.mark.slow

ROLES = ("producer", "ingest", "schedule", "serve", "subscriber", "operator", "stranger")
TOPICS = ("news.documents", "news.requests", "news.releases", "news.ledger", "news.rejected", "other.documents")
# What each may do; everything else is tried too, and must be refused.
READS = {
    "ingest": {"news.documents", "news.requests", "news.rejected"},
    "schedule": {"news.documents", "news.requests", "news.releases", "news.ledger"},
    "serve": {"news.requests", "news.releases", "news.ledger", "news.rejected"},
    "subscriber": {"news.releases", "news.ledger"},
    "operator": set(TOPICS[:5]),
}
WRITES = {
    "producer": {"news.documents"},
    "ingest": {"news.documents", "news.requests", "news.rejected"},
    "schedule": {"news.documents", "news.requests", "news.releases", "news.ledger"},
    "serve": {"news.requests"},
    "operator": set(TOPICS[:5]),
}
GROUPS = {"ingest", "operator"}


def _client(broker, role):
    return broker.options(role).client() | {"request_timeout_ms": 60_000}


def _refused(right):
    """The error that a user meets, with the right that is missing."""
    return pytest.raises(SettingsError, match=rf"refuses this user.*lacks the right ({right}): give it by a rule")


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("role", ROLES)
def test_who_may_write(deployed_kafka, role, topic):
    """A producer writes documents and nothing else; only schedule writes releases and the ledger."""
    with KafkaLog(deployed_kafka.options(role)) as log:
        if topic in WRITES.get(role, ()):
            assert append(log, topic, b"k", b"v", partition=0)[0] == 0
        else:
            with _refused(f"(Describe|Write) of topic {topic}"):
                append(log, topic, b"k", b"v", partition=0)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("role", ROLES)
def test_who_may_read(deployed_kafka, role, topic):
    """A producer and a subscriber read no documents; a subscriber reads releases and the ledger."""
    with KafkaLog(deployed_kafka.options(role)) as log:
        if topic in READS.get(role, ()):
            assert log.read(topic, 0, 0)
        else:
            with _refused(f"(Describe|Read) of topic {topic}"):
                log.read(topic, 0, 0)


@pytest.mark.parametrize("role", ROLES)
def test_who_may_join_the_group(deployed_kafka, role):
    """Nobody but ingest and the operator takes a partition or moves the group's offsets."""
    consumer = KafkaConsumer(**_client(deployed_kafka, role), group_id="streamtopic-news", enable_auto_commit=False)
    with contextlib.closing(consumer):
        place = TopicPartition("news.documents", 0)
        if role in GROUPS | {"serve"}:
            consumer.committed(place)
        else:
            with pytest.raises(AuthorizationError):
                consumer.committed(place)
        if role == "serve":
            # It sees who counts, and moves nothing.
            with pytest.raises(AuthorizationError):
                consumer.commit({place: OffsetAndMetadata(1, "", -1)})
    if role == "ingest":
        with KafkaLog(deployed_kafka.options(role)) as log:
            membership = log.join("news.documents", "streamtopic-news", 6_000)
            assert membership.poll(PATIENCE) == {0}
            membership.leave()


@pytest.mark.parametrize("role", ROLES)
def test_nobody_opens_a_transaction(deployed_kafka, role):
    """The rule that denies goes before every rule that allows, the operator's as well."""
    producer = KafkaProducer(**_client(deployed_kafka, role), transactional_id=f"t-{role}", max_block_ms=60_000)
    try:
        with pytest.raises(AuthorizationError):
            producer.init_transactions()
    finally:
        producer.close(timeout=0)


@pytest.mark.parametrize("role", ROLES)
def test_who_may_administer(deployed_kafka, role):
    """New and other topics and the deletion of topics are nobody's; settings of this model's are the operator's."""
    admin = KafkaAdminClient(**_client(deployed_kafka, role))
    with contextlib.closing(admin):
        with pytest.raises(AuthorizationError):
            admin.create_topics([NewTopic("strange", 1, 1)])
        with pytest.raises(AuthorizationError):
            admin.delete_topics(["news.ledger"])
    with KafkaLog(deployed_kafka.options(role)) as log:
        if role == "operator":
            log.configure("news.documents", {"max.compaction.lag.ms": "1000000"})
            log.create("news.documents", 1, {})
        else:
            # kafka-python looks at the settings first, which nobody else may see.
            with pytest.raises(StreamtopicError):
                log.configure("news.documents", {"max.compaction.lag.ms": "1000000"})


def test_nobody_comes_in_without_a_password(deployed_kafka):
    """Nor with another role's."""
    refused = pytest.raises(SettingsError, match="refuses this user")
    with KafkaLog(deployed_kafka.options("ingest", sasl_password=deployed_kafka.password("schedule"))) as log, refused:
        log.partitions("news.documents")
