"""Looking receipts up, in a topic that grows meanwhile, and that others may write to."""

import copy
import dataclasses
import json
import pickle

import pytest

from streamtopic.client import Deletion, Receipts
from streamtopic.signed import (
    Receipt,
    SigningKey,
    digest_of,
    pack,
    plain_request_digest,
    request_digest,
    seal,
    seal_receipt,
    to_message,
)
from streamtopic.streams import FileLog

SALT = "0123456789abcdef"
FIRST = Receipt(
    sequence=1, previous="", model="news", partition=0, offset=0, request=request_digest("r-0", SALT), document="d",
    received=1, applied=2, found=True, version=1, mode="certified", certificate=1e-9, sigma=1e-7,
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
                request=request_digest(f"r-{number + 1}", SALT),
            )
        )
    return list(zip(receipts, messages, strict=False))


def test_receipts_are_found_as_they_come(tmp_path, key, chain):
    """By request and by id, whether they were there at the first look or came later; strays are nobody's receipt."""
    with FileLog(tmp_path) as log:
        log.create("news.receipts", 1)
        receipts = Receipts(log, model="news", public_key=key.public)
        assert receipts.find("r-0", salt=SALT) == []
        for receipt, message in chain:
            log.append_many("news.receipts", [message])
            assert receipts.find(Deletion(f"r-{receipt.offset}", SALT)) == [receipts.get(receipt.id)] == [receipt]
        stray = dataclasses.replace(FIRST, offset=77, request=request_digest("stray", SALT))
        log.append_many("news.receipts", [to_message(stray, seal_receipt(stray, key))])
        assert receipts.find("stray", salt=SALT) == []
        assert receipts.get(chain[0][0].id) == FIRST


def test_repeated_records_are_one_receipt(tmp_path, key, chain):
    """A publisher that was killed sends its bytes again; every receipt is found once."""
    messages = [message for _, message in chain]
    with FileLog(tmp_path, segment_bytes=500) as log:
        log.create("news.receipts", 1)
        log.append_many("news.receipts", [*messages, *messages[:3]])
        receipts = Receipts(log, model="news", public_key=key.public)
        found = [receipts.find(f"r-{number}", salt=SALT) for number in range(5)]
        assert [[receipt.sequence for receipt in some] for some in found] == [[1], [2], [3], [4], [5]]
        assert [receipt.sequence for receipt in receipts] == [1, 2, 3, 4, 5]


def test_what_is_not_a_receipt_is_passed_over_and_counted(tmp_path, key, chain):
    """Tombstones, garbage, other keys and copies hide no receipt and stop no reader."""
    other = SigningKey.from_bytes(b"o" * 32)
    with FileLog(tmp_path) as log:
        log.create("news.receipts", 1)
        for receipt, message in chain:
            name = message.key
            noise = [(name, None), (name, b""), (None, b"x" * 99), (name, seal_receipt(receipt, other))]
            for record in noise:
                log.append("news.receipts", *record, partition=0)
            log.append_many("news.receipts", [message])
            log.append("news.receipts", b"news/9/9", message.value)
        receipts = Receipts(log, model="news", public_key=key.public)
        assert [receipt.sequence for receipt in receipts] == [1, 2, 3, 4, 5]
        assert receipts.find("r-4", salt=SALT) == [chain[4][0]]
        assert receipts.skipped == 25


def test_receipts_of_before_have_no_salt(tmp_path, key):
    """A receipt of format 2 still verifies and is found by its request id alone; one of a later format is not."""
    old = dataclasses.asdict(FIRST) | {"format": 2, "length": 9, "request": plain_request_digest("r-0")}
    data = seal("receipt", {"receipt": pack({n: v for n, v in old.items() if n not in {"link", "month"}})}, key)
    new = dataclasses.replace(
        FIRST, sequence=2, offset=1, previous=digest_of(data), request=plain_request_digest("r-0")
    )
    with FileLog(tmp_path) as log:
        log.create("news.receipts", 1)
        log.append("news.receipts", FIRST.id.encode(), data)
        log.append_many("news.receipts", [to_message(new, seal_receipt(new, key))])
        receipts = Receipts(log, model="news", public_key=key.public)
        assert [(receipt.sequence, receipt.format) for receipt in receipts] == [(1, 2), (2, 3)]
        assert [receipt.sequence for receipt in receipts.find("r-0")] == [1]


def test_a_deletion_is_its_request_id_wherever_it_goes():
    """It compares, hashes and is written as JSON like the id, and a copy keeps its salt."""
    deletion = Deletion("r-1", SALT)
    assert (deletion, hash(deletion), json.dumps(deletion)) == ("r-1", hash("r-1"), '"r-1"')
    assert isinstance(deletion, str)
    for made in (copy.deepcopy(deletion), pickle.loads(pickle.dumps(deletion))):  # noqa: S301 -- our own bytes
        assert (made, made.salt) == ("r-1", SALT)
