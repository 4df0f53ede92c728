"""What is taken from a log and from Redis, and what the oracle counts of the rest."""

import random
import subprocess
import sys
import time
import uuid
from contextlib import closing

import pytest

from campaign import checks, skewed
from campaign.erosion import LOSSES, compact, delete_records, lose_key, what_is_left
from campaign.stream import EventStream
from streamtopic.errors import StateCorrupt
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.state import ModelSettings, Reader
from streamtopic.state.redis_keys import PartitionKeys
from streamtopic.state.removal import remove_partition
from streamtopic.streams import TopicNames, open_log

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


def test_every_kind_of_key_may_be_lost():
    """Whoever adds a key of a partition has campaigns lose it."""
    kinds = {name for name, member in vars(PartitionKeys).items() if callable(member) or isinstance(member, property)}
    no_key = {"of", "bucket", "number"}
    # There during a rebuild alone, which misses it by itself (test_lost_keys.py).
    of_rebuilds = {"kept_forgets"}
    assert {name for name in kinds if not name.startswith("_")} - no_key - of_rebuilds == LOSSES.keys()


class Counting:
    """Ingest of a topic's partitions, one after the other."""

    def __init__(self, connection, log, names):
        self.connection, self.log, self.names = connection, log, names

    def opened(self, partition):
        """Take ownership of a partition."""
        settings = ModelSettings(PARTITIONS, 256)
        return Ingest.open(
            self.connection, self.log, self.names, partition, settings=settings, clock=time.time, ahead=False
        )

    def run(self):
        """Count everything, with word statistics from the middle of it."""
        ingests = [self.opened(partition) for partition in range(PARTITIONS)]
        for ingest in ingests:
            ingest.step(20)
            ingest.state.sum_changes()
        # Each may send deletions to the other one.
        for ingest in ingests * 3:
            list(ingest.drain())


@pytest.mark.parametrize("kind", LOSSES)
def test_a_lost_key_stops_ingest_until_the_log_is_counted_again(kafka_server, connection, names, kind):
    """Ingest names the partition and the remedy, and with that every count is the oracle's again."""
    log, _ = open_log(kafka_server.servers)
    with closing(log):
        counting = Counting(connection, log, names)
        counting.run()
        reader = Reader(connection, names.model, PARTITIONS)
        oracle = what_is_left(kafka_server.servers, names.documents, PARTITIONS)
        assert checks.check_counts(oracle, reader) == []
        lost = lose_key(reader, names.model, kind)
        with pytest.raises(StateCorrupt, match=rf"Redis has lost .*partition {lost}\b.*`streamtopic rebuild`"):
            counting.opened(lost)
        for partition in range(PARTITIONS):
            remove_partition(connection, names.model, partition)
        counting.run()
        # One reader has followed until the loss, the other one begins.
        for each in (reader, Reader(connection, names.model, PARTITIONS)):
            assert checks.check_counts(oracle, each, totals=False) == []


@pytest.mark.parametrize("seconds", [-86_400, 3_600])
def test_a_skewed_program_sees_another_time(tmp_path, seconds):
    """The time of day is off by what was asked for, in modules and in files; clocks that only grow are not."""
    (tmp_path / "shown.py").write_text("import sys, time; print(time.time(), time.time_ns() / 1e9, sys.argv[1:])")
    program = [sys.executable, skewed.__file__, str(seconds), str(tmp_path / "shown.py"), "--one"]
    shown = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split(maxsplit=2)
    assert abs(float(shown[0]) - time.time() - seconds) < 60
    assert abs(float(shown[1]) - time.time() - seconds) < 60
    assert shown[2] == "['--one']\n"
