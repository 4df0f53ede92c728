import dataclasses
import math

import pytest

from streamtopic.errors import InvalidRelease
from streamtopic.receipts import (
    Receipt,
    document_digest,
    open_receipt,
    request_digest,
    seal_receipt,
    to_message,
)
from streamtopic.signing import SigningKey, seal

RECEIPT = Receipt(
    sequence=1, previous="", model="news", partition=1, offset=7, request=request_digest("r-1"),
    document=document_digest(b"s", "news", b"doc-1"), received=1000, applied=2000, found=True,
    length=42, version=3, mode="certified", certificate=5e-11, sigma=8e-7,
    epsilon=1.0, delta=1e-6, cumulative_epsilon=1.4, capacity_used=2, capacity_left=3,
)  # fmt: skip


def test_a_receipt_reads_back(key):
    """Every field comes back, an infinite one too, and the same receipt has the same bytes."""
    for receipt in (RECEIPT, dataclasses.replace(RECEIPT, cumulative_epsilon=math.inf)):
        data = seal_receipt(receipt, key)
        assert open_receipt(data, key.public) == receipt
        assert seal_receipt(receipt, key) == data
    assert to_message(RECEIPT, data).key == b"news/1/7"


def test_any_changed_byte_of_a_receipt_is_detected(key):
    """No byte of a sealed receipt can be changed unseen."""
    data = seal_receipt(RECEIPT, key)
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(InvalidRelease):
            open_receipt(bytes(changed), key.public)
    with pytest.raises(InvalidRelease):
        open_receipt(data, SigningKey.generate().public)
    with pytest.raises(InvalidRelease):
        open_receipt(seal("receipt", {"receipt": b"\x80"}, key), key.public)


def test_a_receipt_names_nobody(key):
    """Neither document id nor request id is in the bytes; only the secret's holder can tell the document."""
    data = seal_receipt(RECEIPT, key)
    assert b"doc-1" not in data
    assert b"r-1" not in data
    assert document_digest(b"s", "news", b"doc-1") == RECEIPT.document
    assert document_digest(b"t", "news", b"doc-1") != RECEIPT.document
    assert request_digest("") == ""
