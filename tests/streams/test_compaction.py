import random
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appending import append, everything
from streamtopic.errors import ComponentUnreachable
from streamtopic.streams import FileLog, Message

KEYS = [b"a", b"b", b"c", None]


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=40)), max_size=40), st.integers(0, 40))
@settings(max_examples=60)
def test_compaction_keeps_the_last_of_each_key(tmp_path_factory, messages, start):
    """What is left is each key's last record, and all without a key, at their old offsets; appending goes on."""
    directory = tmp_path_factory.mktemp("log")
    log, other = (FileLog(directory) for _ in range(2))
    log.create("t", 1)
    for key, value in messages:
        append(log, "t", key, value, partition=0)
    before = everything(other, "t")
    last = {record.key: record.offset for record in before}
    expected = [record for record in before if record.key is None or last[record.key] == record.offset]
    assert log.compact("t") == len(before) - len(expected)
    start = min(start, len(messages))
    for reader in (log, other, FileLog(directory)):
        assert everything(reader, "t") == expected
        assert everything(reader, "t", offset=start) == [record for record in expected if record.offset >= start]
        assert reader.end("t", 0) == len(messages)
        assert reader.begin("t", 0) == 0
    assert append(other, "t", b"a", b"new") == (0, len(messages))
    assert everything(log, "t") == [*expected, everything(other, "t")[-1]]


def test_a_deleted_text_leaves_the_disk(tmp_path):
    """After a tombstone and compaction no file holds the text; the tombstone itself goes after its time."""
    now = [1000.0]
    log = FileLog(tmp_path, clock=lambda: now[0])
    log.create("t", 2)
    append(log, "t", b"doc", b"a secret text")
    append(log, "t", b"doc", None)
    assert log.compact("t") == 1
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert log.compact("t", tombstones_ms=5000) == 0
    now[0] += 10
    assert log.compact("t", tombstones_ms=5000) == 0, "the last record of a partition stays"
    partition, offset = append(log, "t", b"doc", None)
    append(log, "t", b"other", b"", partition=partition)
    now[0] += 10
    assert log.compact("t", tombstones_ms=5000) == 2
    assert [record.offset for record in log.read("t", partition, 0)] == [offset + 1]


@pytest.mark.parametrize("seed", [37, 59, 65, 134])
def test_nothing_of_a_removed_topic_stays_beside_other_topics(tmp_path, seed):
    """Pages that were split while records of several topics came in turn once kept copies of what had moved."""
    draw = random.Random(seed)
    logs = [FileLog(tmp_path), FileLog(tmp_path)]
    for topic, partitions in (("documents", 2), ("ledger", 1), ("releases", 1)):
        logs[0].create(topic, partitions)
    for _ in range(draw.randrange(20, 120)):
        which, size, log = draw.random(), draw.choice([20, 60, 200, 900, 3000, 5000]), draw.choice(logs)
        if which < 0.6:
            topic, key = "documents", b"k%d" % draw.randrange(40)
            value, partition = None if which >= 0.5 else b"banana " * (size // 7), draw.randrange(2)
        elif which < 0.8:
            topic, key, value, partition = "ledger", None, b"x" * size, 0
        else:
            topic, key, value, partition = "releases", b"1", b"y" * (size * 8), 0
        log.append_many(topic, [Message(key, value, partition=partition)])
    if draw.random() < 0.5:
        logs[0].compact("documents", tombstones_ms=0)
    logs[0].remove("documents")
    for log in logs:
        log.close()
    assert [path.name for path in tmp_path.iterdir() if b"banana" in path.read_bytes()] == []


def test_a_reader_that_keeps_erased_text_on_the_disk_is_told_of(tmp_path, monkeypatch):
    """What it reads stays until it has read; the topic is removed, and the file is cleared by the next attempt."""
    monkeypatch.setattr("streamtopic.streams.file_log.PATIENCE", 0.05)
    log = FileLog(tmp_path)
    log.create("documents", 1)
    append(log, "documents", b"k", b"banana")
    reader = sqlite3.connect(next(tmp_path.glob("*.sqlite")), isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM records").fetchall() == [(1,)]
    with pytest.raises(ComponentUnreachable, match="still on the disk"):
        log.remove("documents")
    assert log.partitions("documents") == 0
    reader.close()
    log.remove("documents")
    assert [path.name for path in tmp_path.iterdir() if b"banana" in path.read_bytes()] == []


def test_appends_and_reads_go_on_during_compaction(tmp_path):
    """Nothing that is confirmed while others compact is lost."""
    log, done = FileLog(tmp_path), threading.Event()
    log.create("t", 1)

    def compact():
        other = FileLog(tmp_path)
        while not done.is_set():
            other.compact("t")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(compact)
        try:
            for i in range(400):
                log.append_many("t", [Message(b"same", b"x" * 50), Message(b"key-%d" % i, b"y")])
                if i % 40 == 0:
                    assert {b"key-%d" % k for k in range(i + 1)} <= {record.key for record in everything(log, "t")}
        finally:
            done.set()
    log.compact("t")
    found = everything(FileLog(tmp_path), "t")
    assert (len(found), found[-2].offset, log.end("t", 0)) == (401, 798, 800)


def test_a_log_of_files_compacts_itself_when_that_is_due(tmp_path):
    """A new log waits for its whole time, and the next compaction waits again, also for another process."""
    now = [1_000_000.0]

    def due():
        log = FileLog(tmp_path, clock=lambda: now[0])
        return log.compact_when_due(("t", "u"), longest_ms=100_000, tombstones_ms=10**9)

    log = FileLog(tmp_path, clock=lambda: now[0])
    for topic in ("t", "u"):
        log.create(topic, 1)
        append(log, topic, b"a", b"first")
        append(log, topic, b"a", b"second")
    assert not due()
    now[0] += 99
    assert not due()
    now[0] += 2
    assert due()
    for topic in ("t", "u"):
        assert [record.value for record in log.read(topic, 0, 0)] == [b"second"]
    assert not due()
