"""Following the topic of a ledger: from its begin, from its tail, and on from where another reader stopped."""

import pytest

from ledger_maker import LedgerMaker, key_of
from streamtopic.signed import (
    LedgerReader,
    Receipt,
    Tree,
    leaf_hash,
)
from streamtopic.streams import FileLog

NOW = 1_764_000_000_000
ROOT, OLD, NEW = (key_of(number=number) for number in (9, 0, 1))


@pytest.fixture
def log(tmp_path):
    """An empty log in files."""
    return FileLog(tmp_path)


@pytest.fixture
def maker(log):
    """Makes a ledger without lists of keys."""
    return LedgerMaker(log)


@pytest.fixture
def listed(log):
    """Makes a ledger whose keys come in lists, of which the first is there."""
    maker = LedgerMaker(log, key=OLD, root=ROOT)
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
    pages, tree = [], Tree()

    def take(page):
        pages.append(page)
        for line in page.lines:
            tree.append(leaf_hash(line.encode()))

    listed.append(*(listed.receipt(offset) for offset in range(3)))
    # The checkpoint comes long after its draft.
    draft, checkpoint = listed.records([listed.receipt(3)])
    listed.send(draft, b"junk", draft, checkpoint)
    listed.take(draft, checkpoint)
    listed.append(listed.receipt(4))
    reader = reader_of(listed, on_page=take)
    reader.catch_up()
    assert tree.root(tree.size) == listed.ledger.root
    for page in pages:
        assert first_page(listed, reader.ledger.keys, page.offset).lines == page.lines


def first_page(maker, keys, offset):
    """The page that a reader finds first who begins at an offset."""
    pages = []
    reader = reader_of(maker, keys=keys, offset=offset, on_page=pages.append)
    next(reader.read(), None)
    return pages[0]


def test_a_revocation_makes_a_reader_read_anew(listed):
    """What was taken before and is void now is told again without it; the number of restarts says so."""
    listed.append(listed.receipt(1))
    listed.append(listed.receipt(2))
    reader = reader_of(listed)
    assert offsets(reader.catch_up()) == [1, 2]
    revoke_old(listed, 2)
    listed.append(listed.receipt(3))
    found = reader.catch_up()
    assert (offsets(found)[-2:], reader.restarts) == ([1, 3], 1)
    assert reader.catch_up() == []
    # Who knows the list from the begin reads once.
    again = reader_of(listed, keys=reader.ledger.keys)
    assert (offsets(again.catch_up()), again.restarts) == ([1, 3], 0)


def test_a_reader_at_the_tail_begins_there_again(listed):
    """After a revocation it does not read years."""
    for offset in range(100):
        listed.append(listed.receipt(offset))
    listed.alive(made=NOW)
    reader = reader_of(listed, tail=True)
    reader.catch_up()
    revoke_old(listed, 50)
    listed.alive(made=NOW + 1)
    reader.catch_up()
    assert reader.restarts == 1
    assert (reader.ledger.alive.made, reader.ledger.root) == (NOW + 1, listed.ledger.root)
    assert {0, 50} <= reader.ledger.gaps
