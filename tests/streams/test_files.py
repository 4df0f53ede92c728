import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appending import append, everything
from streamtopic.errors import ComponentUnreachable, StateCorrupt, UsageError
from streamtopic.streams import FileLog, Message

WRITER = """
import sys
from streamtopic.streams import FileLog, Message
log = FileLog(sys.argv[1])
for i in range(int(sys.argv[3])):
    value = f"{sys.argv[2]}:{i}:".encode() + b"x" * 500
    ((partition, offset),) = log.append_many("t", [Message(b"k", value, partition=0)])
    print(partition, offset, flush=True)
"""

# Bytes of a page of the database.
PAGE = 4096


def writer(directory, name, count):
    """A process that appends `count` records and prints the place of each once it is confirmed."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def filled(directory, count=5, **options):
    """The file of a closed log with some records in t/0. options: of the log."""
    with FileLog(directory, **options) as log:
        log.create("t", 1)
        log.append_many("t", [Message(b"k", b"%d" % i * 3000) for i in range(count)])
    return Path(directory) / "events.sqlite"


def test_a_damaged_byte_never_gives_another_record(tmp_path, monkeypatch):
    """A reader gets what was written, or an error that names the file; it is never given anything else.

    Every byte of the text that says what the tables are is damaged, and many others.
    """
    monkeypatch.setattr("secrets.token_hex", lambda size: "5a" * size)
    path = filled(tmp_path / "log", clock=lambda: 1.0)
    whole = path.read_bytes()
    flips = itertools.cycle([1, 128, 255])
    for place, flip in zip((*range(PAGE - 900, PAGE), *range(0, len(whole), 29)), flips, strict=False):
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        with FileLog(path.parent) as log:
            try:
                found = [(record.offset, record.key, record.value) for record in log.read("t", 0, 0)]
            # A topic whose name is damaged is one that is not there.
            except (StateCorrupt, ComponentUnreachable, UsageError) as error:
                said = str(error)
            else:
                said = str(path)
                assert set(found) <= {(i, b"k", b"%d" % i * 3000) for i in range(5)}
        assert str(path.parent) in said, place


@pytest.mark.parametrize("column", ["time", "key", "value", "headers"])
def test_a_record_that_was_changed_is_damaged(tmp_path, column):
    """SQLite has no checksum of its own: ours names the record."""
    path = filled(tmp_path)
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE records SET {column} = x'01' WHERE id = (SELECT max(id) - 1 FROM records)")  # noqa: S608  a name of this test
    with FileLog(tmp_path) as log:
        assert [record.offset for record in log.read("t", 0, 0, max_records=3)] == [0, 1, 2]
        with pytest.raises(StateCorrupt, match=r"events\.sqlite is damaged \(record 3 of t/0\).*restore the file"):
            log.read("t", 0, 3)


def test_a_file_that_is_none_of_ours_is_damaged(tmp_path):
    """It is named with the remedy, and not written over."""
    path = filled(tmp_path)
    path.write_bytes(b"no database " * 1000)
    for act in (
        lambda log: log.read("t", 0, 0),
        lambda log: append(log, "t", b"k", b"v"),
        lambda log: log.create("u", 1),
    ):
        with FileLog(tmp_path) as log, pytest.raises(StateCorrupt, match=r"events\.sqlite is damaged"):
            act(log)
    assert path.read_bytes() == b"no database " * 1000


def test_a_log_that_is_gone_is_not_made_anew(tmp_path):
    """An open log whose files were removed says so, where a new one would hide the loss."""
    path = filled(tmp_path / "log")
    shutil.rmtree(path.parent)
    with FileLog(path.parent) as log:
        assert log.partitions("t") == 0
        assert not log.compact_when_due(("t",), longest_ms=0, tombstones_ms=0)
        assert not path.parent.exists()


def test_kill_9_loses_nothing_that_was_confirmed(tmp_path):
    """Writers killed at any moment: every confirmed record is there, once, in order, and others can go on."""
    FileLog(tmp_path).create("t", 1)
    confirmed = []
    for turn in range(4):
        process = writer(tmp_path, f"w{turn}", 100_000)
        confirmed += [(int(process.stdout.readline().split()[1]), turn)]
        time.sleep(0.03 + 0.02 * turn)
        os.kill(process.pid, signal.SIGKILL)
        lines = [line for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        confirmed += [(int(line.split()[1]), turn) for line in lines]
        process.wait()
        process.stdout.close()
    records = everything(FileLog(tmp_path), "t")
    assert [record.offset for record in records] == list(range(len(records)))
    found = [record.value for record in records]
    assert len(confirmed) <= len(found) <= len(confirmed) + 4
    assert all(found[offset].startswith(b"w%d:" % turn) for offset, turn in confirmed)
    assert len(set(found)) == len(found)


def test_a_full_disk_leaves_a_whole_log(tmp_path):
    """An append that finds no room is reported, and none of its records is there."""
    path = filled(tmp_path)
    with FileLog(tmp_path) as log:
        before = everything(log, "t")
        ((pages,),) = log._opened().execute("PRAGMA page_count").fetchall()
        log._opened().execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(ComponentUnreachable, match=r"full.*free space"):
            log.append_many("t", [Message(b"k", b"v" * 1500)] * 20)
        assert everything(log, "t") == before
    with FileLog(tmp_path) as log:
        assert append(log, "t", b"k", b"v") == (0, len(before))
    assert path.exists()
