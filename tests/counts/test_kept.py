"""Counts whose documents are kept: the numbers of counts that are added up, whatever came and went."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cooccurrence import N as WORDS
from test_cooccurrence import corpora, counted, documents, same, same_pairs

from streamtopic.counts import (
    DocumentBatch,
    KeptCounts,
    Passage,
    SymmetricCounts,
    Weighting,
    symmetric,
)
from streamtopic.counts import count_sources as kept_module
from streamtopic.errors import CountsOverflow, NegativeCounts
from streamtopic.topics.products import dense_rows, grouped_rows, times

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
    left = np.arange(0, len(keep), 2)
    # Of documents first, and of rows once somebody has read them.
    fewer = [q.only(left), mirror.only(left), SymmetricCounts.of(expected, keep[left])]
    return (
        same(held.restrict(keep), expected.restrict(keep))
        and same_pairs(held.touching(keep, entered), expected.touching(keep, entered))
        and all(np.array_equal(a, b) for a, b in zip(q.rows, mirror.rows, strict=True))
        and all(np.array_equal(a, b) for one in fewer for a, b in zip(one.rows, fewer[-1].rows, strict=True))
        and np.array_equal(held.frequency, expected.frequency)
        and np.array_equal(held.tokens, expected.tokens)
        and np.array_equal(held.heavy, expected.heavy)
    )


@settings(max_examples=80)
@given(corpora, corpora, st.sets(st.integers(0, WORDS - 1), min_size=1), st.integers(1, 9))
def test_they_are_the_counts_of_the_documents(first, second, keep, size):
    """Kept, added to and taken from, in blocks of any size, they are like counts made anew."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_module, "_BLOCK", size)
        patched.setattr(symmetric, "_PAIRS", size)
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
    """Documents come and go in any order, equal ones among them: only which are there matters, and no block is left.

    They may be in one block or in several, of which some change.
    """
    held, there = kept([]), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_module, "_BLOCK", data.draw(st.sampled_from([3, 1000])))
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


def test_documents_stand_for_rows_that_nobody_has_read():
    """Sums of rows, products and pairs of a few words have the bits of the matrix, which is counted when it is read."""
    rng = np.random.default_rng(3)
    n = 700
    words = [np.sort(rng.choice(n, 40, replace=False)).astype(np.int32) for _ in range(60)]
    amounts = rng.integers(1, 4, (60, 40), np.int32)
    corpus = [
        [Passage(int(own.sum()), *pair)] for own, pair in zip(amounts, zip(words, amounts, strict=True), strict=True)
    ]
    held = KeptCounts.counted([f"w{k:03d}" for k in range(n)], DocumentBatch.build(corpus), Weighting())
    keep = np.arange(1, n)
    expected = SymmetricCounts.of(held.restrict(keep))
    q = held.symmetric(keep)
    group = np.arange(len(keep)) % 4 - 1
    few = np.arange(1, len(keep), 2)
    thin = rng.random((len(keep), 3))
    assert np.array_equal(q.row_sums(), expected.row_sums())
    assert np.array_equal(grouped_rows(q, group, 3), grouped_rows(expected, group, 3))
    among = [(block.columns.copy(), block.values.copy()) for block in q.uncounted.blocks(few)]
    restricted = expected.upper().restrict(few)
    for found, wanted in zip(zip(*among, strict=True), (restricted.columns, restricted.values), strict=True):
        assert np.array_equal(np.concatenate(found), wanted)
    assert np.array_equal(dense_rows(q, few[::-1]), dense_rows(expected, few[::-1]))
    assert np.array_equal(times(q, thin), times(expected, thin))
    assert np.array_equal(q.lengths, expected.lengths)
    assert all(np.array_equal(a, b) for a, b in zip(q.rows, expected.rows, strict=True))
    assert q.uncounted is None, "no document is held once the rows are there"
