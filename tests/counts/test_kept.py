"""Counts that are kept and changed in place: the numbers of counts that are added up, in panels or whole."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compact import N, counts, dense, full, triangles
from test_cooccurrence import N as WORDS
from test_cooccurrence import corpora, counted, same

from streamtopic.counts import DocumentBatch, KeptCounts, SymmetricCounts, Weighting
from streamtopic.counts import kept as kept_module
from streamtopic.counts.compact import MARK, pack
from streamtopic.counts.upper import Panel, mirrored
from streamtopic.errors import CountsOverflow, NegativeCounts

NAMES = [f"w{k}" for k in range(WORDS)]


def kept(corpus):
    """Count documents that stay in memory."""
    return KeptCounts.counted(NAMES, DocumentBatch.build(corpus), Weighting())


@settings(max_examples=80, deadline=None)
@given(corpora, corpora, st.sets(st.integers(0, WORDS - 1), min_size=1))
def test_they_are_the_counts_of_the_documents(first, second, keep):
    """Counted, added to and taken from, they restrict and mirror like counts made anew."""
    some = np.array(sorted(keep), np.intp)
    everything = np.arange(WORDS)
    held = kept(first)
    assert same(held.restrict(everything), counted(first))
    held.add(counted(second))
    assert same(held.restrict(everything), counted(first + second))
    held.add(counted([]) - counted(first))
    assert same(held.restrict(some), counted(second).restrict(some))
    entered = np.arange(len(some)) % 2 == 0
    assert same(held.touching(some, entered), counted(second).touching(some, entered))
    for chosen in (some, everything):
        q, expected = held.symmetric(chosen), SymmetricCounts.of(counted(second), chosen)
        assert all(np.array_equal(a, b) for a, b in zip(q.rows, expected.rows, strict=True))


@settings(max_examples=40, deadline=None)
@given(corpora, st.integers(2, 5))
def test_counting_in_pieces_counts_the_same(corpus, number):
    """However many pieces a corpus is counted in, its counts are those of the whole."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_module, "pieces", lambda *_: number)
        held = kept(corpus)
    assert same(held.restrict(np.arange(WORDS)), counted(corpus))


@settings(max_examples=80, deadline=None)
@given(corpora, corpora)
def test_what_was_never_counted_changes_nothing(first, second):
    """Taking away documents that are not all there raises, and leaves every count as it was."""
    held, before = kept(first), kept(first)
    change = counted([]) - counted([*first, *second, *second, *second])
    if change.documents + len(first) < 0:
        with pytest.raises(NegativeCounts):
            held.add(change)
    assert same(held.restrict(np.arange(WORDS)), before.restrict(np.arange(WORDS)))


def test_pairs_below_zero_and_beyond_64_bits_are_refused():
    """A pair that would become negative, or leave 62 bits, raises and leaves the counts as they were."""
    some = counts({(0, 1): 5, (2, 3): 2**61})
    held = KeptCounts(NAMES[:N], pack(N, some.indptr, some.columns, some.values), some.frequency, some.tokens, 9)
    with pytest.raises(NegativeCounts):
        held.add(counts({(0, 1): -6}))
    with pytest.raises(CountsOverflow):
        held.add(counts({(0, 1): 1, (2, 3): 2**61}))
    assert np.array_equal(held.restrict(np.arange(N)).values, some.values)


@settings(max_examples=100, deadline=None)
@given(triangles, st.sets(st.integers(1, N - 1)))
def test_panels_mirror_like_the_whole(pairs, edges):
    """However rows are cut into panels, both triangles are the same bits, and every panel is used up."""
    some = counts({**pairs, (0, N - 1): MARK + 3})
    bounds = [0, *sorted(edges), N]
    panels = []
    for start, stop in pairwise(bounds):
        held = slice(some.indptr[start], some.indptr[stop])
        indptr = some.indptr[start : stop + 1] - some.indptr[start]
        panels.append(Panel(start, pack(N, indptr, some.columns[held], some.values[held])))
    rows = mirrored(N, panels)
    assert panels == []
    assert all(np.array_equal(a, b) for a, b in zip(rows, SymmetricCounts.of(some).rows, strict=True))
    assert np.array_equal(dense(SymmetricCounts(N, rows)), full(some))
