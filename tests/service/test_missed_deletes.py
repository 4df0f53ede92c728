"""Deletes that left the log before they were read: what the log no longer names is deleted, and nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_world import IngestWorld, add

from streamtopic.documents.events import encode_delete, encode_heartbeat
from streamtopic.service.ingest.missed_deletes import delete_missed, delete_missed_if_due
from streamtopic.streams import FileLog

DAY_MS = 86_400_000
RETENTION_MS = 30 * DAY_MS


class World(IngestWorld):
    """A model with one partition, whose log has a clock of its own."""

    def __init__(self, connection, folder):
        self.now_ms = 1_700_000_000_000
        clock = lambda: self.now_ms / 1000  # noqa: E731  one line reads best here
        super().__init__(connection, FileLog(folder / "log", clock=clock), 1, clock=clock)

    @property
    def writer(self):
        """The ingest of the partition."""
        return self.ingests[0]

    def pass_days(self, days):
        self.now_ms += days * DAY_MS

    def forget_deletes(self):
        """Compact the log so that deletes older than the retention are gone, as Kafka does in time."""
        self.send(*(replace(encode_heartbeat(0), partition=0) for _ in range(3)))
        self.log.compact(self.topics.documents, tombstones_ms=0)

    def due(self):
        return delete_missed_if_due(self.writer, self.log, self.now_ms, RETENTION_MS)


@pytest.fixture
def world(connection, tmp_path):
    """A world for one test."""
    return World(connection, tmp_path)


@pytest.mark.parametrize("days", [0, 14, 16])
def test_only_who_was_away_too_long_looks_for_missed_deletes(world, days):
    """Within half of the retention no delete can have left the log, so nothing is read."""
    world.send(add("a"), add("b"))
    world.drain()
    world.send(encode_delete("a", "r"))
    world.pass_days(days)
    world.forget_deletes()
    assert world.due() == (days > 15)


def test_a_writer_that_is_killed_writes_the_rest_and_nothing_twice(world, monkeypatch):
    """Killed between two appends, the next writer finds the tombstones of the first in the log.

    The scheduler sees deletions of documents that every version until then holds, and each has a receipt.
    """
    world.send(*(add(f"d{n}") for n in range(1_500)), add("kept"))
    world.drain()
    cut = world.writer.state.meta.next_offset
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
            delete_missed(world.writer, world.log)
    world.open()
    assert world.due() == 500
    world.drain()
    assert world.counted() == world.recounted()
    entries = list(world.writer.state.forgets.each())
    assert len(entries) == 1_500
    assert min(entry.offset for entry in entries) >= cut
    assert all(entry.found and entry.wants_receipt for entry in entries)


def test_a_record_that_comes_meanwhile_keeps_its_document(world, monkeypatch):
    """An id that a producer adds again while the log is read is not deleted."""
    world.send(add("a"), add("b"))
    world.drain()
    world.send(encode_delete("a", "r"), encode_delete("b", "r"))
    world.pass_days(40)
    world.forget_deletes()
    live_ids = world.writer.state.live_ids

    def later():
        yield from live_ids()
        world.send(add("a", word="again"))

    monkeypatch.setattr(world.writer.state, "live_ids", later)
    assert world.due() == 1
    world.drain()
    assert world.counted() == world.recounted()
    assert world.writer.state.meta.documents == 1


NAMES = st.integers(0, 5).map(lambda n: f"d{n}")
ADDS = st.builds(add, NAMES, word=st.sampled_from("abc"))
EVENTS = st.lists(st.one_of(ADDS, st.builds(encode_delete, NAMES, st.just("r"))), max_size=14)


@settings(max_examples=25)
@given(before=EVENTS, after=EVENTS)
def test_whatever_was_missed_the_counts_are_those_of_the_log(connection, tmp_path_factory, before, after):
    """After the removal and the rest of the log, counts equal a recount of the documents that are still there."""
    world = World(connection, tmp_path_factory.mktemp("log"))
    world.send(add("first"), *before)
    world.drain()
    world.send(*after)
    world.pass_days(40)
    world.forget_deletes()
    world.due()
    world.drain()
    assert world.counted() == world.recounted()
