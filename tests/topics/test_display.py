"""Which words are shown of a topic, in which order, and quality figures."""

import math

import numpy as np
import pytest
from dense_counts import dense_counts
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.counts import Cooccurrence, Counts
from streamtopic.topics.display import (
    WordEvidence,
    coefficients,
    coherent,
    correlations_and_words,
    top_words,
    topic_correlations,
)
from streamtopic.topics.learner import learn
from streamtopic.topics.update import update


def evidence(Q, frequency, documents):
    """Evidence of a symmetric matrix of counts."""
    return WordEvidence.over(dense_counts(Q), np.asarray(frequency, np.int64), documents)


def by_definition(A, Q, frequency, documents):
    """Coefficients in plain floating point, by a library for linear algebra."""
    idf = np.log((1 + documents) / (1 + frequency)) + 1
    K = idf[:, None] * Q * idf
    H0 = (A * idf[:, None]).T
    H0 = H0 / np.linalg.norm(H0, axis=1)[:, None]
    r = len(H0)
    V = H0.T @ np.linalg.inv(H0 @ H0.T + 1e-9 * np.eye(r))
    M = K @ V
    N = V.T @ M
    H = np.maximum(0, np.linalg.solve(N + 1e-6 * np.linalg.eigvalsh(N)[-1] * np.eye(r), M.T)).T
    scores = H / idf[:, None] * np.sqrt(frequency / Q.sum(axis=1))[:, None] * np.log(documents / frequency)[:, None]
    return scores * (A > 0)


def of_topics(seed, n=60, r=4, documents=500):
    """A positive Q of r planted topics, document frequencies, and topics near the planted ones, a third of them 0."""
    rng = np.random.default_rng(seed)
    planted = rng.dirichlet(np.full(n, 0.3), r).T
    R = np.diag(rng.dirichlet(np.full(r, 5))) + 0.02
    Q = 1 + rng.poisson(1e6 * planted @ R @ planted.T)
    Q = np.triu(Q) + np.triu(Q, 1).T
    A = planted * rng.uniform(0.5, 1.5, (n, r)) * (rng.random((n, r)) < 0.67)
    return A / A.sum(axis=0), Q, rng.integers(1, documents // 2, n), documents


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_coefficients_are_the_definition(seed):
    """Any counts and topics: the numbers are those of a plain computation."""
    A, Q, frequency, documents = of_topics(seed)
    found = coefficients(A, evidence(Q, frequency, documents))
    assert found == pytest.approx(by_definition(A, Q, frequency, documents), rel=1e-6, abs=1e-9 * found.max())


def test_threads_leave_no_bit_in_coefficients(monkeypatch):
    """Any number of threads: equal bits, so equal words everywhere."""
    A, Q, frequency, documents = of_topics(3, n=700)
    known = evidence(Q, frequency, documents)
    expected = coefficients(A, known)
    for threads in (1, 3):
        monkeypatch.setattr("streamtopic.topics.products.workers", lambda threads=threads: threads)
        assert coefficients(A, known).tobytes() == expected.tobytes()


def brute_force(words, Q, frequency, keep):
    """Drop words by the definition, in plain floating point."""
    T, M = Q.sum(), Q.sum(axis=1)

    def shrunk(i, j):
        d = min(frequency[i], frequency[j])
        value = -1.0
        if Q[i, j]:
            value = math.log(Q[i, j] / T / (M[i] / T * M[j] / T)) / -math.log(Q[i, j] / T)
        return value * d / (d + 20)

    left = list(words)
    while len(left) > keep:
        left.remove(min(left, key=lambda i: sum(shrunk(i, j) for j in left if j != i)))
    return left


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_the_coherent_words_are_the_definition(seed):
    """Any counts: the words left are those of a plain computation, in the order in which they came."""
    rng = np.random.default_rng(seed)
    Q = rng.integers(1, 10_000, (15, 15)) * (rng.random((15, 15)) < 0.7)
    Q = Q + Q.T
    frequency = rng.integers(1, 200, 15)
    words = rng.permutation(15)[:12]
    known = evidence(Q, frequency, 500)
    assert words[coherent(known.fixed_npmi(words), 5)].tolist() == brute_force(words, Q, frequency, 5)


def test_true_ties_stay_ties():
    """Two words alike in every count tie exactly, whatever stands between them, and the later one goes."""
    rng = np.random.default_rng(3)
    copied = [0, 1, 2, 3, 1, 5, 6, 7, 8]  # word 4 is word 1 again
    for _ in range(50):
        Q = rng.integers(100, 10_000, (9, 9))
        Q[1] = Q[:, 1] = rng.integers(1, 9, 9)
        Q = (Q + Q.T)[np.ix_(copied, copied)]
        Q[[1, 4], [4, 1]], Q[[1, 4], [1, 4]] = 0, 100_000
        known = evidence(Q, [50] * 9, 500)
        forward, backward = np.arange(9), np.arange(8, -1, -1)
        assert forward[coherent(known.fixed_npmi(forward), 8)].tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
        assert backward[coherent(known.fixed_npmi(backward), 8)].tolist() == [8, 7, 6, 5, 4, 3, 2, 0]


def test_unlearned_and_never_seen_show_the_same_words(planted):
    """From one A, what an update carries and what a cold start counts give the same bits, and so do bare counts."""
    options = planted.options(min_df=20)
    source = planted.counts(options)
    gone = planted.counts(options, range(30))
    left = Counts(source.words, source.cooccurrence - gone.cooccurrence)
    delta = Counts(source.words, Cooccurrence.zero(len(source.words)) - gone.cooccurrence)
    cold, outcome = learn(left, options), update(learn(source, options), left, delta)
    carried = outcome
    at = np.searchsorted(np.array(left.words), np.array(cold.words))
    bare = WordEvidence.over(left.symmetric(at), left.frequency[at], left.documents)
    lists = [top_words(cold.A, WordEvidence.of(fit, left.frequency[at]), 20) for fit in (cold, carried)]
    numbers = [coefficients(cold.A, WordEvidence.of(fit, left.frequency[at])).tobytes() for fit in (cold, carried)]
    assert numbers[0] == numbers[1]
    assert carried.words == cold.words
    assert carried.documents == source.documents - gone.documents
    assert np.array_equal(*lists)
    assert np.array_equal(lists[0], top_words(cold.A, bare, 20))
    related, order = correlations_and_words(carried, cold.A, WordEvidence.of(carried, left.frequency[at]), 20)
    assert np.array_equal(order, lists[0])
    assert related.R.tobytes() == topic_correlations(carried, cold.A).R.tobytes()
