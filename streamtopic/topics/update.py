"""The same model after a change of counts, at the cost of the change.

    counts      Q' = Q + dQ as another matrix: words that leave lose their row and column, words that enter get theirs
    sets        anchors and the words that join them, chosen again from Q' by the operations of a cold start
    products    W' = W + dQ V + Q' (V' - V), with the sets of before: touches the entries of changed rows and columns;
                topics of other words, and guided ones whose rows changed, get a new column of W
    topics      every row solved again from its last support; certificate

Every decision is made from counts, to the bit as a cold start makes it. Numbers that are carried over are continuous
and have an error bound. So a cold start from the same counts gives the same model within the certificates of both.
Source: the paper's Algorithm 1 with an exact solve in place of its projected Newton step; docs/decisions/0010 says why.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.counts import CountSource, PairSource, SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Positions
from streamtopic.errors import CannotLearn
from streamtopic.topics.certificate import gamma
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.learner import Sets, candidate_positions, choose_sets, choose_words, column_squares
from streamtopic.topics.mixtures import Mixtures, carried_errors, gram
from streamtopic.topics.products import (
    add_times_sparse,
    column_sums,
    grouped_rows,
    product_roundings,
    product_shift,
    shift_costs_more,
    shift_roundings,
    times,
)

__all__ = ["NeedsRetrain", "update"]

_T = TypeVar("_T", bound=np.generic)

# The share of the tolerance that errors of carried products may use up. Beyond it they are computed again, at the cost
# of one pass over Q.
_SHARE_OF_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class NeedsRetrain:
    """The outcome of an update if a cold start from counts is needed.

    reason: why, in words for an operator.
    """

    reason: str


def update(fit: TopicFit, now: CountSource, delta: PairSource) -> TopicFit | NeedsRetrain:
    """Carry a fit over to changed counts; return the model of the changed counts, or why there is none.

    fit: a model of the counts before. It stays as it is.
    now: the counts after the change, made with the fit's weighting.
    delta: the pairs after minus those before, over any words, made with the same weighting.

    Cost: a copy of Q, O(nnz(dQ) r + entries of touched rows * r + n r^2), a pass over Q for topics whose words are
    others now, and for learner "default" the entries of the candidates' rows and about 20 candidates^2 r. It does not
    depend on the documents that are kept.
    """
    try:
        if now.documents <= 0:
            return NeedsRetrain("no document is left")
        keep, may_anchor = choose_words(now, fit.options)
        change = _change(fit, now, delta, keep)
        live = np.flatnonzero(change.mass)
        if len(live) < len(keep):
            # A word that meets no other word has no row that others could be mixtures of.
            keep, may_anchor = keep[live], may_anchor[live]
            change = _change(fit, now, delta, keep)
        q = fit.q.plus(change.delta, change.place)
        squares = column_squares(change.mass, fit.options)
        candidates = candidate_positions(now.frequency[keep], may_anchor, fit.options)
        sets = choose_sets(q, change.mass, squares, candidates, change.words, fit.options)
        mixtures = _mixtures(fit, q, change, squares, sets)
        updated = TopicFit(
            options=fit.options,
            words=change.words,
            documents=now.documents,
            q=q,
            mass=change.mass,
            squares=squares,
            candidates=candidates,
            choice=sets.choice,
            group=sets.group,
            mixtures=mixtures,
            guided=sets.guided.topics,
            notes=sets.guided.remarks,
        )
        if updated.certificate.from_products > _SHARE_OF_TOLERANCE * fit.options.tolerance:
            anew = Mixtures.cold(q, change.mass, squares, mixtures.anchor_counts, mixtures.C)
            updated = replace(updated, mixtures=anew)
    except CannotLearn as error:
        return NeedsRetrain(str(error))
    return updated


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A change of Q over the words after it.

    words: (n',) ascending.
    place: (n,) where the words of before are among them, -1 for a word that leaves.
    leaves: positions of the words that leave, among those of before.
    delta: dQ, signed. It has all pairs of words that enter, and none of words that leave.
    mass: (n',) row sums of Q'.
    """

    words: Words
    place: Int64
    leaves: Positions
    delta: SymmetricCounts
    mass: Int64

    def moved(self, array: npt.NDArray[_T], fill: float = 0) -> npt.NDArray[_T]:
        """Return rows of words of before as rows of the words after, `fill` for a word that enters.

        If the words are the same, which is usual, these are the rows that were given, and not to be written to.
        """
        if len(array) == len(self.words) and not len(self.leaves):
            return array
        moved = np.full((len(self.words), *array.shape[1:]), fill, array.dtype)
        stays = self.place >= 0
        moved[self.place[stays]] = array[stays]
        return moved


def _change(fit: TopicFit, now: CountSource, delta: PairSource, keep: Positions) -> _Change:
    """Return the change that leads to the words of `now` at these positions.

    Raises CannotLearn if no two of the words meet, or the change does not fit the model.
    """
    words = Words(now.words[k] for k in keep.tolist())
    # The same object nearly always, so that its table of places need not be made again.
    words = fit.words if words == fit.words else words
    place = words.places(fit.words)
    leaves = np.flatnonzero(place < 0)
    entered = np.ones(len(words), bool)
    entered[place[place >= 0]] = False
    ids = words.places(delta.words)
    # The fit has no pair of a word that enters, so all of them are counted now.
    ids[(fit.words.places(delta.words) < 0)] = -1
    known = np.flatnonzero(ids >= 0)
    pairs = delta.restrict(known).relabel(ids[known], len(words))
    if entered.any():
        pairs = pairs + now.touching(keep, entered)
    left = fit.mass - column_sums(fit.q, leaves) if len(leaves) else fit.mass
    change = _Change(words, place, leaves, SymmetricCounts.of(pairs), left)
    mass = change.moved(left) + change.delta.row_sums()
    if not mass.any():
        raise CannotLearn("pairs", "no two words of the vocabulary occur together any more: add documents")
    if mass.min() < 0:
        raise CannotLearn(
            "negative", "a word's co-occurrences fell below zero, so the change does not fit the model: learn it again"
        )
    return replace(change, mass=mass)


def _mixtures(fit: TopicFit, q: SymmetricCounts, change: _Change, squares: Float, sets: Sets) -> Mixtures:
    """Return the mixtures of the changed counts.

    q: Q'.
    squares: (n',) D^2 after the change.
    sets: the words and rows that represent topics now.
    """
    carried = _carried(fit, q, change, squares)
    if carried is not None:
        group = change.moved(fit.group, fill=-1)
        return _regrouped(carried, q, change.mass, squares, group, sets.group, sets.guided.rows)
    rows = sets.rows(q)
    start = change.moved(fit.mixtures.C)
    # Where the search for a row begins decides how long it takes, and not where it ends.
    return Mixtures.cold(q, change.mass, squares, rows, start if start.shape[1] == len(rows) else None)


def _carried(fit: TopicFit, q: SymmetricCounts, change: _Change, squares: Float) -> Mixtures | None:
    """Return the mixtures on the changed Q with the words of each topic as before; None if all of Q costs less.

    C stays the last solution, and G the last matrix.
    """
    before = fit.mixtures
    topics = len(before.anchor_counts)
    leaves = change.leaves
    counts = before.anchor_counts
    if len(leaves):
        counts = counts - grouped_rows(fit.q, np.where(change.place < 0, fit.group, -1), topics)
    delta = change.delta
    group = change.moved(fit.group, fill=-1)
    # Compiled loops read the rows of N, so they lie together again.
    counts = change.moved(counts.T).T.copy() + grouped_rows(delta, group, topics)
    thin = np.ascontiguousarray((counts * squares).T)
    thin_before = change.moved(before.thin)
    columns = np.flatnonzero((thin != thin_before).any(axis=1))
    moved = thin[columns] - thin_before[columns]
    if shift_costs_more(q, delta, columns, moved):
        return None
    shift, sizes = product_shift(q, delta, thin_before, columns, moved)
    # Once more for the sum of both parts.
    roundings = shift_roundings(np.diff(q.indptr), np.diff(delta.indptr)) + len(leaves) + 1.0
    if len(leaves):
        without = np.zeros_like(before.product)
        sizes += change.moved(add_times_sparse(fit.q, leaves, -before.thin[leaves], without))
        shift += change.moved(without)
    relative, error = carried_errors(change.moved(before.relative), change.moved(before.error), roundings, sizes)
    product = change.moved(before.product) + shift
    return replace(
        before,
        anchor_counts=counts,
        anchor_mass=counts.sum(axis=1),
        thin=thin,
        product=product,
        relative=relative,
        error=error,
        C=change.moved(before.C),
    )


def _regrouped(
    before: Mixtures, q: SymmetricCounts, mass: Int64, squares: Float, then: Int64, now: Int64, guided: Int64
) -> Mixtures:
    """Return the mixtures with other sets: a topic with the same words keeps its columns, others are computed.

    before: the mixtures on the changed Q, with the sets of before.
    mass, squares: (n,) row sums, and D^2.
    then: (n,) the topic that each word stood for, or -1.
    now: (n,) the topic that each word represents, or -1.
    guided: (g, n) the rows of guided topics, after the others.
    Cost: a pass over Q for the columns that are computed.
    """
    found = int(now.max(initial=-1)) + 1
    origin = np.full(found + len(guided), -1, np.int64)
    like = origin.copy()
    # If a guided topic has ended or come back, all topics are new.
    if len(origin) == len(before.anchor_counts):
        origin[:found], like[:found] = _origins(then, now, found)
        same = (before.anchor_counts[found:] == guided).all(axis=1)
        origin[found:][same] = found + np.flatnonzero(same)
        like[found:] = origin[found:]
    fresh = np.flatnonzero(origin < 0)
    # With most topics new, a product of all of them costs no more, and carries no error.
    if 2 * len(fresh) > len(origin):
        anchor_counts = np.concatenate([grouped_rows(q, now, found), guided])
        return Mixtures.cold(q, mass, squares, anchor_counts, None)
    kept = np.maximum(like, 0)
    counts = before.anchor_counts[kept]
    # Not by an index, which leaves the entries of a column side by side: kernels read rows, and would be compiled
    # once more for columns.
    thin = before.thin.take(kept, axis=1)
    product = before.product.take(kept, axis=1)
    C = before.C.take(kept, axis=1)
    relative = before.relative
    if len(fresh):
        place = np.full(len(origin) + 1, -1, np.int64)
        place[fresh] = np.arange(len(fresh))
        counts[fresh] = grouped_rows(q, place[now], len(fresh))
        anew = fresh[fresh >= found]
        counts[anew] = guided[anew - found]
        thin[:, fresh] = (counts[fresh] * squares).T
        product[:, fresh] = times(q, np.ascontiguousarray(thin[:, fresh]))
        # One bound for all columns of a row, so the larger of both.
        relative = np.maximum(relative, gamma(product_roundings(np.diff(q.indptr), q.n)))
        # A topic none of whose words stood for one before has no support to try first.
        C[:, like < 0] = 0.0
    G, sigma = gram(counts, thin)
    made = Mixtures(counts, counts.sum(axis=1), thin, product, relative, before.error, G, C, sigma)
    made.solve(mass, C)
    return made


def _origins(then: Int64, now: Int64, topics: int) -> tuple[Int64, Int64]:
    """Return for each topic of now the one of before with the same words, and the one that had most of them.

    Both are (topics,), -1 without one.
    """
    sizes = np.bincount(then[then >= 0], minlength=topics)
    same = np.full(topics, -1, np.int64)
    like = same.copy()
    for topic in range(topics):
        old = then[now == topic]
        known = old[old >= 0]
        if len(known):
            most = np.bincount(known).argmax()
            like[topic] = most
            # All words of now are words of then, and there are as many: the sets are the same.
            if sizes[most] == len(old) and (old == most).all():
                same[topic] = most
    return same, like
