"""Rows of an update: mixtures carried over to changed counts, W' = W + dQ V + Q' (V' - V), at the cost of the change.

Only continuous numbers are carried, each with a bound on its error. Which words stand for a topic is decided elsewhere,
from counts. A topic whose words are others than before gets its column of W from counts.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.topics.certificate import gamma
from streamtopic.topics.mixtures import Mixtures, carried_errors, gram
from streamtopic.topics.products import grouped_rows, product_roundings, shift_roundings, times
from streamtopic.topics.update_products import OuterChange, ThinShift, dearer_than_whole, product_shift

__all__ = ["Change", "carried", "regrouped"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of Q over the internal words, and the quantities around it.

    delta: dQ, signed.
    mass: (n,) row sums now.
    squares, squares_before: (n,) D^2 now and before.
    outer: dQ, or most of it, as outer products, where its passages are known and few enough to save work.
    """

    delta: SymmetricCounts
    mass: Int64
    squares: Float
    squares_before: Float
    outer: OuterChange | None = None


def carried(before: Mixtures, q: SymmetricCounts, change: Change, group: Int64) -> Mixtures:
    """Return the mixtures on the changed Q, the words of each topic being those of before; it takes over the arrays.

    group: (n,) the topic that each word stood for, or -1. C is still the last solution, G the last matrix.
    """
    counts, thin, outer = before.anchor_counts, before.thin, change.outer
    entries = grouped_rows(change.delta, group, len(counts))
    counts += entries
    sums = np.zeros((0, len(counts)), np.int64) if outer is None else outer.sums(group, len(counts))
    explained = np.zeros_like(entries) if outer is None else outer.explained(sums)
    # In integers, so the rest beside the outer products is exact: self-pairs, and words that came or went.
    columns = np.flatnonzero((entries != explained).any(axis=0) | (change.squares != change.squares_before))
    rest = counts[:, columns] - explained[:, columns]
    moved = np.ascontiguousarray((rest * change.squares[columns]).T) - thin[columns]
    step = ThinShift(columns, moved, outer, sums)
    shifted = None if dearer_than_whole(q, change.delta, step) else product_shift(q, change.delta, thin, step)
    touched = columns if outer is None else np.union1d(columns, outer.words)
    thin[touched] = (counts[:, touched] * change.squares[touched]).T
    # The search for a row begins at its last solution; a word without mass has no row.
    start = np.where((change.mass > 0)[:, None], before.C, 0.0)
    anchor_mass = counts.sum(axis=1)
    if shifted is None:
        relative = gamma(product_roundings(np.diff(q.indptr), q.n))
        product = times(q, thin)
        return replace(
            before, anchor_mass=anchor_mass, product=product, relative=relative, error=np.zeros(q.n), C=start
        )
    product, sizes = shifted
    longest = 0 if outer is None else outer.longest
    roundings = shift_roundings(np.diff(q.indptr), np.diff(change.delta.indptr), len(sums), longest)
    relative, error = carried_errors(before.relative, before.error, roundings, sizes)
    product += before.product
    # A word without mass has no entry in Q: its products are 0 exactly, and no error of earlier ones may stay.
    dead = change.mass == 0
    product[dead], relative[dead], error[dead] = 0.0, 0.0, 0.0
    return replace(before, anchor_mass=anchor_mass, product=product, relative=relative, error=error, C=start)


def regrouped(before: Mixtures, q: SymmetricCounts, change: Change, then: Int64, now: Int64) -> Mixtures:
    """Return the mixtures with the sets of now: columns of topics that are the same words go on, others are made.

    before: on the changed Q, with the sets of before; then, now: (n,) the topic that each word stood and stands for, or
    -1. Cost: a pass over Q for the columns that are made.
    """
    origin = _same_sets(np.where(change.mass > 0, then, -1), now, len(before.anchor_counts))
    fresh = np.flatnonzero(origin < 0)
    # With most topics new, a product of all of them costs no more, and carries no error.
    if 2 * len(fresh) > len(origin):
        return Mixtures.cold(q, change.mass, change.squares, grouped_rows(q, now, len(origin)), None)
    kept = np.maximum(origin, 0)
    counts, thin, product, C = before.anchor_counts, before.thin, before.product, before.C
    relative, error = before.relative, before.error
    if len(fresh) or not np.array_equal(kept, np.arange(len(kept))):
        counts, thin, product, C = counts[kept], thin[:, kept], product[:, kept], C[:, kept]
    if len(fresh):
        topic = np.full(len(now), -1, np.int64)
        inside = np.flatnonzero(now >= 0)
        place = np.full(len(origin), -1, np.int64)
        place[fresh] = np.arange(len(fresh))
        topic[inside] = place[now[inside]]
        counts[fresh] = grouped_rows(q, topic, len(fresh))
        thin[:, fresh] = (counts[fresh] * change.squares).T
        product[:, fresh] = times(q, np.ascontiguousarray(thin[:, fresh]))
        relative = np.maximum(relative, gamma(product_roundings(np.diff(q.indptr), q.n)))
        # A column that starts anew has no support to try first.
        C[:, fresh] = 0.0
    G, sigma = gram(counts, thin)
    made = Mixtures(counts, counts.sum(axis=1), thin, product, relative, error, G, C, sigma)
    made.solve(change.mass, C)
    return made


def _same_sets(then: Int64, now: Int64, topics: int) -> Int64:
    """Return the topic of before that has the same words as each topic of now, (topics,), or -1."""
    sizes = np.bincount(then[then >= 0], minlength=topics)
    origin = np.full(topics, -1, np.int64)
    for topic in range(topics):
        words = np.flatnonzero(now == topic)
        old = int(then[words[0]])
        if old >= 0 and sizes[old] == len(words) and (then[words] == old).all():
            origin[topic] = old
    return origin
