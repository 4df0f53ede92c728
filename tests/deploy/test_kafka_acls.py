"""Kafka users: each principal of deploy/kafka-acls.sh can do its job, and a real broker refuses each forbidden act."""

import contextlib
import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import AuthorizationError
from kafka.structs import TopicPartition

from streamtopic.errors import SettingsError, StreamtopicError
from streamtopic.local import LocalKafka
from streamtopic.local.broker_files import find_java
from streamtopic.streams import KafkaLog, KafkaOptions
from streamtopic.streams.membership import open_membership

DEPLOY = Path(__file__).parents[2] / "deploy"
MECHANISM = "SCRAM-SHA-512"
ROLES = ("producer", "ingest", "schedule", "publish", "subscriber", "operator", "stranger")
TOPICS = ("news.documents", "news.releases", "news.receipts", "news.rejected", "other.documents")
# What each may do; everything else is tried too, and must be refused.
READS = {
    "ingest": {"news.documents", "news.rejected"},
    "schedule": {"news.documents", "news.releases", "news.receipts"},
    "publish": {"news.releases", "news.receipts"},
    "subscriber": {"news.releases", "news.receipts"},
    "operator": set(TOPICS[:4]),
}
WRITES = {
    "producer": {"news.documents"},
    "ingest": {"news.documents", "news.rejected"},
    "publish": {"news.releases", "news.receipts"},
    "operator": set(TOPICS[:4]),
}
GROUPS = {"ingest", "operator"}


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _tools(folder, server):
    """Kafka's own console tools, as its distribution calls them."""
    folder.mkdir()
    tools = {"kafka-acls.sh": "org.apache.kafka.tools.AclCommand", "kafka-configs.sh": "kafka.admin.ConfigCommand"}
    for name, main in tools.items():
        command = shlex.join([str(find_java()), "-XX:TieredStopAtLevel=1", "-cp", f"{server.jars}/*", main])
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o700)
    return folder


def _secrets(folder):
    """A password for each role, in files as make-secrets.sh makes them; and one for a user without any right."""
    folder.mkdir()
    for role in ROLES:
        (folder / f"kafka_{role}").write_text(f"password-{role}", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """Addresses of a broker with an authorizer: one for its administrator, one that asks for a password."""
    plain, guarded, controller = _free_ports(3)
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": MECHANISM,
        "listener.name.guarded.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Whoever comes in by the other door is the administrator, and the broker itself.
        "super.users": "User:ANONYMOUS",
    }
    folder = tmp_path_factory.mktemp("acls")
    with LocalKafka(folder / "broker", port=plain, properties=properties) as server:
        given = {"KAFKA_BIN": str(_tools(folder / "bin", server)), "SECRETS": str(_secrets(folder / "secrets"))}
        with KafkaLog(KafkaOptions(server.servers)) as log:
            for topic in TOPICS:
                log.create(topic, 1, {"cleanup.policy": "compact"})
                log.append(topic, b"k", b"v")
        script = ["/bin/sh", str(DEPLOY / "kafka-users.sh"), server.servers]
        env = os.environ | given | {"MODEL": "news"}
        done = subprocess.run(script, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield f"127.0.0.1:{guarded}"


def _options(broker, role, **changes):
    login = {"sasl_mechanism": MECHANISM, "sasl_username": role, "sasl_password": f"password-{role}"}
    return KafkaOptions(broker, "SASL_PLAINTEXT", **{**login, **changes}, patience=20)


def _client(broker, role):
    return _options(broker, role).client() | {"request_timeout_ms": 10_000}


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("role", ROLES)
def test_who_may_write(broker, role, topic):
    """A producer writes documents and nothing else; only publish writes releases and receipts."""
    with KafkaLog(_options(broker, role)) as log:
        if topic in WRITES.get(role, ()):
            assert log.append(topic, b"k", b"v", partition=0)[0] == 0
        else:
            with pytest.raises(SettingsError, match="refuses this user"):
                log.append(topic, b"k", b"v", partition=0)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("role", ROLES)
def test_who_may_read(broker, role, topic):
    """A producer and a subscriber read no documents; a subscriber reads releases and receipts."""
    with KafkaLog(_options(broker, role)) as log:
        if topic in READS.get(role, ()):
            assert log.read(topic, 0, 0)
        else:
            with pytest.raises(SettingsError, match="refuses this user"):
                log.read(topic, 0, 0)


@pytest.mark.parametrize("role", ROLES)
def test_who_may_join_the_group(broker, role):
    """Nobody but ingest and the operator takes a partition or moves the group's offsets."""
    consumer = KafkaConsumer(**_client(broker, role), group_id="streamtopic-news", enable_auto_commit=False)
    with contextlib.closing(consumer):
        place = TopicPartition("news.documents", 0)
        if role in GROUPS:
            consumer.committed(place)
        else:
            with pytest.raises(AuthorizationError):
                consumer.committed(place)
    if role == "ingest":
        with KafkaLog(_options(broker, role)) as log:
            membership = open_membership(log, "news.documents", "streamtopic-news", 6_000)
            assert membership.poll(60) == {0}
            membership.leave()


@pytest.mark.parametrize("role", ROLES)
def test_nobody_opens_a_transaction(broker, role):
    """The rule that denies goes before every rule that allows, the operator's as well."""
    producer = KafkaProducer(**_client(broker, role), transactional_id=f"t-{role}", max_block_ms=8_000)
    try:
        with pytest.raises(AuthorizationError):
            producer.init_transactions()
    finally:
        producer.close(timeout=0)


@pytest.mark.parametrize("role", ROLES)
def test_who_may_administer(broker, role):
    """New and other topics and the deletion of topics are nobody's; settings of this model's are the operator's."""
    admin = KafkaAdminClient(**_client(broker, role))
    with contextlib.closing(admin):
        with pytest.raises(AuthorizationError):
            admin.create_topics([NewTopic("strange", 1, 1)])
        with pytest.raises(AuthorizationError):
            admin.delete_topics(["news.receipts"])
    with KafkaLog(_options(broker, role)) as log:
        if role == "operator":
            log.configure("news.documents", {"max.compaction.lag.ms": "1000000"})
            log.create("news.documents", 1, {})
        else:
            # kafka-python looks at the settings first, which nobody else may see.
            with pytest.raises(StreamtopicError):
                log.configure("news.documents", {"max.compaction.lag.ms": "1000000"})


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("role", ROLES)
def test_who_may_see_settings(broker, role, topic):
    """Publish looks whether the receipts topic keeps every record; all other settings are for the operator alone."""
    seen = {"publish": {"news.receipts"}, "operator": set(TOPICS[:4])}
    with KafkaLog(_options(broker, role)) as log:
        if topic in seen.get(role, ()):
            assert log.settings(topic)["cleanup.policy"] == "compact"
        else:
            with pytest.raises(SettingsError, match="refuses this user"):
                log.settings(topic)


def test_nobody_comes_in_without_a_password(broker):
    """Nor with another role's."""
    refused = pytest.raises(SettingsError, match="refuses this user")
    with KafkaLog(_options(broker, "ingest", sasl_password="password-publish")) as log, refused:
        log.partitions("news.documents")
