"""Deletes that left the log before they were read: what the log no longer holds is removed, and nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.counts import Weighting
from streamtopic.documents.events import encode_add, encode_delete, encode_heartbeat
from streamtopic.service.ingest import missed_deletes
from streamtopic.service.ingest.missed_deletes import remove_missed, remove_missed_if_due
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.service.verify.recount import documents_in_log
from streamtopic.state import ForgetKind, ModelSettings, Reader
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
        return remove_missed_if_due(self.ingest, self.log, self.now_ms, RETENTION_MS)

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
    report = world.due()
    assert (report.partition, report.removed) == (0, 1)
    list(world.ingest.drain())
    assert world.counted() == world.recounted()


def test_what_was_missed_makes_versions_change_but_gets_no_receipt(world):
    """The removal is a deletion for the scheduler, of documents that every version until then holds."""
    world.send(*(add(f"d{n}") for n in range(2_300)))
    list(world.ingest.drain())
    cut = world.ingest.state.meta.next_offset
    world.send(*(encode_delete(f"d{n}", "r") for n in range(2_250)))
    world.pass_days(40)
    world.forget_deletes()
    assert world.due().removed == 2_250
    entries = world.ingest.state.forgets.read(0, 100)
    assert len(entries) == 2_250
    assert min(entry.offset for entry in entries) >= cut
    assert {entry.kind for entry in entries} == {ForgetKind.MISSED}
    assert all(entry.found and not entry.wants_receipt for entry in entries)
    world.send(encode_delete("d2299", "r"))
    list(world.ingest.drain())
    assert world.ingest.state.forgets.read(0, 100_000)[-1].kind is ForgetKind.DELETED
    world.ingest.state.forgets.drop(entries)
    assert len(world.ingest.state.forgets) == 1


@pytest.mark.parametrize("days", [0, 14, 16])
def test_only_who_was_away_too_long_looks_for_missed_deletes(world, days):
    """Within half of the retention no delete can have left the log, so nothing is read."""
    world.send(add("a"), add("b"))
    list(world.ingest.drain())
    world.pass_days(days)
    world.send(encode_delete("a", "r"))
    assert (world.due() is None) == (days < 15)


def test_a_removal_that_is_interrupted_is_done_again(world, monkeypatch):
    """Killed between two commits, the next writer removes the rest; entries come after those that are there."""
    world.send(*(add(f"d{n}") for n in range(1_500)), add("kept"))
    list(world.ingest.drain())
    world.send(*(encode_delete(f"d{n}", "r") for n in range(1_500)))
    world.pass_days(40)
    world.forget_deletes()

    remove = missed_deletes._remove

    def interrupted(*arguments, **options):
        if len(world.ingest.state.forgets):
            raise KeyboardInterrupt
        return remove(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(missed_deletes, "_remove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            remove_missed(world.ingest, world.log, world.now_ms)
    world.ingest = world.open()
    assert world.due().removed == 500
    list(world.ingest.drain())
    assert world.counted() == world.recounted()
    assert len(world.ingest.state.forgets) == 1_500


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
