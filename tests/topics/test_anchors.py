"""Anchor search of the published learner: what it chooses, and that its bits are the same everywhere."""

import numpy as np
import pytest
from dense_counts import dense_counts

from streamtopic.counts import SymmetricCounts
from streamtopic.errors import CannotLearn, UnreliableArithmetic
from streamtopic.topics import reproducible
from streamtopic.topics.paper_anchors import farthest_rows


def drawn(seed, n, d=12, largest=6):
    """Return pair counts of random documents over n words, every word with a mass."""
    rng = np.random.default_rng(seed)
    H = rng.integers(0, largest, (n, d)) * (rng.random((n, d)) < 0.4)
    H[:, -1] = 1
    return H @ H.T - np.diag(H.sum(axis=1)) + np.diag(np.ones(n, np.int64))


@pytest.fixture
def rows(planted):
    """Integer counts of the planted corpus, their row sums, and the scaled rows as a dense matrix."""
    counts = planted.counts(planted.options("paper"))
    keep = np.flatnonzero(counts.frequency >= 20)
    q = SymmetricCounts.of(counts.restrict(keep))
    dense = q.upper().upper.toarray()
    dense = dense + np.triu(dense, 1).T
    mass = q.row_sums()
    return q, mass, dense / mass[:, None]


def distances(M, chosen):
    """Return squared distances of the rows of M to the span of some of them."""
    basis, _ = np.linalg.qr(M[list(chosen)].T) if chosen else (np.zeros((M.shape[1], 0)), None)
    return (M**2).sum(axis=1) - ((M @ basis) ** 2).sum(axis=1)


def greedy(M, r):
    """Return the rows that a plain greedy search finds."""
    chosen = []
    for _ in range(r):
        chosen.append(int(np.argmax(distances(M, chosen))))
    return chosen


@pytest.mark.parametrize("r", [1, 4, 12])
def test_the_search_equals_the_plain_definition(rows, r):
    """Greedy farthest rows and the swap pass, by orthogonal projections of all rows at every step."""
    q, mass, M = rows
    chosen = greedy(M, r)
    for k in range(r):
        others = [c for i, c in enumerate(chosen) if i != k]
        chosen[k] = int(np.argmax(distances(M, others)))
    found = farthest_rows(q, np.arange(q.n), mass, r)
    assert found.tolist() == sorted(chosen)


def test_of_words_with_equal_rows_the_first_wins():
    """Where even the bits are equal, word order decides, at every step and in the swap pass."""
    Q = np.kron(drawn(3, 5), np.ones((3, 3), np.int64))
    found = farthest_rows(dense_counts(Q), np.arange(15), Q.sum(axis=1), 4)
    assert (found % 3 == 0).all()


def test_dependent_rows_are_refused():
    """Rows that span fewer directions than topics are asked for are an error, not rows chosen from rounding."""
    Q = np.kron(drawn(3, 3), np.ones((4, 4), np.int64)) * 12345
    with pytest.raises(CannotLearn, match="too much alike for"):
        farthest_rows(dense_counts(Q), np.arange(12), Q.sum(axis=1), 5)


def test_nothing_is_decided_by_unreliable_arithmetic(monkeypatch, rows):
    """On a machine that computes otherwise the search gives no answer."""
    q, mass, _ = rows
    monkeypatch.setattr(reproducible, "known_answers", lambda _: np.zeros(6))
    with pytest.raises(UnreliableArithmetic):
        farthest_rows(q, np.arange(q.n), mass, 3)
