"""Words of a partition: no number of them refuses a document, and when ids run out ingest stops and loses nothing."""

import pytest
from ingest_world import NOW, IngestWorld

from streamtopic.documents.events import encode_add, encode_delete
from streamtopic.errors import StateError
from streamtopic.state import partition_writer
from streamtopic.state.model_state import remove_partition
from streamtopic.streams import FileLog


@pytest.fixture
def world(connection, tmp_path):
    """A model of one partition."""
    return IngestWorld(connection, FileLog(tmp_path / "log", clock=lambda: NOW), 1)


def add(document, words):
    """Return the record of a document with each of these words twice."""
    return encode_add(document, counts=dict.fromkeys(words.split(), 2))


def test_ids_that_run_out_stop_ingest_and_a_rebuild_goes_on(world, connection, monkeypatch):
    """The flush that needs more is not written, the error names the remedy, and nothing is lost by it."""
    monkeypatch.setattr(partition_writer, "MAX_WORD_IDS", 4)
    world.send(add("a", "one two three"), encode_delete("a", "r"))
    while world.ingests[0].step(1).records:
        pass
    world.send(add("b", "four"), add("c", "five six"), encode_delete("b", "r2"))
    assert world.ingests[0].step(1).outcomes == {"added": 1}
    for _ in range(2):
        with pytest.raises(StateError, match=r"4 of 4 word ids.*`streamtopic rebuild`.*from offset 3"):
            world.ingests[0].step(1)
        world.open()
    assert world.ingests[0].state.meta.next_offset == 3
    assert world.counted() == world.recounted({0: 3})
    remove_partition(connection, world.topics.model, 0)
    world.log.compact(world.topics.documents)
    world.open()
    world.drain()
    assert world.counted() == world.recounted()
    assert world.live() == {"c"}


def test_words_that_are_known_or_come_and_go_need_no_id(world, monkeypatch):
    """With every id given, deletions, documents of known words, and words that end in their own flush are counted."""
    monkeypatch.setattr(partition_writer, "MAX_WORD_IDS", 2)
    world.send(add("a", "one two"))
    world.drain()
    world.send(add("b", "one"), add("c", "three four"), encode_delete("c", "r"))
    assert world.drain() == {"added": 2, "deleted": 1}
    assert world.ingests[0].state.meta.next_word == 2
    assert world.counted() == world.recounted()
