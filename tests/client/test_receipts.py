"""Looking receipts up, in a topic that grows and is compacted meanwhile."""

import dataclasses

import pytest

from streamtopic.client import Receipts
from streamtopic.receipts import Receipt, digest_of, request_digest, seal_receipt, to_message
from streamtopic.streams import FileLog

FIRST = Receipt(
    sequence=1, previous="", model="news", partition=0, offset=0, request=request_digest("r-0"), document="d",
    received=1, applied=2, found=True, length=9, version=1, mode="certified", certificate=1e-9, sigma=1e-7,
    epsilon=1.0, delta=1e-6, cumulative_epsilon=1.0, capacity_used=1, capacity_left=4,
)  # fmt: skip


@pytest.fixture
def chain(key):
    """Five receipts of a chain, with their records."""
    receipts, messages = [FIRST], []
    for number in range(5):
        data = seal_receipt(receipts[-1], key)
        messages.append(to_message(receipts[-1], data))
        receipts.append(
            dataclasses.replace(
                FIRST,
                sequence=number + 2,
                previous=digest_of(data),
                offset=number + 1,
                request=request_digest(f"r-{number + 1}"),
            )
        )
    return list(zip(receipts, messages, strict=False))


def test_receipts_are_found_as_they_come(tmp_path, key, chain):
    """By request and by id, whether they were there at the first look or came later; strays are nobody's receipt."""
    with FileLog(tmp_path) as log:
        log.create("news.receipts", 1)
        receipts = Receipts(log, model="news", public_key=key.public)
        assert receipts.find("r-0") is None
        for receipt, message in chain:
            log.append_many("news.receipts", [message])
            assert receipts.find(f"r-{receipt.offset}") == receipts.get(receipt.id) == receipt
        stray = dataclasses.replace(FIRST, offset=77, request=request_digest("stray"))
        log.append_many("news.receipts", [to_message(stray, seal_receipt(stray, key))])
        assert receipts.find("stray") is None
        assert receipts.get(chain[0][0].id) == FIRST


def test_receipts_are_found_where_compaction_has_left_them(tmp_path, key, chain):
    """A record that was noted may be gone, if it was repeated later."""
    messages = [message for _, message in chain]
    with FileLog(tmp_path, segment_bytes=500) as log:
        log.create("news.receipts", 1)
        log.append_many("news.receipts", messages)
        receipts = Receipts(log, model="news", public_key=key.public)
        assert receipts.find("r-1") is not None
        log.append_many("news.receipts", messages[:3])
        log.compact("news.receipts")
        assert [receipts.find(f"r-{number}").sequence for number in range(5)] == [1, 2, 3, 4, 5]
        assert [receipt.sequence for receipt in receipts] == [1, 2, 3, 4, 5]
