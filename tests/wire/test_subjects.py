"""Subjects on adds: what is read, and what is refused by reason."""

import json

import msgpack
import pytest

from streamtopic.documents.events import MAX_SUBJECT, MAX_SUBJECTS, decode, subject_digest, subject_digests
from streamtopic.errors import InvalidEvent

encoders = pytest.mark.parametrize("encode", [msgpack.packb, lambda value: json.dumps(value).encode()])


def reason(key, value, headers=()):
    """Why a record is refused."""
    with pytest.raises(InvalidEvent) as caught:
        decode(key, value, headers)
    return caught.value.reason


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
    ],
)
def test_bad_subjects_refuse_the_add(encode, fields):
    """Wrong types and sizes have a reason of their own: a document without its subject could not be found again."""
    assert reason(b"d", encode({"op": "add", "text": "a b", **fields})) == "subjects"


def test_digests_depend_on_the_secret_and_on_nothing_else():
    """Order and repetition of subjects do not matter; without the secret a digest says nothing."""
    assert subject_digests(("bob", "alice"), b"s" * 32) == subject_digests(("alice", "bob", "bob"), b"s" * 32)
    assert subject_digest("alice", b"s" * 32) != subject_digest("alice", b"t" * 32)
