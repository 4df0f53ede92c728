import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.streams import FileLog, Message

KEYS = [b"a", b"b", b"c", None]


def everything(log, start=0):
    """All records of t/0 from an offset on."""
    records, offset = [], start
    while batch := log.read("t", 0, offset):
        records += batch
        offset = batch[-1].next_offset
    return records


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=40)), max_size=40), st.integers(0, 40))
@settings(max_examples=60)
def test_compaction_keeps_the_last_of_each_key(tmp_path_factory, messages, start):
    """What is left is each key's last record, and all without a key, at their old offsets; appending goes on."""
    directory = tmp_path_factory.mktemp("log")
    log, other = (FileLog(directory) for _ in range(2))
    log.create("t", 1)
    for key, value in messages:
        log.append("t", key, value, partition=0)
    before = everything(other)
    last = {record.key: record.offset for record in before}
    expected = [record for record in before if record.key is None or last[record.key] == record.offset]
    assert log.compact("t") == len(before) - len(expected)
    start = min(start, len(messages))
    for reader in (log, other, FileLog(directory)):
        assert everything(reader) == expected
        assert everything(reader, start) == [record for record in expected if record.offset >= start]
        assert reader.end("t", 0) == len(messages)
        assert reader.begin("t", 0) == 0
    assert other.append("t", b"a", b"new") == (0, len(messages))
    assert everything(log) == [*expected, everything(other)[-1]]


def test_a_deleted_text_leaves_the_disk(tmp_path):
    """After a tombstone and compaction no file holds the text; the tombstone itself goes after its time."""
    now = [1000.0]
    log = FileLog(tmp_path, clock=lambda: now[0])
    log.create("t", 2)
    log.append("t", b"doc", b"a secret text")
    log.append("t", b"doc", None)
    assert log.compact("t") == 1
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert log.compact("t", tombstones_ms=5000) == 0
    now[0] += 10
    assert log.compact("t", tombstones_ms=5000) == 0, "the last record of a partition stays"
    partition, offset = log.append("t", b"doc", None)
    log.append("t", b"other", b"", partition=partition)
    now[0] += 10
    assert log.compact("t", tombstones_ms=5000) == 2
    assert [record.offset for record in log.read("t", partition, 0)] == [offset + 1]


def test_appends_and_reads_go_on_during_compaction(tmp_path):
    """Nothing that is confirmed while others compact is lost."""
    log = FileLog(tmp_path)
    log.create("t", 1)
    done = threading.Event()

    def compact():
        other = FileLog(tmp_path)
        while not done.is_set():
            other.compact("t")

    thread = threading.Thread(target=compact)
    thread.start()
    try:
        for i in range(400):
            log.append_many("t", [Message(b"same", b"x" * 50), Message(b"key-%d" % i, b"y")])
            if i % 40 == 0:
                assert {b"key-%d" % k for k in range(i + 1)} <= {record.key for record in everything(log)}
    finally:
        done.set()
        thread.join()
    assert log.compact("t") >= 0
    found = everything(FileLog(tmp_path))
    assert len(found) == 401
    assert found[-2].offset == 798
    assert log.end("t", 0) == 800


def test_a_log_of_files_compacts_itself_when_that_is_due(tmp_path):
    """A new log waits for its whole time, and the next compaction waits again, also for another process."""
    now = [1_000_000.0]

    def due():
        log = FileLog(tmp_path, clock=lambda: now[0])
        return log.compact_when_due(("t", "u"), longest_ms=100_000, tombstones_ms=10**9)

    log = FileLog(tmp_path, clock=lambda: now[0])
    for topic in ("t", "u"):
        log.create(topic, 1)
        log.append(topic, b"a", b"first")
        log.append(topic, b"a", b"second")
    assert not due()
    now[0] += 99
    assert not due()
    now[0] += 2
    assert due()
    for topic in ("t", "u"):
        assert [record.value for record in log.read(topic, 0, 0)] == [b"second"]
    assert not due()
