"""Integers in few bytes: whatever is put in comes out, is added and is mirrored, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamtopic.counts import Cooccurrence, SymmetricCounts
from streamtopic.counts.compact import MARK
from streamtopic.errors import CountsOverflow
from streamtopic.topics.paper_anchors import row_dot, row_norms
from streamtopic.topics.products import dense_rows, grouped_rows, times
from streamtopic.topics.update_rows import SparseRows, add_times_sparse

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


def dense(q):
    """Return what is stored, dense."""
    return csr_array((q.values, q.columns.astype(np.int64), q.indptr), shape=(q.n, q.n)).toarray().astype(object)


@settings(max_examples=100)
@given(triangles, st.sets(st.integers(0, N - 1), min_size=1))
def test_what_is_mirrored_is_what_was_counted(pairs, keep):
    """Values below, at and above 2^32 - 1 and up to 2^62 come back exactly, of all words or some."""
    kept = np.array(sorted(keep), np.intp)
    some = counts(pairs)
    assert np.array_equal(dense(SymmetricCounts.of(some)), full(some))
    q = SymmetricCounts.of(some, kept)
    assert np.array_equal(dense(q), full(some)[np.ix_(kept, kept)])
    back, direct = q.upper(), some.restrict(kept)
    assert np.array_equal(back.columns, direct.columns)
    assert np.array_equal(back.values, direct.values)
    for row in range(q.n):
        columns, held = q.row(row)
        assert np.array_equal(held, dense(q)[row, columns].astype(np.int64))


@settings(max_examples=100)
@given(triangles)
def test_every_sum_reads_the_exact_value(pairs):
    """Products, norms, dense rows and sums are those of the integers, wide ones included, from any column on."""
    q = SymmetricCounts.of(counts(pairs))
    exact = dense(q)
    plain = exact.astype(np.int64)
    thin = np.eye(N)
    assert np.array_equal(times(q, thin), plain.astype(float))
    assert np.array_equal(dense_rows(q, np.arange(N)), plain)
    some = np.array([1, 4, 5])
    assert np.array_equal(grouped_rows(q, np.arange(N), N), plain)
    out = np.zeros((N, N))
    add_times_sparse(q, SparseRows.of(some, thin[some]), out)
    expected = np.zeros((N, N))
    expected[:, some] = plain[:, some]
    assert np.array_equal(out, expected)
    squares = (plain.astype(float) ** 2).sum(axis=1)
    assert np.allclose(row_norms(q, np.arange(N), np.ones(N)), squares, rtol=1e-14)
    assert np.array_equal(row_dot(q.rows, 4, thin, 1.0), plain[4].astype(float))
    if all(abs(int(row.sum())) < 2**62 for row in exact):
        assert q.row_sums().tolist() == [int(row.sum()) for row in exact]
    else:
        with pytest.raises(CountsOverflow):
            q.row_sums()


@settings(max_examples=120)
@given(triangles, triangles)
def test_what_was_added_is_taken_away_again(kept, gone):
    """In place or anew, adding and taking away are inverses; what cannot be done in place changes nothing."""
    before, change = counts(kept), counts(gone)
    q = SymmetricCounts.of(before)
    both = q.plus(change)
    assert np.array_equal(dense(both), full(before) + full(change))
    assert both.add_within(Cooccurrence.zero(N) - change)
    assert np.array_equal(dense(both), full(before))
    assert np.array_equal(dense(both.plus(Cooccurrence.zero(N))), full(before))
    done = q.add_within(change)
    assert np.array_equal(dense(q), full(before) + (full(change) if done else 0))
    here = {pair: value for pair, value in gone.items() if full(before)[pair]}
    if done:
        assert len(here) == len(gone)


def test_a_value_that_grows_wide_has_no_place():
    """2^32 - 2 takes nothing more in place; a wide value may shrink to nothing and grow again."""
    q = SymmetricCounts.of(counts({(0, 1): MARK - 1, (2, 3): MARK}))
    assert not q.add_within(counts({(2, 3): 1, (0, 1): 1}))
    assert not q.add_within(counts({(0, 1): 1, (2, 3): 1}))
    assert dense(q)[0, 1] == MARK - 1
    assert dense(q)[2, 3] == MARK
    assert q.add_within(counts({(2, 3): -MARK}))
    assert dense(q)[3, 2] == 0
    assert q.add_within(counts({(2, 3): 2**61}))
    assert dense(q)[3, 2] == 2**61
    assert not q.add_within(counts({(2, 3): 2**61}))
    with pytest.raises(CountsOverflow):
        q.plus(counts({(2, 3): 2**61}))
