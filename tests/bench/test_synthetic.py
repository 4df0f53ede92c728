"""Planted topic models: they are what the theory assumes, and documents follow them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plain_counts import plain_counts
from streamtopic.bench.synthetic import SyntheticTopics
from streamtopic.counts import Weighting, count
from streamtopic.errors import UsageError
from streamtopic.topics.simplex import solve_rows


@given(
    st.integers(1, 6),
    st.integers(8, 60),
    st.floats(0.01, 0.9),
    st.floats(1, 20),
    st.integers(0, 9),
)
@settings(max_examples=15)
def test_a_planted_model_has_what_was_asked(topics, words, p, a, seed):
    """p-separable with exactly the p and a that were wanted, columns on the simplex, no word without mass."""
    a = 1.0 if topics == 1 else a
    planted = SyntheticTopics.planted(words, topics, separability=p, imbalance=a, seed=seed)
    assert planted.A.sum(axis=0) == pytest.approx(np.ones(topics))
    own = planted.A[planted.anchors]
    assert own == pytest.approx(np.diag(np.full(topics, p)))
    assert planted.p == pytest.approx(p)
    assert planted.a == pytest.approx(a, rel=0.02)
    assert planted.word_masses.min() > 0
    assert list(planted.words) == sorted(planted.words)
    assert np.array_equal(planted.anchors, np.sort(planted.anchors))


@given(st.integers(2, 6), st.floats(0.05, 0.6), st.floats(1, 8), st.floats(0.1, 5), st.integers(0, 99))
@settings(max_examples=25)
def test_the_population_simplex_is_gamma_p_robust(topics, p, a, concentration, seed):
    """Every anchor's row of Qbar* is at least gamma p away from the hull of the others' (the paper's proposition)."""
    planted = SyntheticTopics.planted(
        40, topics, separability=p, imbalance=a, concentration=concentration, word_concentration=1.0, seed=seed
    )
    rows = (planted.Q / planted.Q.sum(axis=1)[:, None])[planted.anchors]
    for k in range(topics):
        others = np.delete(rows, k, axis=0)
        nearest = solve_rows(others @ others.T, (others @ rows[k])[None, :])[0] @ others
        assert np.linalg.norm(rows[k] - nearest) >= planted.gamma * planted.p * (1 - 1e-9)


def test_documents_follow_the_model():
    """Q of 60,000 documents is A R A^T, entry by entry, within five standard errors."""
    planted = SyntheticTopics.planted(30, 3, separability=0.2, imbalance=2)
    m = 60_000
    counts = planted.counts(m, 10, seed=4).cooccurrence
    upper = counts.upper.toarray().astype(float)
    Q = upper + np.triu(upper, 1).T
    assert np.abs(Q / Q.sum() - planted.Q).max() < 5 * np.sqrt(planted.Q.max() / m)
    assert counts.tokens.sum() == 10 * m
    assert counts.tokens / (10 * m) == pytest.approx(planted.word_masses, abs=5 * np.sqrt(0.25 / m))


@pytest.mark.parametrize("cap", [1, 256])
def test_counts_are_those_of_the_documents(cap, monkeypatch):
    """Counting on the way gives, bit for bit, the counts of the documents with that seed, over several blocks."""
    monkeypatch.setattr("streamtopic.bench.synthetic._BLOCK_TOKENS", 1000)
    planted = SyntheticTopics.planted(50, 3)
    documents = planted.documents(333, 12, seed=8)
    assert documents.documents == 333
    assert (documents.lengths == 12).all()
    assert documents.owners.tolist() == list(range(333))
    assert np.add.reduceat(documents.counts, documents.indptr[:-1]).tolist() == [12] * 333
    weighting = Weighting(cap)
    found = planted.counts(333, 12, seed=8, weighting=weighting)
    assert plain_counts(found.cooccurrence, planted.words) == plain_counts(
        count(documents, 50, weighting), planted.words
    )


def test_recovery_matches_topics_and_finds_what_is_missing():
    """The planted model in any order of topics has no error; a word left out costs its mass."""
    planted = SyntheticTopics.planted(30, 4, imbalance=2)
    order = np.array([2, 0, 3, 1])
    found = planted.recovery(planted.words, planted.A[:, order], planted.R[np.ix_(order, order)])
    assert (found.A, found.R) == (0, 0)
    assert order[list(found.order)].tolist() == [0, 1, 2, 3]
    assert np.isnan(planted.recovery(planted.words, planted.A).R)
    heaviest = int(planted.A.max(axis=1).argmax())
    kept = [k for k in range(30) if k != heaviest]
    short = planted.recovery(tuple(planted.words[k] for k in kept), planted.A[kept])
    assert abs(short.A - planted.A.max()) < 1e-15
    with pytest.raises(UsageError, match="learn as many"):
        planted.recovery(planted.words, planted.A[:, :2])


@pytest.mark.parametrize(
    "wrong",
    [
        {"words": 5, "topics": 5},
        {"topics": 0},
        {"separability": 0.0},
        {"separability": 1.0},
        {"imbalance": 0.5},
        {"imbalance": float("nan")},
        {"topics": 1, "imbalance": 2.0},
        {"concentration": 0.0},
        {"overlap": 0.0},
    ],
)
def test_what_cannot_be_planted_is_refused(wrong):
    """A parameter out of range is refused, with what to use instead."""
    with pytest.raises(UsageError, match="cannot be planted: use"):
        SyntheticTopics.planted(**wrong)
