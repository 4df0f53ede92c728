"""The same model after a change of counts, at the cost of the change.

    counts             Q' = Q + dQ in place; words below their threshold lose row and column, others get theirs
    sets               anchors and the words beside them, chosen anew from Q' by the very operations of a cold start;
                       those of the published learner only where `update_anchors` cannot prove that they stay
    update_rows        W' = W + dQ V + Q' (V' - V): touches the entries of changed rows and columns only
    update_products    the two products of that sum
    topics             every row solved again from its last support; certificate

Every decision is made from counts, to the bit as a cold start makes it. Numbers that are carried over are continuous
and have an error bound, so a cold start from the same counts gives the same model within the certificates of both.
Source: the paper's Algorithm 1 with an exact solve in place of its projected Newton step; docs/decisions say why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from streamtopic.counts import Cooccurrence, CountSource, SignedPassages, SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.anchors import AnchorChoice
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.learner import candidate_positions, choose_sets, only_anchors
from streamtopic.topics.mixtures import Mixtures
from streamtopic.topics.products import column_sums
from streamtopic.topics.update_anchors import confirmed_anchors
from streamtopic.topics.update_products import outer_change
from streamtopic.topics.update_rows import Change, carried, regrouped
from streamtopic.topics.working_vocabulary import choose_words, column_squares

__all__ = ["NeedsRetrain", "Updated", "update"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
# Carried products get so much of the tolerance; beyond it they are computed anew, at the cost of one pass over Q.
_SHARE_OF_TOLERANCE = 0.1
# One dropped word in so many may stay in the arrays: leaving it out copies them all.
_FEW_DEAD = 8


@dataclass(frozen=True, slots=True)
class NeedsRetrain:
    """A cold start from counts is needed; `reason` says why, in words for an operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class Updated:
    """The model of the changed counts. new_anchors: anchor words that it has and the model before had not."""

    fit: TopicFit
    new_anchors: tuple[str, ...] = ()


def update(
    fit: TopicFit, now: CountSource, delta: CountSource, passages: SignedPassages | None = None
) -> Updated | NeedsRetrain:
    """Carry a fit over to changed counts.

    fit: a model of the counts before. Whatever the outcome, do not use it afterwards: its arrays change in place.
    now: the counts after, made with the fit's weighting.
    delta: after minus before, over any words, made likewise.
    passages: those of the change, over the words of `delta`, if they are known: the same model for less.
    Cost: O(nnz(dQ) r + entries of touched rows * r + n r^2), a pass over Q for topics whose words are others now, and
    for learner "default" the entries of the candidates' rows and about 20 candidates^2 r; independent of the documents
    kept. With few passages, touched rows are read once for each passage and not for each topic.
    """
    try:
        if now.documents <= 0:
            return NeedsRetrain("no document is left")
        # By name, since positions change where words enter.
        before = {*fit.anchors}
        fit, change, frequency, may_anchor = _changed(fit, now, delta, passages)
        candidates = candidate_positions(frequency, may_anchor, fit.options)
        mixtures = carried(fit.mixtures, fit.q, change, fit.group)
        choice, group = _sets(fit, change, candidates, mixtures)
        mixtures = regrouped(mixtures, fit.q, change, fit.group, group)
        updated = TopicFit(
            options=fit.options,
            names=fit.names,
            documents=now.documents,
            q=fit.q,
            mass=change.mass,
            squares=change.squares,
            candidates=candidates,
            choice=choice,
            group=group,
            mixtures=mixtures,
        )
        if updated.certificate.from_products > _SHARE_OF_TOLERANCE * fit.options.tolerance:
            anew = Mixtures.cold(fit.q, change.mass, change.squares, mixtures.anchor_counts, mixtures.C)
            updated = replace(updated, mixtures=anew)
        return Updated(updated, tuple(word for word in updated.anchors if word not in before))
    except CannotLearn as error:
        return NeedsRetrain(str(error))


def _sets(
    fit: TopicFit, change: Change, candidates: npt.NDArray[np.intp], mixtures: Mixtures
) -> tuple[AnchorChoice, Int64]:
    """Return the anchors and sets of the changed counts; the paper's are searched only where no proof spares it."""
    if fit.options.learner == "paper":
        choice = confirmed_anchors(fit, change, candidates, mixtures)
        if choice is not None:
            return choice, only_anchors(choice, fit.q.n)
    return choose_sets(fit.q, change.mass, candidates, fit.names, fit.options)


def _changed(
    fit: TopicFit, now: CountSource, delta: CountSource, passages: SignedPassages | None
) -> tuple[TopicFit, Change, Int64, npt.NDArray[np.bool_]]:
    """Change Q in place, words that enter or leave included.

    Returns the fit, its internal words those of both; the change; the internal words' document frequencies, (n,), and
    whether they may be anchors.
    """
    keep, may_anchor = choose_words(now, fit.options)
    kept = [now.words[k] for k in keep]
    inside = fit.held(kept)
    entered = inside < 0
    if entered.any():
        fit = _with_room(fit, kept)
        inside = fit.names.places(kept)
    ids = fit.held(delta.words)
    moved = _internal(fit, delta, ids)
    if entered.any():
        # The fit has no pair of a word that enters, so all of them are part of the change.
        moved = moved + now.touching(keep, entered).relabel(inside, len(fit.names))
    change = _apply(fit, moved, inside)
    if passages is not None:
        change = _with_passages(fit, change, passages, ids)
    frequency, may = np.zeros(fit.q.n, np.int64), np.zeros(fit.q.n, bool)
    frequency[inside], may[inside] = now.frequency[keep], may_anchor & (change.mass[inside] > 0)
    return fit, change, frequency, may


def _internal(fit: TopicFit, delta: CountSource, ids: Int64) -> Cooccurrence:
    """Bring the change to the fit's internal words; ids: the position of each of its words, or -1."""
    known = np.flatnonzero(ids >= 0)
    return delta.restrict(known).relabel(ids[known], len(fit.names))


def _with_room(fit: TopicFit, kept: Sequence[str]) -> TopicFit:
    """Make room for words that enter. Cost: a copy of Q's columns."""
    fit = _without_dead(fit)
    names = Words(sorted({*fit.names, *kept}))
    return fit.over(names, fit.q.spread(names.places(fit.names), len(names)))


def _without_dead(fit: TopicFit) -> TopicFit:
    """Leave out the internal words that were dropped, where they have become many."""
    if _FEW_DEAD * (len(fit.names) - len(fit.live)) <= len(fit.names):
        return fit
    return fit.over(Words(fit.words), SymmetricCounts.of(fit.q.upper(), fit.live))


def _apply(fit: TopicFit, delta: Cooccurrence, inside: Int64) -> Change:
    """Change Q in place and return the whole change, dropped words included. Cost: nnz(dQ).

    inside: positions of the words that stay or have entered, whose pairs are all in `delta`.
    """
    # Nearly every change finds its pairs there; only new pairs need a copy of Q.
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
    """Note the outer products that make up the change, as far as it concerns words that were in before and stay.

    ids: the internal position of each word that `passages` are over, or -1.
    """
    stays = (fit.mass > 0) & (change.mass > 0)
    some = passages.relabel(np.where((ids >= 0) & stays[ids], ids, -1))
    others = np.flatnonzero((fit.mass > 0) ^ (change.mass > 0))
    # Words that come or go bring pairs that these passages do not have; any other difference shows in sums of rows.
    rest = column_sums(change.delta, others)
    explained = np.array_equal((some.row_sums(fit.q.n) + rest)[stays], (change.mass - fit.mass)[stays])
    found = outer_change(fit.q, change.squares, some, fit.options.n_topics, others if explained else None)
    return replace(change, outer=found)


def _consequences(fit: TopicFit, delta: Cooccurrence) -> Change:
    symmetric = SymmetricCounts.of(delta)
    mass = fit.mass + symmetric.row_sums()
    if not mass.any():
        raise CannotLearn("pairs", "no two words of the vocabulary occur together any more: add documents")
    if mass.min() < 0:
        raise CannotLearn("negative", "a word's co-occurrences fell below zero: the change does not fit the counts")
    # A word without mass has no entry left to weigh: its weight stays, so that its column is not touched.
    squares = np.where(mass > 0, column_squares(mass, fit.options), fit.squares)
    return Change(symmetric, mass, squares, fit.squares)


def _removal(q: SymmetricCounts, dropped: npt.NDArray[np.intp]) -> Cooccurrence:
    """Return minus everything that Q holds for some words."""
    held = [q.row(k) for k in dropped]
    rows = np.repeat(dropped, np.diff(q.indptr)[dropped])
    columns, values = (np.concatenate(parts) for parts in zip(*held, strict=True))
    both = np.isin(columns, dropped)
    # A pair of two dropped words stands in both of their rows.
    once = ~both | (rows <= columns)
    first, second = np.minimum(rows, columns)[once], np.maximum(rows, columns)[once]
    upper = coo_array((-values[once], (first, second)), shape=(q.n, q.n)).tocsr()
    upper.sort_indices()
    nothing = np.zeros(q.n, np.int64)
    return Cooccurrence(
        q.n, upper.indptr.astype(np.int64), upper.indices.astype(np.int32), upper.data, nothing, nothing, nothing, 0
    )
