"""What only a Kafka log meets: brokers that go away, records that are refused, gaps, transactions, other producers."""

import contextlib
import itertools
import threading
from types import SimpleNamespace

import pytest
from kafka import KafkaProducer, TopicPartition, errors
from kafka.consumer.fetcher import ConsumerRecord

from appending import append, everything
from kafka_topics import until_compacted
from servers.kafka_broker import KafkaBroker
from streamtopic.documents.events import HEARTBEAT_KEY
from streamtopic.errors import ComponentUnreachable, SettingsError, UsageError
from streamtopic.streams import KafkaOptions, Message, Record, kafka_clients
from streamtopic.streams.kafka_log import KafkaLog
from waiting import PATIENCE, until


@pytest.fixture
def topic(log, name):
    """A compacted topic of one partition whose records are compacted within seconds, once they are in a closed file."""
    log.create(
        name,
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": "1048576",
            "segment.ms": "1000",
            "delete.retention.ms": "100",
            "max.message.bytes": "200000",
        },
    )
    return name


def test_settings_can_be_read_and_changed(log, name):
    """A topic has the settings that it was made with, and those that are changed later; the others stay."""
    log.create(name, 1, {"cleanup.policy": "compact", "retention.ms": "1000"})
    log.configure(name, {"retention.ms": "2000"})
    settings = log.settings(name)
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact", "2000")
    for act in (lambda: log.settings("other"), lambda: log.configure("other", {})):
        with pytest.raises(UsageError, match="does not exist"):
            act()


@pytest.mark.parametrize("bad", ["record of 300 kB", "without a key"])
def test_a_refused_record_is_named_and_the_next_is_taken(log, topic, bad):
    """What the broker does not take is a usage error; the producer goes on with good records, none of them twice."""
    append(log, topic, b"a", b"first")
    message = Message(b"big", b"x" * 300_000) if bad.startswith("record") else Message(None, b"x")
    before, after = ([Message(b"k", b"%s-%d" % (name, number)) for number in range(30)] for name in (b"b", b"a"))
    with pytest.raises(UsageError, match=r"b'big' of 300003 bytes|record without a key"):
        log.append_many(topic, [*before, message, *after])
    for number in range(5):
        append(log, topic, b"after", b"%d" % number)
    values = [record.value for record in everything(log, topic)]
    assert values[0] == b"first"
    assert values[-5:] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(values) == len(set(values))


def test_a_compacted_log_is_read_past_its_gaps(log, topic):
    """Records that compaction took out are skipped, at the start, in the middle and at the end, without waiting."""
    for number in range(200):
        log.append_many(topic, [Message(b"same", b"%d" % number), Message(b"key-%d" % (number % 10), b"x" * 9_000)])
    last = [(record.key, record.offset) for record in everything(log, topic)]

    found = until_compacted(log, topic, lambda: (read := everything(log, topic))[300:] == [] and read)
    assert {record.key for record in found} - {HEARTBEAT_KEY} == {key for key, _ in last}
    assert found[0].offset > 0
    assert log.begin(topic, 0) == 0
    # More may have gone meanwhile.
    assert log.read(topic, 0, found[0].offset - 1, max_records=1)[0].offset >= found[0].offset


def test_a_gap_at_the_end_is_an_end(log, name):
    """Where retention or compaction left nothing before the end, a read says so instead of waiting for ever."""
    log.create(name, 1)
    producer = KafkaProducer(bootstrap_servers=log.options.servers, transactional_id=name)
    with contextlib.closing(producer):
        producer.init_transactions()
        append(log, name, b"k", b"before")
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send(name, b"in", b"k", partition=0)
            producer.flush()
            assert [record.value for record in everything(log, name)][-1] != b"open"
            end()
    until(lambda: log.end(name, 0) >= 5, "the ends of both transactions")
    assert [record.value for record in everything(log, name)] == [b"before", b"in"]
    assert log.end(name, 0) == 5
    for offset in (2, 3, 4, 5):
        assert log.read(name, 0, offset) == []
    log.wait(name, {0: 2}, 0.1)
    append(log, name, b"k", b"after")
    assert [record.value for record in log.read(name, 0, 2)] == [b"after"]


def reader_of(monkeypatch, answers):
    """A reader of t/0: an emptied batch, since Kafka keeps the last one of a producer, and the records 3 to 5 after it.

    answers: of the broker, in order: None for a poll that ends without one, else the end that the broker knew of then.
    """
    known, seconds = iter(answers), itertools.count(step=0.2)
    consumer = SimpleNamespace(assignment=set, assign=lambda _: None, at=0, high=None)
    consumer.seek = lambda _, offset: setattr(consumer, "at", offset)
    consumer.position = lambda *_, **__: consumer.at
    consumer.highwater = lambda _: consumer.high

    def poll(**_):
        end = next(known, 6)
        if end is None:
            return {}
        consumer.high = end
        consumer.answered()
        begin = consumer.at
        if not begin < end == 6:
            return {}
        consumer.at = 3 if begin < 3 else 6
        records = [Record("t", 0, offset, b"k", b"v", (), 1) for offset in range(max(begin, 3), consumer.at)]
        batch = ConsumerRecord("t", 0, -1, 5, 1, 0, None, records, (), None, -1, len(records), -1)
        return {TopicPartition("t", 0): [batch]} if records else {}

    consumer.poll = poll
    monkeypatch.setattr(kafka_clients, "connect", lambda *_, **__: consumer)
    monkeypatch.setattr(kafka_clients, "read_all_records", lambda made, told: setattr(made, "answered", told))
    ends = SimpleNamespace(begin=lambda *_: 0, end=lambda *_: 6)
    return kafka_clients.TopicReader(KafkaOptions("nowhere:1"), ends, "t", clock=lambda: next(seconds))


@pytest.mark.parametrize("answers", [[None] * 8, [0, 0], [0] * 8])
def test_a_late_answer_is_not_the_end(monkeypatch, answers):
    """No answer, one to an earlier request, one of a broker that leads since a moment, an emptied batch: all go on."""
    reader = reader_of(monkeypatch, answers)
    assert [record.offset for record in reader.read(0, 0, 100, 1 << 20)] == [3, 4, 5]


def test_answers_without_records_up_to_the_end_are_the_end(monkeypatch):
    """A read says so, and does not wait for ever; what is appended later is read."""
    reader = reader_of(monkeypatch, [9, 9, 9])
    assert reader.read(0, 0, 100, 1 << 20) == []
    assert [record.offset for record in reader.read(0, 0, 100, 1 << 20)] == [3, 4, 5]


@pytest.mark.slow
def test_a_restart_of_the_broker_is_waited_out(tmp_path):
    """Appends, reads, waits and lookups begun while the broker is down end well once it is back; nothing is doubled."""
    with KafkaBroker(tmp_path) as server, KafkaLog(KafkaOptions(server.servers)) as log:
        log.create("t", 1)
        append(log, "t", b"k", b"0")
        assert len(log.read("t", 0, 0)) == 1
        for number, stop in ((1, server.kill), (2, server.stop)):
            stop()
            timer = threading.Timer(1, server.start)
            timer.start()
            log.wait("t", {0: number}, 0.2)
            append(log, "t", b"k", b"%d" % number)
            timer.join()
            assert log.end("t", 0) == number + 1
            assert [record.value for record in log.read("t", 0, number)] == [b"%d" % number]
        assert [record.value for record in everything(log, "t")] == [b"0", b"1", b"2"]


def test_a_log_that_stays_away_is_unreachable():
    """Nothing listens there: every call ends with the address and the remedy, and no thread goes on trying."""
    before = {*threading.enumerate()}
    with KafkaLog(KafkaOptions("127.0.0.1:9", patience=0.5)) as log:
        for call in (
            lambda: log.partitions("t"),
            lambda: log.create("t", 1),
            lambda: append(log, "t", b"k", b"v"),
            lambda: log.read("t", 0, 0),
        ):
            with pytest.raises(ComponentUnreachable, match=r"127\.0\.0\.1:9 does not answer"):
                call()
    assert {*threading.enumerate()} <= before


def test_records_that_nobody_confirms_in_time_are_an_unreachable_log(log, name, monkeypatch):
    """No error of kafka-python leaves the log, also not when waiting for a broker ends before its records give up."""

    def late(*_, **__):
        raise errors.KafkaTimeoutError("Timeout waiting for future")

    log.create(name, 1)
    with monkeypatch.context() as patch:
        patch.setattr(KafkaProducer, "flush", late)
        patch.setattr(KafkaProducer, "close", lambda *_, **__: None)
        patch.setattr("kafka.producer.future.FutureRecordMetadata.succeeded", lambda _: False)
        with pytest.raises(ComponentUnreachable, match="not confirmed"):
            append(log, name, b"k", b"v")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"servers": "nowhere"}, "host:port"),
        ({"servers": "a:1,b"}, "host:port"),
        ({"servers": "a:1", "security_protocol": "TLS"}, "PLAINTEXT"),
        ({"servers": "a:1", "security_protocol": "SASL_SSL"}, "user name and a password"),
        ({"servers": "a:1", "sasl_username": "me", "sasl_password": "p"}, "SASL_SSL"),
    ],
)
def test_options_that_cannot_work_are_refused(options, match):
    """A setting that is wrong is reported before anything is sent."""
    with pytest.raises(SettingsError, match=match):
        KafkaOptions(**options)


def test_a_file_that_is_gone_is_told_by_every_part():
    """By the log that asks, and by the thread that takes part in a group."""
    with KafkaLog(KafkaOptions("127.0.0.1:9", "SSL", ssl_cafile="/gone")) as log:
        for act in (lambda: log.partitions("t"), lambda: log.join("t", "g", 6_000).poll(PATIENCE)):
            with pytest.raises(SettingsError, match="no file /gone"):
                act()


def test_partitions_that_are_no_longer_read_take_no_memory(log, name):
    """What was read ahead of a partition goes once nobody reads it; coming back, reading goes on without a gap."""
    log.create(name, 2)
    for partition in (0, 1):
        log.append_many(name, [Message(b"k", b"%d" % number, partition=partition) for number in range(50)])
    now = [0.0]
    with KafkaLog(log.options, clock=lambda: now[0]) as other:
        assert len(other.read(name, 0, 0, max_records=10)) == 10
        now[0] += 1_000
        assert len(other.read(name, 1, 0)) == 50
        (reader,) = other._readers.values()
        assert [*reader._buffers] == [1]
        assert [record.value for record in other.read(name, 0, 10)] == [b"%d" % number for number in range(10, 50)]


class AnyBytes(str):
    """A header's name as other clients may send it."""

    __slots__ = ()

    def encode(self, *_):
        return b"n\xffme"


def test_records_of_other_producers_are_read(log, topic):
    """Odd header names and headers without a value: nothing that a client sends stops a reader."""
    producer = KafkaProducer(bootstrap_servers=log.options.servers, linger_ms=100)
    with contextlib.closing(producer):
        for number in range(50):
            headers = [("h", b"v"), (AnyBytes("x"), b"w")] if number % 20 == 7 else [("h", b"v")]
            producer.send(topic, b"x" * 1000, b"%d" % number, headers=headers)
        producer.flush()
    found = everything(log, topic)
    assert [record.key for record in found] == [b"%d" % number for number in range(50)]
    assert found[7].headers == found[27].headers == (("h", b"v"), ("n\ufffdme", b"w"))
    assert found[8].headers == (("h", b"v"),)
    assert all(record.value == b"x" * 1000 for record in found)
