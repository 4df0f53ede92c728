"""Subjects on adds: what is read, and what is refused by reason."""

import json

import msgpack
import pytest

from streamtopic.documents.events import Add, decode, encode_add
from streamtopic.documents.subjects import MAX_SUBJECT, MAX_SUBJECTS, subject_digest, subject_digests
from streamtopic.errors import InvalidEvent

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


def test_digests_depend_on_the_secret_and_on_nothing_else():
    """Order and repetition of subjects do not matter; without the secret a digest says nothing."""
    assert subject_digests(("bob", "alice"), b"s" * 32) == subject_digests(("alice", "bob", "bob"), b"s" * 32)
    assert subject_digest("alice", b"s" * 32) != subject_digest("alice", b"t" * 32)
