"""The same model after a change of counts, at the cost of the change.

    counts             Q' = Q + dQ in place; words that leave lose their row and column, words that enter get theirs
    sets               anchors and the words that join them, chosen again from Q' by the operations of a cold start;
                       rows of guided topics are made again, and those that changed get a new column of W
    update_rows        W' = W + dQ V + Q' (V' - V): touches the entries of changed rows and columns only
    topics             every row solved again from its last support; certificate

Every decision is made from counts, to the bit as a cold start makes it. Numbers that are carried over are continuous
and have an error bound. So a cold start from the same counts gives the same model within the certificates of both.
Source: the paper's Algorithm 1 with an exact solve in place of its projected Newton step; docs/decisions/0010 says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import coo_array

from streamtopic.counts import Cooccurrence, CountSource, SignedPassages, SymmetricCounts
from streamtopic.counts.arrays import Int64, Mask, Positions
from streamtopic.errors import CannotLearn
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.learner import (
    candidate_positions,
    choose_sets,
    choose_words,
    column_squares,
)
from streamtopic.topics.mixtures import Mixtures
from streamtopic.topics.products import column_sums
from streamtopic.topics.update_rows import Change, carried, outer_change, regrouped

__all__ = ["NeedsRetrain", "Updated", "update"]

# The share of the tolerance that errors of carried products may use up. Beyond it they are computed again, at the cost
# of one pass over Q.
_SHARE_OF_TOLERANCE = 0.1
# One word in eight may be a dropped one that stays in the arrays: leaving it out copies them all.
_FEW_DEAD = 8


@dataclass(frozen=True, slots=True)
class NeedsRetrain:
    """The outcome of an update if a cold start from counts is needed.

    reason: why, in words for an operator.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Updated:
    """The outcome of an update that was made.

    fit: the model of the changed counts.
    new_anchors: its anchor words that the model before did not have.
    """

    fit: TopicFit
    new_anchors: tuple[str, ...] = ()


def update(
    fit: TopicFit, now: CountSource, delta: CountSource, passages: SignedPassages | None = None
) -> Updated | NeedsRetrain:
    """Carry a fit over to changed counts.

    fit: a model of the counts before. Whatever the outcome, do not use it afterwards: its Q changes in place.
    now: the counts after the change, made with the fit's weighting.
    delta: the counts after minus those before, over any words, made with the same weighting.
    passages: the passages of the change over the words of `delta`, if they are known. They make the same model cost
        less: with few of them, touched rows are read once for each passage and not for each topic.

    Cost: O(nnz(dQ) r + entries of touched rows * r + n r^2), a pass over Q for topics whose words are others now, and
    for learner "default" the entries of the candidates' rows and about 20 candidates^2 r. It does not depend on the
    documents that are kept.
    """
    try:
        if now.documents <= 0:
            return NeedsRetrain("no document is left")
        # By name, since the positions of words change if others enter.
        before = {*fit.anchors}
        fit, change, frequency, may_anchor = _changed(fit, now, delta, passages)
        candidates = candidate_positions(frequency, may_anchor, fit.options)
        mixtures = carried(fit.mixtures, fit.q, change, fit.group)
        sets = choose_sets(fit.q, change.mass, change.squares, candidates, fit.names, fit.options)
        mixtures = regrouped(mixtures, fit.q, change, fit.group, sets.group, sets.guided.rows)
        updated = TopicFit(
            options=fit.options,
            names=fit.names,
            documents=now.documents,
            q=fit.q,
            mass=change.mass,
            squares=change.squares,
            candidates=candidates,
            choice=sets.choice,
            group=sets.group,
            mixtures=mixtures,
            guided=sets.guided.topics,
            notes=sets.guided.remarks,
        )
        if updated.certificate.from_products > _SHARE_OF_TOLERANCE * fit.options.tolerance:
            anew = Mixtures.cold(fit.q, change.mass, change.squares, mixtures.anchor_counts, mixtures.C)
            updated = replace(updated, mixtures=anew)
        new_anchors = tuple(word for word in updated.anchors if word not in before)
        return Updated(updated, new_anchors)
    except CannotLearn as error:
        return NeedsRetrain(str(error))


def _changed(
    fit: TopicFit, now: CountSource, delta: CountSource, passages: SignedPassages | None
) -> tuple[TopicFit, Change, Int64, Mask]:
    """Change Q in place, with the words that enter or leave.

    Returns the fit over the internal words of before and after, the change, the internal words' document frequencies,
    (n,), and whether they may be anchors, (n,).
    """
    keep, may_anchor = choose_words(now, fit.options)
    kept = [now.words[k] for k in keep.tolist()]
    inside = fit.held(kept)
    entered = inside < 0
    if entered.any():
        fit, inside = _with_room(fit, kept)
    ids = fit.held(delta.words)
    moved = _internal(fit, delta, ids)
    if entered.any():
        # The fit has no pair of a word that enters, so all of them are part of the change.
        new = now.touching(keep, entered)
        moved = moved + new.relabel(inside, len(fit.names))
    change = _apply(fit, moved, inside)
    if passages is not None:
        change = _with_passages(fit, change, passages, ids)
    frequency = np.zeros(fit.q.n, np.int64)
    may = np.zeros(fit.q.n, bool)
    frequency[inside] = now.frequency[keep]
    # A word that meets no other word has no row that others could be mixtures of.
    may[inside] = may_anchor & (change.mass[inside] > 0)
    return fit, change, frequency, may


def _internal(fit: TopicFit, delta: CountSource, ids: Int64) -> Cooccurrence:
    """Return the change over the fit's internal words. ids: the position of each of its words among them, or -1."""
    known = np.flatnonzero(ids >= 0)
    return delta.restrict(known).relabel(ids[known], len(fit.names))


def _with_room(fit: TopicFit, kept: Sequence[str]) -> tuple[TopicFit, Int64]:
    """Return the fit with room for words that enter, and the internal position of each kept word.

    Cost: a copy of Q's columns, unless all of them have room as words that were dropped.
    """
    fit = _without_dead(fit)
    inside = fit.names.places(kept)
    if (inside < 0).any():
        names = Words(sorted({*fit.names, *kept}))
        places = names.places(fit.names)
        fit = fit.over(names, fit.q.spread(places, len(names)))
        inside = names.places(kept)
    return fit, inside


def _without_dead(fit: TopicFit) -> TopicFit:
    """Leave out the internal words that were dropped, if they have become many."""
    dead = len(fit.names) - len(fit.live)
    if _FEW_DEAD * dead <= len(fit.names):
        return fit
    q = SymmetricCounts.of(fit.q.upper(), fit.live)
    return fit.over(Words(fit.words), q)


def _apply(fit: TopicFit, delta: Cooccurrence, inside: Int64) -> Change:
    """Change Q in place and return the whole change, that of dropped words included. Cost: nnz(dQ).

    delta: the change over the internal words; the pairs of words that have entered are all in it.
    inside: positions of the words that stay or have entered.
    """
    # Nearly every change finds its pairs in Q. Only new pairs need a copy of Q.
    if not fit.q.add_within(delta):
        fit.q = fit.q.plus(delta)
    stays = np.zeros(len(fit.names), bool)
    stays[inside] = True
    dropped = np.flatnonzero((fit.mass > 0) & ~stays)
    if len(dropped):
        removal = _removal(fit.q, dropped)
        fit.q.add_within(removal)
        delta = delta + removal
    return _consequences(fit, delta)


def _with_passages(fit: TopicFit, change: Change, passages: SignedPassages, ids: Int64) -> Change:
    """Return the change with its outer products, for words that were there before and stay.

    passages: over the words of `delta` of the update.
    ids: the internal position of each of those words, or -1.
    """
    before = fit.mass > 0
    after = change.mass > 0
    stays = before & after
    known = (ids >= 0) & stays[ids]
    inside = np.where(known, ids, -1)
    some = passages.relabel(inside)
    others = np.flatnonzero(before ^ after)
    # Words that come or go bring pairs that these passages do not have. Any other difference shows in sums of rows.
    rest = column_sums(change.delta, others)
    explained = some.row_sums(fit.q.n) + rest
    moved = change.mass - fit.mass
    if not np.array_equal(explained[stays], moved[stays]):
        return change
    found = outer_change(fit.q, change.squares, some, fit.options.n_topics, others)
    return replace(change, outer=found)


def _consequences(fit: TopicFit, delta: Cooccurrence) -> Change:
    """Return the change with the masses and weights that follow from it."""
    symmetric = SymmetricCounts.of(delta)
    mass = fit.mass + symmetric.row_sums()
    if not mass.any():
        raise CannotLearn("pairs", "no two words of the vocabulary occur together any more: add documents")
    if mass.min() < 0:
        raise CannotLearn(
            "negative", "a word's co-occurrences fell below zero, so the change does not fit the model: learn it again"
        )
    # A word without mass has no entry left to weigh: its weight stays, so that its column is not touched.
    weights = column_squares(mass, fit.options)
    squares = np.where(mass > 0, weights, fit.squares)
    return Change(symmetric, mass, squares, fit.squares)


def _removal(q: SymmetricCounts, dropped: Positions) -> Cooccurrence:
    """Return the change that takes away all that Q holds for some words."""
    held = [q.row(k) for k in dropped]
    lengths = np.diff(q.indptr)[dropped]
    rows = np.repeat(dropped, lengths)
    columns, values = map(np.concatenate, zip(*held, strict=True))
    both = np.isin(columns, dropped)
    # A pair of two dropped words is in both of their rows, and goes once.
    once = ~both | (rows <= columns)
    first = np.minimum(rows, columns)[once]
    second = np.maximum(rows, columns)[once]
    entries = (-values[once], (first, second))
    upper = coo_array(entries, shape=(q.n, q.n)).tocsr()
    upper.sort_indices()
    indptr = upper.indptr.astype(np.int64)
    columns = upper.indices.astype(np.int32)
    nothing = np.zeros(q.n, np.int64)
    return Cooccurrence(q.n, indptr, columns, upper.data, nothing, nothing, nothing, 0)
