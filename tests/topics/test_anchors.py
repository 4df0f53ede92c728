"""Anchor search: the lazy search, and its replay from inner products."""

import numpy as np
import pytest

from streamtopic.counts import SymmetricCounts
from streamtopic.topics.anchors import farthest_rows, replay_rows


@pytest.fixture
def rows(planted):
    """Integer counts of the planted corpus, their candidates, and the scaled rows as a dense matrix."""
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


def test_lazy_search_equals_the_plain_definition(rows):
    """Greedy farthest rows and the swap pass, by orthogonal projections of all rows at every step."""
    q, mass, M = rows
    chosen = []
    for _ in range(4):
        chosen.append(int(np.argmax(distances(M, chosen))))
    for k in range(4):
        others = [c for i, c in enumerate(chosen) if i != k]
        chosen[k] = int(np.argmax(distances(M, others)))
    found = farthest_rows(q, np.arange(q.n), mass, 4)
    assert found.rows.tolist() == sorted(chosen)
    assert found.certain


def test_replay_confirms_the_search_and_only_it(rows):
    """From inner products alone the same anchors are confirmed where no swap changed them, and other ones never."""
    q, mass, M = rows
    norms = (M**2).sum(axis=1)

    def replay(chosen):
        return replay_rows(norms, M @ M[chosen].T, M[chosen] @ M[chosen].T, chosen, q.n)

    confirmed = 0
    for r in range(2, 9):
        greedy = []
        for _ in range(r):
            greedy.append(int(np.argmax(distances(M, greedy))))
        right = farthest_rows(q, np.arange(q.n), mass, r)
        found = replay(right.rows)
        if right.rows.tolist() == sorted(greedy):
            confirmed += 1
            assert found is not None
            assert found.margin == pytest.approx(right.margin, rel=1e-5)
        else:
            assert found is None
        for other in np.setdiff1d(np.arange(q.n), right.rows)[:10]:
            assert replay(np.sort(np.append(right.rows[1:], other))) is None
    assert confirmed
