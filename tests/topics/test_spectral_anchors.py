"""The default learner's decisions: exact where they say so, a function of the live words, the same bits everywhere."""

import numpy as np
import pytest
from dense_counts import dense_counts
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopic.errors import CannotLearn
from streamtopic.topics import anchors as spectral_anchors
from streamtopic.topics.anchors import MEMBER, _scaled, _start, choose_anchors, super_anchors

GRID = 2**26


def corpus(seed, n=60, r=4, documents=400):
    """Return pair counts of documents of r topics, every word with a mass, and names of the words."""
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(n, 0.1), r)
    topics[:, :r] += 0.2 * np.eye(r)
    topics /= topics.sum(axis=1, keepdims=True)
    shares = rng.dirichlet(np.full(r, 0.2), documents)
    H = np.stack([rng.multinomial(25, share @ topics) for share in shares])
    Q = H.T @ H - np.diag(H.sum(axis=0))
    Q[np.arange(n), np.roll(np.arange(n), 1)] += 1
    Q[np.roll(np.arange(n), 1), np.arange(n)] += 1
    return Q, [f"word{k:03d}" for k in range(n)]


def skewed(seed, n):
    """Return pair counts whose masses lie many powers of two apart."""
    rng = np.random.default_rng(seed)
    sizes = 2 ** rng.integers(0, 28, n)
    upper = np.triu(rng.integers(0, 4, (n, n)) * (rng.random((n, n)) < 0.4))
    Q = (upper + np.triu(upper, 1).T) * sizes * sizes[:, None]
    Q[0, 1:] += 1
    Q[1:, 0] += 1
    return Q


def coordinates(q, mass, candidates, words, topics):
    """Return coordinates without a guided topic."""
    E, _ = spectral_anchors.coordinates(q, mass, candidates, words, topics, np.zeros((0, len(candidates))))
    return E


def decided(Q, candidates, names, r):
    """Return coordinates, anchors and sets of pair counts."""
    q = dense_counts(Q)
    E = coordinates(q, Q.sum(axis=1), candidates, [names[k] for k in candidates], r)
    found = choose_anchors(E)
    return E, found, super_anchors(E, found, E[:0])


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 40), diagonal=st.booleans())
def test_the_scaled_matrix_is_of_integers_and_no_row_is_longer_than_1(seed, n, diagonal):
    """Entries are the integers nearest to 2^26 Q_ij / sqrt(M_i M_j), symmetric to the bit, whatever the masses are."""
    Q = skewed(seed, n)
    mass = Q.sum(axis=1)
    candidates = np.flatnonzero(np.random.default_rng(seed).random(n) < 0.8)
    S = _scaled(dense_counts(Q), mass, candidates, diagonal=diagonal)
    part = Q[np.ix_(candidates, candidates)] * (1 if diagonal else 1 - np.eye(len(candidates), dtype=np.int64))
    exact = part / np.sqrt(mass[candidates].astype(float)) / np.sqrt(mass[candidates].astype(float))[:, None]
    assert S.shape == (len(candidates),) * 2
    assert np.array_equal(S, np.rint(S))
    assert np.array_equal(S, S.T)
    assert (S >= 0).all()
    assert np.abs(S - GRID * exact).max(initial=0) <= 0.5 + 1e-6
    # Rounding to integers may add a half to each entry.
    assert np.linalg.norm(S, axis=1).max(initial=0) <= GRID + 0.5 * np.sqrt(len(S)) + 1e-6
    assert np.linalg.norm(S, 2) <= GRID + 0.5 * len(S) if len(S) else True


@pytest.mark.parametrize("kind", ["corpus", "skewed"])
def test_partial_sums_of_all_products_are_exact(monkeypatch, kind):
    """Sums of the sizes of all terms of each product stay below 2^53, so that no order of summation can round."""
    seen = []

    class Watched(np.ndarray):
        """An array whose matrix products are looked at."""

        def __matmul__(self, other):
            one, two = np.asarray(self), np.asarray(other)
            assert np.array_equal(one, np.rint(one))
            assert np.array_equal(two, np.rint(two))
            seen.append((np.abs(one) @ np.abs(two)).max())
            exact = one.astype(object) @ two.astype(object)
            assert np.array_equal((one @ two).astype(object), exact)
            return one @ two

        def __rmatmul__(self, other):
            return np.asarray(other).view(Watched) @ self

    plain_scaled, plain_quantised = spectral_anchors._scaled, spectral_anchors._quantised
    monkeypatch.setattr(spectral_anchors, "_scaled", lambda *given, **more: plain_scaled(*given, **more).view(Watched))
    monkeypatch.setattr(spectral_anchors, "_quantised", lambda Y: plain_quantised(Y).view(Watched))
    Q, names = corpus(3) if kind == "corpus" else (skewed(5, 60), [f"w{k:02d}" for k in range(60)])
    q = dense_counts(Q)
    coordinates(q, Q.sum(axis=1), np.arange(len(Q)), names, 3)
    # Six steps, three of them with a matrix of inner products, one more step and the projected matrix.
    assert len(seen) >= 11
    assert max(seen) < 2**53


def test_coordinates_are_the_leading_directions():
    """Inner products of rows of E are those of Qbar diag(p)^-1/2 without the diagonal, cut to as many directions."""
    Q, names = corpus(0)
    mass = Q.sum(axis=1).astype(float)
    r = 4
    E = coordinates(dense_counts(Q), Q.sum(axis=1), np.arange(len(Q)), names, r)
    S = (Q - np.diag(np.diag(Q))) / np.sqrt(mass) / np.sqrt(mass)[:, None]
    values, vectors = np.linalg.eigh(S)
    leading = np.argsort(-values)[:r]
    assert values[leading][-1] > 1.3 * np.sort(values)[-r - 1]
    F = vectors[:, leading] * values[leading] / np.sqrt(mass / mass.sum())[:, None]
    assert np.abs(E @ E.T - F @ F.T).max() <= 1e-3 * np.abs(F @ F.T).max()


def test_the_start_of_a_word_is_its_own():
    """Rows are 1 and -1, differ between words, and stay what they are when other words come and go."""
    words = ["apple", "pear", "\udcff", "naïve", "x"]
    start = _start(words, 37)
    assert start.shape == (5, 37)
    assert {*np.unique(start)} == {-1.0, 1.0}
    assert len({row.tobytes() for row in start}) == 5
    for k, word in enumerate(words):
        assert np.array_equal(_start([word], 37)[0], start[k])
        assert np.array_equal(_start(["before", word, "after"], 37)[1], start[k])


@pytest.mark.parametrize("r", [3, 5])
def test_ranks_that_are_too_low_cannot_be_learned(r):
    """Counts of r - 1 blocks span r - 1 directions at most with a diagonal that adds none: the reason is the rank."""
    block = np.full((4, 4), 7, np.int64)
    Q = np.kron(np.eye(r - 1, dtype=np.int64), block)
    names = [f"w{k:02d}" for k in range(len(Q))]
    with pytest.raises(CannotLearn) as error:
        coordinates(dense_counts(Q), Q.sum(axis=1), np.arange(len(Q)), names, r)
    assert error.value.reason == "rank"
    assert "fewer" in str(error.value)
    with pytest.raises(CannotLearn) as error:
        choose_anchors(np.repeat(np.eye(r)[:1], 6, axis=0))
    assert error.value.reason == "rank"


def test_the_diagonal_counts_only_where_the_rest_spans_too_few(monkeypatch):
    """Where other words give the directions, the diagonal changes no bit; where only it does, it is used."""
    asked = []
    plain = spectral_anchors._scaled

    def spied(*given, diagonal):
        asked.append(diagonal)
        return plain(*given, diagonal=diagonal)

    monkeypatch.setattr(spectral_anchors, "_scaled", spied)
    Q, names = corpus(1)
    mass = Q.sum(axis=1)
    E = coordinates(dense_counts(Q), mass, np.arange(len(Q)), names, 4)
    assert asked == [False]
    # Pairs of a word with itself move to pairs of other words that have no row here: masses stay.
    without = Q - np.diag(np.diag(Q))
    again = coordinates(dense_counts(without), mass, np.arange(len(Q)), names, 4)
    assert again.tobytes() == E.tobytes()
    asked.clear()
    # Without its diagonal a constant matrix has one direction that is positive.
    alone = np.diag(np.array([90, 80, 70, 60])) + 1
    assert coordinates(dense_counts(alone), alone.sum(axis=1), np.arange(4), names[:4], 3).shape == (4, 3)
    assert asked == [False, True]


def test_anchors_are_farthest_and_sets_are_mixtures():
    """The search is the greedy one of dense arithmetic, and members lie .6 or more in their topic."""
    for seed in range(6):
        Q, names = corpus(seed)
        E, found, group = decided(Q, np.arange(len(Q)), names, 4)
        residual, expected = E.copy(), []
        for _ in range(4):
            best = int(np.argmax((residual**2).sum(axis=1)))
            expected.append(best)
            direction = residual[best] / np.linalg.norm(residual[best])
            residual = residual - np.outer(residual @ direction, direction)
        assert found.tolist() == sorted(expected)
        assert group[found].tolist() == [0, 1, 2, 3]
        for k in np.flatnonzero(group >= 0):
            share = _mixture(E, found, k)
            assert share[group[k]] >= MEMBER - 1e-6
        assert all(_mixture(E, found, k).max() <= MEMBER + 1e-6 for k in np.flatnonzero(group < 0))


def test_a_word_joins_a_topic_from_six_tenths_on():
    """A row that lies .61 in a topic represents it, and a row of .59 represents none."""
    E = np.array([[1, 0], [0, 1], [0.61, 0.39], [0.59, 0.41], [0.41, 0.59], [0.39, 0.61]])
    assert super_anchors(E, np.array([0, 1]), E[:0]).tolist() == [0, 1, 0, -1, -1, 1]


def _mixture(E, anchors, k):
    """Return row k as a mixture of the anchors' rows, by nonnegative least squares with a heavy sum."""
    from scipy.optimize import nnls

    heavy = 1e4 * np.abs(E).max()
    return nnls(np.vstack([E[anchors].T, np.full(len(anchors), heavy)]), np.append(E[k], heavy))[0]
