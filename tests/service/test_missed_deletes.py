"""Deletes that left the log before they were read: what the log no longer names is deleted, and nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.counts import Weighting
from streamtopic.documents.events import encode_add, encode_delete, encode_heartbeat
from streamtopic.service.ingest.missed_deletes import delete_missed, delete_missed_if_due
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.state import ModelSettings, Reader
from streamtopic.streams import FileLog, TopicNames

DAY_MS = 86_400_000
RETENTION_MS = 30 * DAY_MS
_numbers = itertools.count()


class World:
    """A model with one partition, whose log has a clock of its own."""

    def __init__(self, connection, folder):
        self.now_ms = 1_700_000_000_000
        self.connection = connection
        self.topics = TopicNames(f"sweep{next(_numbers)}")
        self.log = FileLog(folder / self.topics.model, clock=lambda: self.now_ms / 1000)
        self.log.create(self.topics.documents, 1)
        self.log.create(self.topics.rejected, 1)
        self.ingest = self.open()

    def open(self):
        clock = lambda: self.now_ms / 1000  # noqa: E731  one line reads best here
        return Ingest.open(self.connection, self.log, self.topics, 0, settings=ModelSettings(1, 256), clock=clock)

    def send(self, *messages):
        self.log.append_many(self.topics.documents, messages)

    def pass_days(self, days):
        self.now_ms += days * DAY_MS

    def forget_deletes(self):
        """Compact the log so that deletes older than the retention are gone, as Kafka does in time."""
        self.send(encode_heartbeat(0), encode_heartbeat(0), encode_heartbeat(0))
        self.log.compact(self.topics.documents, tombstones_ms=0)

    def due(self):
        return delete_missed_if_due(self.ingest, self.log, self.now_ms, RETENTION_MS)

    def counted(self):
        counts = Reader(self.connection, self.topics.model, 1).counts()
        return counts.restrict(np.arange(len(counts.words))).digest(counts.words)

    def recounted(self):
        end = self.log.end(self.topics.documents, 0)
        fresh = documents_in_log(self.log, self.topics.documents, {0: end}, lambda *_: None).recount(Weighting())
        return fresh.cooccurrence.digest(fresh.words)


@pytest.fixture
def world(connection, tmp_path):
    """A world for one test."""
    return World(connection, tmp_path)


def add(name, word="x"):
    """An add of a document with two words."""
    return encode_add(name, counts={word: 2, "y": 1})


def test_a_delete_that_nobody_can_read_any_more_is_made_up_for(world):
    """Documents whose deletes have left the log go; those that came or changed meanwhile are as their records say."""
    world.send(*(add(f"d{n}") for n in range(6)))
    list(world.ingest.drain())
    world.send(encode_delete("d1", "r1"), encode_delete("d2", "r2"), add("d2", "again"), add("new"), add("d3", "other"))
    world.pass_days(40)
    world.forget_deletes()
    assert world.due() == 1
    list(world.ingest.drain())
    assert world.counted() == world.recounted()


def test_what_was_missed_is_a_deletion_like_any_other(world):
    """The scheduler sees deletions of documents that every version until then holds, and each has a receipt."""
    world.send(*(add(f"d{n}") for n in range(2_300)))
    list(world.ingest.drain())
    cut = world.ingest.state.meta.next_offset
    world.send(*(encode_delete(f"d{n}", "r") for n in range(2_250)))
    world.pass_days(40)
    world.forget_deletes()
    assert world.due() == 2_250
    list(world.ingest.drain())
    entries = list(world.ingest.state.forgets.each())
    assert len(entries) == 2_250
    assert min(entry.offset for entry in entries) >= cut
    assert all(entry.found and entry.wants_receipt for entry in entries)


@pytest.mark.parametrize("days", [0, 14, 16])
def test_only_who_was_away_too_long_looks_for_missed_deletes(world, days):
    """Within half of the retention no delete can have left the log, so nothing is read."""
    world.send(add("a"), add("b"))
    list(world.ingest.drain())
    world.send(encode_delete("a", "r"))
    world.pass_days(days)
    world.forget_deletes()
    assert world.due() == (days > 15)


def test_a_writer_that_is_killed_writes_the_rest_and_nothing_twice(world, monkeypatch):
    """Killed between two appends, the next writer finds the tombstones of the first in the log."""
    world.send(*(add(f"d{n}") for n in range(1_500)), add("kept"))
    list(world.ingest.drain())
    world.send(*(encode_delete(f"d{n}", "r") for n in range(1_500)))
    world.pass_days(40)
    world.forget_deletes()
    append, calls = world.log.append_many, []

    def interrupted(topic, messages):
        calls.append(len(messages))
        if len(calls) > 1:
            raise KeyboardInterrupt
        return append(topic, messages)

    with monkeypatch.context() as patch:
        patch.setattr(world.log, "append_many", interrupted)
        with pytest.raises(KeyboardInterrupt):
            delete_missed(world.ingest, world.log)
    world.ingest = world.open()
    assert world.due() == 500
    list(world.ingest.drain())
    assert world.counted() == world.recounted()
    assert len(world.ingest.state.forgets) == 1_500


def test_a_record_that_comes_meanwhile_keeps_its_document(world, monkeypatch):
    """An id that a producer adds again while the log is read is not deleted."""
    world.send(add("a"), add("b"))
    list(world.ingest.drain())
    world.send(encode_delete("a", "r"), encode_delete("b", "r"))
    world.pass_days(40)
    world.forget_deletes()
    live_ids = world.ingest.state.live_ids

    def later():
        yield from live_ids()
        world.send(add("a", "again"))

    monkeypatch.setattr(world.ingest.state, "live_ids", later)
    assert world.due() == 1
    list(world.ingest.drain())
    assert world.counted() == world.recounted()
    assert world.ingest.state.meta.documents == 1


NAMES = st.integers(0, 5).map(lambda n: f"d{n}")
EVENTS = st.lists(
    st.one_of(st.builds(add, NAMES, st.sampled_from("abc")), st.builds(encode_delete, NAMES, st.just("r"))), max_size=14
)


@settings(max_examples=25)
@given(before=EVENTS, after=EVENTS)
def test_whatever_was_missed_the_counts_are_those_of_the_log(connection, tmp_path_factory, before, after):
    """After the removal and the rest of the log, counts equal a recount of the documents that are still there."""
    world = World(connection, tmp_path_factory.mktemp("log"))
    world.send(add("first"), *before)
    list(world.ingest.drain())
    world.send(*after)
    world.pass_days(40)
    world.forget_deletes()
    world.due()
    list(world.ingest.drain())
    assert world.counted() == world.recounted()
