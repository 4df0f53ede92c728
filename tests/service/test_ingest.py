"""Ingest over a real Redis and a real log: outcomes, exactness, crashes, refusals."""

from dataclasses import replace

import msgpack
import pytest
from ingest_world import NOW, IngestWorld

from crashes import copied
from streamtopic.documents.deletion_record import decode_request
from streamtopic.documents.events import encode_add, encode_delete, encode_heartbeat
from streamtopic.errors import ComponentUnreachable, StateError
from streamtopic.monitoring.metrics import RECORDS
from streamtopic.state import ForgetKind, Reader, SubjectIndex, partition_writer
from streamtopic.state.connection import BUCKETS
from streamtopic.state.model_state import remove_partition
from streamtopic.streams import FileLog, Message, partition_of


def opened(connection, folder, partitions=1, **given):
    """Return a model whose log is in a folder."""
    return IngestWorld(connection, FileLog(folder / "log", clock=lambda: NOW), partitions, **given)


@pytest.fixture
def world(connection, tmp_path):
    """A model with one partition."""
    return opened(connection, tmp_path)


def documents(world):
    """How many documents are counted."""
    return Reader(world.connection, world.topics.model, world.partitions).counts().documents


def add(document, words, **more):
    """Return the record of a document with these counts."""
    return encode_add(document, counts=words, **more)


def test_every_outcome_is_counted_and_kept(world):
    """Each kind of event has its own counter, in the answer and durably in Redis."""
    world.send(
        add("a", {"x": 2, "y": 1}),
        add("a", {"x": 2, "y": 1}),
        add("a", {"x": 2, "z": 1}),
        add("b", {"x": 1}),
        add("c", {}),
        encode_delete("a", "r1"),
        encode_delete("unknown", "r2"),
        Message(b"b", b"not an event"),
        Message(None, None),
        encode_heartbeat(0),
    )
    expected = {
        "added": 3, "unchanged": 1, "replaced": 1, "deleted": 1, "not_found": 1, "rejected": 2,
        "deleted_by_refusal": 1,
    }  # fmt: skip
    assert world.drain() == expected
    assert dict(world.ingests[0].state.meta.totals) == expected
    assert all(f"`{outcome}`" in RECORDS.help for outcome in expected)
    assert documents(world) == 1
    assert world.counted() == world.recounted()


def test_forgets_carry_what_a_receipt_needs(world):
    """Found, not found and replaced deletions each leave one entry, in the order of the log."""
    world.send(add("a", {"x": 2, "y": 1}), add("b", {"x": 2}))
    world.drain()
    world.send(encode_delete("a", "r1"), encode_delete("no", "r2"), add("b", {"q": 3}), encode_delete("b", "r3"))
    world.drain()
    forgets = Reader(world.connection, world.topics.model, 1).forgets(0)
    found = [(f.offset, f.document, f.kind, f.request, f.document_offset) for f in forgets.read()]
    assert found == [
        (2, b"a", ForgetKind.DELETED, "r1", 0),
        (3, b"no", ForgetKind.NOT_FOUND, "r2", -1),
        (4, b"b", ForgetKind.REPLACED, "", 1),
        (5, b"b", ForgetKind.DELETED, "r3", 4),
    ]
    first = forgets.read()[0]
    assert (first.received_ms, first.applied_ms) == (int(NOW * 1000), int(NOW * 1000) + 1000)
    forgets.drop(forgets.read()[:2])
    assert [f.offset for f in forgets.read()] == [4, 5]


def test_a_flush_is_bounded(world):
    """Redis is never asked to take more than a flush's worth at once, whether words are known or new."""
    world.send(*(add(f"d{k}", {f"w{j}": 1 for j in range(400)}) for k in range(2500)))
    sizes = [progress.records for progress in world.ingests[0].drain()]
    assert sum(sizes) == 2500
    assert len(sizes) > 1
    records = sum(world.connection.call("HLEN", world.ingests[0].state.keys.documents(b)) for b in range(BUCKETS))
    assert records == 2500
    world.send(*(add(f"n{k}", {f"n{k}-{j}": 1 for j in range(400)}) for k in range(1000)))
    assert max(progress.records for progress in world.ingests[0].drain()) <= 1_500_000 // 2_000


def test_adds_of_foreign_keys_are_refused_and_their_deletes_become_requests(connection, tmp_path):
    """In the wrong partition an add is pointed at, without a receipt for its request; a delete becomes a request."""
    world = opened(connection, tmp_path, 2)
    key = next(f"k{n}" for n in range(99) if partition_of(f"k{n}".encode(), 2) == 1)
    message = add(key, {"x": 2})
    world.send(replace(message, partition=0, headers=(("request", b"r-0"),)))
    assert (world.drain(), world.forgets()) == ({"rejected": 1, "misplaced": 1}, [])
    (pointer,) = world.log.read(world.topics.rejected, 0, 0)
    assert msgpack.unpackb(pointer.value)["reason"] == "partition"
    assert world.log.end(world.topics.documents, 1) == 0
    world.send(message, replace(encode_delete(key, "r"), partition=0))
    assert world.drain() == {"forwarded": 1, "added": 1}
    (record,) = world.log.read(world.topics.requests, 0, 0)
    (asked,) = decode_request(record).misplaced
    assert (asked.document, asked.request, asked.asked) == (key, "r", True)
    assert (documents(world), sum(ingest.lag for ingest in world.ingests)) == (1, 0)


def test_a_log_that_fails_while_reading_ahead_fails_in_its_turn(world, monkeypatch):
    """What was read before is committed; the next step raises, and the one after that goes on."""
    world.send(*(add(f"d{k}", {"x": 2, f"w{k}": 1}) for k in range(40)))
    read, calls = world.log.read, []

    def fail_twice(*arguments):
        calls.append(arguments)
        if len(calls) in (2, 3):
            raise ComponentUnreachable("the log is away")
        return read(*arguments)

    monkeypatch.setattr(world.log, "read", fail_twice)
    ingest = world.ingests[0]
    assert ingest.step(max_records=10).records == 10
    assert ingest.state.meta.next_offset == 10
    with pytest.raises(ComponentUnreachable):
        ingest.step(max_records=10)
    world.drain()
    assert world.counted() == world.recounted()


def test_ids_of_words_that_run_out_stop_ingest_and_a_rebuild_goes_on(world, connection, monkeypatch):
    """The flush that needs more is not written, the error names the remedy, and nothing is lost by it."""
    monkeypatch.setattr(partition_writer, "MAX_WORD_IDS", 4)
    world.send(add("a", {"one": 2, "two": 2, "three": 2}), encode_delete("a", "r"))
    while world.ingests[0].step(1).records:
        pass
    world.send(add("b", {"four": 2}), add("c", {"five": 2, "six": 2}), encode_delete("b", "r2"))
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
    world.send(add("a", {"one": 2, "two": 2}))
    world.drain()
    world.send(add("b", {"one": 2}), add("c", {"three": 2, "four": 2}), encode_delete("c", "r"))
    assert world.drain() == {"added": 2, "deleted": 1}
    assert world.ingests[0].state.meta.next_word == 2
    assert world.counted() == world.recounted()


def test_the_index_of_people_holds_no_subject(connection, tmp_path):
    """Redis has digests under a secret of the partition, which no other partition shares."""
    world = opened(connection, tmp_path, 2)
    world.send(*(add(name, {"x": 2}, subjects=("alice-in-plain",)) for name in "ab"))
    world.drain()
    held = copied(world.connection, f"{{st:{world.topics.model}:*")
    assert held
    assert not any(b"alice" in content for content in held.values())
    assert world.ingests[0].state.secret != world.ingests[1].state.secret


def test_the_same_content_about_another_person_is_no_deletion(connection, tmp_path):
    """Naming the subjects of documents that are there costs no capacity and makes no receipt.

    A partition without a state has no documents of anybody.
    """
    world = opened(connection, tmp_path, 2)
    world.send(*(add(f"d{n}", {"x": 2}) for n in range(10)))
    world.drain()
    metas = [ingest.state.meta.accepted for ingest in world.ingests]
    about = [*((n, "alice") for n in range(10)), (3, "bob")]
    world.send(*(add(f"d{n}", {"x": 2}, subjects=(person,)) for n, person in about))
    assert world.drain() == {"unchanged": 11}
    index = SubjectIndex(world.connection, world.topics.model, world.partitions)
    found = [name.decode() for p in range(world.partitions) for name in index.documents(["alice"], p)]
    assert sorted(found) == [f"d{n}" for n in range(10) if n != 3]
    one_more = SubjectIndex(world.connection, world.topics.model, world.partitions + 1)
    assert one_more.count(["alice", "bob", "nobody"]) == {"alice": 9, "bob": 1, "nobody": 0}
    assert not world.forgets()
    assert [ingest.state.meta.accepted for ingest in world.ingests] == metas
