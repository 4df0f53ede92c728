"""What every event log does; a backend joins by adding itself to `backend`."""

import contextlib
import itertools
import threading
import time

import pytest

from appending import append
from streamtopic.errors import StateMismatch, UsageError
from streamtopic.streams import FileLog, KafkaLog, KafkaOptions, Message
from waiting import PATIENCE

NUMBERS = itertools.count()


@pytest.fixture(params=["files", "kafka"])
def log(request, tmp_path):
    """A log of one backend."""
    if request.param == "files":
        log = FileLog(tmp_path / "log", clock=lambda: 12.5)
    else:
        log = KafkaLog(KafkaOptions(request.getfixturevalue("kafka_server").servers))
    with contextlib.closing(log):
        yield log


@pytest.fixture
def news(log):
    """A topic of 3 partitions, another for each test."""
    name = f"news-{next(NUMBERS)}"
    log.create(name, 3)
    return name


def everything(log, topic, partition):
    """All records of a partition, read in batches."""
    records, offset = [], log.begin(topic, partition)
    while batch := log.read(topic, partition, offset):
        records += batch
        offset = batch[-1].next_offset
    return records


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


def test_offsets_are_consecutive_over_many_files(log, news):
    """Offsets count up from 0 and reading in batches misses and repeats nothing."""
    for i in range(300):
        assert append(log, news, b"k", b"%d" % i + b"." * 50, partition=1) == (1, i)
    assert [r.value.split(b".")[0] for r in everything(log, news, 1)] == [b"%d" % i for i in range(300)]
    assert (log.begin(news, 1), log.end(news, 1)) == (0, 300)
    assert log.end(news, 0) == 0


def test_offsets_outside_the_log_are_refused(log, news):
    """Reading where the log has nothing to promise is an error, never an empty answer."""
    with pytest.raises(StateMismatch, match="rebuild"):
        log.read(news, 0, 1)


def test_topics_are_checked(log, news):
    """Creating twice is harmless; another partition count, a missing topic or partition and a bad name are errors."""
    log.create(news, 3)
    assert (log.partitions(news), log.partitions("other")) == (3, 0)
    with pytest.raises(StateMismatch, match="3 partitions"):
        log.create(news, 4)
    with pytest.raises(UsageError, match="does not exist"):
        append(log, "other", b"k", b"v")
    with pytest.raises(UsageError, match="partitions 0 to 2"):
        log.read(news, 3, 0)
    for name in ("../x", "", "..", "a b", "x" * 250):
        with pytest.raises(UsageError):
            log.create(name, 1)


def test_waiting_ends_when_a_record_comes(log, news):
    """A wait returns with the record, in whichever partition it comes, and at once where one is there already."""
    append(log, news, b"k", b"v", partition=0)
    log.wait(news, {0: 0, 1: 0}, PATIENCE)
    assert [record.value for record in log.read(news, 0, 0)] == [b"v"]
    timer = threading.Timer(0.3, append, (log, news, b"k", b"late"), {"partition": 1})
    timer.start()
    log.wait(news, {0: 1, 1: 0}, PATIENCE)
    timer.join()
    assert [record.value for record in log.read(news, 1, 0)] == [b"late"]
    assert log.read(news, 0, 1) == []


def test_waiting_ends_without_a_record(log, news):
    """A wait gives up after its time, and leaves the log as readable as before."""
    log.wait(news, {0: 0, 2: 0}, 0.2)
    append(log, news, b"k", b"v", partition=2)
    assert [record.value for record in log.read(news, 2, 0)] == [b"v"]


def test_threads_share_a_log(log, news):
    """Readers and writers in several threads neither lose nor mix records."""
    failures = []

    def work(partition):
        try:
            for i in range(20):
                log.append_many(news, [Message(b"k", b"%d" % (2 * i + k), partition=partition) for k in range(2)])
                assert log.read(news, partition, 2 * i)[0].value == b"%d" % (2 * i)
        except Exception as error:  # noqa: BLE001 - whatever it is, the main thread reports it
            failures.append(error)

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for partition in range(3):
        assert [record.value for record in everything(log, news, partition)] == [b"%d" % i for i in range(40)]


def test_settings_can_be_read_and_changed(log):
    """A topic has the settings that it was made with, and those that are changed later; the others stay."""
    name = f"settings-{next(NUMBERS)}"
    log.create(name, 1, {"cleanup.policy": "compact", "retention.ms": "1000"})
    log.configure(name, {"retention.ms": "2000"})
    settings = log.settings(name)
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact", "2000")
    for act in (log.settings, lambda topic: log.configure(topic, {})):
        with pytest.raises(UsageError, match="does not exist"):
            act("other")


def test_limits_of_a_read(log, news):
    """A read keeps to its limits, but returns one record at least."""
    log.append_many(news, [Message(b"k", b"v" * 99, partition=0) for _ in range(10)])
    assert len(log.read(news, 0, 0, max_records=4)) == 4
    assert len(log.read(news, 0, 0, max_bytes=250)) == 2
    assert len(log.read(news, 0, 0, max_bytes=1)) == 1
    assert log.read(news, 0, 10) == []
