"""Integers in few bytes: whatever is put in comes out, is added and is mirrored, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packed import dense_of, values_of
from streamtopic.counts import Cooccurrence, SymmetricCounts
from streamtopic.counts.compact import MARK
from streamtopic.errors import CountsOverflow
from streamtopic.topics.paper_anchors import row_norms
from streamtopic.topics.products import add_times_sparse, dense_rows, grouped_rows, times

N = 7
EDGES = [1, MARK - 1, MARK, MARK + 1, 2**32 + 5, 2**53 + 1, 2**61 - 2**30]
values = st.one_of(st.sampled_from(EDGES), st.integers(1, 2**33))
triangles = st.dictionaries(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)), values, max_size=30)


def counts(pairs, n=N):
    """Return the upper triangle of these pairs."""
    upper = {(min(pair), max(pair)): value for pair, value in pairs.items() if value}
    order = sorted(upper)
    indptr = np.searchsorted([i for i, _ in order], np.arange(n + 1)).astype(np.int64)
    nothing = np.zeros(n, np.int64)
    columns = np.array([j for _, j in order], np.int32)
    values = np.array([upper[pair] for pair in order], np.int64)
    return Cooccurrence(n, indptr, columns, values, nothing, nothing, nothing, documents=1)


def full(some):
    """Return both triangles as a dense matrix of Python integers."""
    upper = some.upper.toarray().astype(object)
    return upper + upper.T - np.diag(upper.diagonal())


@settings(max_examples=100)
@given(triangles, st.sets(st.integers(0, N - 1), min_size=1))
def test_what_is_mirrored_is_what_was_counted(pairs, keep):
    """Values below, at and above 2^32 - 1 and up to 2^62 come back exactly, of all words or some."""
    kept = np.array(sorted(keep), np.intp)
    some = counts(pairs)
    assert np.array_equal(dense_of(SymmetricCounts.of(some)), full(some))
    q = SymmetricCounts.of(some, kept)
    assert np.array_equal(dense_of(q), full(some)[np.ix_(kept, kept)])
    back, direct = q.upper(), some.restrict(kept)
    assert np.array_equal(back.columns, direct.columns)
    assert np.array_equal(back.values, direct.values)


@settings(max_examples=100)
@given(triangles)
def test_every_sum_reads_the_exact_value(pairs):
    """Products, norms, dense rows and sums are those of the integers, wide ones included, from any column on."""
    q = SymmetricCounts.of(counts(pairs))
    exact = dense_of(q)
    plain = exact.astype(np.int64)
    thin = np.eye(N)
    assert np.array_equal(times(q, thin), plain.astype(float))
    assert np.array_equal(dense_rows(q, np.arange(N)), plain)
    some = np.array([1, 4, 5])
    assert np.array_equal(grouped_rows(q, np.arange(N), N), plain)
    out = np.zeros((N, N))
    add_times_sparse(q, some, thin[some], out)
    expected = np.zeros((N, N))
    expected[:, some] = plain[:, some]
    assert np.array_equal(out, expected)
    squares = (plain.astype(float) ** 2).sum(axis=1)
    assert np.allclose(row_norms(q, np.arange(N), np.ones(N)), squares, rtol=1e-14)
    if all(abs(int(row.sum())) < 2**62 for row in exact):
        assert q.row_sums().tolist() == [int(row.sum()) for row in exact]
    else:
        with pytest.raises(CountsOverflow):
            q.row_sums()


@settings(max_examples=150)
@given(triangles, triangles, st.sets(st.integers(0, N + 2), max_size=N), st.integers(0, N))
def test_a_sum_is_that_of_the_words_that_stay(kept, change, positions, first):
    """Words come and go between others with their pairs; adding and taking away are inverses, and leave no zero."""
    stays = np.sort(np.random.default_rng(first).permutation(N)[: len(positions)])
    place = np.full(N, -1)
    place[stays] = sorted(positions)
    q, more = SymmetricCounts.of(counts(kept)), counts(change, N + 3)
    wide = np.zeros((N + 3, N + 3), object)
    wide[np.ix_(place[stays], place[stays])] = full(counts(kept))[np.ix_(stays, stays)]
    both = q.plus(SymmetricCounts.of(more), place)
    assert np.array_equal(dense_of(both), wide + full(more))
    back = both.plus(SymmetricCounts.of(Cooccurrence.zero(N + 3) - more))
    assert np.array_equal(dense_of(back), wide)
    assert values_of(back).all()
    assert np.array_equal(dense_of(q), full(counts(kept))), "a change makes another matrix"


def test_a_sum_beyond_62_bits_is_refused():
    """It would wrap in silence in the end."""
    q = SymmetricCounts.of(counts({(2, 3): 2**61}))
    assert dense_of(q.plus(SymmetricCounts.of(counts({(2, 3): 2**61 - 1}))))[3, 2] == 2**62 - 1
    with pytest.raises(CountsOverflow):
        q.plus(q)
