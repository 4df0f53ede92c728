"""Looking receipts up and proving them, in a ledger that grows meanwhile, and that others may write to."""

import pytest

from ledger_maker import CREATED, SALT, LedgerMaker, key_of
from streamtopic.client import Deletion, Receipts, verify_receipt
from streamtopic.errors import InvalidRelease, StateMismatch, UnknownKey, UsageError
from streamtopic.signed import (
    Erased,
    LedgerProof,
    RequestReceipt,
    SigningKey,
    request_digest,
)
from streamtopic.streams import FileLog

TOPIC = "news.ledger"


@pytest.fixture
def receipts(log, maker):
    """A reader of receipts who knows the key of the ledger."""
    return Receipts(log, model="news", public_key=maker.pinned)


def person(request, documents=3):
    """The receipt of a person."""
    digest = request_digest(request, SALT)
    return RequestReceipt(f"news/request/{request}", "news", digest, "", "2026-11", CREATED, documents, 1)


def test_receipts_are_found_as_they_come(maker, receipts):
    """By request, whether they were there at the first look or came later, each by the salt of its own delete."""
    assert receipts.find("r-0", salt=SALT) == []
    for offset in range(5):
        receipt = maker.receipt(offset)
        maker.append(maker.receipt(offset + 100), receipt)
        assert receipts.find(Deletion(f"r-{offset}", SALT)) == [receipt]
    assert receipts.find("r-3", salt="another salt of it") == []
    assert receipts.find("r-3") == []
    theirs = maker.receipt(200, "r-3", "the salt of another")
    maker.append(theirs)
    assert receipts.find("r-3", salt="the salt of another") == [theirs]
    assert receipts.find("r-3", salt=SALT) == [maker.receipt(3)]
    assert [receipt.offset for receipt in receipts] == [100, 0, 101, 1, 102, 2, 103, 3, 104, 4, 200]


def test_each_receipt_comes_once_though_the_ledger_is_read_again(log):
    """A list of keys that comes meanwhile makes entries void, so the ledger is read from its begin."""
    maker = LedgerMaker(log, root=key_of(number=9))
    maker.begin_list()
    maker.append(maker.receipt(1))
    found = iter(Receipts(log, model="news", public_key=maker.pinned))
    first = next(found)
    maker.append(maker.receipt(2))
    maker.rotate(key_of(number=1))
    maker.revoke(maker.first_key, 2)
    maker.append(maker.receipt(3))
    assert [receipt.offset for receipt in (first, *found)] == [1, 2, 3]


def test_the_receipt_of_a_person_is_found(maker, receipts):
    """By its request and its salt; a receipt of a document under the same request is another thing."""
    assert receipts.covering("forget", salt=SALT) is None
    maker.append(maker.receipt(1, "forget"), person("forget"))
    assert receipts.covering(Deletion("forget", SALT)) == person("forget")
    assert receipts.covering("forget") is None
    assert [receipt.offset for receipt in receipts.find("forget", salt=SALT)] == [1]


def test_a_receipt_is_erased_once_an_entry_after_it_says_so(maker, receipts):
    """Only offsets before the end that it names, in their partition, and no receipt that comes after it."""
    first, other = maker.receipt(3), maker.receipt(3, partition=1)
    maker.append(first, other)
    assert receipts.erased(first) is None
    said = [Erased(CREATED + n, {0: end}, {0: {"log": CREATED}}) for n, end in enumerate((3, 4, 9))]
    for entry in said:
        maker.append(entry)
    late = maker.receipt(7)
    maker.append(late)
    assert receipts.erased(first) == said[1]
    assert receipts.erased(other) is None
    assert receipts.erased(late) is None
    assert receipts.erased(maker.receipt(2)) is None
    assert LedgerProof.parse(receipts.proof(said[1])).verify(maker.keys()).index == 3


def test_every_receipt_is_proved(maker, receipts):
    """The proof is that of an independent tree, verifies without a log, and says which document it is about."""
    for page in range(40):
        maker.append(*(maker.receipt(10 * page + n) for n in range(10)))
    for offset in (0, 7, 255, 256, 399):
        (receipt,) = receipts.find(f"r-{offset}", salt=SALT)
        text = receipts.proof(receipt)
        assert text == maker.proof(offset)
        assert verify_receipt(text, maker.pinned) == receipt
        assert verify_receipt(text, str(maker.pinned), document=f"d-{offset}", salt=SALT) == receipt
    maker.append(person("forget"))
    assert verify_receipt(receipts.proof(person("forget")), maker.pinned) == person("forget")


def test_a_proof_proves_nothing_else(maker, receipts, log):
    """Another document, salt, entry, key, model or index, and a text that was changed, are refused."""
    maker.publish(1)
    maker.append(maker.receipt(1), maker.receipt(2), person("forget"))
    text = receipts.proof(maker.receipt(1))
    for document, salt in (("d-2", SALT), ("d-1", "another salt of it")):
        with pytest.raises(InvalidRelease, match="news/0/1 is not about this document"):
            verify_receipt(text, maker.pinned, document=document, salt=salt)
    with pytest.raises(InvalidRelease, match="is not about this document"):
        verify_receipt(receipts.proof(person("forget")), maker.pinned, document="d-1", salt=SALT)
    with pytest.raises(InvalidRelease, match="another entry than a receipt"):
        verify_receipt(maker.proof(0), maker.pinned)
    with pytest.raises(UsageError, match="belong together"):
        verify_receipt(text, maker.pinned, document="d-1")
    for key in (key_of(number=1).public, key_of("olds").public):
        with pytest.raises(UnknownKey):
            verify_receipt(text, key)
    for changed in (text.replace("index 1", "index 2"), text.replace("extra e", "extra f"), text[:-9], "", "x" * 999):
        with pytest.raises(InvalidRelease):
            verify_receipt(changed, maker.pinned)
    olds = LedgerMaker(log, "olds", SigningKey.from_seed(bytes(32), "test/news/olds"))
    olds.append(maker.receipt(1))
    with pytest.raises(InvalidRelease, match="another entry than a receipt of olds"):
        verify_receipt(olds.proof(0), olds.pinned)


def test_a_ledger_that_was_made_again_proves_nothing_of_the_one_before(maker, log, tmp_path, receipts):
    """A running reader says that the topic lost records, or has a gap; a new one reads what is there."""
    maker.append(maker.receipt(3))
    assert receipts.find("r-3", salt=SALT) == [maker.receipt(3)]
    log.remove(TOPIC)
    again = LedgerMaker(FileLog(tmp_path / "log"))
    with pytest.raises(StateMismatch, match=r"news\.ledger has lost records"):
        receipts.find("r-3", salt=SALT)
    for offset in (5, 6, 7):
        again.append(again.receipt(offset))
    with pytest.raises(StateMismatch, match=r"news\.ledger lacks entries that follow .* by a new object"):
        receipts.find("r-3", salt=SALT)
    with pytest.raises(InvalidRelease, match="lacks entries"):
        receipts.proof(maker.receipt(3))
    fresh = Receipts(log, model="news", public_key=maker.pinned)
    assert fresh.find("r-3", salt=SALT) == []
    assert [receipt.offset for receipt in fresh] == [5, 6, 7]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_topic_that_lacks_entries_proves_nothing(maker, log, receipts, lost):
    """Receipts after a gap are found, and none is proved: also where the first pages are gone."""
    for page in range(3):
        records = maker.records([maker.receipt(page)])
        maker.take(*records)
        if page != lost:
            maker.send(*records)
    assert [receipt.offset for receipt in receipts] == [page for page in range(3) if page != lost]
    assert receipts.find("r-2", salt=SALT) == [maker.receipt(2)]
    with pytest.raises(InvalidRelease, match=r"news\.ledger lacks entries"):
        receipts.proof(maker.receipt(2))
    with pytest.raises(InvalidRelease, match="is not in"):
        receipts.proof(maker.receipt(lost))
