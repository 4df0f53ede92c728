"""A ledger whose keys are listed, replaced and revoked, while a service writes to it."""

import itertools

import pytest
from ledger_world import World

from streamtopic.errors import StateError, UnknownKey, UsageError
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.upkeep import key_lists as module
from streamtopic.service.upkeep.key_lists import KeyKeeper
from streamtopic.signed import (
    KeyRing,
    LedgerProof,
    LedgerReader,
    Receipt,
    SigningKey,
)
from streamtopic.streams import Message

ROOT = SigningKey.from_seed(b"r" * 32, "test/root")


class ChangingWorld(World):
    """One model's ledger, and those who change its keys."""

    def __init__(self, connection, folder):
        super().__init__(connection, folder)
        self.old, self.new, self.third = (SigningKey.from_seed(bytes([n]) * 32, f"test/{self.model}") for n in range(3))
        self.file = folder / "keys" / "keys.list"
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
        return super().receipt(next(self.offsets))

    def write(self, key, number=1):
        """Write receipts, each a page, as a service does."""
        writer = self.service(key)
        writer.catch_up()
        for _ in range(number):
            assert writer.append([self.receipt()])

    def read(self):
        """Return the offsets of the receipts that a reader with the root key finds, and its ledger."""
        reader = LedgerReader(self.log, self.model, KeyRing.load(ROOT.public, self.model))
        found = [logged.entry.offset for logged in reader.catch_up() if isinstance(logged.entry, Receipt)]
        return found, reader.ledger


@pytest.fixture
def world(connection, tmp_path):
    """A ledger of two receipts, which has no list yet."""
    made = ChangingWorld(connection, tmp_path)
    made.write(made.old, 2)
    return made


@pytest.mark.parametrize("first", [None, 1])
def test_a_revoked_key_signs_nothing_more(world, first):
    """What it had signed counts up to the entry that is named, the tree is whole, and its new pages are passed over."""
    world.keeper().rotate(world.new)
    world.write(world.old)
    late = world.service(world.old)
    late.catch_up()
    proof = late.proof(0).text
    with pytest.raises(UsageError, match=f"put that of key {world.new.public.key_id}"):
        world.keeper().revoke(world.old.public.key_id)
    world.signing = world.new
    keys = world.keeper().revoke(world.old.public.key_id, first)
    size = world.read()[1].size
    thief = late.ledger.draft([world.receipt()], world.old)
    world.log.append_many(world.names.ledger, [Message(None, thief, partition=0)])
    world.write(world.new)
    found, ledger = world.read()
    assert found == ([0, 4] if first else [0, 1, 2, 4])
    assert (ledger.gaps, ledger.size) == (set(), size + 1)
    assert ledger.strays > 0
    assert keys.revoked[0].size == size - 1
    ring = KeyRing.load(ROOT.public, world.model).with_list(world.file.read_text())
    with pytest.raises(UnknownKey, match="revoked"):
        LedgerProof.parse(proof).verify(ring)
    again = world.service(world.new)
    again.catch_up()
    assert again.proof(0).verify(ring).index == 0


def test_a_service_that_runs_writes_on_after_the_first_list(world):
    """It and subscribers know the key before it alone: its receipts are in the ledger of who follows the list, too."""
    ring = KeyRing.load(world.old.public, world.model)
    running = LedgerWriter(world.connection, world.log, world.model, ring, world.old)
    running.catch_up()
    world.keeper().rotate(world.new)
    running.catch_up()
    assert running.append([world.receipt()])
    found, ledger = world.read()
    assert (found, ledger.strays, ledger.gaps) == ([0, 1, 2], 0, set())
    subscriber = LedgerReader(world.log, world.model, KeyRing.load(world.old.public, world.model))
    subscriber.catch_up()
    assert (subscriber.ledger.size, subscriber.ledger.strays) == (ledger.size, 0)
    world.write(world.new)
    assert world.read()[0] == [0, 1, 2, 3]


def test_a_list_stands_where_a_service_writes_all_the_time(world, monkeypatch):
    """The service is faster twice: the list is signed again after its pages, so no entry of a revoked key is lost."""
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
    assert (found, ledger.gaps) == ([0, 1, 2, 3], set())
    assert keys.revoked[0].size == ledger.size - 1
    monkeypatch.setattr(module, "_ATTEMPTS", 0)
    with pytest.raises(StateError, match="stop `streamtopic schedule`"):
        world.keeper().rotate(world.third)


@pytest.mark.parametrize("complete", [True, False])
def test_a_page_that_a_killed_service_began_is_ended_first(world, complete):
    """Its draft is the next page, which only a key that was listed before may sign."""
    world.keeper().rotate(world.new)
    world.signing = world.new
    killed = world.service(world.new)
    killed.catch_up()
    draft = killed.ledger.draft([world.receipt()], world.new)
    world.log.append_many(world.names.ledger, [Message(None, draft, partition=0)])
    if complete:
        killed.catch_up()
        killed.complete()
    else:
        stranger = world.service(world.third)
        stranger.catch_up()
        with pytest.raises(StateError, match="cannot be signed"):
            stranger.complete()
    world.keeper().rotate(world.third)
    assert world.read()[0] == [0, 1, 2]
