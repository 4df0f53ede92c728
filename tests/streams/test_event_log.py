"""What every event log does; a backend joins by adding itself to `backend`."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from appending import append, everything
from streamtopic.errors import StateMismatch, UsageError
from streamtopic.streams import FileLog, KafkaOptions, Message
from streamtopic.streams.kafka_log import KafkaLog
from waiting import PATIENCE


@pytest.fixture(params=["files", "kafka"])
def log(request, tmp_path):
    """A log of one backend."""
    if request.param == "kafka":
        with KafkaLog(KafkaOptions(request.getfixturevalue("kafka_server").servers)) as log:
            yield log
    else:
        yield FileLog(tmp_path / "log", clock=lambda: 12.5)


@pytest.fixture
def news(log, name):
    """A topic of 3 partitions, another for each test."""
    log.create(name, 3)
    return name


def test_what_is_read_is_what_was_appended(log, news):
    """Keys, values, tombstones, headers, order and time come back as they were written."""
    before = int(time.time() * 1000)
    messages = [
        Message(b"a", b"1", (("x", b"\xff"), ("x", b"2"))),
        Message(b"b", None),
        Message(None, b""),
        Message(b"", b"\x00" * 100_000),
    ]
    places = log.append_many(news, messages)
    for (partition, offset), message in zip(places, messages, strict=True):
        record = log.read(news, partition, offset, max_records=1)[0]
        assert (record.key, record.value, record.headers) == (message.key, message.value, message.headers)
        assert (record.topic, record.partition, record.offset) == (news, partition, offset)
        assert record.timestamp_ms == 12_500 or before <= record.timestamp_ms <= time.time() * 1000
    assert log.read(news, *places[0])[0].header("x") == b"2"
    assert log.read(news, *places[0])[0].header("y") is None


def test_what_is_not_there_is_refused(log, news):
    """An offset, a topic or a partition that the log does not have.

    A read is never answered by nothing instead.
    """
    log.create(news, 4)
    assert (log.partitions(news), log.partitions("other")) == (3, 0)
    for act, error, match in (
        (lambda: log.read(news, 0, 1), StateMismatch, "rebuild"),
        (lambda: log.read(news, 3, 0), UsageError, "partitions 0 to 2"),
        (lambda: log.end(news, 3), UsageError, "partitions 0 to 2"),
        (lambda: append(log, "other", b"k", b"v"), UsageError, "does not exist"),
    ):
        with pytest.raises(error, match=match):
            act()


def test_waiting_ends_when_a_record_comes(log, news):
    """In whichever partition it comes; at once if one is there already; and in vain after its time."""
    log.wait(news, {0: 0, 2: 0}, 0.2)
    append(log, news, b"k", b"v", partition=0)
    log.wait(news, {0: 0, 1: 0}, PATIENCE)
    assert [record.value for record in log.read(news, 0, 0)] == [b"v"]
    timer = threading.Timer(0.3, append, (log, news, b"k", b"late"), {"partition": 1})
    timer.start()
    log.wait(news, {0: 1, 1: 0}, PATIENCE)
    timer.join()
    assert [record.value for record in log.read(news, 1, 0)] == [b"late"]
    assert log.read(news, 0, 1) == []


def test_threads_share_a_log(log, news):
    """Readers and writers in several threads neither lose nor mix records, and offsets count up from 0."""

    def work(partition):
        for i in range(20):
            log.append_many(news, [Message(b"k", b"%d" % (2 * i + k), partition=partition) for k in range(2)])
            assert log.read(news, partition, 2 * i)[0].value == b"%d" % (2 * i)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    for partition in range(3):
        found = [(record.offset, record.value) for record in everything(log, news, partition)]
        assert found == [(i, b"%d" % i) for i in range(40)]
        assert (log.begin(news, partition), log.end(news, partition)) == (0, 40)


def test_limits_of_a_read(log, news):
    """A read keeps to its limits, but returns one record at least."""
    log.append_many(news, [Message(b"k", b"v" * 99, partition=0) for _ in range(10)])
    assert len(log.read(news, 0, 0, max_records=4)) == 4
    assert len(log.read(news, 0, 0, max_bytes=250)) == 2
    assert len(log.read(news, 0, 0, max_bytes=1)) == 1
    assert log.read(news, 0, 10) == []
