"""Which words are shown of a topic, in which order, and quality figures."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamtopic import AnchorTopics
from streamtopic.counts import Cooccurrence, Counts, SymmetricCounts, WordSets
from streamtopic.counts.compact import pack
from streamtopic.topics.display import (
    WordEvidence,
    _logarithm,
    arranged,
    coefficients,
    coherent,
    correlations_and_words,
    diversity,
    named,
    npmi,
    ordered,
    top_words,
    topic_correlations,
)
from streamtopic.topics.learner import learn
from streamtopic.topics.update import update


def evidence(Q, frequency, documents):
    """Evidence of a symmetric matrix of counts."""
    rows = csr_array(np.asarray(Q, np.int64))
    q = SymmetricCounts(len(frequency), pack(len(frequency), rows.indptr.astype(np.int64), rows.indices, rows.data))
    return WordEvidence.over(q, np.arange(len(frequency)), np.asarray(frequency, np.int64), documents)


def together(n, meets=1_000):
    """Counts of n words that meet each other equally often."""
    return np.full((n, n), meets) - np.diag(np.full(n, meets))


def falling(n):
    """One topic whose words are less and less probable, (n, 1)."""
    A = 0.99 ** np.arange(n)[:, None]
    return A / A.sum()


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
    """Any counts and topics: the numbers are those of a plain computation, and words fall by them."""
    A, Q, frequency, documents = of_topics(seed)
    found = coefficients(A, evidence(Q, frequency, documents))
    assert found == pytest.approx(by_definition(A, Q, frequency, documents), rel=1e-6, abs=1e-9 * found.max())
    assert ordered(A, evidence(Q, frequency, documents)).tolist() == np.argsort(-found.T, kind="stable").tolist()


def test_dead_words_and_threads_leave_no_bit_in_coefficients(monkeypatch):
    """Words without an entry between the others, and any number of threads: equal bits, so equal words everywhere."""
    A, Q, frequency, documents = of_topics(3, n=700)
    expected = coefficients(A, evidence(Q, frequency, documents))
    wide = np.zeros((1_000, 1_000), np.int64)
    places = np.sort(np.random.default_rng(1).choice(1_000, 700, replace=False))
    wide[np.ix_(places, places)] = Q
    q = evidence(wide, [1] * 1_000, documents).q
    for threads in (1, 3):
        monkeypatch.setattr("streamtopic.topics.products.workers", lambda threads=threads: threads)
        known = WordEvidence.over(q, places, frequency, documents)
        assert coefficients(A, known).tobytes() == expected.tobytes()


def test_only_the_first_twenty_can_be_among_the_ten():
    """Words further down do not enter, however well they go together."""
    Q = together(30)
    Q[:20] = Q[:, :20] = 0
    Q[:20, :20] = np.diag(np.full(20, 9_000))
    known = evidence(Q, [500] * 30, 1_000)
    shown = arranged(falling(30), known, 30)[0].tolist()
    assert max(shown[:10]) < 20
    assert shown[20:] == list(range(20, 30))
    assert min(coherent(np.arange(30), known)) == 20  # they would be the ten


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
    assert coherent(words, evidence(Q, frequency, 500), 5).tolist() == brute_force(words, Q, frequency, 5)


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
        assert coherent(np.arange(9), known, 8).tolist() == [0, 1, 2, 3, 5, 6, 7, 8]
        assert coherent(np.arange(8, -1, -1), known, 8).tolist() == [8, 7, 6, 5, 4, 3, 2, 0]


def test_a_shorter_list_begins_a_longer_one():
    """However many words are asked for, they are the first of one order; more than there are gives all."""
    rng = np.random.default_rng(5)
    Q = rng.integers(0, 50, (40, 40))
    known = evidence(Q + Q.T, rng.integers(1, 90, 40), 100)
    A = rng.dirichlet(np.full(40, 0.3), 3).T
    whole = top_words(A, known, 100)
    assert whole.shape == (3, 40)
    assert (np.sort(whole, axis=1) == np.arange(40)).all()
    for top in (1, 3, 10, 15, 20, 21):
        assert np.array_equal(top_words(A, known, top), whole[:, :top])


def test_small_corpora_have_words_to_show():
    """One document, words of all documents, words that meet nothing, topics of few words: an order, and no warning."""
    A = np.array([[0.1], [0.6], [0.3]])
    assert sorted(*top_words(A, evidence(together(3), [1, 1, 1], 1)).tolist()) == [0, 1, 2]
    assert top_words(A, evidence(together(3), [4, 4, 2], 4)).tolist() == [[2, 0, 1]]
    assert top_words(A, evidence([[0, 0, 5], [0, 0, 0], [5, 0, 0]], [2, 1, 2], 4)).tolist() == [[0, 2, 1]]
    assert top_words(A, evidence(np.zeros((3, 3), int), [1, 1, 1], 3)).tolist() == [[0, 1, 2]]
    few = np.zeros((30, 1))
    few[[3, 25]] = [[0.4], [0.6]]
    assert set(top_words(few, evidence(together(30), [5] * 30, 50), 2)[0].tolist()) == {3, 25}


def test_words_that_are_there_by_noise_are_not_chosen_for_their_company():
    """Noise gives every word a little probability: a topic of three words shows those first."""
    n = 30
    Q = together(n)
    Q[:3, 3:] = Q[3:, :3] = 0
    noise = np.random.default_rng(0).uniform(0, 1e-6, n)
    A = (np.where(np.arange(n) < 3, 1 / 3, 0) + noise)[:, None]
    assert set(arranged(A, evidence(Q, [50] * n, 500))[0, :3].tolist()) == {0, 1, 2}


def test_the_logarithm_is_the_library_s_to_rounding():
    """Over all magnitudes within a few units in the last place, and exactly 0 at 1."""
    x = np.concatenate([10 ** np.linspace(-300, 300, 5_000), 1 + np.linspace(-0.5, 1, 5_001), [1.0]])
    assert _logarithm(x) == pytest.approx(np.log(x), rel=1e-15, abs=0)
    assert _logarithm(np.array([1.0])).tolist() == [0.0]


def shown_of(fit, source):
    """The words shown of a model."""
    at = np.searchsorted(np.array(source.words), np.array(fit.words))
    return named(top_words(fit.A, WordEvidence.of(fit, source.frequency[at]), 20), fit.words)


def test_unlearned_and_never_seen_show_the_same_words(planted):
    """From one A, what an update carries and what a cold start counts give the same bits, and so do bare counts."""
    options = planted.options(min_df=20)
    source = planted.counts(options)
    gone = planted.counts(options, range(30))
    left = Counts(source.words, source.cooccurrence - gone.cooccurrence)
    delta = Counts(source.words, Cooccurrence.zero(len(source.words)) - gone.cooccurrence)
    cold, outcome = learn(left, options), update(learn(source, options), left, delta)
    carried = outcome.fit
    at = np.searchsorted(np.array(left.words), np.array(cold.words))
    bare = WordEvidence.over(left.symmetric(at), np.arange(len(at)), left.frequency[at], left.documents)
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


def test_the_estimator_shows_what_a_model_of_the_same_counts_does(planted):
    """`topics()` is the list of the counts, also with columns that are not words, and after a refused change."""
    X = np.zeros((len(planted.documents), len(planted.words)), np.int64)
    for row, document in enumerate(planted.documents):
        X[row, document[0].words] = document[0].counts
    options = planted.options(min_df=40, max_df=0.5)
    source = planted.counts(options)
    model = AnchorTopics(4, min_df=40, max_df=0.5).fit(X)
    fit = learn(source, options)
    assert len(fit.words) < len(planted.words)
    largest_first = np.argsort(-model.topic_shares_)
    expected = [list(shown_of(fit, source)[k]) for k in largest_first]
    assert model.topics(planted.words, top=20) == expected
    assert model.topics(planted.words) == [words[:10] for words in expected]
    with pytest.raises(ValueError, match="add"):
        model.unlearn(X)
    assert model.topics(planted.words, top=20) == expected


def sets(*documents):
    """Word sets of documents."""
    return WordSets.joined([WordSets(np.array([0, len(words)]), np.array(words, np.int64)) for words in documents])


def test_npmi_of_known_cases():
    """Always together 1, never together -1, independent 0."""
    both = sets([0, 1], [1, 0, 1], [0, 1], [2, 3])
    assert npmi(np.array([[0, 1]]), both) == pytest.approx(1)
    assert npmi(np.array([[0, 2]]), both) == -1
    independent = sets([0, 1], [0], [1], [])
    assert npmi(np.array([[0, 1]]), independent) == pytest.approx(0)
    assert npmi(np.array([[0, 1]]), sets([0, 1], [0, 1])) == 1
    assert npmi(np.empty((0, 0), int), WordSets.joined([])) == 0


def test_diversity_counts_distinct_words():
    """Repeated top words lower the share."""
    assert diversity(np.array([[0, 1], [1, 2]])) == 0.75
    assert diversity(np.empty((0, 0), int)) == 0
