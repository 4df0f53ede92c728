"""The chain of receipts: what is part of it is a function of the log, and nothing can be left out unseen."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopic.signed import (
    Chain,
    ChainHead,
    Completion,
    Receipt,
    ReceiptReader,
    digest_of,
    seal_completion,
    seal_receipt,
    to_message,
)
from streamtopic.streams import FileLog

ANY = Receipt(
    sequence=1, previous="", model="news", partition=0, offset=0, request="", document="d", received=1, applied=2,
    found=True, version=1, mode="certified", certificate=1e-9, sigma=1e-7, epsilon=1.0, delta=1e-6,
    cumulative_epsilon=1.0, capacity_used=1, capacity_left=4,
)  # fmt: skip


START = ChainHead()


def chained(offsets, after=START, **more):
    """Receipts for deletes at these offsets, each naming the one before, with digests."""
    head, made = after, []
    for offset in offsets:
        receipt = dataclasses.replace(ANY, sequence=head.sequence + 1, previous=head.digest, offset=offset, **more)
        digest = digest_of(repr(receipt).encode())
        head = ChainHead(receipt.sequence, digest)
        made.append((receipt, digest))
    return made


def take_all(chain, receipts):
    """Offsets accepted, in order."""
    accepted = []
    for receipt, digest in receipts:
        accepted += [entry.offset for entry in chain.take(receipt, digest)]
    return accepted


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30, unique=True), st.integers(0, 2**32))
def test_order_and_repetition_do_not_matter(offsets, seed):
    """Retries repeat records, and old compactions reordered them; the chain is the same, with every deletion in it."""
    made = chained(offsets)
    shuffled = [*made, *made[::2]]
    random.Random(seed).shuffle(shuffled)
    chain = Chain()
    accepted = take_all(chain, shuffled)
    assert accepted == offsets
    assert chain.settle() == []
    assert chain.head == ChainHead(len(offsets), made[-1][1])
    assert (chain.lost, chain.strays, len(chain)) == ([], 0, len(offsets))
    assert all((0, offset) in chain for offset in offsets)
    assert (0, 100) not in chain
    assert (1, offsets[0]) not in chain


def test_of_two_branches_the_one_that_came_first_counts(key):
    """A publisher that slept appends what competes: its receipts, and all that follow from them, are strays."""
    first = chained([1, 2])
    mine = chained([3, 4, 5], ChainHead(2, first[-1][1]))
    late = chained([6, 4, 7, 8], ChainHead(2, first[-1][1]), version=2)
    chain = Chain()
    accepted = take_all(chain, [*first, mine[0], late[0], mine[1], *late[1:], mine[2]])
    assert accepted == [1, 2, 3, 4, 5]
    assert all(chain.is_stray(digest) for _, digest in late)
    assert chain.head == ChainHead(5, mine[-1][1])
    assert (0, 6) not in chain
    assert chain.strays == 4
    assert chain.lost == []


def test_a_chain_goes_on_past_what_is_lost_and_says_so():
    """Receipts that vanished from the log are named; those after them still count."""
    made = chained(range(10))
    chain = Chain()
    accepted = take_all(chain, [*made[:3], *made[5:8]])
    assert accepted == [0, 1, 2]
    assert [receipt.offset for receipt in chain.settle()] == [5, 6, 7]
    assert chain.lost == [range(4, 6)]
    assert take_all(chain, made[8:]) == [8, 9]


@pytest.mark.parametrize("change", ["offset", "previous", "sequence"])
def test_a_receipt_that_does_not_continue_the_chain_is_no_part_of_it(change):
    """One with another number, another predecessor or a deletion that has its receipt is passed over."""
    made = chained([1, 2])
    chain = Chain()
    take_all(chain, made)
    (third, _), *_ = chained([3], chain.head)
    wrong = dataclasses.replace(third, **{change: {"offset": 2, "previous": "0" * 64, "sequence": 2}[change]})
    assert chain.take(wrong, "ab" * 32) == []
    assert chain.is_stray("ab" * 32)
    assert chain.head.sequence == 2


def sealed(number, key):
    """Records of the first receipts of a chain, and its head behind them."""
    head, messages = ChainHead(), []
    for offset in range(number):
        receipt = dataclasses.replace(ANY, sequence=head.sequence + 1, previous=head.digest, offset=offset)
        data = seal_receipt(receipt, key)
        head = ChainHead(receipt.sequence, digest_of(data))
        messages.append(to_message(receipt, data))
    return head, messages


def test_catching_up_counts_the_receipts_that_have_joined_the_chain(key, tmp_path):
    """A reader that catches up has the chain and the completions of one that yields its receipts, and their number."""
    log = FileLog(tmp_path)
    log.create("news.receipts", 1)
    head, messages = sealed(4, key)
    done = Completion(sequence=5, previous=head.digest, model="news", number=1, created=3, ends={0: 4}, reached={})
    data = seal_completion(done, key)
    reader = ReceiptReader(log, "news", key.public)
    assert reader.catch_up() == 0
    # A record of somebody else is not counted, and the third receipt waits for the second.
    stray = dataclasses.replace(messages[0], key=b"another")
    log.append_many("news.receipts", [messages[0], stray, messages[2], messages[1]])
    assert reader.catch_up() == 3
    log.append_many("news.receipts", [messages[3], to_message(done, data)])
    assert reader.catch_up() == 1
    assert reader.catch_up() == 0
    other = ReceiptReader(log, "news", key.public)
    assert [receipt.offset for receipt in other.read()] == [0, 1, 2, 3]
    assert reader.chain.head == other.chain.head == ChainHead(5, digest_of(data))
    assert reader.completions == other.completions == [done]
    assert reader.skipped == other.skipped == 1


def test_a_reader_follows_a_compacted_log(key, tmp_path):
    """Of a log that an older version compacted, a reader gives all receipts in their order, then only new ones."""
    log = FileLog(tmp_path)
    log.create("news.receipts", 1)
    head, messages = sealed(6, key)
    reader = ReceiptReader(log, "news", key.public)
    log.append_many("news.receipts", [*messages[:5], *messages[:2]])
    log.compact("news.receipts")
    assert [receipt.offset for receipt in reader.read()] == [0, 1, 2, 3, 4]
    assert list(reader.read()) == []
    log.append_many("news.receipts", messages[5:])
    assert [receipt.offset for receipt in reader.read()] == [5]
    assert reader.chain.head == head
