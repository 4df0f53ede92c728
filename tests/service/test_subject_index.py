"""The index of people: the live documents of each subject, in every partition, and nobody's name."""

import pytest
from ingest_world import NOW, IngestWorld, add

from streamtopic.state import SubjectIndex
from streamtopic.streams import FileLog


@pytest.fixture
def world(connection, tmp_path):
    """A model of two partitions, with a log in files."""
    return IngestWorld(connection, FileLog(tmp_path, clock=lambda: NOW))


def test_the_index_holds_no_subject(world):
    """Redis has digests under a secret of the partition, which no other partition shares."""
    world.send(add("a", "alice-in-plain"), add("b", "alice-in-plain"))
    world.drain()
    pattern = f"{{st:{world.topics.model}:*"
    dumps = [world.connection.call("DUMP", key) for key in world.connection.call("KEYS", pattern)]
    assert dumps
    assert not any(b"alice" in dump for dump in dumps)
    assert world.ingests[0].state.secret != world.ingests[1].state.secret


def test_the_same_content_about_another_person_is_no_deletion(world):
    """Naming the subjects of documents that are there costs no capacity and makes no receipt.

    A partition without a state has no documents of anybody.
    """
    world.send(*(add(f"d{n}") for n in range(10)))
    world.drain()
    metas = [ingest.state.meta.accepted for ingest in world.ingests]
    world.send(*(add(f"d{n}", "alice") for n in range(10)), add("d3", "bob"))
    assert world.drain() == {"unchanged": 11}
    index = SubjectIndex(world.connection, world.topics.model, world.partitions)
    found = [name.decode() for p in range(world.partitions) for name in index.documents(["alice"], p)]
    assert sorted(found) == [f"d{n}" for n in range(10) if n != 3]
    one_more = SubjectIndex(world.connection, world.topics.model, world.partitions + 1)
    assert one_more.count(["alice", "bob", "nobody"]) == {"alice": 9, "bob": 1, "nobody": 0}
    assert not world.forgets()
    assert [ingest.state.meta.accepted for ingest in world.ingests] == metas
