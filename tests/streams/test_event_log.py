"""What every event log does; a backend joins by adding itself to `log`."""

import contextlib

import pytest

from streamtopic.errors import StateMismatch, UsageError
from streamtopic.streams import FileLog, Message, partition_of


@pytest.fixture(params=["files"])
def log(tmp_path):
    """A log with a topic `news` of 3 partitions."""
    with contextlib.closing(FileLog(tmp_path / "log", clock=lambda: 12.5, segment_bytes=4096)) as log:
        log.create("news", 3)
        yield log


def everything(log, topic, partition):
    """All records of a partition, read in batches."""
    records, offset = [], log.begin(topic, partition)
    while batch := log.read(topic, partition, offset):
        records += batch
        offset = batch[-1].next_offset
    return records


def test_what_is_read_is_what_was_appended(log):
    """Keys, values, tombstones, headers, order and time come back as they were written."""
    messages = [
        Message(b"a", b"1", (("x", b"\xff"), ("x", b"2"))),
        Message(b"b", None),
        Message(None, b""),
        Message(b"", b"\x00" * 100_000),
    ]
    places = log.append_many("news", messages)
    for (partition, offset), message in zip(places, messages, strict=True):
        record = log.read("news", partition, offset, max_records=1)[0]
        assert (record.key, record.value, record.headers) == (message.key, message.value, message.headers)
        assert (record.topic, record.partition, record.offset) == ("news", partition, offset)
        assert record.timestamp_ms == 12_500
    assert log.read("news", *places[0])[0].header("x") == b"2"
    assert log.read("news", *places[0])[0].header("y") is None


def test_key_decides_partition(log):
    """Without a partition the key's hash decides; with one, the caller does."""
    for key in (b"doc-1", b"doc-2", b"\x00"):
        assert log.append("news", key, b"v")[0] == partition_of(key, 3)
    assert log.append("news", b"doc-1", b"v", partition=2)[0] == 2


def test_offsets_are_consecutive_over_many_files(log):
    """Offsets count up from 0 and reading in batches misses and repeats nothing."""
    for i in range(300):
        assert log.append("news", b"k", b"%d" % i + b"." * 50, partition=1) == (1, i)
    assert [r.value.split(b".")[0] for r in everything(log, "news", 1)] == [b"%d" % i for i in range(300)]
    assert (log.begin("news", 1), log.end("news", 1)) == (0, 300)
    assert log.end("news", 0) == 0


@pytest.mark.parametrize("start", [0, 1, 77, 149])
def test_reading_starts_anywhere(log, start):
    """A read begins exactly at the offset that was asked for."""
    log.append_many("news", [Message(b"k", b"%d" % i * 40, partition=0) for i in range(150)])
    assert log.read("news", 0, start)[0].offset == start


def test_limits_of_a_read(log):
    """A read keeps to its limits, but returns one record at least."""
    log.append_many("news", [Message(b"k", b"v" * 99, partition=0) for _ in range(10)])
    assert len(log.read("news", 0, 0, max_records=4)) == 4
    assert len(log.read("news", 0, 0, max_bytes=250)) == 2
    assert len(log.read("news", 0, 0, max_bytes=1)) == 1
    assert log.read("news", 0, 10) == []


def test_offsets_outside_the_log_are_refused(log):
    """Reading where the log has nothing to promise is an error, never an empty answer."""
    with pytest.raises(StateMismatch, match="rebuild"):
        log.read("news", 0, 1)


def test_topics_are_checked(log):
    """Creating twice is harmless; another partition count, a missing topic or partition and a bad name are errors."""
    log.create("news", 3)
    assert (log.partitions("news"), log.partitions("other")) == (3, 0)
    with pytest.raises(StateMismatch, match="3 partitions"):
        log.create("news", 4)
    with pytest.raises(UsageError, match="no topic"):
        log.append("other", b"k", b"v")
    with pytest.raises(UsageError, match="partitions 0 to 2"):
        log.read("news", 3, 0)
    for name in ("../x", "", "..", "a b", "x" * 250):
        with pytest.raises(UsageError):
            log.create(name, 1)
