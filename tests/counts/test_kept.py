"""Counts whose documents are kept: the numbers of counts that are added up, whatever came and went."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compact import N, counts, dense, full, triangles
from test_cooccurrence import N as WORDS
from test_cooccurrence import corpora, counted, documents, same

from streamtopic.counts import DocumentBatch, KeptCounts, Passage, SymmetricCounts, Weighting
from streamtopic.counts import count_sources as kept_module
from streamtopic.counts.compact import MARK, UpperRows, mirrored, pack
from streamtopic.errors import CountsOverflow, NegativeCounts

NAMES = [f"w{k}" for k in range(WORDS)]
ALL = np.arange(WORDS)
TWO = [
    Passage(5, np.array([0, 2], np.int32), np.array([2, 1], np.int32)),
    Passage(4, np.array([2, 3], np.int32), np.array([1, 3], np.int32)),
]


def kept(corpus):
    """Keep the documents of a corpus."""
    return KeptCounts.counted(NAMES, DocumentBatch.build(corpus), Weighting())


def contents(document):
    """What makes a document equal to another."""
    return tuple((p.length, *p.words.tolist(), "held", *p.counts.tolist()) for p in document)


def agree(held, corpus, keep=ALL):
    """Whether kept counts are those of a corpus in every form in which they are asked for."""
    keep = np.asarray(keep, np.intp)
    expected = counted(corpus)
    entered = np.arange(len(keep)) % 2 == 0
    q, mirror = held.symmetric(keep), SymmetricCounts.of(expected, keep)
    return (
        same(held.restrict(keep), expected.restrict(keep))
        and same(held.touching(keep, entered), expected.touching(keep, entered))
        and all(np.array_equal(a, b) for a, b in zip(q.rows, mirror.rows, strict=True))
        and np.array_equal(held.frequency, expected.frequency)
        and np.array_equal(held.tokens, expected.tokens)
        and np.array_equal(held.heavy, expected.heavy)
    )


@settings(max_examples=80)
@given(corpora, corpora, st.sets(st.integers(0, WORDS - 1), min_size=1), st.integers(1, 9))
def test_they_are_the_counts_of_the_documents(first, second, keep, size):
    """Kept, added to and taken from, in blocks and panels of any size, they are like counts made anew."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_module, "_BLOCK", size)
        patched.setattr(kept_module, "_PANEL", size)
        held = kept(first)
        assert agree(held, first)
        both = held.plus(DocumentBatch.build(second))
        assert agree(both, first + second, sorted(keep))
        left = both.minus(DocumentBatch.build(first))
        assert agree(left, second, sorted(keep))
        assert agree(held, first), "a change makes another value"


@settings(max_examples=60)
@given(st.lists(documents, min_size=1, max_size=5), st.data())
def test_any_history_leaves_the_counts_of_what_is_there(pool, data):
    """Documents come and go in any order, equal ones among them: only which are there matters, and no block is left."""
    held, there = kept([]), []
    for _ in range(data.draw(st.integers(0, 12))):
        if there and data.draw(st.booleans()):
            gone = data.draw(st.permutations(there))[: data.draw(st.integers(1, len(there)))]
            held = held.minus(DocumentBatch.build(gone))
            for document in gone:
                there.remove(document)
        else:
            more = data.draw(st.lists(st.sampled_from(pool), max_size=4))
            held = held.plus(DocumentBatch.build(more))
            there += more
    assert agree(held, there)
    assert held.documents == len(there) == sum(block.documents for block in held.blocks)
    empty = held.minus(DocumentBatch.build(there))
    assert sum(len(block.lengths) for block in empty.blocks) == 0


@settings(max_examples=120)
@given(st.lists(documents, min_size=1, max_size=4), st.data(), st.booleans())
def test_documents_that_are_not_there_are_refused(pool, data, collide):
    """Documents go exactly where each is there as often as it is to go; also where marks say nothing."""
    there = data.draw(st.lists(st.sampled_from(pool), max_size=6))
    gone = data.draw(st.lists(st.sampled_from(pool), min_size=1, max_size=6))
    with pytest.MonkeyPatch.context() as patched:
        if collide:
            patched.setattr(kept_module, "_marks", lambda batch: np.zeros(batch.documents, np.uint64))
        held = kept(there)
        if Counter(map(contents, gone)) <= Counter(map(contents, there)):
            assert held.minus(DocumentBatch.build(gone)).documents == len(there) - len(gone)
        else:
            with pytest.raises(NegativeCounts, match="not there"):
                held.minus(DocumentBatch.build(gone))
        assert agree(held, there)


@settings(max_examples=40)
@given(corpora, st.integers(2, 5))
def test_counting_in_pieces_counts_the_same(corpus, number):
    """However many pieces a corpus is counted in, its counts are those of the whole."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_module, "pieces", lambda *_: number)
        assert agree(kept(corpus), corpus)


@settings(max_examples=60)
@given(corpora, corpora, st.sets(st.integers(0, 2 * WORDS), min_size=WORDS, max_size=WORDS))
def test_more_words_change_no_count(first, second, places):
    """Over more words the same documents are there, can be added to, and go again."""
    at = np.array(sorted(places), np.int64)
    words = [f"v{k:02d}" for k in range(2 * WORDS + 1)]
    wider = kept(first).over(words, at)
    assert same(wider.restrict(np.arange(len(words))), counted(first).relabel(at, len(words)))
    more = DocumentBatch.build(second)
    moved = kept_module.narrowed(more, at.astype(np.int32))
    both = wider.plus(moved)
    assert same(both.restrict(at), counted(first + second))
    assert same(both.minus(moved).restrict(at), counted(first))


def test_more_passages_than_64_bits_may_hold_are_refused(monkeypatch):
    """Where pairs of so many passages might exceed 64 bits no more are taken, and what is there stays."""
    batch = DocumentBatch.build([TWO])
    held = KeptCounts.counted(NAMES, batch, Weighting())
    monkeypatch.setattr(kept_module, "_ROOM", 3 * (256 << 30))
    with pytest.raises(CountsOverflow, match="4 passages"):
        held.plus(batch)
    assert held.minus(batch).plus(batch).documents == 1


@settings(max_examples=100)
@given(triangles, st.sets(st.integers(1, N - 1)))
def test_panels_mirror_like_the_whole(pairs, edges):
    """However rows are cut into panels, both triangles are the same bits, and every panel is used up."""
    some = counts({**pairs, (0, N - 1): MARK + 3})
    bounds = [0, *sorted(edges), N]
    panels = []
    for start, stop in pairwise(bounds):
        held = slice(some.indptr[start], some.indptr[stop])
        indptr = some.indptr[start : stop + 1] - some.indptr[start]
        panels.append(UpperRows(start, pack(N, indptr, some.columns[held], some.values[held])))
    rows = mirrored(N, panels)
    assert panels == []
    assert all(np.array_equal(a, b) for a, b in zip(rows, SymmetricCounts.of(some).rows, strict=True))
    assert np.array_equal(dense(SymmetricCounts(N, rows)), full(some))
