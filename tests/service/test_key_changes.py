"""A ledger whose keys are listed, replaced and revoked, while a service writes to it."""

import itertools

import pytest

from streamtopic.errors import StateError, UnknownKey, UsageError
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.upkeep import key_lists as module
from streamtopic.service.upkeep.key_lists import KeyKeeper
from streamtopic.signed import (
    Alive,
    KeyRing,
    LedgerProof,
    LedgerReader,
    Receipt,
    SigningKey,
    link_digest,
    open_keys,
)
from streamtopic.streams import FileLog, Message, TopicNames

_numbers = itertools.count()
ROOT = SigningKey.from_seed(b"r" * 32, "test/root")


class World:
    """One model's ledger, and those who change its keys."""

    def __init__(self, connection, folder):
        self.model = f"changed{next(_numbers)}"
        self.names = TopicNames(self.model)
        self.log = FileLog(folder / "log")
        for topic in (self.names.ledger, self.names.releases):
            self.log.create(topic, 1, self.names.settings()[topic])
        self.old, self.new, self.third = (SigningKey.from_seed(bytes([n]) * 32, f"test/{self.model}") for n in range(3))
        self.file = folder / "keys" / "keys.list"
        self.connection = connection
        self.signing = self.old
        self.offsets = itertools.count()

    def keeper(self):
        """Return somebody with the root key."""
        clock = lambda: 1_700_000_000.0  # noqa: E731  one line reads best here
        return KeyKeeper(self.model, self.log, self.connection, self.signing, clock, ROOT, self.file)

    def service(self, key):
        """Return the writer of a service that signs with a key."""
        ring = KeyRing.load(ROOT.public, self.model, (key.public,))
        return LedgerWriter(self.connection, self.log, self.model, ring, key)

    def receipt(self):
        """Return a receipt that the ledger does not have."""
        offset = next(self.offsets)
        link = link_digest(b"k", str(offset))
        return Receipt(self.model, 0, offset, "", "d" * 64, link, "2026-11", 1, 2, found=True, version=1)

    def write(self, key, number=1):
        """Write receipts, each a page, as a service does."""
        writer = self.service(key)
        writer.catch_up()
        for _ in range(number):
            assert writer.append([self.receipt()])

    def read(self):
        """Return the offsets of the receipts that a reader with the root key finds, and its ledger."""
        reader = LedgerReader(self.log, self.model, KeyRing.load(ROOT.public, self.model))
        found, restarts = [], 0
        for logged in reader.read():
            if reader.restarts != restarts:
                found, restarts = [], reader.restarts
            if isinstance(logged.entry, Receipt):
                found.append(logged.entry.offset)
        return found, reader.ledger


@pytest.fixture
def world(connection, tmp_path):
    """A ledger of two receipts, which has no list yet."""
    made = World(connection, tmp_path)
    made.write(made.old, 2)
    return made


def test_who_has_the_root_key_reads_what_was_signed_before_the_first_list(world):
    """The list says whose the pages before it are; a reader with the first key alone goes on while that key signs."""
    assert world.keeper().publish().sequence == 1
    world.write(world.old)
    found, ledger = world.read()
    assert (found, ledger.start, ledger.gaps) == ([0, 1, 2], 0, [])
    plain = LedgerReader(world.log, world.model, KeyRing.load(world.old.public, world.model))
    assert len(plain.catch_up()) == ledger.size == 4
    assert plain.ledger.foreign
    assert open_keys(world.file.read_text(), ROOT.public).current == world.old.public
    with pytest.raises(UsageError, match="exists already"):
        world.keeper().publish()


def test_a_new_key_signs_its_own_list(world):
    """What both keys sign counts, since a service goes on with the old one until it is started again."""
    world.keeper().publish()
    assert world.keeper().rotate(world.new).current == world.new.public
    world.write(world.old)
    world.write(world.new)
    found, ledger = world.read()
    assert (found, ledger.strays) == ([0, 1, 2, 3], 0)
    assert open_keys(world.file.read_text(), ROOT.public).trusted == (world.new.public, world.old.public)
    with pytest.raises(UsageError, match="make a new one"):
        world.keeper().rotate(world.new)


def test_a_rotation_is_a_first_list_too(world):
    """Who had no list yet has one with both keys."""
    assert world.keeper().rotate(world.new).previous == (world.old.public,)
    assert world.read()[0] == [0, 1]


def test_a_key_that_is_lost_is_replaced_where_only_the_root_key_is(world):
    """The new key signs the page, so the old one is not needed."""
    world.keeper().publish()
    world.signing = None
    world.keeper().rotate(world.new)
    world.write(world.new)
    assert world.read()[0] == [0, 1, 2]


@pytest.mark.parametrize("first", [None, 1])
def test_a_revoked_key_signs_nothing_more(world, first):
    """What it had signed counts up to the entry that is named, the tree is whole, and its new pages are passed over."""
    world.keeper().publish()
    world.keeper().rotate(world.new)
    world.write(world.old)
    late = world.service(world.old)
    late.catch_up()
    proof = late.proof(0).text
    with pytest.raises(UsageError, match=f"name that of key {world.new.public.key_id}"):
        world.keeper().revoke(world.old.public.key_id)
    world.signing = world.new
    keys = world.keeper().revoke(world.old.public.key_id, first)
    size = world.read()[1].size
    thief = late.ledger.draft([world.receipt()], world.old)
    world.log.append_many(world.names.ledger, [Message(None, thief, partition=0)])
    world.write(world.new)
    found, ledger = world.read()
    assert found == ([0, 4] if first else [0, 1, 2, 4])
    assert (ledger.start, ledger.gaps, ledger.size) == (0, [], size + 1)
    assert ledger.strays > 0
    assert keys.revoked[0].size == size - 1
    ring = KeyRing.load(ROOT.public, world.model).with_list(world.file.read_text())
    with pytest.raises(UnknownKey, match="revoked"):
        LedgerProof.parse(proof).verify(ring)
    again = world.service(world.new)
    again.catch_up()
    assert again.proof(0).verify(ring).index == 0


@pytest.mark.parametrize(
    ("key", "says"), [("00000000", "is not in list 2"), ("new", "a key that signs now must be rotated first")]
)
def test_only_a_previous_key_can_be_revoked(world, key, says):
    """Any other is refused with the remedy, and nothing is written."""
    with pytest.raises(UsageError, match="no key list yet"):
        world.keeper().revoke(key)
    world.keeper().publish()
    world.keeper().rotate(world.new)
    world.signing = world.new
    end = world.log.end(world.names.ledger, 0)
    with pytest.raises(UsageError, match=says):
        world.keeper().revoke(world.new.public.key_id if key == "new" else key)
    assert world.log.end(world.names.ledger, 0) == end


def test_a_list_stands_where_a_service_writes_all_the_time(world, monkeypatch):
    """The service is faster twice: the list is signed again after its pages, so no entry of a revoked key is lost."""
    world.keeper().publish()
    world.keeper().rotate(world.new)
    world.signing = world.new
    busy = world.service(world.old)
    rounds = iter(range(100))
    append = LedgerWriter.append

    def faster(self, entries):
        if self is not busy and next(rounds) < 2:
            busy.catch_up()
            assert append(busy, [world.receipt()])
        return append(self, entries)

    monkeypatch.setattr(LedgerWriter, "append", faster)
    keys = world.keeper().revoke(world.old.public.key_id)
    found, ledger = world.read()
    assert (found, ledger.gaps) == ([0, 1, 2, 3], [])
    assert keys.revoked[0].size == ledger.size - 1
    monkeypatch.setattr(module, "_ATTEMPTS", 0)
    with pytest.raises(StateError, match="stop `streamtopic schedule`"):
        world.keeper().rotate(world.third)


@pytest.mark.parametrize("complete", [True, False])
def test_a_page_that_a_killed_service_began_is_ended_first(world, complete):
    """Its draft is the next page, which only a key that was listed before may sign."""
    world.keeper().publish()
    killed = world.service(world.old)
    killed.catch_up()
    draft = killed.ledger.draft([world.receipt()], world.old)
    world.log.append_many(world.names.ledger, [Message(None, draft, partition=0)])
    if complete:
        killed.catch_up()
        killed.complete()
    world.keeper().rotate(world.new)
    assert world.read()[0] == [0, 1, 2]


def test_a_ledger_of_an_unknown_root_is_told_of(world):
    """A service that was restored from before the root key learns it, also if it reads on from its index."""
    world.keeper().publish()
    for _ in range(2):
        restored = LedgerWriter(
            world.connection, world.log, world.model, KeyRing.load(world.old.public, world.model), world.old
        )
        restored.catch_up()
        assert restored.ledger.foreign
        assert restored.append([Alive(1, 0, 0)])
    assert world.read()[1].alive is not None
    known = world.service(world.old)
    known.catch_up()
    assert known.ledger.keys.sequence == 1
    assert not known.ledger.foreign


def test_a_ledger_that_is_not_there_is_named(world):
    """The remedy is `init`."""
    world.log.remove(world.names.ledger)
    with pytest.raises(UsageError, match="streamtopic init"):
        world.keeper()
