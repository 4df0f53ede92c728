import dataclasses
import json
import math
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamtopic.errors import InvalidRelease
from streamtopic.signed import (
    Chain,
    Completion,
    Receipt,
    SigningKey,
    SubjectReceipt,
    digest_of,
    document_digest,
    open_any,
    open_receipt,
    pack,
    plain_request_digest,
    request_digest,
    seal,
    seal_completion,
    seal_receipt,
    seal_subject_receipt,
    to_message,
    unpack,
)

EXAMPLES = int(os.environ.get("EXAMPLES", "300"))

SALT = b"0123456789abcdef"
RECEIPT = Receipt(
    sequence=1, previous="", model="news", partition=1, offset=7, request=request_digest("r-1", SALT),
    document=document_digest(SALT, "news", b"doc-1"), received=1000, applied=2000, found=True,
    version=3, mode="certified", certificate=5e-11, sigma=8e-7,
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


COMPLETION = Completion(2, "0" * 64, "news", 1, 5000, {0: 9}, {0: {"log": 4000}})
COVERING = SubjectReceipt("news/subject/1", "news", "", "", "2026-11", 1000, 1, 3, (1, 1), "0" * 64)
SEALED = {"receipt": seal_receipt, "completion": seal_completion, "subject receipt": seal_subject_receipt}
KINDS = dict(zip(SEALED, (RECEIPT, COMPLETION, COVERING), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_of_the_topic_opens_as_what_was_signed(key, kind):
    """A receipt, a completion and a covering receipt read back, and none under the kind of another."""
    data = SEALED[kind](KINDS[kind], key)
    assert open_any(data, key.public) == KINDS[kind]
    assert to_message(KINDS[kind], data).key == KINDS[kind].id.encode()
    for other in {*KINDS, "release", "statement"} - {kind}:
        renamed = pack(unpack(data) | {"kind": other})
        with pytest.raises(InvalidRelease):
            open_any(renamed, key.public)
        # The same parts, signed as of another kind.
        with pytest.raises(InvalidRelease):
            open_any(seal(other, unpack(data)["parts"], key), key.public)


def test_a_receipt_names_nobody(key):
    """Neither document id nor request id is in the bytes; only who knows the salt can tell them."""
    data = seal_receipt(RECEIPT, key)
    assert b"doc-1" not in data
    assert b"r-1" not in data
    assert RECEIPT.is_about("doc-1", SALT)
    assert RECEIPT.is_of("r-1", SALT.decode())
    for salt in (b"", b"0123456789abcdeg", plain_request_digest("r-1")):
        assert not RECEIPT.is_about("doc-1", salt)
        assert not RECEIPT.is_of("r-1", salt)
    assert not RECEIPT.is_about("doc-2", SALT)
    assert not RECEIPT.is_linked("r-1", {"": b"k" * 32})
    assert request_digest("", SALT) == plain_request_digest("") == ""


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9) | st.binary(max_size=9)
    | st.just({"data": b"\0" * 8, "dtype": "<i4", "shape": [2]}),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
FIELDS = [field.name for field in dataclasses.fields(Receipt)]


@settings(max_examples=EXAMPLES, deadline=None)
@given(changes=st.dictionaries(st.sampled_from([*FIELDS, "length", "more"]), VALUES, max_size=3), gone=st.sets(
    st.sampled_from(FIELDS), max_size=2))  # fmt: skip
@example(changes={"offset": 1 << 63}, gone=set())
@example(changes={"format": [2]}, gone=set())
@example(changes={"format": True}, gone=set())
def test_signed_fields_of_any_type_are_a_receipt_or_our_error(changes, gone):
    """Whatever an owner of the key signs, a reader gets a receipt of the right types or InvalidRelease."""
    key = SigningKey.from_bytes(bytes(32))
    fields = {name: value for name, value in (dataclasses.asdict(RECEIPT) | changes).items() if name not in gone}
    _open_or_refuse(seal("receipt", {"receipt": pack(fields)}, key), key.public)


@settings(max_examples=EXAMPLES, deadline=None)
@given(value=VALUES, part=st.sampled_from(["kind", "key", "parts", "signature", "receipt", "whole"]))
@example(value={"data": bytes(8), "dtype": "<i4", "shape": [2]}, part="kind")
def test_containers_of_any_kind_are_refused_with_our_error(value, part):
    """Whatever stands in the place of a container, of one of its fields or of the signed part, is refused."""
    key = SigningKey.from_bytes(bytes(32))
    if part == "receipt":
        data = seal("receipt", {"receipt": pack(value)}, key)
    elif part == "whole":
        data = pack(value)
    else:
        data = pack(unpack(seal_receipt(RECEIPT, key)) | {part: value})
    with pytest.raises(InvalidRelease):
        open_receipt(data, key.public)


def _open_or_refuse(data, key):
    try:
        receipt = open_receipt(data, key)
    except InvalidRelease:
        return
    chain = Chain()
    chain.take(receipt, digest_of(data))
    chain.settle()
    assert (receipt.partition, receipt.offset) in chain
    json.dumps(dataclasses.asdict(receipt))
