"""Private mode, the pure part: documents' matrices, noise of a series of versions, topics from noised counts."""

from decimal import Decimal
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import toeplitz

from streamtopic.counts import DocumentBatch, Passage
from streamtopic.errors import CannotLearn
from streamtopic.privacy.keystream import NoiseKey, exact_normal
from streamtopic.privacy.private_noise import (
    _POWER,
    UNIT,
    SeriesNoise,
    document_matrices,
    factors,
    noised_matrix,
    sensitivity,
    word_weights,
)
from streamtopic.privacy.private_topics import chosen_words, topics_of_noised, word_threshold
from streamtopic.topics.learner_options import LearnerOptions

KEY = NoiseKey(bytes(range(32)))
SEEDS = [KEY.of("news", number).seed("digest", "series") for number in range(1, 65)]
WORDS = 7


def _inverse(versions):
    return toeplitz(factors(versions, -_POWER), np.zeros(versions))


def _life(versions, contents):
    """Return a document's row in each version. contents: (first version, version after the last, its direction)."""
    life = np.zeros((versions, 4))
    for first, end, direction in contents:
        life[first:end] = direction
    return life


@pytest.mark.parametrize("versions", [1, 2, 6])
def test_no_life_of_two_contents_exceeds_the_sensitivity(versions):
    """Over all lives of two contents that share no word the greatest norm is the sensitivity."""
    edges = list(combinations(range(versions + 1), 2))
    greatest = 0.0
    for first, second in [(one, other) for one in edges for other in edges if one[1] <= other[0]] + [
        (one, one) for one in edges
    ]:
        life = _life(versions, [(*first, np.eye(4)[0]), (*second, np.eye(4)[1])])
        greatest = max(greatest, float(np.linalg.norm(_inverse(versions) @ life)))
    assert greatest <= sensitivity(versions) <= greatest * (1 + 1e-8)


@settings(max_examples=60)
@given(st.data())
def test_lives_of_real_documents_stay_within_it(data):
    """Contents that share words, of any length and at any time, never exceed the sensitivity for their number."""
    versions = data.draw(st.integers(1, 24))
    count = data.draw(st.integers(1, 4))
    ends = sorted(data.draw(st.lists(st.integers(0, versions), min_size=2 * count, max_size=2 * count)))
    life = np.zeros((versions, WORDS * WORDS))
    for first, end in zip(ends[::2], ends[1::2], strict=True):
        held = data.draw(st.sets(st.integers(0, WORDS - 1), min_size=1))
        own = np.isin(np.arange(WORDS), sorted(held)).astype(float)
        life[first:end] = np.outer(own, own).ravel() / own.sum()
    assert np.linalg.norm(_inverse(versions) @ life) <= sensitivity(versions, count)


def test_noise_is_rounded_as_with_all_digits():
    """Each number is the multiple of the grid that is nearest to value and noise in decimals, also near a middle."""
    noise = SeriesNoise(8, 2.0)
    seeds = SEEDS[:5]
    draws = [
        sum(
            (Decimal(float(b)) * exact_normal(seed, 40, k) for b, seed in zip(factors(5)[::-1], seeds, strict=True)),
            Decimal(0),
        )
        for k in range(40)
    ]
    # These sums lie within 2^-60 of the middle of two multiples, so floats cannot decide them.
    grid = Decimal(noise.grid)
    values = np.array(
        [float(grid * (k + Decimal("0.5")) - draw * Decimal(noise.sigma)) for k, draw in enumerate(draws)]
    )
    found = noise.add(values, np.ones(40), seeds)
    for value, draw, one in zip(values.tolist(), draws, found.tolist(), strict=True):
        exact = (Decimal(value) + draw * Decimal(noise.sigma)) / grid
        assert Decimal(one) / grid == exact.quantize(Decimal(1))


def test_versions_share_noise_as_planned():
    """The noise of versions 1 to 4 has the covariance B B^T, on and off the diagonal."""
    n = 160
    noise = SeriesNoise(16, 3.0)
    exact = np.zeros((n, n), np.int64)
    versions = [noised_matrix(exact, noise, SEEDS[:number]) for number in range(1, 5)]
    off = np.array([one[np.triu_indices(n, 1)] for one in versions]) / noise.sigma * np.sqrt(2)
    on = np.array([np.diagonal(one) for one in versions]) / noise.sigma
    B = toeplitz(factors(4), np.zeros(4))
    assert np.cov(off) == pytest.approx(B @ B.T, abs=0.06)
    assert np.cov(on) == pytest.approx(B @ B.T, abs=0.6)
    assert [noise.deviation(number) for number in (1, 4)] == pytest.approx(
        noise.sigma * np.sqrt(np.diagonal(B @ B.T)[[0, 3]])
    )
    assert all((one == one.T).all() for one in versions)


def _batch(documents):
    """Return documents, each a list of passages, each a map from word to count."""
    built = []
    for passages in documents:
        rows = [sorted(passage.items()) for passage in passages]
        built.append(
            [
                Passage(
                    sum(count for _, count in row) + 3,
                    np.array([word for word, _ in row], np.int32),
                    np.array([count for _, count in row], np.int32),
                )
                for row in rows
            ]
        )
    return DocumentBatch.build(built)


PASSAGE = st.dictionaries(st.integers(0, WORDS - 1), st.integers(1, 4), max_size=WORDS)


@given(st.lists(st.lists(PASSAGE, max_size=3), max_size=6))
def test_a_document_is_the_projection_on_its_words(documents):
    """Counts and passages do not matter; no document has a norm above 1, in matrices and in weights of words."""
    total = np.zeros((WORDS, WORDS), np.int64)
    weights, whole = np.zeros(WORDS, np.int64), 0
    for passages in documents:
        held = sorted(set().union(*passages))
        one = document_matrices(_batch([passages]), WORDS)
        expected = np.zeros((WORDS, WORDS), np.int64)
        expected[np.ix_(held, held)] = UNIT // len(held) if held else 0
        assert (one == np.triu(expected)).all()
        assert np.linalg.norm(expected.astype(float)) <= UNIT
        total += one
        of_words, of_all = word_weights(_batch([passages]), WORDS)
        assert np.flatnonzero(of_words).tolist() == held
        assert np.linalg.norm(np.append(of_words, of_all).astype(float)) <= UNIT * (1 + 2.0**-20)
        # What a document adds is also how far it is from one without words.
        assert bool(of_all) == bool(held)
        weights, whole = weights + of_words, whole + of_all
    assert (document_matrices(_batch(documents), WORDS) == total).all()
    summed, of_all = word_weights(_batch(documents), WORDS)
    assert (summed == weights).all()
    assert of_all == whole


def test_a_word_of_one_document_is_not_named():
    """The threshold lies above the weight of such a word by as many deviations as delta over all words asks for."""
    assert word_threshold(2.0, 1e-8) == pytest.approx(0.7071 + 2 * 7.77, abs=0.3)
    words = ["apart", "both", "common", "much"]
    noised = np.array([8.0, 40.0, 90.0, 30.0])
    assert chosen_words(words, noised, 100.0, 16.0, 0.5, 10) == ["both", "much"]
    assert chosen_words(words, noised, 100.0, 16.0, 0.5, 1) == ["both"]


def _planted(documents, topics=4, own=8, seed=0):
    """Return words and the exact matrix of documents that lean to one topic each."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(documents):
        topic = rng.integers(topics)
        mixed = np.where(
            rng.random(14) < 0.8, rng.integers(own, size=14) + topic * own, rng.integers(topics * own, size=14)
        )
        texts.append([dict.fromkeys(mixed.tolist(), 1)])
    n = topics * own
    return [f"word{k:02d}" for k in range(n)], document_matrices(_batch(texts), n)


def test_topics_come_out_of_the_noise_or_are_refused():
    """With enough documents planted topics are found; where noise hides them, the error says so and what helps."""
    words, exact = _planted(4_000)
    noise = SeriesNoise(64, 1.5)
    options = LearnerOptions(n_topics=4)
    noised = noised_matrix(exact, noise, SEEDS)
    fit, counts, share = topics_of_noised(words, noised, noise.deviation(64), options)
    found = {frozenset(int(fit.words[k][4:]) // 8 for k in np.argsort(-column)[:5].tolist()) for column in fit.A.T}
    assert found == {frozenset({topic}) for topic in range(4)}
    assert 0 < share < 1
    assert abs(counts.documents - 4_000) < 6 * noise.deviation(64) * np.sqrt(len(words))
    few = noised_matrix(_planted(30)[1], noise, SEEDS)
    with pytest.raises(CannotLearn, match=r"noise hides the topics.*Add documents"):
        topics_of_noised(words, few, noise.deviation(64), options)
    with pytest.raises(CannotLearn, match="3 words for 4 topics"):
        topics_of_noised(words[:3], noised[:3, :3], 1.0, options)
