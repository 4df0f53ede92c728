"""Learning from Redis holds the working matrix, and beside it a bounded room."""

import numpy as np
import pytest
from test_exactness import Run

from streamtopic.counts import Counts, SymmetricCounts
from streamtopic.counts import compact as compact_rows
from streamtopic.state import Reader, compact, sum_pairs
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

WORDS = 120


@pytest.fixture
def snapshot(connection, new_model):
    """Counts of documents that came and went, in many segments of one partition, some of them merged."""
    run = Run(connection, new_model())
    rng = np.random.default_rng(5)
    for k in range(40):
        words = rng.choice(WORDS, 30, replace=False).tolist()
        counts = {f"w{word:03d}": int(rng.integers(1, 4)) for word in words}
        run.add(k, ((sum(counts.values()), counts),))
        if k % 9 == 8:
            run.delete(k - 5)
        run.flush()
        if k == 20:
            compact(run.state, everything=True)
    return Reader(connection, run.model, 1).snapshot()


def in_memory(snapshot, keep):
    """Return what is read as a whole, with nothing bounded."""
    return SymmetricCounts.of(snapshot.restrict(keep))


@pytest.mark.parametrize("pairs", [1, 50, sum_pairs.PANEL_PAIRS])
def test_any_bound_gives_the_same_bits(snapshot, monkeypatch, pairs):
    """However little may wait and however small panels are, the working matrix is the same bits."""
    keep = np.arange(0, len(snapshot.words), 2)
    expected = in_memory(snapshot, keep)
    monkeypatch.setattr(sum_pairs, "WAITING_BYTES", 12 * pairs)
    monkeypatch.setattr(sum_pairs, "PANEL_PAIRS", pairs)
    monkeypatch.setattr(sum_pairs, "ROW_BYTES", 12 * pairs)
    q = snapshot.symmetric(keep)
    assert q.n == expected.n
    assert all(a.tobytes() == b.tobytes() and a.dtype == b.dtype for a, b in zip(q.rows, expected.rows, strict=True))


def test_the_room_beside_the_matrix_is_bounded(snapshot, monkeypatch):
    """What waits, what is written anew at once, and a panel stay below their bounds, however much is read."""
    waiting, panel = 20_000, 300
    monkeypatch.setattr(sum_pairs, "WAITING_BYTES", waiting)
    monkeypatch.setattr(sum_pairs, "PANEL_PAIRS", panel)
    monkeypatch.setattr(sum_pairs, "ROW_BYTES", 1)
    folds, sizes, sums = [], [], []
    add, accumulate = sum_pairs._Sum.add, sum_pairs.accumulate

    def seen(self, *part):
        before = self._waiting
        add(self, *part)
        folds.append(self._waiting < before)
        sizes.append(sum(array.nbytes for some in self._parts for array in some))

    def summed(indptrs, columns, values, *rest):
        sums.append(len(values))
        return accumulate(indptrs, columns, values, *rest)

    monkeypatch.setattr(sum_pairs._Sum, "add", seen)
    monkeypatch.setattr(sum_pairs, "accumulate", summed)
    q = snapshot.symmetric(np.arange(len(snapshot.words)))
    assert sum(folds) > 3
    assert max(sizes) <= waiting
    # A panel holds so many pairs or one row; what waits for its rows comes on top.
    most = max(int(np.diff(q.indptr).max()), panel)
    assert max(sums) <= most + waiting // 12 + 30 * 31 // 2 + WORDS
    assert max(sums) < q.entries / 3


def test_rows_of_many_flushes_are_counted_together(connection, new_model, monkeypatch):
    """A pair that stands in every flush is counted in all of them at once, not added up flush by flush."""
    run = Run(connection, new_model())
    for k in range(6):
        run.add(k, ((40, {f"w{word:02d}": 1 for word in range(40)}),))
        run.flush()
    snapshot = Reader(connection, run.model, 1).snapshot()
    added = []
    add = sum_pairs._Sum.add

    def seen(self, indptr, columns, values):
        added.append(len(values))
        add(self, indptr, columns, values)

    monkeypatch.setattr(sum_pairs._Sum, "add", seen)
    q = snapshot.restrict(np.arange(len(snapshot.words)))
    assert sum(added) == len(q.values) == 40 * 39 // 2


def test_panels_without_a_new_pair_are_not_written_anew(snapshot, monkeypatch):
    """A part that holds some rows only costs as much as the panels of these rows."""
    monkeypatch.setattr(sum_pairs, "WAITING_BYTES", 1)
    folded = []

    def summed(indptrs, columns, values, *rest):
        folded.append(np.diff(indptrs[1:], axis=1).sum())
        return accumulate(indptrs, columns, values, *rest)

    accumulate = sum_pairs.accumulate
    monkeypatch.setattr(sum_pairs, "accumulate", summed)
    snapshot.symmetric(np.arange(len(snapshot.words)))
    assert min(folded) > 0


def test_panels_are_given_back_while_the_matrix_is_written(snapshot, monkeypatch):
    """No more than half of the panels outlive the writing of half of the rows."""
    monkeypatch.setattr(sum_pairs, "PANEL_PAIRS", 100)
    left = []
    mirror = compact_rows._mirror

    def counting(rows, first, start, *rest):
        left.append((start, first))
        mirror(rows, first, start, *rest)

    monkeypatch.setattr(compact_rows, "_mirror", counting)
    panels = snapshot._panels(np.arange(len(snapshot.words)), np.ones(len(snapshot.words), bool))
    number = len(panels)
    compact_rows.mirrored(len(snapshot.words), panels)
    assert number > 8
    assert panels == []
    assert all(first <= start for start, first in left)


def test_a_learner_that_reads_redis_learns_the_same(snapshot, monkeypatch):
    """The model of counts in Redis, read in small pieces, is that of the same counts in memory, bit for bit."""
    options = LearnerOptions(n_topics=3, min_df=1, max_df=1.0)
    whole = Counts(snapshot.words, snapshot.restrict(np.arange(len(snapshot.words))))
    monkeypatch.setattr(sum_pairs, "WAITING_BYTES", 10_000)
    monkeypatch.setattr(sum_pairs, "PANEL_PAIRS", 70)
    read, held = learn(snapshot, options), learn(whole, options)
    assert read.words == held.words
    assert read.A.tobytes() == held.A.tobytes()
