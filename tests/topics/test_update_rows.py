"""Carrying mixtures over: topics that stay, that change places and that are new are those of a cold start."""

import copy

import numpy as np
import pytest

from streamtopic.counts import Cooccurrence, Counts, SymmetricCounts
from streamtopic.topics import update_rows
from streamtopic.topics.learner import learn
from streamtopic.topics.mixtures import Mixtures
from streamtopic.topics.products import grouped_rows
from streamtopic.topics.update_rows import Change, _same_sets, carried, regrouped


class Changed:
    """A fit of some documents, and what a change of its counts is to it."""

    def __init__(self, planted, gone, r=4):
        self.options = planted.options(n_topics=r)
        everything = planted.counts(self.options)
        self.fit = learn(everything, self.options)
        places = np.array([planted.words.index(word) for word in self.fit.names])
        delta = (Cooccurrence.zero(len(planted.words)) - planted.counts(self.options, gone).cooccurrence).restrict(
            places
        )
        now = Counts(self.fit.names, everything.cooccurrence.restrict(places) + delta)
        self.q = now.symmetric(np.arange(len(places)))
        mass = self.q.row_sums()
        assert mass.all()
        self.change = Change(SymmetricCounts.of(delta), mass, self.fit.squares, self.fit.squares)

    def regrouped(self, now):
        """Return the mixtures with these sets, by way of those of before, and a cold one."""
        before = copy.deepcopy(self.fit.mixtures)
        moved = carried(before, self.q, self.change, self.fit.group)
        made = regrouped(moved, self.q, self.change, self.fit.group, now)
        rows = grouped_rows(self.q, now, self.options.n_topics)
        return made, Mixtures.cold(self.q, self.change.mass, self.change.squares, rows, None)

    def same(self, made, cold):
        """Assert that they are one model: equal integers, products within bounds, rows within both certificates."""
        mass = self.change.mass
        assert np.array_equal(made.anchor_counts, cold.anchor_counts)
        assert np.array_equal(made.anchor_mass, cold.anchor_mass)
        assert np.array_equal(made.thin, cold.thin)
        # In the order that a cold start has, or the kernels would be compiled once more and read with gaps.
        assert all(array.flags.c_contiguous for array in (made.thin, made.product, made.C, made.G))
        assert made.G.tobytes() == cold.G.tobytes()
        assert made.sigma_min == cold.sigma_min > 0
        apart = np.abs(made.product - cold.product).max(axis=1)
        assert (apart <= made.product_errors() + cold.product_errors()).all()
        distance = np.linalg.norm((made.C - cold.C), axis=1)
        live = np.flatnonzero(mass)
        p = mass[live] / mass.sum()
        bounds = made.bounds(mass, live, p).errors + cold.bounds(mass, live, p).errors
        assert (distance[live] <= bounds).all()
        assert not distance[mass == 0].any()
        assert distance.max() <= 1e-9


GONE = [3, 77, 150, 412]


@pytest.fixture(autouse=True)
def products_are_carried(monkeypatch):
    """So few words are cheaper to multiply anew: carry their products all the same."""
    monkeypatch.setattr(update_rows, "dearer_than_whole", lambda *_: False)


@pytest.fixture(scope="module")
def changed(planted):
    """One change of the planted corpus."""
    return Changed(planted, GONE)


def test_kept_topics_are_those_of_a_cold_start(changed):
    """Where no set changed, every column goes on."""
    made, cold = changed.regrouped(changed.fit.group)
    changed.same(made, cold)
    assert not np.array_equal(made.product, cold.product)


def test_topics_that_change_places_are_those_of_a_cold_start(changed):
    """Where the same sets have other numbers, columns go on under these."""
    order = np.array([2, 0, 3, 1])
    group = changed.fit.group
    made, cold = changed.regrouped(np.where(group >= 0, order[group], -1))
    changed.same(made, cold)


@pytest.mark.parametrize("topics", [[0], [3], [1, 2], [0, 1, 2]])
def test_fresh_topics_are_those_of_a_cold_start(changed, topics):
    """Where some sets lose or gain a word, their columns are made from counts and the others go on."""
    now = changed.fit.group.copy()
    outside = np.flatnonzero(now < 0)
    for k, topic in enumerate(topics):
        now[outside[k]] = topic
    made, cold = changed.regrouped(now)
    changed.same(made, cold)
    kept = np.setdiff1d(np.arange(4), topics)
    if len(topics) <= 2:
        # Columns that were made from counts have the bits of a cold start, carried ones have not.
        assert np.array_equal(made.product[:, topics], cold.product[:, topics])
        assert not np.array_equal(made.product[:, kept], cold.product[:, kept])
    else:
        assert np.array_equal(made.product, cold.product)


def test_fresh_and_moved_topics_together(changed):
    """A new set among others that change places."""
    group = changed.fit.group
    now = np.where(group >= 0, np.array([1, 2, 3, 0])[group], -1)
    now[np.flatnonzero(now == 2)[1:]] = -1
    made, cold = changed.regrouped(now)
    changed.same(made, cold)


def test_sets_are_the_same_only_with_the_same_words():
    """A topic goes on where its words are all the words of one topic of before, whatever its number."""
    then = np.array([0, 0, 1, 1, 2, -1])
    assert _same_sets(then, np.array([1, 1, 0, 0, 2, -1]), 3).tolist() == [1, 0, 2]
    assert _same_sets(then, np.array([0, 0, 1, -1, 2, -1]), 3).tolist() == [0, -1, 2]
    assert _same_sets(then, np.array([0, 0, 1, 1, 2, 2]), 3).tolist() == [0, 1, -1]
    assert _same_sets(then, np.array([0, 1, 1, 1, 2, -1]), 3).tolist() == [-1, -1, 2]
    assert _same_sets(then, np.array([0, 0, 1, 1, -1, 2]), 3).tolist() == [0, 1, -1]
