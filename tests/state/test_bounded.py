"""Learning from Redis holds the documents and the working matrix, and gives the bits of counts in memory."""

import numpy as np
import pytest
from test_exactness import Run

from streamtopic.counts import Counts, SymmetricCounts, symmetric
from streamtopic.errors import CountsOverflow
from streamtopic.state import Reader, document_counts
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

WORDS = 120


@pytest.fixture
def counts(connection, new_model):
    """Counts of documents that came and went, of many commits, some of them summed up."""
    run = Run(connection, new_model())
    rng = np.random.default_rng(5)
    for k in range(40):
        words = rng.choice(WORDS, 30, replace=False).tolist()
        held = {f"w{word:03d}": int(rng.integers(1, 4)) for word in words}
        run.add(k, ((sum(held.values()), held),))
        if k % 9 == 8:
            run.delete(k - 5)
        run.flush()
        if k == 20:
            run.sum()
    return Reader(connection, run.model, 1).counts()


def pieces_of(monkeypatch, pairs):
    """Let pairs be counted, packed and mirrored in pieces of so many."""
    monkeypatch.setattr(symmetric, "_PAIRS", pairs)


@pytest.mark.parametrize("pairs", [1, 50, 1 << 18])
def test_any_bound_gives_the_same_bits(counts, monkeypatch, pairs):
    """However small the pieces are in which pairs are counted, the working matrix is the same bits."""
    keep = np.arange(0, len(counts.words), 2)
    expected = SymmetricCounts.of(counts.restrict(keep))
    pieces_of(monkeypatch, pairs)
    q = counts.symmetric(keep)
    assert q.n == expected.n
    assert np.array_equal(q.indptr, expected.indptr)
    assert np.array_equal(q.columns, expected.columns)
    assert np.array_equal(q.values, expected.values)


def test_sums_that_might_leave_64_bits_are_refused(counts, monkeypatch):
    """The bound is on the documents, before a pair is counted: a sum never wraps around."""
    every = np.arange(len(counts.words))
    monkeypatch.setattr(document_counts, "_MOST_MASS", 1000.0)
    for read in (counts.restrict, counts.symmetric):
        with pytest.raises(CountsOverflow, match="split the corpus"):
            read(every)


def test_a_learner_that_reads_redis_learns_the_same(counts, monkeypatch):
    """The model of counts in Redis, read in small pieces, is that of the same counts in memory, bit for bit."""
    options = LearnerOptions(n_topics=3, min_df=1, max_df=1.0)
    whole = Counts(counts.words, counts.restrict(np.arange(len(counts.words))))
    pieces_of(monkeypatch, 70)
    read, held = learn(counts, options), learn(whole, options)
    assert read.words == held.words
    assert read.A.tobytes() == held.A.tobytes()
