"""Records and segments: what is written is read, bytes that were not written are refused, sizes stay small."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from older_segments import older_passages
from whole_segments import Segment, decode, encode

from streamtopic.counts import Cooccurrence, DocumentBatch, Passage, Weighting, count
from streamtopic.errors import StateCorrupt
from streamtopic.state import segments
from streamtopic.state.document_records import decode_records, encode_records
from streamtopic.state.segments import (
    FlushRows,
    SegmentHead,
    decode_chunk,
    decode_head,
    decode_passages,
    encode_head,
    encode_rows,
)

int64 = st.integers(-(2**62), 2**62)
passage = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(1, 8192), max_size=12).map(
    lambda words: Passage(
        sum(words.values()), np.array(sorted(words), np.int32), np.array([words[w] for w in sorted(words)], np.int32)
    )
)


def plain(passages):
    """Return passages as comparable values."""
    return [(p.length, p.words.tolist(), p.counts.tolist()) for p in passages]


@settings(max_examples=60, deadline=None)
@given(
    documents=st.lists(st.lists(passage, max_size=3), max_size=4),
    offset=st.integers(0, 2**53),
    labels=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)
def test_records_keep_documents(documents, offset, labels):
    """Every document comes back as it was: passages, words, counts, labels, offset."""
    k = len(documents)
    records = encode_records(DocumentBatch.build(documents), [offset] * k, [labels] * k)
    stored = decode_records(records)
    assert [plain(s.passages) for s in stored] == [plain(document) for document in documents]
    assert all((s.offset, dict(s.labels)) == (offset, labels) for s in stored)
    assert [s.length for s in stored] == [sum(p.length for p in document) for document in documents]


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=40))
def test_bytes_that_are_no_record_are_refused(data):
    """Whatever Redis holds, reading it gives a document or StateCorrupt."""
    try:
        (stored,) = decode_records([b"\x01" + data])
    except StateCorrupt:
        return
    assert stored.offset >= 0


def zipf_documents(number, distinct, vocabulary, seed=0):
    """Yield documents whose words follow Zipf's law."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, vocabulary + 1)
    for _ in range(number):
        words = random.choice(vocabulary, size=distinct, replace=False, p=shares / shares.sum())
        counts = np.minimum(random.zipf(2.2, size=distinct), 50).astype(np.int32)
        yield [Passage(int(counts.sum()), np.sort(words).astype(np.int32), counts)]


def test_a_document_of_91_words_takes_at_most_250_bytes():
    """The aim of the design, for ids spread as by Zipf's law over 50,000 words."""
    records = encode_records(DocumentBatch.build(list(zipf_documents(200, 91, 50_000))), range(200), [{}] * 200)
    assert np.mean([len(record) for record in records]) <= 250


def test_a_stored_pair_takes_at_most_three_bytes():
    """The aim of the design, for a flush of documents of 91 words."""
    counts = count(DocumentBatch.build(list(zipf_documents(1000, 91, 20_000))), 20_000, Weighting())
    strings = encode(Segment(np.arange(20_000), counts, 1000, 0))
    assert sum(map(len, strings)) / counts.pairs <= 3


@st.composite
def signed_segments(draw):
    """A segment of any signed numbers over any ids."""
    ids = sorted(draw(st.sets(st.integers(0, 2**40), max_size=6)))
    n = len(ids)
    cells = [(a, b) for a in range(n) for b in range(a, n)]
    chosen = sorted(draw(st.sets(st.sampled_from(cells)))) if cells else []
    values = draw(st.lists(int64.filter(bool), min_size=len(chosen), max_size=len(chosen)))
    indptr = np.concatenate([[0], np.cumsum([sum(1 for a, _ in chosen if a == row) for row in range(n)])])
    columns = np.array([b for _, b in chosen], np.int32)
    numbers = [np.array(draw(st.lists(int64, min_size=n, max_size=n)), np.int64) for _ in range(3)]
    added, removed = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    counts = Cooccurrence(
        n, indptr.astype(np.int64), columns, np.array(values, np.int64), *numbers, documents=added - removed
    )
    return Segment(np.array(ids, np.int64), counts, added, removed)


@pytest.mark.parametrize("chunk_pairs", [1, 3, 1 << 20])
def test_segments_keep_counts(chunk_pairs, monkeypatch):
    """Signed counts come back bit for bit, also where a row is split over chunks."""
    monkeypatch.setattr(segments, "CHUNK_PAIRS", chunk_pairs)

    @settings(max_examples=60, deadline=None)
    @given(segment=signed_segments())
    def check(segment):
        again = decode(encode(segment))
        assert (again.added, again.removed) == (segment.added, segment.removed)
        assert again.counts.documents == segment.counts.documents
        assert np.array_equal(again.ids, segment.ids)
        for name in ("indptr", "columns", "values", "frequency", "tokens", "heavy"):
            assert np.array_equal(getattr(again.counts, name), getattr(segment.counts, name)), name

    check()


def test_all_ways_to_write_a_value_and_a_gap_are_read_back():
    """One-byte and two-byte ranks, literals, short and long gaps in one segment."""
    n = 40_000
    random = np.random.default_rng(1)
    columns = np.sort(random.choice(n, size=30_000, replace=False)).astype(np.int32)
    columns[-1] = n - 1
    values = np.concatenate([np.repeat(random.integers(1, 2**60, 5000), 5), random.integers(-(2**62), -1, 5000)])
    random.shuffle(values)
    indptr = np.full(n + 1, 30_002)
    indptr[0], indptr[1] = 0, 30_000
    nothing = np.zeros(n, np.int64)
    columns = np.concatenate([columns, [1, n - 1]]).astype(np.int32)
    both = Cooccurrence(n, indptr, columns, np.concatenate([values, [1, 2]]), nothing, nothing, nothing, 0)
    again = decode(encode(Segment(np.arange(n), both, 0, 0)))
    assert np.array_equal(again.counts.columns, both.columns)
    assert np.array_equal(again.counts.values, both.values)


def test_any_damage_to_a_segment_is_found():
    """No byte of a head or a chunk can change, be lost or be added unseen."""
    counts = count(DocumentBatch.build(list(zipf_documents(3, 5, 30))), 30, Weighting())
    head, chunk = encode(Segment(np.arange(30), counts, 3, 0))
    for data, read in ((head, decode_head), (chunk, lambda data: decode_chunk(data, 30))):
        for at in range(len(data)):
            for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], data + b"\0"):
                with pytest.raises(StateCorrupt):
                    read(bad)
    with pytest.raises(StateCorrupt):
        decode_chunk(chunk, 2)
    with pytest.raises(StateCorrupt):
        decode_head(chunk)


def test_a_heavy_word_that_is_not_among_the_ids_is_refused():
    """A head whose checksum is right, but which tells of more words than it names, is not read."""
    ids, one = np.array([4, 9]), np.ones(2, np.int64)
    with pytest.raises(StateCorrupt):
        decode_head(encode_head(SegmentHead(ids, one, one, np.array([0, 1, 1]), 1, 0), packed=False))
    found = decode_head(encode_head(SegmentHead(ids, one, one, np.array([0, -1]), 1, 0), packed=False))
    assert found.heavy.tolist() == [0, -1]


def test_chunks_stay_below_sixteen_mebibytes():
    """The longest gap takes four bytes, the longest literal eleven with its code."""
    longest = 4 + 1 + 10 + 1
    assert segments.CHUNK_PAIRS * longest <= 16 << 20


row = st.tuples(
    st.dictionaries(st.integers(0, 2**31 - 2), st.integers(1, 8192), max_size=9), st.integers(-(2**62), 2**62)
)


def signed(rows):
    """Return passages of (words with counts, weight)."""
    indptr = np.cumsum([0, *(len(words) for words, _ in rows)])
    flat = np.array([pair for words, _ in rows for pair in sorted(words.items())], np.int32).reshape(-1, 2)
    words, counts = flat.T.copy()
    return FlushRows(indptr, words, counts, np.array([weight for _, weight in rows], np.int64))


def rows_of(batch):
    """Return the rows of a flush that adds these documents."""
    return FlushRows.of(batch, Weighting(), np.ones(batch.documents, np.int64))


def same(left, right):
    """Whether two lots of passages are equal."""
    return all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in ("indptr", "words", "counts", "weights")
    )


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(row, max_size=6))
def test_passages_are_read_as_they_were_written(rows):
    """Words, counts and weights of either sign come back, also of passages without any word."""
    found = signed(rows)
    assert same(decode_passages(encode_rows(found), 2**31 - 1), found)


def test_any_damage_to_passages_is_found():
    """No byte can change, be lost or be added unseen, by whoever wants pairs nor by whoever wants passages."""
    batch = DocumentBatch.build(list(zipf_documents(3, 5, 30)))
    passages = rows_of(batch)
    for data in (encode_rows(passages), older_passages(passages)):
        for at in range(len(data)):
            for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], data + b"\0"):
                for read in (decode_passages, decode_chunk):
                    with pytest.raises(StateCorrupt):
                        read(bad, 30)
        with pytest.raises(StateCorrupt):
            decode_passages(data, int(batch.words.max()))


def test_rows_are_never_taken_for_a_chunk():
    """Whoever wants pairs must count rows: to read none from them would be wrong counts."""
    batch = DocumentBatch.build(list(zipf_documents(3, 5, 30)))
    with pytest.raises(StateCorrupt):
        decode_chunk(encode_rows(rows_of(batch)), 30)


def test_older_passages_are_a_chunk_without_pairs_and_a_chunk_has_no_passages():
    """Each kind of string is told by its first bytes, so a segment of an older program may end with either."""
    batch = DocumentBatch.build(list(zipf_documents(3, 5, 30)))
    _, chunk = encode(Segment(np.arange(30), count(batch, 30, Weighting()), 3, 0))
    assert decode_passages(chunk, 30) is None
    passages = rows_of(batch)
    assert same(decode_passages(older_passages(passages), 30), passages)
    nothing = decode_chunk(older_passages(passages), 30)
    assert [len(part) for part in (nothing.rows, nothing.sizes, nothing.columns, nothing.values)] == [0, 0, 0, 0]
