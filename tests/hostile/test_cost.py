"""What one record may cost is bounded before it is paid: marks, words, pairs, values, bytes of Redis and memory."""

import itertools
import random
import struct
import time
import tracemalloc
import unicodedata

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.documents.events import MAX_TEXT, MAX_VALUE, Delete, decode, encode_add, encode_delete
from streamtopic.errors import InvalidEvent
from streamtopic.service.ingest.decode import decode_all
from streamtopic.service.ingest.partition_ingest import Ingest
from streamtopic.state import MAX_STORED_BYTES, DocumentChanges, ModelSettings, PartitionWriter, Reader
from streamtopic.streams import FileLog, Record, TopicNames
from streamtopic.streams.event_log import MAX_HEADERS
from streamtopic.words import text as words_of_text
from streamtopic.words.lexicon import Lexicon
from streamtopic.words.text import (
    MAX_MARKS,
    MAX_PAIRS,
    MAX_TEXT_WORDS,
    pairs,
    passages,
    tokenize,
)

MOST_BYTES = 64_000_000
MARKS = "\u0316\u0300\u0327\u0345\u05b0\u093c\u3099"


def _texts():
    """Return texts of a megabyte, each made to cost as much as it can."""
    rng = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    short = ["".join(word) for size in (2, 3) for word in itertools.product(letters, repeat=size)]
    long = ["".join(word) for word in itertools.product(letters, repeat=4)]
    rng.shuffle(long)
    yield "new words", _filled([*short, *long])
    yield "words in another order each time", _filled([word for _ in range(8) for word in rng.sample(short, 46_000)])
    yield (
        "few words in another order each time",
        _filled([w for _ in range(99) for w in rng.sample(long[:3_000], 3_000)]),
    )
    yield "pairs of characters", "".join(chr(0x4E00 + rng.randrange(20_000)) for _ in range(333_000))
    yield "pairs of rare characters", "".join(chr(0x20000 + rng.randrange(40_000)) for _ in range(250_000))
    yield "words beside one letter that is not ASCII", "é " + _filled(["ab", *long])[:-4]


def _filled(words):
    ends = itertools.accumulate(len(word) + 1 for word in words)
    return " ".join(word for word, end in zip(words, ends, strict=False) if end <= MAX_TEXT)


TEXTS = dict(_texts())


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "é", "İ", "क", "か", "\u200d", " ", ""]), st.integers(0, 80)), max_size=6)
)
def test_no_run_of_marks_reaches_normalisation(runs):
    """Of marks in a row at most 30 are sorted, whatever stands between the runs, and the others do not change words."""
    seen = []

    class Spied:
        normalize = staticmethod(lambda form, text: (seen.append(text), unicodedata.normalize(form, text))[1])
        category = unicodedata.category

    text = "".join(letter + (MARKS * 12)[:length] for letter, length in runs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_of_text, "unicodedata", Spied)
        words = tokenize(text)
    for given_text in seen:
        kinds = [unicodedata.category(character).startswith("M") for character in given_text]
        assert max((len([*run]) for mark, run in itertools.groupby(kinds) if mark), default=0) <= MAX_MARKS
    cut = "".join(letter + (MARKS * 12)[:length][:MAX_MARKS] for letter, length in runs if letter)
    if all(letter for letter, _ in runs) and not any("İ" in letter for letter, _ in runs):
        assert words == tokenize(cut)


@pytest.mark.parametrize("what", TEXTS)
def test_no_text_makes_more_words_and_pairs_than_it_may(what):
    """Whatever a megabyte holds, its different words and the pairs of its passages are within what is promised."""
    found = passages(TEXTS[what])
    assert len(set().union(*(counts for _, counts in found))) <= MAX_TEXT_WORDS
    made = sum(pairs(len(counts)) for _, counts in found)
    assert made <= MAX_PAIRS
    lengths = [length for length, _ in found]
    assert max(lengths) - min(lengths) <= 1
    assert sum(lengths) == len(words_of_text._words(TEXTS[what]))


def _nested(*, head, lists):
    """Return lists within lists, each of which says that it is as long as what follows could be."""
    return head + b"\xdd\x00\x00\xf0\x00" * lists + b"\x00" * (65_000 - 5 * lists)


def _long(unit, number, head=b"\xdd"):
    before = b"\x83\xa2op\xa3add\xa4text\xa5aa bb\xa4meta"
    return before + head + struct.pack(">I", number) + unit * number


JSON = b'{"op": "add", "text": "aa bb", "meta": '
BOMBS = {
    "empty lists": _long(b"\x90", MAX_VALUE - 100),
    "empty maps": _long(b"\x80", MAX_VALUE - 100),
    "short strings": _long(b"\xa2ab", 1_000_000),
    "extensions": _long(b"\xd4\x05x", 1_000_000),
    "keys": _long(b"\xa2ab\x00", 1_000_000, b"\xdf"),
    "lists in counts": msgpack.packb({"op": "add", "counts": {f"w{k}": [[]] * 90 for k in range(4_000)}}),
    "lists in labels": msgpack.packb({"op": "add", "text": "aa", "labels": {"a": [[]] * 4_000_000}}),
    "JSON lists": JSON + b"[" + b"[]," * 1_390_000 + b"1]}",
    "JSON maps": JSON + b"[" + b'{"":0},' * 590_000 + b"1]}",
    "JSON strings": JSON + b"[" + b'"ab",' * 830_000 + b"1]}",
    "JSON in UTF-16": ('{"op": "add", "text": "aa", "meta": [' + "[]," * 600_000 + "1]}").encode("utf-16-le"),
    "lists that lie": _nested(head=b"\x81\xa4meta", lists=500),
    "more lists that lie": _nested(head=b"\x81\xa4meta", lists=1_000),
}


@pytest.mark.parametrize("what", BOMBS)
def test_values_are_counted_before_they_are_made(what):
    """A record of many values is refused under a name of its own, and takes no more memory than its bytes do."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidEvent) as caught:
            decode(b"d", BOMBS[what])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.reason == ("format" if "lie" in what else "value-count")
    assert peak < 4 * MAX_VALUE


def test_too_many_headers_are_refused_by_name():
    """An add with 257 headers is refused, one with 256 is not, and a delete is one whatever else it holds."""
    headers = (("request", b"r"), *[("", b"")] * MAX_HEADERS)
    add = msgpack.packb({"op": "add", "text": "one two"})
    assert decode(b"d", add, headers[:-1]).passages == ((2, {"one": 1, "two": 1}),)
    with pytest.raises(InvalidEvent) as refused:
        decode(b"d", add, headers)
    assert refused.value.reason == "headers"
    for value in (None, b"", msgpack.packb({"op": "delete"})):
        assert decode(b"d", value, headers) == Delete("d", "r")
    records = [Record("t", 0, k, b"d%d" % k, add, some, 0) for k, some in enumerate((headers, headers[:-1]))]
    decoded = decode_all(records, Lexicon("one"), 1)
    assert {k: event.reason for k, event in decoded.others.items()} == {0: "headers"}


@pytest.mark.parametrize("what", ["new words", "words in another order each time"])
def test_one_record_takes_at_most_64_megabytes(connection, redis_server, what):
    """In Redis, and in the process that counts it, from its bytes to the commit."""
    del redis_server
    state = PartitionWriter.open(connection, f"cost-{len(what)}", 0, ModelSettings(1, 256))
    _counted(state, "aa bb é か", 0)
    before = _used(connection)
    tracemalloc.start()
    try:
        _counted(state, TEXTS[what], 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert _used(connection) - before < MOST_BYTES
    assert peak < MOST_BYTES


def _counted(state, text, offset):
    """Count one record and commit it."""
    record = Record("t", 0, offset, b"d%d" % offset, msgpack.packb({"op": "add", "text": text}), (), 0)
    added = decode_all([record], state.lexicon, 1).documents
    state.commit(state.plan(DocumentChanges(next_offset=offset + 1, added=added)))


@pytest.mark.slow
def test_stored_documents_are_read_within_bounds(connection):
    """50 MB of records of long documents are read some at a time: each time in 64 MB, all of them in the end."""
    state = PartitionWriter.open(connection, "longest", 0, ModelSettings(1, 256))
    _counted(state, TEXTS["words in another order each time"], 0)
    record = connection.call("HGET", state.keys.documents(state.keys.bucket(b"d0")), b"d0")
    ids = [b"long-%d" % k for k in range(1 + 50_000_000 // len(record))]
    for document in ids:
        connection.call("HSET", state.keys.documents(state.keys.bucket(document)), document, record)
    assert len(record) * len(ids) > 9 * MAX_STORED_BYTES > 9 * len(record)
    known, left, rounds, peaks = {*ids}, [b"not there", *ids, b"nor this"], [], []
    while left:
        tracemalloc.start()
        stored, looked = state.documents(left)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [document for document in left[:looked] if document in known] == list(stored)
        rounds.append(len(stored))
        left = left[looked:]
    assert sum(rounds) == len(ids)
    assert max(peaks) < MOST_BYTES


def test_a_flush_reads_so_many_stored_bytes_at_most(connection, tmp_path, monkeypatch):
    """Documents that are replaced or deleted at once go in several flushes, the same counts in all."""
    monkeypatch.setattr("streamtopic.state.partition_writer.MAX_STORED_BYTES", 1_000)
    names, log = TopicNames("stored"), FileLog(tmp_path / "log", clock=time.time)
    log.create(names.documents, 1)
    log.create(names.rejected, 1)
    ingest = Ingest(connection, log, names, 0, settings=ModelSettings(1, 256), clock=time.time)
    adds = [encode_add(f"d{k}", counts={f"w{j}": 1 + k % 2 for j in range(200)}) for k in range(20)]
    deletes = [encode_delete(f"d{k}", "r") for k in range(10)]
    for messages, most in ((adds, 20), ([*adds, *adds], 4), ([*deletes, *deletes], 12)):
        log.append_many(names.documents, messages)
        steps = list(ingest.drain())
        assert sum(step.records for step in steps) == len(messages)
        assert max(step.records for step in steps) <= most
    assert Reader(connection, names.model, 1).counts().documents == 10


def _used(connection):
    return sum(connection.call("MEMORY", "USAGE", key, "SAMPLES", "0") for key in connection.call("KEYS", "*{st:cost*"))
