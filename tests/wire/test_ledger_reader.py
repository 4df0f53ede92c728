"""Following the topic of a ledger: from its begin, from its tail, and on from where another reader stopped."""

import pytest

from ledger_maker import LedgerMaker, key_of
from memory_log import MemoryLog
from streamtopic.signed import (
    Alive,
    LedgerReader,
    Receipt,
    Runs,
    leaf_hash,
)
from whole_tree import Tree

NOW = 1_764_000_000_000
ROOT, OLD, NEW = (key_of(number=number) for number in (9, 0, 1))


@pytest.fixture
def listed():
    """Makes a ledger whose keys come in lists, of which the first is there."""
    maker = LedgerMaker(MemoryLog(), key=OLD, root=ROOT)
    maker.begin_list()
    return maker


def revoke_old(maker, first):
    """The new key signs, and the old one is revoked: its entries from `first` on are void."""
    maker.rotate(NEW)
    maker.revoke(OLD, first)


def reader_of(maker, **options):
    """A reader of the maker's topic with fresh keys."""
    return LedgerReader(maker.log, "news", options.pop("keys", maker.keys()), **options)


def offsets(logged):
    """The offsets of the receipts among entries."""
    return [one.entry.offset for one in logged if isinstance(one.entry, Receipt)]


def test_every_page_is_told_with_the_place_of_its_draft(listed):
    """With all its lines, void ones too, so that trees and indexes can be made; and found again there."""
    listed.append(*(listed.receipt(offset) for offset in range(3)))
    # The checkpoint comes long after its draft.
    draft, checkpoint = listed.records([listed.receipt(3)])
    listed.send(draft, b"junk", draft, checkpoint)
    listed.take(draft, checkpoint)
    listed.append(listed.receipt(4))
    reader, tree = reader_of(listed), Tree()
    pages = list(reader.read())
    for page in pages:
        for line in page.draft.lines:
            tree.append(leaf_hash(line.encode()))
        first = next(reader_of(listed, keys=reader.ledger.keys, offset=page.draft.offset).read())
        assert (first.draft.lines, first.entries) == (page.draft.lines, page.entries)
    assert tree.root(tree.size) == listed.ledger.root


def test_a_reader_at_the_tail_knows_what_was_withdrawn_before_the_first_list():
    """The list comes last: with the root key alone its reader cannot read what is before it at the first look."""
    maker = LedgerMaker(MemoryLog(), key=OLD, root=ROOT)
    maker.append(Alive(NOW, 0, 2, Runs((1, 1))))
    maker.begin_list()
    reader = reader_of(maker, tail=True)
    reader.catch_up()
    assert (reader.ledger.withdrawn, reader.ledger.gaps) == ({1}, set())


def test_a_revocation_makes_a_reader_read_anew(listed):
    """What was taken before and is void now is told again without it, from a page on that says so."""
    listed.append(listed.receipt(1))
    listed.append(listed.receipt(2))
    reader = reader_of(listed)
    assert offsets(reader.catch_up()) == [1, 2]
    revoke_old(listed, 2)
    listed.append(listed.receipt(3))
    pages = list(reader.read())
    (begin,) = (place for place, page in enumerate(pages) if page.anew)
    assert [offsets(page.entries) for page in pages[begin:]] == [[], [1], [], [], [], [3]]
    assert reader.catch_up() == []
    # Who knows the list from the begin reads once.
    again = list(reader_of(listed, keys=reader.ledger.keys).read())
    assert not any(page.anew for page in again)
    assert [page.entries for page in again] == [page.entries for page in pages[begin:]]
    # Whoever asks for the entries alone gets those that count.
    assert offsets(reader_of(listed).catch_up()) == [1, 3]


def test_a_reader_at_the_tail_begins_there_again(listed):
    """After a revocation it does not read years."""
    for offset in range(100):
        listed.append(listed.receipt(offset))
    listed.alive(made=NOW)
    reader = reader_of(listed, tail=True)
    reader.catch_up()
    before = reader.ledger
    revoke_old(listed, 50)
    listed.alive(made=NOW + 1)
    reader.catch_up()
    assert reader.ledger is not before
    assert (reader.ledger.alive.made, reader.ledger.root) == (NOW + 1, listed.ledger.root)
    assert {0, 50} <= reader.ledger.gaps
