"""Rows of an update: mixtures carried over to changed counts, W' = W + dQ V + Q' (V' - V), at the cost of the change.

Only continuous numbers are carried over, each with a bound on its error. The words that stand for a topic are decided
elsewhere, from counts. A topic with other words than before gets its column of W from counts.
"""

from dataclasses import dataclass, replace

import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int64
from streamtopic.topics.certificate import gamma
from streamtopic.topics.mixtures import Mixtures, carried_errors, gram
from streamtopic.topics.products import grouped_rows, product_roundings, shift_roundings, times
from streamtopic.topics.update_products import OuterChange, ThinShift, dearer_than_whole, product_shift

__all__ = ["Change", "carried", "regrouped"]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of Q over the internal words, and the quantities that follow from it.

    delta: dQ, signed.
    mass: (n,) row sums after the change.
    squares: (n,) D^2 after the change.
    squares_before: (n,) D^2 before it.
    outer: dQ, or most of it, as outer products, where its passages are known and few enough to save work.
    """

    delta: SymmetricCounts
    mass: Int64
    squares: Float
    squares_before: Float
    outer: OuterChange | None = None


def carried(before: Mixtures, q: SymmetricCounts, change: Change, group: Int64) -> Mixtures:
    """Return the mixtures on the changed Q, with the words of each topic as before. It takes over the arrays.

    before: the mixtures before the change.
    q: Q after the change.
    group: (n,) the topic that each word stood for, or -1.
    C stays the last solution, and G the last matrix.
    """
    counts = before.anchor_counts
    thin = before.thin
    outer = change.outer
    topics = len(counts)
    entries = grouped_rows(change.delta, group, topics)
    counts += entries
    sums = np.zeros((0, topics), np.int64)
    explained = np.zeros_like(entries)
    longest = 0
    if outer is not None:
        sums = outer.sums(group, topics)
        explained = outer.explained(sums)
        longest = outer.longest
    # In integers, so the rest beside the outer products is exact: self-pairs, and words that came or went.
    unexplained = (entries != explained).any(axis=0)
    columns = np.flatnonzero(unexplained | (change.squares != change.squares_before))
    rest = counts[:, columns] - explained[:, columns]
    moved = np.ascontiguousarray((rest * change.squares[columns]).T) - thin[columns]
    step = ThinShift(columns, moved, outer, sums)
    # Before V changes in place: the shift is a product with the V of before.
    shifted = None
    if not dearer_than_whole(q, change.delta, step):
        shifted = product_shift(q, change.delta, thin, step)
    touched = columns if outer is None else np.union1d(columns, outer.words)
    thin[touched] = (counts[:, touched] * change.squares[touched]).T
    # The search for a row begins at its last solution. A word without mass has no row.
    start = np.where((change.mass > 0)[:, None], before.C, 0.0)
    anchor_mass = counts.sum(axis=1)
    entries_each = np.diff(q.indptr)
    if shifted is None:
        relative = gamma(product_roundings(entries_each, q.n))
        product = times(q, thin)
        error = np.zeros(q.n)
        return replace(before, anchor_mass=anchor_mass, product=product, relative=relative, error=error, C=start)
    product, sizes = shifted
    roundings = shift_roundings(entries_each, np.diff(change.delta.indptr), len(sums), longest)
    relative, error = carried_errors(before.relative, before.error, roundings, sizes)
    product += before.product
    # A word without mass has no entry in Q: its products are 0 exactly, and no error of earlier ones may stay.
    dead = change.mass == 0
    product[dead] = 0.0
    relative[dead] = 0.0
    error[dead] = 0.0
    return replace(before, anchor_mass=anchor_mass, product=product, relative=relative, error=error, C=start)


def regrouped(before: Mixtures, q: SymmetricCounts, change: Change, then: Int64, now: Int64) -> Mixtures:
    """Return the mixtures with other sets: a topic with the same words keeps its columns, others are computed.

    before: the mixtures on the changed Q, with the sets of before.
    then: (n,) the topic that each word stood for, or -1.
    now: (n,) the topic that each word stands for, or -1.
    Cost: a pass over Q for the columns that are computed.
    """
    live_then = np.where(change.mass > 0, then, -1)
    origin = _same_sets(live_then, now, len(before.anchor_counts))
    fresh = np.flatnonzero(origin < 0)
    # With most topics new, a product of all of them costs no more, and carries no error.
    if 2 * len(fresh) > len(origin):
        anchor_counts = grouped_rows(q, now, len(origin))
        return Mixtures.cold(q, change.mass, change.squares, anchor_counts, None)
    kept = np.maximum(origin, 0)
    counts = before.anchor_counts
    thin = before.thin
    product = before.product
    C = before.C
    relative = before.relative
    error = before.error
    if len(fresh) or not np.array_equal(kept, np.arange(len(kept))):
        counts = counts[kept]
        thin = thin[:, kept]
        product = product[:, kept]
        C = C[:, kept]
    if len(fresh):
        topic = np.full(len(now), -1, np.int64)
        inside = np.flatnonzero(now >= 0)
        place = np.full(len(origin), -1, np.int64)
        place[fresh] = np.arange(len(fresh))
        topic[inside] = place[now[inside]]
        counts[fresh] = grouped_rows(q, topic, len(fresh))
        thin[:, fresh] = (counts[fresh] * change.squares).T
        product[:, fresh] = times(q, np.ascontiguousarray(thin[:, fresh]))
        # One bound for all columns of a row, so the larger of both.
        fresh_errors = gamma(product_roundings(np.diff(q.indptr), q.n))
        relative = np.maximum(relative, fresh_errors)
        # A column that starts anew has no support to try first.
        C[:, fresh] = 0.0
    G, sigma = gram(counts, thin)
    made = Mixtures(counts, counts.sum(axis=1), thin, product, relative, error, G, C, sigma)
    made.solve(change.mass, C)
    return made


def _same_sets(then: Int64, now: Int64, topics: int) -> Int64:
    """Return for each topic of now the topic of before with the same words, (topics,), or -1."""
    sizes = np.bincount(then[then >= 0], minlength=topics)
    origin = np.full(topics, -1, np.int64)
    for topic in range(topics):
        words = np.flatnonzero(now == topic)
        old = int(then[words[0]])
        # All words of now are words of then, and there are as many: the sets are the same.
        if old >= 0 and sizes[old] == len(words) and (then[words] == old).all():
            origin[topic] = old
    return origin
