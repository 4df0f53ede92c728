"""Reading topics with kafka-python itself."""

import uuid

from campaign.stranger import Stranger, Transaction
from campaign.tail import TopicTail
from streamtopic.streams import Message, open_log
from waiting import until


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


def test_a_tail_waits_for_transactions(kafka_server):
    """Records come once they are committed, never if they are not; what is hidden meanwhile is told."""
    topic = f"tail-{uuid.uuid4().hex}"
    log, _ = open_log(kafka_server.servers)
    log.create(topic, 1)
    log.append_many(topic, [Message(b"before", b"v")])
    tail, found = TopicTail(kafka_server.servers, topic, 1), []
    for how in ("abort", "commit"):
        with Stranger(kafka_server.servers, topic, transaction=f"{topic}-{how}", timeout_ms=600_000) as stranger:
            transaction = Transaction(stranger, [Message(how.encode(), b"v", (), 0)])
            assert transaction.sent == 1
            found += [record.key for record in tail.read()]
            assert tail.hidden() == {0: 1}
            transaction.end(how)
        until(lambda: not tail.hidden(), "the end of the transaction")
        found += [record.key for record in tail.read()]
    assert found == [b"before", b"commit"]
    assert tail.positions == {0: 5}
    tail.close()
    log.close()
