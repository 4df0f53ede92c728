"""The ledger in its topic, and its index in Redis."""

import itertools

import pytest
from ledger_world import World

from crashes import copied, put_back
from streamtopic.errors import SettingsError
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.signed import Ledger, LedgerProof, leaf_hash, page_record
from streamtopic.streams import Message
from whole_tree import Tree


@pytest.fixture
def world(connection, tmp_path):
    """A model that no other test uses."""
    return World(connection, tmp_path)


def filled(world, pages=30, entries=20):
    """Return a writer that has written so many pages, and the tree of all entries."""
    writer, tree = world.writer(), Tree()
    writer.catch_up()
    offset = itertools.count()
    for _ in range(pages):
        page = [world.receipt(next(offset)) for _ in range(entries)]
        assert writer.append(page)
    for logged in world.writer().entries(range(pages * entries)).values():
        tree.append(leaf_hash(logged.line.encode()))
    return writer, tree


def test_every_entry_is_found_and_proved(world):
    """By each of its names, and by a path that a plain tree gives too."""
    writer, tree = filled(world)
    ledger = writer.ledger
    assert tree.size == ledger.size == 600
    assert tree.root(600) == ledger.root
    other = world.writer()
    other.catch_up()
    for index in (0, 1, 255, 256, 511, 512, 599):
        proof = other.proof(index)
        assert list(proof.path) == tree.inclusion(index, 600)
        logged = LedgerProof.parse(proof.text).verify(world.keys())
        assert (logged.index, logged.entry) == (index, world.receipt(index))
    found = other.find([f"{world.model}/0/300", "link7", "r599", "nothing"])
    assert {name: [one.index for one in some] for name, some in found.items()} == {
        f"{world.model}/0/300": [300],
        "link7": [7],
        "r599": [599],
    }


@pytest.mark.parametrize("behind", [0, 300, None])
def test_a_reader_without_the_key_writes_nothing(world, behind):
    """It finds and proves what the index lacks, be it the newest entries or all, while a service goes on."""
    index_keys = f"{{st:{world.model}}}:ledger:*"

    def head():
        return world.connection.call("HGETALL", f"{{st:{world.model}}}:ledger:head")

    writer, _ = filled(world)
    before = {} if behind is None else copied(world.connection, index_keys)
    if behind:
        for start in range(600, 600 + behind, 50):
            assert writer.append([world.receipt(offset) for offset in range(start, start + 50)])
    put_back(world.connection, before, index_keys)
    index = copied(world.connection, index_keys).keys(), head()
    reader = LedgerWriter(world.connection, world.log, world.model, world.keys())
    reader.catch_up()
    for place in (0, 511, 599, *([899] if behind else [])):
        assert [one.index for one in reader.find([f"link{place}"])[f"link{place}"]] == [place]
        assert reader.proof(place).verify(world.keys()).entry == world.receipt(place)
    assert (copied(world.connection, index_keys).keys(), head()) == index
    with pytest.raises(SettingsError, match=r"signing\.key"):
        reader.append([world.receipt(1000)])
    other = world.writer()
    other.catch_up()
    assert other.append([world.receipt(1000)])
    reader.catch_up()
    assert len(reader.find(["link1000"])["link1000"]) == len(reader.find(["link7"])["link7"]) == 1
    put_back(world.connection, {}, index_keys)
    reader.catch_up()
    assert len(reader.find(["link1000"])["link1000"]) == len(reader.find(["link7"])["link7"]) == 1


def test_a_draft_of_a_tree_that_never_comes_keeps_no_entry_from_the_index(world):
    """Readers go on at that draft for as long as it waits, and entries after it are found all the same."""
    writer, _ = filled(world, 1, 1)
    elsewhere = Ledger.restore(writer.ledger.dump(), world.keys())
    elsewhere.take(elsewhere.draft([world.receipt(offset) for offset in range(50, 60)], world.key))
    elsewhere.take(page_record(elsewhere.sign(elsewhere.pending, world.key)))
    ahead = elsewhere.draft([world.receipt(60)], world.key)
    world.log.append_many(world.names.ledger, [Message(None, ahead, partition=0)])
    for offset in range(1, 6):
        assert writer.append([world.receipt(offset)])
    for one in (writer, world.writer()):
        one.catch_up()
        found = one.find([f"link{offset}" for offset in range(6)])
        assert [[logged.index for logged in some] for some in found.values()] == [[index] for index in range(6)]
