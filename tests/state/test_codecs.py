"""Records and numbers of words: what is written is read, other bytes are refused, sizes stay small."""

from contextlib import suppress

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.counts import MAX_LENGTH, DocumentBatch, Passage
from streamtopic.errors import StateCorrupt
from streamtopic.state.document_records import EVERY_OFFSET, Records, StoredDocument, decode_batch, encode_records
from streamtopic.state.word_ids import AddedDocuments
from streamtopic.words.lexicon import Lexicon


def passages(last, most):
    """Passages over word ids up to the last one, no word more often than `most` times."""
    words = st.dictionaries(st.integers(0, last), st.integers(1, most), max_size=12)
    return words.map(
        lambda held: Passage(
            sum(held.values()), np.array(sorted(held), np.int32), np.array([held[w] for w in sorted(held)], np.int32)
        )
    )


def plain(passages):
    """Return passages as comparable values."""
    return [(p.length, p.words.tolist(), p.counts.tolist()) for p in passages]


@settings(max_examples=60)
@given(
    documents=st.lists(st.lists(passages(50, MAX_LENGTH // 12), max_size=3), max_size=4),
    offset=st.integers(0, 2**53),
    labels=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
def test_records_keep_documents(documents, offset, labels):
    """What comes before the passages comes back as it was, and equal passages alone have equal bytes."""
    k = len(documents)
    records = encode_records(DocumentBatch.build(documents), [offset] * k, [labels] * k)
    stored = [StoredDocument.of(record) for record in records]
    assert all((s.offset, dict(s.labels), s.subjects) == (offset, labels, ()) for s in stored)
    for one, document in zip(stored, documents, strict=True):
        same = [plain(other) == plain(document) for other in documents]
        assert [other.body == one.body for other in stored] == same


@pytest.mark.parametrize("step", [1, 100, 20_000])
def test_long_documents_read_back(step):
    """Memory is reserved for all numbers of a record, however many words it has and however far apart they are."""
    words, counts = np.arange(400, dtype=np.int32) * step, np.full(400, 20, np.int32)
    batch = DocumentBatch.build([[Passage(8000, words, counts)] * 3])
    records = Records.of(encode_records(batch, [2**53], [{}]))
    found = decode_batch(records, np.arange(400 * step), EVERY_OFFSET)
    assert found.offsets.tolist() == [2**53]
    assert found.batch.words.tolist() == batch.words.tolist()
    assert found.batch.counts.tolist() == batch.counts.tolist()


GOOD = bytes([0, 0, 1, 3, 2, 0, 1, 0])
"""Offset 0, no labels, one passage of three tokens: word 0 once, word 1 twice."""


def named(labels, subjects=()):
    """Return a record without passages, with these names."""
    names = msgpack.packb((labels, subjects))
    return bytes([0, len(names)]) + names + b"\x00"


@pytest.mark.parametrize(
    "record",
    [
        b"",
        GOOD[:-1],
        GOOD + b"\x00",
        GOOD[:3] + b"\x02" + GOOD[4:],
        bytes([0, 0, 1, 3, 1, 0x80]),
        bytes([0, 0, 1, 3, 1, 0x7E]),
        bytes([0, 0, 1, 3, 1, *[0xFF] * 9, 1]),
        bytes([0, 0, 1, 0x81, 0x40, 0]),
        bytes([0, 0, *[0xFF] * 9, 1]),
        bytes([0, *[0xFF] * 9, 1]),
        bytes([*[0xFF] * 9, 1, 0, 0]),
        bytes([0, 1, 0xC1, 0]),
        bytes([0, 1, 0x05, 0]),
        named({"t": 1}),
        named({"t": ["a"]}),
        named({1: "ab"}),
        named({}, [1]),
        named({}, 5),
    ],
)
def test_damaged_records_are_refused(record):
    """Whatever was damaged, it is named with its remedy, and never read as another document."""
    assert read(GOOD) == 1
    with pytest.raises(StateCorrupt, match="streamtopic rebuild"):
        read(record)


def read(record):
    """Read a record both ways; return how many documents it is."""
    batch = decode_batch(Records.of([record]), np.arange(50), EVERY_OFFSET).batch
    assert StoredDocument.of(record).offset >= 0
    assert batch.words.min(initial=0) >= 0
    assert batch.words.max(initial=0) < 50
    assert batch.counts.min(initial=1) >= 1
    return batch.documents


@settings(max_examples=200)
@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_document_or_refused(data):
    """Whatever Redis holds, reading it gives one document or StateCorrupt."""
    with suppress(StateCorrupt):
        assert read(data) == 1


@settings(max_examples=60)
@given(
    documents=st.lists(st.lists(passages(40, MAX_LENGTH // 12), max_size=3), max_size=4),
    chosen=st.randoms(use_true_random=False),
    before=st.integers(0, 4),
)
def test_many_records_are_read_as_one_by_one(documents, chosen, before):
    """Over the words that are asked for, in any order of them, and without documents that were added later."""
    records = encode_records(DocumentBatch.build(documents), range(len(documents)), [{}] * len(documents))
    positions = np.array(chosen.sample(range(41), 41), np.int64)
    positions[chosen.sample(range(41), 13)] = -1
    found = decode_batch(Records.of(records), positions, before)
    assert found.places.tolist() == list(range(min(before, len(documents))))
    expected = []
    for number, document in enumerate(documents[:before]):
        for part in document:
            held = zip(positions[part.words].tolist(), part.counts.tolist(), strict=True)
            expected.append((number, part.length, sorted((word, times) for word, times in held if word >= 0)))
    batch = found.batch
    rows = []
    for row in range(len(batch.lengths)):
        here = slice(batch.indptr[row], batch.indptr[row + 1])
        held = zip(batch.words[here].tolist(), batch.counts[here].tolist(), strict=True)
        rows.append((int(batch.owners[row]), int(batch.lengths[row]), list(held)))
    assert rows == expected


@settings(max_examples=100)
@given(
    rows=st.lists(st.dictionaries(st.integers(0, 40), st.integers(1, 8192), max_size=12), max_size=9),
    known=st.sets(st.integers(0, 40)),
    chosen=st.randoms(use_true_random=False),
)
def test_words_of_each_row_ascend_and_keep_their_counts(rows, known, chosen):
    """Whatever the order of words in a text, ids ascend, new ones follow the given ones, counts stay."""
    numbers = np.full(41, -1, np.int32)
    numbers[sorted(known)] = chosen.sample(range(100), len(known))
    lexicon = Lexicon("test")
    lexicon.number([b"w%d" % word for word in range(41)])
    passages = [[(9000 * 12, {f"w{word}": count for word, count in row.items()})] for row in rows]
    count = len(rows)
    added = AddedDocuments([b"d"] * count, np.arange(count), lexicon.numbered(passages), [{}] * count, [()] * count)
    batch, born = added.numbered(numbers, 100)
    assert (numbers[born] == -1).all()
    numbers[born] = range(100, 100 + len(born))
    assert set(born.tolist()) == {word for row in rows for word in row} - known
    for k, row in enumerate(rows):
        here = slice(batch.indptr[k], batch.indptr[k + 1])
        wanted = sorted((int(numbers[word]), count) for word, count in row.items())
        assert list(zip(batch.words[here].tolist(), batch.counts[here].tolist(), strict=True)) == wanted
