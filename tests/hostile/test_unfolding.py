"""Compressed batches that anyone can send: brokers undo them, and a topic that keeps them is refused."""

import subprocess
import sys
import textwrap

import pytest

from streamtopic.errors import StateMismatch
from streamtopic.streams import KafkaLog, KafkaOptions, TopicNames

MIB = 1 << 20

SEND = """
import gzip, sys
from kafka import KafkaProducer
servers, topic, shape, codec = sys.argv[1:]
producer = KafkaProducer(
    bootstrap_servers=servers, compression_type=None if codec == "none" else codec, acks="all", linger_ms=5_000,
    batch_size=1 << 30, max_request_size=1 << 30, delivery_timeout_ms=240_000, request_timeout_ms=120_000,
)
if shape == "small":
    records = [(b"doc-1", b"x" * (20 << 20), [])]
elif shape == "headers":
    records = [
        (b"doc-1", b"add", [("", b"")] * 1_900_000),
        (b"doc-2", None, [("request", b"r-2"), *[("", b"")] * 1_900_000]),
        (b"doc-3", b"add", [("h", b"x")] * 256),
        (b"doc-4", None, []),
    ]
else:
    records = [(b"doc-%d" % number, b"x" * (1 << 20), []) for number in range(200)]
futures = []
for key, value, headers in records:
    futures.append(producer.send(topic, value, key, headers, partition=0))
    if codec == "none":
        # Together they are longer than the topic's longest batch.
        producer.flush()
producer.flush()
print([future.get().offset for future in futures][-1])
"""

READ = """
import resource, sys
from streamtopic.errors import StateMismatch
from streamtopic.streams import KafkaLog, KafkaOptions
servers, topic = sys.argv[1:]
with KafkaLog(KafkaOptions(servers)) as log:
    log.end(topic, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    offset, found = 0, []
    while records := log.read(topic, 0, offset):
        offset = records[-1].next_offset
        found += [
            (r.offset, r.key[:8], len(r.key), None if r.value is None else len(r.value), [n for n, _ in r.headers])
            for r in records
        ]
        del records
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(repr((found, peak // 1024)))
"""


def run(program, *arguments):
    """Output of a program in a process of its own, so that its memory can be told."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture
def kept(kafka_server):
    """Return a function: send records of a shape to a topic that keeps them as they come; the topic."""

    def found(shape, codec):
        topic = f"kept-{shape}-{codec}"
        with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
            log.create(topic, 1, {"compression.type": "producer", "max.message.bytes": str(4 * MIB)})
        run(SEND, kafka_server.servers, topic, shape, codec)
        return topic

    return found


def test_a_topic_that_stores_compressed_records_is_refused(kept, kafka_server):
    """Before anything unfolds, with the topic, the place and the remedy."""
    topic = kept("many", "gzip")
    with (
        KafkaLog(KafkaOptions(kafka_server.servers)) as log,
        pytest.raises(StateMismatch, match=f"offset 0 of {topic}/0.*compression.type.*streamtopic init"),
    ):
        log.read(topic, 0, 0)


@pytest.mark.slow
def test_of_millions_of_headers_a_few_are_read(kept, kafka_server):
    """Two records of 4 MB that are empty headers take little memory; each says what it is, and has one too many."""
    topic = kept("headers", "none")
    records, peak = eval(run(READ, kafka_server.servers, topic))  # noqa: S307 - our own output
    assert [(offset, key, size, len(names)) for offset, key, _, size, names in records] == [
        (0, b"doc-1", 3, 257), (1, b"doc-2", None, 257), (2, b"doc-3", 3, 256), (3, b"doc-4", None, 0),
    ]  # fmt: skip
    assert records[1][-1][0] == "request"
    assert peak < 100


def test_topics_as_init_makes_them_store_nothing_compressed(kafka_server):
    """The broker undoes compression on every topic of a model, and refuses what unfolds past the topic's limit."""
    names = TopicNames("unfolded")
    with KafkaLog(KafkaOptions(kafka_server.servers)) as log:
        for topic, settings in names.settings().items():
            log.create(topic, 1, settings)
            found = log.settings(topic)
            assert found["compression.type"] == "uncompressed"
            assert int(found["max.message.bytes"]) <= 4 * MIB
            with pytest.raises(AssertionError, match="TooLarge"):
                run(SEND, kafka_server.servers, topic, "small", "gzip")
            assert log.end(topic, 0) == 0
