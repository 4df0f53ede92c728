"""Reading topics with kafka-python itself."""

import uuid

from streamtopic.faults.tail import TopicTail
from streamtopic.streams import Message, open_log


def test_a_tail_reads_every_record_once_in_order(kafka_server):
    """What is appended between two looks comes with the second, nothing comes twice, tombstones come too."""
    topic = f"tail-{uuid.uuid4().hex}"
    log, _ = open_log(kafka_server.servers)
    tail = TopicTail(kafka_server.servers, topic, 2)
    try:
        log.create(topic, 2)
        assert list(tail.read()) == []
        log.append_many(topic, [Message(b"k%d" % n, b"v", (("h", b"x"),), partition=n % 2) for n in range(40)])
        first = list(tail.read())
        log.append_many(topic, [Message(b"k", None, partition=0)])
        second = list(tail.read())
        again = list(tail.read())
    finally:
        tail.close()
        log.close()
    for partition in range(2):
        assert [record.offset for record in first if record.partition == partition] == list(range(20))
    assert {(record.value, record.headers) for record in first} == {(b"v", (("h", b"x"),))}
    assert [(record.partition, record.offset, record.key, record.value) for record in second] == [(0, 20, b"k", None)]
    assert again == []
