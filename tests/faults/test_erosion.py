"""What is taken from a log and from Redis, and what the oracle counts of the rest."""

import random
import subprocess
import sys
import time
import uuid

import pytest

from campaign import skewed
from campaign.erosion import compact, delete_records, what_is_left
from campaign.stream import EventStream
from streamtopic.streams import TopicNames, open_log

pytestmark = pytest.mark.slow

PARTITIONS = 2


@pytest.fixture
def names(kafka_server):
    """A documents topic with a stream in it."""
    names = TopicNames(f"erosion{uuid.uuid4().hex}")
    log, _ = open_log(kafka_server.servers)
    for topic, settings in names.settings().items():
        log.create(topic, PARTITIONS if topic == names.documents else 1, settings)
    log.append_many(names.documents, EventStream(random.Random(1), PARTITIONS, live=50).batch(300))
    log.close()
    return names


def test_a_compacted_log_counts_as_the_whole_one(kafka_server, names):
    """The broker takes every record that another one replaced; documents and counts stay, and so do the settings."""
    whole = what_is_left(kafka_server.servers, names.documents, PARTITIONS)
    usual = names.settings()[names.documents]
    before, after = compact(kafka_server.servers, names.documents, PARTITIONS, usual)
    assert after < before
    left = what_is_left(kafka_server.servers, names.documents, PARTITIONS)
    assert left.counts() == whole.counts()
    assert [set(book.live) for book in left.books] == [set(book.live) for book in whole.books]
    log, _ = open_log(kafka_server.servers)
    assert usual.items() <= dict(log.settings(names.documents)).items()
    log.close()


def test_records_that_were_deleted_are_not_counted(kafka_server, names):
    """What retention took is gone from the oracle's count of the rest, which begins where the log begins."""
    whole = what_is_left(kafka_server.servers, names.documents, PARTITIONS)
    ends = {partition: book.next_offset for partition, book in enumerate(whole.books)}
    delete_records(kafka_server.servers, names.documents, {0: ends[0], 1: ends[1] // 2})
    left = what_is_left(kafka_server.servers, names.documents, PARTITIONS)
    assert not left.books[0].live
    assert 0 < len(left.books[1].live) < len(whole.books[1].live)
    assert [book.next_offset for book in left.books] == [ends[0], ends[1]]


@pytest.mark.parametrize("seconds", [-86_400, 3_600])
def test_a_skewed_program_sees_another_time(tmp_path, seconds):
    """The time of day is off by what was asked for, in modules and in files; clocks that only grow are not."""
    (tmp_path / "shown.py").write_text("import sys, time; print(time.time(), time.time_ns() / 1e9, sys.argv[1:])")
    program = [sys.executable, skewed.__file__, str(seconds), str(tmp_path / "shown.py"), "--one"]
    shown = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split(maxsplit=2)
    assert abs(float(shown[0]) - time.time() - seconds) < 60
    assert abs(float(shown[1]) - time.time() - seconds) < 60
    assert shown[2] == "['--one']\n"
