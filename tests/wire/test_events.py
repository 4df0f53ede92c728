import hashlib
import json

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.documents.deletion_record import Misplaced, Wanted, decode_request, encode_request
from streamtopic.documents.events import (
    HEARTBEAT_KEY,
    MAX_SUBJECT,
    MAX_SUBJECTS,
    Delete,
    Document,
    Heartbeat,
    decode,
    decode_record,
    document_of,
    encode_add,
    encode_delete,
    encode_heartbeat,
    encode_rejected,
    subject_digest,
    subject_digests,
)
from streamtopic.errors import InvalidEvent
from streamtopic.streams import Record

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
values = st.recursive(scalars, lambda v: st.lists(v) | st.dictionaries(st.text() | st.binary(), v), max_leaves=5)
encoders = [msgpack.packb, lambda value: json.dumps(value).encode()]


def add(encode=msgpack.packb, **content):
    """Decode an add with the given fields."""
    return decode(b"d", encode({"op": "add", **content}))


def length(document):
    """Return the tokens of a document."""
    return sum(tokens for tokens, _ in document.passages)


@pytest.mark.parametrize(
    "value",
    [
        b"\x91" * 100_000 + b"\x00",
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"op": "add", "counts": {"a": NaN}}',
        b'{"op": "add", "text": "a", "meta": ' + b"[" * 70 + b"]" * 70 + b"}",
        b'{"op": "add", "counts": {"a": ' + b"9" * 10_000 + b"}}",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc1",
        b"{",
        b"\xff\xfe",
        b"{" * (5 << 20),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_hostile_encodings(value):
    """Deep nesting, impossible lengths, NaN and huge numbers are refused by reason, quickly."""
    with pytest.raises(InvalidEvent) as caught:
        decode(b"d", value)
    assert caught.value.reason in {"format", "value-size", "value-count"}


@pytest.mark.parametrize("encode", encoders, ids=["msgpack", "json"])
@pytest.mark.parametrize(
    ("reason", "content"),
    [
        ("op", {"op": "drop"}),
        ("op", {"text": "a"}),
        ("op", {"op": None}),
        ("op", {"op": ["add"]}),
        ("content", {"op": "add"}),
        ("content", {"op": "add", "text": "a", "counts": {"a": 1}}),
        ("text-type", {"op": "add", "text": 5}),
        ("text-type", {"op": "add", "text": ["a"]}),
        ("text-size", {"op": "add", "text": "a" * 1_000_001}),
        ("text-size", {"op": "add", "text": "ä" * 500_001}),
        ("text-size", {"op": "add", "text": "\U00020000" * 250_001}),
        ("counts-type", {"op": "add", "counts": [["a", 1]]}),
        ("word", {"op": "add", "counts": {"a" * 65: 1}}),
        ("word", {"op": "add", "counts": {"": 1}}),
        ("count", {"op": "add", "counts": {"a": 0}}),
        ("count", {"op": "add", "counts": {"a": 8193}}),
        ("count", {"op": "add", "counts": {"a": True}}),
        ("count", {"op": "add", "counts": {"a": 1.0}}),
        ("count", {"op": "add", "counts": {"a": "1"}}),
        ("counts-length", {"op": "add", "counts": {"a": 8192, "b": 1}}),
        ("counts-words", {"op": "add", "counts": {f"w{i}": 1 for i in range(4097)}}),
        ("value-count", {"op": "add", "text": "a", "meta": [[]] * 65_536}),
        ("labels", {"op": "add", "text": "a", "labels": ["x"]}),
        ("labels", {"op": "add", "text": "a", "labels": {"x": 1}}),
        ("labels", {"op": "add", "text": "a", "labels": {f"t{i}": "c" for i in range(65)}}),
        # A document without its subject could not be found again.
        *(
            ("subjects", {"op": "add", "text": "a b", "subjects": wrong})
            for wrong in (
                "alice",
                [],
                [7],
                [""],
                {"alice": 1},
                [["alice"]],
                ["a"] * (MAX_SUBJECTS + 1),
                ["a" * (MAX_SUBJECT + 1)],
            )
        ),
    ],
)
def test_every_limit_has_its_reason(encode, reason, content):
    """Each limit of the wire format is refused under its own name, in both encodings."""
    with pytest.raises(InvalidEvent) as caught:
        decode(b"d", encode(content))
    assert caught.value.reason == reason


@pytest.mark.parametrize("encode", encoders, ids=["msgpack", "json"])
def test_limits_are_inclusive(encode):
    """What lies exactly on a limit is taken."""
    assert length(add(encode, text="ä" * 500_000)) == 1
    assert length(add(encode, counts={"a" * 64: 8192})) == 8192
    assert length(add(encode, counts={f"w{i}": 2 for i in range(4096)})) == 8192
    assert length(add(encode, text="aa", meta=[[]] * 60_000)) == 1
    assert add(encode, text="", ts=1 << 53).passages == ()
    assert add(encode, counts={}).passages == ()


@pytest.mark.parametrize(
    ("reason", "key"),
    [
        ("key-missing", None),
        ("key-missing", b""),
        ("key-size", b"k" * 513),
        ("key-encoding", b"\xff"),
        ("key-structured", b'{"id": 5}'),
        ("key-structured", b'{"schema": {}, "payload": {"id": 5}}' + b" " * 600),
        ("key-structured", b'"5"'),
        ("key-structured", b"\0\0\0\0\x075"),
        ("key-structured", b"\0\0\0\0\x07\x0a"),
    ],
)
def test_keys_are_checked(reason, key):
    """A record without a usable key is refused, be it an add or a delete."""
    for value in (None, msgpack.packb({"op": "add", "text": "aa"})):
        with pytest.raises(InvalidEvent) as caught:
            decode(key, value)
        assert caught.value.reason == reason
    assert document_of(key) is None


def test_a_structured_key_names_its_remedy():
    """Its add is refused, so no delete under another spelling of the id can miss it; the transform is named."""
    with pytest.raises(InvalidEvent, match=r"ExtractField\$Key and StringConverter"):
        decode(b'{"id": 5}', None)
    with pytest.raises(InvalidEvent, match=r"ExtractField"):
        encode_add('{"id": 5}', text="one two")


def test_a_delete_needs_only_its_key():
    """Missing, malformed or oversized request ids never stop a delete."""
    assert decode(b"k" * 512, None) == Delete("k" * 512)
    assert decode(b"d", None, (("request", b"r-1"),)) == Delete("d", "r-1")
    assert decode(b"d", None, (("request", b"\xff"),)) == Delete("d", "\ufffd")
    assert decode(b"d", None, (("request", b"r" * 513),)) == Delete("d")
    assert decode(b"d", None, (("st-any", b""), ("st-origin", b"1/2"))) == Delete("d")
    for request in (None, 5, [], {}, "r" * 513):
        assert decode(b"d", msgpack.packb({"op": "delete", "request": request, "text": 3})) == Delete("d")
    assert decode(b"d", b'{"op": "delete", "request": "\\ud800"}') == Delete("d", "?")


@given(
    document=st.text(min_size=1, max_size=100).filter(lambda name: not name.startswith(("{", '"', "\0"))),
    counts=st.dictionaries(st.text(min_size=1, max_size=64), st.integers(1, 50), max_size=20),
    labels=st.dictionaries(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20), max_size=5),
)
@settings(max_examples=200)
def test_encoded_adds_read_back(document, counts, labels):
    """An add is read back as sent, and its bytes do not depend on the order of its parts."""
    message = encode_add(document, counts=counts, labels=labels)
    event = decode(message.key, message.value, message.headers)
    assert event == Document(document, counts, labels)
    assert event.passages == (((sum(counts.values()), counts),) if counts else ())
    turned = dict(reversed(counts.items())), dict(reversed(labels.items()))
    assert encode_add(document, counts=turned[0], labels=turned[1]) == message


def test_encoded_deletes_and_heartbeats_read_back():
    """A delete is a tombstone with its request in a header; a heartbeat is neither add nor delete."""
    message = encode_delete("d", "r-1")
    assert message.value is None
    assert decode(message.key, message.value, message.headers) == Delete("d", "r-1")
    beat = encode_heartbeat(3)
    assert (beat.partition, decode(beat.key, beat.value)) == (3, Heartbeat())
    assert decode(HEARTBEAT_KEY, None) == Heartbeat()


@pytest.mark.parametrize(
    "encode",
    [
        lambda: encode_add("", text="a"),
        lambda: encode_add("\ud800", text="a"),
        lambda: encode_add("d"),
        lambda: encode_add("d", text="a" * 1_000_001),
        lambda: encode_add("d", counts={"a": 0}),
        lambda: encode_add("d", text="a", labels={"t": ""}),
        lambda: encode_delete("d" * 513, "r"),
        lambda: encode_delete("d", ""),
        lambda: encode_add(HEARTBEAT_KEY.decode(), text="a"),
        lambda: encode_delete(HEARTBEAT_KEY.decode(), "r"),
        lambda: decode(HEARTBEAT_KEY, msgpack.packb({"op": "add", "text": "a"})),
    ],
)
def test_producers_learn_of_bad_events_at_once(encode):
    """What the service would refuse cannot be encoded; the heartbeat's key takes no document."""
    with pytest.raises(InvalidEvent):
        encode()


@pytest.mark.parametrize("size", [0, 512, 513, 4 << 20])
def test_a_pointer_is_small_whatever_the_key(size):
    """It is found again by the key, or by the digest of one that is too long."""
    record = Record("t.documents", 2, 7, b"\xff" * size or None, b"x", (), -1)
    with pytest.raises(InvalidEvent) as caught:
        decode_record(record)
    message = encode_rejected(record, caught.value)
    assert len(message.key) + len(message.value) < 1_000
    assert message.key == b"\xff" * (size if size <= 512 else 64)
    digest = msgpack.unpackb(message.value).get("key_sha256")
    assert digest == (hashlib.sha256(record.key).hexdigest() if size > 512 else None)


def test_a_salt_travels_with_its_delete_and_spoils_none():
    """A tombstone's header and a delete's field arrive as they were sent; what is not a salt is left out."""
    salt = b"0123456789abcdef"
    message = encode_delete("d", "r", salt)
    assert decode(message.key, message.value, message.headers) == Delete("d", "r", salt=salt)
    assert decode(b"d", msgpack.packb({"op": "delete", "salt": salt})) == Delete("d", salt=salt)
    assert decode(b"d", json.dumps({"op": "delete", "salt": salt.decode()}).encode()) == Delete("d", salt=salt)
    for bad in (b"short", b"x" * 65, 7, None, [salt], ""):
        assert decode(b"d", msgpack.packb({"op": "delete", "salt": bad})) == Delete("d")
    with pytest.raises(InvalidEvent, match="a salt has 16 to 64 bytes"):
        encode_delete("d", "r", b"short")


def test_digests_of_subjects_depend_on_the_secret_and_on_nothing_else():
    """Order and repetition of subjects do not matter; without the secret a digest says nothing."""
    names = [f"person-{number}" for number in range(MAX_SUBJECTS)]
    found = subject_digests((*names, names[0]), b"s" * 32)
    # Ascending: in another process a set of the same digests has another order.
    assert found == tuple(sorted(found)) == subject_digests(names[::-1], b"s" * 32)
    assert len(found) == len(names)
    assert subject_digest("alice", b"s" * 32) != subject_digest("alice", b"t" * 32)


TRACE = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
REQUESTS = [
    {"documents": ("a", "é")},
    {"subjects": ("somebody", "somebody else")},
    {"misplaced": (Misplaced("d", 5, True, "r", b"s" * 16, TRACE), Misplaced("e", 6, False))},
]


@pytest.mark.parametrize("named", REQUESTS, ids=lambda named: next(iter(named)))
def test_requests_read_back(named):
    """A request arrives as it was sent, whatever it names; a deletion that nobody asked for stays one."""
    wanted = Wanted("request-1", "s" * 16, **named, trace=TRACE)
    message = encode_request(wanted)
    assert decode_request(Record("t", 0, 0, message.key, message.value, message.headers, 0)) == wanted


def _many(count):
    return tuple(map(str, range(count)))


MISPLACED = tuple(Misplaced(str(k), 5, False) for k in range(1001))
LIMITED = {
    "documents": ({"documents": _many(1000)}, {"documents": _many(1001)}),
    "subjects": ({"subjects": _many(100)}, {"subjects": _many(101)}),
    "misplaced": ({"misplaced": MISPLACED[:1000]}, {"misplaced": MISPLACED}),
    "of ingest": ({"misplaced": MISPLACED[:1]}, {"misplaced": MISPLACED[:1], "documents": ("d",)}),
    "of ingest, people": ({"misplaced": MISPLACED[:1]}, {"misplaced": MISPLACED[:1], "subjects": ("s",)}),
    "people or documents": ({"subjects": ("s",)}, {"subjects": ("s",), "documents": ("d",)}),
    "something": ({"documents": ("d",)}, {}),
    "id": ({"id": "r" * 100, "documents": ("d",)}, {"id": "r" * 101, "documents": ("d",)}),
    "salt": ({"salt": "s" * 64, "documents": ("d",)}, {"salt": "s" * 65, "documents": ("d",)}),
    "subject": ({"subjects": ("s" * 256,)}, {"subjects": ("s", "s" * 257)}),
}


@pytest.mark.parametrize(("fits", "refused"), LIMITED.values(), ids=LIMITED)
def test_requests_have_limits(fits, refused):
    """What is just within a limit is encoded; what is just beyond is refused before anybody writes it."""
    encode_request(Wanted(**{"id": "r", "salt": "s" * 16, **fits}))
    with pytest.raises(InvalidEvent):
        encode_request(Wanted(**{"id": "r", "salt": "s" * 16, **refused}))


def test_records_of_requests_are_read_up_to_a_mebibyte():
    """A larger one is refused unread; so is a misplaced deletion whose parts have other types."""

    def read(size=0, **fields):
        value = json.dumps({"salt": "s" * 16, **fields}).encode()
        return decode_request(Record("t", 0, 0, b"r", value + b" " * (size - len(value)), (), 0))

    assert read(1 << 20, documents=["d"]).documents == ("d",)
    assert read(misplaced=[["d", 5, True, "r", "", ""]]).misplaced == (Misplaced("d", 5, True, "r"),)
    with pytest.raises(InvalidEvent, match="at most 1048576 bytes"):
        read((1 << 20) + 1, documents=["d"])
    for wrong in ([5, 5, True, "r", "", ""], ["d", 5.0, True, "r", "", ""], ["d", 5, True, 7, "", ""]):
        with pytest.raises(InvalidEvent):
            read(misplaced=[wrong])
