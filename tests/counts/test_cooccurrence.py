"""Counts: exact, reversible, independent of order."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from campaign import oracle
from campaign.oracle import Life
from streamtopic.counts import (
    MAX_LENGTH,
    Cooccurrence,
    DocumentBatch,
    Passage,
    Weighting,
    count,
)
from streamtopic.errors import CountsOverflow

N = 9
passages = st.builds(
    lambda counts, other: Passage(
        sum(counts.values()) + other,
        np.array(sorted(counts), np.int32),
        np.array([counts[word] for word in sorted(counts)], np.int32),
    ),
    st.dictionaries(st.integers(0, N - 1), st.integers(1, 40), max_size=N),
    st.integers(0, 30),
)
documents = st.lists(passages, max_size=3)
corpora = st.lists(documents, max_size=6)
weightings = st.sampled_from([Weighting(1), Weighting(256)])


def counted(corpus, weighting=None):
    """Count a corpus, by default with the mass of the default learner."""
    return count(DocumentBatch.build(corpus), N, weighting or Weighting(256))


def as_map(passage):
    """Return a passage's counts by word."""
    return dict(zip(passage.words.tolist(), passage.counts.tolist(), strict=True))


def dense(counts):
    """Return the upper triangle as a dense array."""
    return counts.upper.toarray()


def same_pairs(one, other):
    """Whether the pairs of two counts are equal."""
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("indptr", "columns", "values"))


def same(one, other):
    """Whether two counts are equal in every array."""
    return (
        one.documents == other.documents
        and same_pairs(one, other)
        and all(map(np.array_equal, one.statistics, other.statistics))
    )


@settings(max_examples=150)
@given(corpora, weightings)
def test_kernel_equals_plain_definition(corpus, weighting):
    """Every pair is the sum over passages of w g_i g_j (diagonal w g_i (g_i - 1)), in Python integers.

    g is at most 2 but for the published learner. A word counts once a document in its statistics, and as heavy if it is
    a tenth of all its tokens or more.
    """
    lives = [Life(b"", tuple((one.length, as_map(one)) for one in passages), {}, 0) for passages in corpus]
    expected = oracle.count(lives, weighting.cap)
    result = counted(corpus, weighting)
    found = {
        (i, int(j)): int(result.upper[i, j])
        for i in range(N)
        for j in result.columns[result.indptr[i] : result.indptr[i + 1]]
    }
    assert found == expected.pairs
    for of_words, wanted in zip(result.statistics, (expected.frequency, expected.tokens, expected.heavy), strict=True):
        assert of_words.tolist() == [wanted[word] for word in range(N)]


def test_kernel_equals_scipy_product_on_many_rows():
    """The kernel gives scipy's H^T W H less its self-pairs on a batch that needs several buffers."""
    rng = np.random.default_rng(3)
    n = 700
    corpus = []
    for _ in range(400):
        words = np.sort(rng.choice(n, rng.integers(1, 120), replace=False)).astype(np.int32)
        amounts = rng.integers(1, 5, len(words)).astype(np.int32)
        corpus.append([Passage(int(amounts.sum()), words, amounts)])
    batch = DocumentBatch.build(corpus)
    at_most_twice = np.minimum(batch.counts, 2)
    counted_each = np.add.reduceat(at_most_twice, batch.indptr[:-1])
    weights = Weighting(256).weights(counted_each, counted_each)
    H = csr_array((at_most_twice.astype(np.int64), batch.words, batch.indptr), shape=(len(corpus), n))
    weighted = H.multiply(weights[:, None]).tocsr()
    full = (H.T @ weighted).toarray() - np.diag(weighted.sum(axis=0))
    result = count(batch, n, Weighting(256))
    assert np.array_equal(result.upper.toarray(), np.triu(full))


@settings(max_examples=100)
@given(corpora, corpora, st.randoms(use_true_random=False))
def test_any_order_of_adds_and_deletes_gives_the_remaining_documents(kept, gone, random):
    """Adds and deletes in any order leave bit for bit the counts of the documents still there."""
    steps = [(document, 1) for document in kept] + [(document, sign) for document in gone for sign in (1, -1)]
    random.shuffle(steps)
    total = Cooccurrence.zero(N)
    for document, sign in steps:
        one = counted([document])
        total = total + one if sign > 0 else total - one
    assert same(total, counted(kept))


def test_overflow_is_refused():
    """A sum that would leave 64 bits raises instead of wrapping around."""
    document = [Passage(2, np.array([1, 3], np.int32), np.array([1, 1], np.int32))]
    total = counted([document])
    while int(total.values.max()) < 2**61:
        total = total + total
    with pytest.raises(CountsOverflow):
        total + total


@settings(max_examples=200)
@given(st.lists(st.integers(1, MAX_LENGTH), min_size=1, max_size=64), st.floats(0, 1), weightings)
def test_a_weight_is_the_passage_s_share_of_the_document_s_mass(lengths, part, weighting):
    """It is the integer nearest to 2^s f(L) (G / L) / (G (G - 1)), a tie going up, in rational arithmetic."""
    tokens = [max(min(length, 2), int(part * length)) for length in lengths]
    total = sum(tokens)
    mass = min(total, weighting.cap) << weighting.shift
    found = weighting.weights(tokens, [total] * len(tokens)).tolist()
    for counted_of_it, weight in zip(tokens, found, strict=True):
        pairs = counted_of_it * (counted_of_it - 1)
        exact = mass * Fraction(counted_of_it, total) / pairs if counted_of_it > 1 else Fraction(0)
        assert weight == (exact + Fraction(1, 2)) // 1
