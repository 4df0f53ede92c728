"""Batches of records: compiled code gives what `events.decode` gives, of any bytes."""

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.documents.events import Document, decode_record
from streamtopic.errors import InvalidEvent
from streamtopic.service.ingest.decode import decode_all
from streamtopic.state import Lexicon
from streamtopic.streams import Record

KEYS = [b"k", b"document-7", "é".encode(), b"st:heartbeat", b"", None, b"\xff", b"x" * 513]
KEYS += [b'{"id": 5}', b'"5"', b"\0\0\0\0\x075"]


def record(value, key=b"k", offset=0):
    """Return a record of the documents topic."""
    return Record("t", 0, offset, key, value, (), 0)


def expected(one):
    """Return what `events` says of a record, as comparable values."""
    try:
        event = decode_record(one)
    except InvalidEvent as error:
        return error.reason
    if isinstance(event, Document):
        return event.id, [(length, dict(words)) for length, words in event.passages], dict(event.labels)
    return event


def found(decoded):
    """Return what the batch says of each record, in the same form."""
    documents, batch, lexicon, every = decoded.documents, decoded.documents.batch, decoded.lexicon, []
    for k, document in enumerate(documents.ids):
        if k in decoded.others:
            event = decoded.others[k]
            every.append(event.reason if isinstance(event, InvalidEvent) else event)
            assert k not in batch.owners
            continue
        passages = []
        for row in np.flatnonzero(batch.owners == k):
            place = slice(batch.indptr[row], batch.indptr[row + 1])
            words = [word.decode() for word in lexicon.words_of(batch.words[place])]
            passages.append((int(batch.lengths[row]), dict(zip(words, batch.counts[place].tolist(), strict=True))))
            assert len(set(words)) == len(words)
        every.append((document.decode(), passages, dict(documents.labels[k])))
    return every


def check(values, keys=None, lexicon=None):
    """Compare all records of a batch, and the first half of them."""
    keys = keys or [b"k"] * len(values)
    records = [record(value, key, k) for k, (value, key) in enumerate(zip(values, keys, strict=True))]
    lexicon = Lexicon("test") if lexicon is None else lexicon
    decoded = decode_all(records, lexicon, 5)
    half = (len(records) + 1) // 2
    wanted = [expected(one) for one in records]
    assert found(decoded) == wanted
    assert found(decoded.first(half)) == wanted[:half]
    assert decoded.documents.offsets.tolist() == [one.offset for one in records]
    return decoded


word = st.one_of(
    st.sampled_from(["a", "B2", "héllo", "x" * 64, "y" * 65, "", "Hi_There", "日本", "12"]), st.text(max_size=5)
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "add", "add", "delete", "x", 1]),
        "text": st.one_of(
            st.lists(word, max_size=8).map(" ".join), st.none(), st.just("-A1 b\0zz"), st.integers(-9, 9)
        ),
        "counts": st.one_of(
            st.dictionaries(word, st.sampled_from([1, 2, 127, 128, 256, 8192, 8193, 0, -1, True, 1.0]), max_size=5),
            st.none(),
        ),
        "labels": st.sampled_from([{"t": "c"}, {}, {"": "c"}, {"t": 1}, [], None, {"t": "é"}, {"x" * 257: "a"}]),
        "meta": st.just([1]),
        "more": st.just("x"),
    },
)
mutation = st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["set", "insert", "delete"]), st.integers(0, 255)))


def mutated(data, changes):
    """Change single bytes."""
    data = bytearray(data)
    for place, how, byte in changes:
        at = place % (len(data) + 1)
        if how == "insert":
            data.insert(at, byte)
        elif at < len(data):
            data[at : at + 1] = [byte] if how == "set" else []
    return bytes(data)


@settings(max_examples=400)
@given(
    values=st.lists(st.one_of(st.none(), st.tuples(fields, mutation)), min_size=1, max_size=6),
    keys=st.lists(st.sampled_from(KEYS), min_size=6, max_size=6),
)
def test_any_bytes_are_what_events_says_they_are(values, keys):
    """Adds of any form, bytes changed at random, deletes, heartbeats, bad keys: the same event or the same reason."""
    packed = [None if value is None else mutated(msgpack.packb(value[0]), value[1]) for value in values]
    check(packed, keys[: len(packed)])
    check(packed)


@pytest.mark.parametrize("number", [8191, 8192, 8193, 20000])
def test_texts_at_the_length_of_a_passage(number):
    """A text that needs several passages is cut as `text` cuts it, and the records beside it are what they were."""
    long = msgpack.packb({"op": "add", "text": "alpha beta " * (number // 2) + "gamma " * (number % 2)})
    near = msgpack.packb({"op": "add", "text": "alpha alpha beta"})
    check([near, long, near])


@pytest.mark.parametrize("number", [4095, 4096, 4097, 8192])
@pytest.mark.parametrize("other", ["", "é "])
def test_texts_and_counts_at_the_words_of_a_passage(number, other):
    """A text whose words make too many pairs for one passage is cut as `text` cuts it; such counts are refused."""
    words = [f"w{k}" for k in range(number)]
    text = msgpack.packb({"op": "add", "text": other + " ".join(words)})
    counts = msgpack.packb({"op": "add", "counts": dict.fromkeys(words, 1)})
    near = msgpack.packb({"op": "add", "text": "w1 w1 beta"})
    decoded = check([near, text, counts, near])
    assert set(decoded.others) == ({2} if number > 4096 else set())
    assert len(check([text]).documents.batch.lengths) == {4095: 1, 4096: 1, 4097: 2, 8192: 4}[number]
