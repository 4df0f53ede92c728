"""Compressed batches that anyone can send: brokers undo them, and a topic that keeps them is refused."""

import subprocess
import sys
from contextlib import closing

import pytest
from kafka import KafkaProducer, errors

from appending import everything
from streamtopic.errors import StateMismatch
from streamtopic.streams import TopicNames

MIB = 1 << 20
EMPTY = [("", b"")] * 1_900_000

# In a process of its own, so that its memory can be told.
READ = """
import resource, sys
from streamtopic.streams import KafkaOptions, pages
from streamtopic.streams.kafka_log import KafkaLog
with KafkaLog(KafkaOptions(sys.argv[1])) as log:
    log.end(sys.argv[2], 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in pages(log, sys.argv[2], 0, 0):
        pass
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def send(log, topic, records, codec):
    """Send records as another program may: together in one compressed batch, or one by one."""
    producer = KafkaProducer(
        bootstrap_servers=log.options.servers, compression_type=codec, acks="all", linger_ms=5_000,
        batch_size=1 << 30, max_request_size=1 << 30, delivery_timeout_ms=240_000, request_timeout_ms=120_000,
    )  # fmt: skip
    with closing(producer):
        futures = []
        for key, value, headers in records:
            futures.append(producer.send(topic, value, key, headers, partition=0))
            if codec is None:
                # Together they are longer than the topic's longest batch.
                producer.flush()
        producer.flush()
        for future in futures:
            future.get()


def kept(log, topic, records, codec=None):
    """Send records to a topic that keeps them as they come."""
    log.create(topic, 1, {"compression.type": "producer", "max.message.bytes": str(4 * MIB)})
    send(log, topic, records, codec)


def test_a_topic_that_stores_compressed_records_is_refused(kafka_log):
    """Before anything unfolds, with the topic, the place and the remedy."""
    kept(kafka_log, "kept-gzip", [(b"doc-%d" % number, b"x" * MIB, []) for number in range(40)], "gzip")
    with pytest.raises(StateMismatch, match=r"offset 0 of kept-gzip/0.*compression.type.*streamtopic init"):
        kafka_log.read("kept-gzip", 0, 0)


@pytest.mark.slow
def test_of_millions_of_headers_a_few_are_read(kafka_log):
    """Two records of 4 MB that are empty headers take little memory; each says what it is, and has one too many."""
    records = [
        (b"doc-1", b"add", EMPTY),
        (b"doc-2", None, [("request", b"r-2"), *EMPTY]),
        (b"doc-3", b"add", [("h", b"x")] * 256),
        (b"doc-4", None, []),
    ]
    kept(kafka_log, "kept-headers", records)
    found = everything(kafka_log, "kept-headers")
    assert [(record.key, record.value) for record in found] == [(key, value) for key, value, _ in records]
    assert [len(record.headers) for record in found] == [257, 257, 256, 0]
    assert found[1].headers[0] == ("request", b"r-2")
    command = [sys.executable, "-W", "ignore", "-c", READ, kafka_log.options.servers, "kept-headers"]
    assert int(subprocess.run(command, capture_output=True, check=True).stdout) < 100


def test_topics_as_init_makes_them_store_nothing_compressed(kafka_log):
    """The broker undoes compression on every topic of a model, and refuses what unfolds past the topic's limit."""
    for topic, settings in TopicNames("unfolded").settings().items():
        kafka_log.create(topic, 1, settings)
        found = kafka_log.settings(topic)
        assert found["compression.type"] == "uncompressed"
        assert int(found["max.message.bytes"]) <= 4 * MIB
        with pytest.raises((errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)):
            send(kafka_log, topic, [(b"doc-1", b"x" * (20 * MIB), [])], "gzip")
        assert kafka_log.end(topic, 0) == 0
