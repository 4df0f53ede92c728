"""Subjects on adds, and the records that ask to forget one: what is read, and what is refused by reason."""

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopic.documents.events import (
    Add,
    ForgetSubject,
    SubjectForgotten,
    decode,
    document_of,
    encode_add,
    encode_delete,
    encode_delete_subject,
    encode_subject_forgotten,
)
from streamtopic.documents.subjects import MAX_SUBJECT, MAX_SUBJECTS, SUBJECT_KEY, subject_digest, subject_digests
from streamtopic.errors import InvalidEvent

KEY = SUBJECT_KEY + b"r-1"
SALT = b"0123456789abcdef"
encoders = pytest.mark.parametrize("encode", [msgpack.packb, lambda value: json.dumps(value).encode()])


def reason(key, value, headers=()):
    """Why a record is refused."""
    with pytest.raises(InvalidEvent) as caught:
        decode(key, value, headers)
    return caught.value.reason


@encoders
def test_an_add_names_one_subject_or_several(encode):
    """`subject` is short for a list of one; each subject counts once."""
    one = decode(b"d", encode({"op": "add", "text": "a b", "subject": "alice"}))
    assert one == decode(b"d", encode({"op": "add", "text": "a b", "subjects": ["alice", "alice"]}))
    assert isinstance(one, Add)
    assert one.subjects == ("alice",)
    assert decode(b"d", encode({"op": "add", "text": "a b"})).subjects == ()


@encoders
@pytest.mark.parametrize(
    "fields",
    [
        {"subjects": "alice"},
        {"subjects": []},
        {"subjects": [7]},
        {"subjects": [""]},
        {"subjects": {"alice": 1}},
        {"subjects": [["alice"]]},
        {"subjects": ["a"] * (MAX_SUBJECTS + 1)},
        {"subjects": ["a" * (MAX_SUBJECT + 1)]},
        {"subject": 7},
        {"subject": True},
        {"subject": ["alice"]},
        {"subject": ""},
        {"subject": "alice", "subjects": ["bob"]},
    ],
)
def test_bad_subjects_refuse_the_add(encode, fields):
    """Wrong types and sizes have a reason of their own: a document without its subject could not be found again."""
    assert reason(b"d", encode({"op": "add", "text": "a b", **fields})) == "subjects"


def test_a_producer_learns_of_bad_subjects_at_once():
    """Encoding checks the same limits, also half a character, and a text in the place of a list."""
    for subjects in (["a"] * 9, [""], ["\ud800"], "alice", [7]):
        with pytest.raises(InvalidEvent, match="subject"):
            encode_add("d", text="a b", subjects=subjects)
    assert decode(b"d", encode_add("d", text="a b", subjects=("alice", "bob")).value).subjects == ("alice", "bob")


def test_a_request_has_a_record_for_each_partition():
    """All have one key, which does not hold the subject, and the headers that a tombstone has."""
    records = encode_delete_subject("alice", "r-1", SALT, 3)
    assert [record.partition for record in records] == [0, 1, 2]
    (key,) = {record.key for record in records}
    assert key.startswith(SUBJECT_KEY)
    assert b"alice" not in key
    assert key != encode_delete_subject("alice", "r-1", SALT[::-1], 1)[0].key
    for record in records:
        assert decode(key, record.value, record.headers) == ForgetSubject(key, "alice", "r-1", SALT)
    end = encode_subject_forgotten(key, 2)
    assert (decode(end.key, end.value), end.partition) == (SubjectForgotten(key), 2)
    assert document_of(key) is None


@pytest.mark.parametrize(
    ("subject", "request_id", "salt"),
    [("", "r", SALT), ("a" * 257, "r", SALT), ("alice", "", SALT), ("alice", "r", b""), ("alice", "r", b"short")],
)
def test_a_bad_request_is_refused_before_it_is_sent(subject, request_id, salt):
    """Subject, request id and salt are within their limits; without a salt keys would reveal the subject."""
    with pytest.raises(InvalidEvent):
        encode_delete_subject(subject, request_id, salt, 1)


@encoders
def test_a_stranger_s_records_under_a_reserved_key(encode):
    """No document has such an id; a request without a readable subject is refused, and every other one is taken."""
    assert reason(KEY, encode({"op": "add", "text": "a b"})) == "key-reserved"
    assert reason(KEY, encode({"op": "add", "text": "a b", "subject": "alice"})) == "key-reserved"
    for subject in (None, 7, "", "a" * 257, ["alice"]):
        assert reason(KEY, encode({"op": "delete_subject", "subject": subject})) == "subject"
    assert reason(KEY, encode({"op": "delete_subject"})) == "subject"
    found = decode(KEY, encode({"op": "delete_subject", "subject": "alice", "request": "r-2"}))
    assert found == ForgetSubject(KEY, "alice", "r-2")
    for made in (lambda: encode_add(KEY.decode(), text="a"), lambda: encode_delete(KEY.decode(), "r")):
        with pytest.raises(InvalidEvent, match="reserved"):
            made()


@pytest.mark.parametrize("value", [None, b"", b"null", b"{}", b"\xc0", b"\0\0\0\0\1"])
def test_nothing_under_a_reserved_key_ends_a_request(value):
    """Every dialect of a tombstone is one here as well."""
    assert decode(KEY, value) == SubjectForgotten(KEY)


def test_a_damaged_request_counts_where_its_subject_can_be_read():
    """The fields before the damage are enough, but never a part of a subject: it may be the name of another."""
    packed = msgpack.packb({"op": "delete_subject", "subject": "alice", "note": "x" * 50})
    text = b'{"op": "delete_subject", "subject" : "ali\\u0063e", "note": "x'
    plain = b'  {"subject": "alice", "note": "x'
    assert decode(KEY, packed[:-5]).subject == decode(KEY, plain).subject == "alice"
    assert reason(KEY, text) == "format"  # written in another way than the check can follow
    for cut in (packed[:28], b'{"note": "ali", "subject": "ali', b"     " + b'{"subject": "ali\\', b'{"subject'):
        assert reason(KEY, cut) == "format"


@given(st.binary(max_size=200) | st.binary(max_size=80).map(lambda raw: b'{"subject": "' + raw))
def test_bytes_under_a_reserved_key_never_fail_otherwise(value):
    """Any bytes are a request, its end, or refused with a reason."""
    try:
        found = decode(KEY, value)
    except InvalidEvent as error:
        found = error.reason
    assert isinstance(found, ForgetSubject | SubjectForgotten) or found in {"format", "subject", "key-reserved"}


def test_digests_depend_on_the_secret_and_on_nothing_else():
    """Order and repetition of subjects do not matter; without the secret a digest says nothing."""
    assert subject_digests(("bob", "alice"), b"s" * 32) == subject_digests(("alice", "bob", "bob"), b"s" * 32)
    assert subject_digest("alice", b"s" * 32) != subject_digest("alice", b"t" * 32)
