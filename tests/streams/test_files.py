import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.errors import ComponentUnreachable, StateCorrupt
from streamtopic.streams import FileLog, Message
from streamtopic.streams.file_log import encode_frame

WRITER = """
import sys
from streamtopic.streams import FileLog
log = FileLog(sys.argv[1], segment_bytes=20000)
for i in range(int(sys.argv[3])):
    print(*log.append("t", b"k", f"{sys.argv[2]}:{i}:".encode() + b"x" * 500, partition=0), flush=True)
"""


def values(log):
    """All values of t/0, whose offsets must have no gaps."""
    records, offset = [], 0
    while batch := log.read("t", 0, offset):
        records += batch
        offset = batch[-1].next_offset
    assert [record.offset for record in records] == list(range(len(records)))
    return [record.value for record in records]


def writer(directory, name, count):
    """A process that appends `count` records and prints the place of each once it is confirmed."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def filled(directory, count=5):
    """A log with some records in t/0, and the file that holds them."""
    log = FileLog(directory)
    log.create("t", 1)
    log.append_many("t", [Message(b"k", b"%d" % i * 30) for i in range(count)])
    return log, Path(directory) / "t" / "0" / f"{0:020d}.log"


@given(cut=st.integers(1, 400), zeros=st.integers(0, 50))
@settings(max_examples=60)
def test_a_torn_tail_is_dropped_and_written_over(tmp_path_factory, cut, zeros):
    """Whatever prefix of the last writes is on disk: whole records are kept, the rest goes, appending goes on."""
    directory = tmp_path_factory.mktemp("log")
    _, path = filled(directory)
    whole = path.read_bytes()
    path.write_bytes(whole[: max(len(whole) - cut, 0)] + b"\0" * zeros)
    again = FileLog(directory)
    kept = values(again)
    assert kept == [b"%d" % i * 30 for i in range(5)][: len(kept)]
    assert len(kept) == max(len(whole) - cut, 0) // (len(whole) // 5)
    assert again.append("t", b"k", b"after") == (0, len(kept))
    assert values(FileLog(directory)) == [*kept, b"after"]
    assert path.stat().st_size < len(whole) + 100


def test_a_record_that_holds_whole_frames_is_torn_like_any_other(tmp_path):
    """Cut at every byte, with zeros after it or without: copies of frames in its value, key and headers say nothing."""
    log, path = filled(tmp_path, count=2)
    copies = path.read_bytes()
    log.append("t", copies, copies * 2 + encode_frame(2, 0, b"k", copies, ()), (("h", copies),))
    whole = path.read_bytes()
    for cut in range(len(copies), len(whole)):
        for zeros in (0, 5_000):
            path.write_bytes(whole[:cut] + b"\0" * zeros)
            again = FileLog(tmp_path)
            assert values(again) == [b"%d" % i * 30 for i in range(2)]
            assert again.append("t", b"k", b"after") == (0, 2)
            assert path.stat().st_size < len(copies) + 100


def test_bytes_after_a_frame_that_is_not_whole_are_damage(tmp_path):
    """Records may be among them, so they are never written over, also if none of them is whole."""
    _, path = filled(tmp_path)
    whole = path.read_bytes()
    frame = len(whole) // 5
    spoiled = bytearray(whole[:-1])
    spoiled[3 * frame + 40] ^= 1
    path.write_bytes(spoiled)
    with pytest.raises(StateCorrupt, match=rf"damaged at byte {3 * frame}\b"):
        FileLog(tmp_path).append("t", b"k", b"v")
    assert path.read_bytes() == spoiled


@given(place=st.floats(0, 0.75), flip=st.integers(1, 255))
@settings(max_examples=60)
def test_damage_in_the_middle_is_an_error(tmp_path_factory, place, flip):
    """A changed byte with whole records after it is reported by name, and never written over."""
    directory = tmp_path_factory.mktemp("log")
    _, path = filled(directory)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= flip
    path.write_bytes(data)
    for act in (lambda log: log.read("t", 0, 0), lambda log: log.append("t", b"k", b"v")):
        with pytest.raises(StateCorrupt, match=r"damaged at byte"):
            act(FileLog(directory))
    assert path.read_bytes() == data


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
    found = values(FileLog(tmp_path))
    assert len(confirmed) <= len(found) <= len(confirmed) + 4
    assert all(found[offset].startswith(b"w%d:" % turn) for offset, turn in confirmed)
    assert len(set(found)) == len(found)


def test_several_processes_share_a_log(tmp_path):
    """Records of processes that append at the same time, and of a reader among them, are neither lost nor mixed."""
    log = FileLog(tmp_path, segment_bytes=20_000)
    log.create("t", 1)
    processes = [writer(tmp_path, name, 300) for name in "abc"]
    while any(process.poll() is None for process in processes):
        values(log)
        log.append("t", b"k", b"own", partition=0)
    for process in processes:
        assert process.stdout.read().count("\n") == 300
        process.stdout.close()
        assert process.returncode == 0
    found = values(FileLog(tmp_path))
    assert found == values(log)
    for name in (b"a", b"b", b"c"):
        own = [int(value.split(b":")[1]) for value in found if value.startswith(name + b":")]
        assert own == list(range(300))


def test_a_full_disk_leaves_a_whole_log(tmp_path, monkeypatch):
    """An append that the disk refuses half-way is reported and undone."""
    log, _ = filled(tmp_path)
    before = values(log)
    pwrite = os.pwrite

    def half(descriptor, data, position):
        if len(data) > 1000:
            return pwrite(descriptor, data[:1000], position)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(ComponentUnreachable, match="No space left"):
        log.append("t", b"k", b"v" * 1500)
    monkeypatch.undo()
    assert values(FileLog(tmp_path)) == before
    assert log.append("t", b"k", b"v") == (0, len(before))


def test_files_are_private(tmp_path):
    """Only the owner can read documents at rest."""
    log, path = filled(tmp_path / "log")
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert log.partitions("t") == 1
