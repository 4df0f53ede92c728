"""The same model after a change of counts, at the cost of the change.

    counts       Q' = Q + dQ in place; words below their threshold lose row and column, others get theirs
    recheck      anchors searched again on the changed Gram matrix (default) or rows (paper): the same, or a retrain
    carry        W' = W + dQ V + Q' (V' - V): touches the entries of changed rows and columns only
    topics       every row solved again from its last support; certificate

What is compared or rounded is decided exactly as a cold start would decide it; where rounding of the delta products
could change a decision, that decision is made again from counts. A cold start from the same counts gives the same
model within the certificate (and the same bits of all discrete choices).
Source: the paper's Algorithm 1 with an exact solve in place of its projected Newton step; docs/decisions say why.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from streamtopic.counts import Cooccurrence, CountSource, SignedPassages, SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.carry import Change, carried_first, carried_second
from streamtopic.topics.fit import TopicFit, Words
from streamtopic.topics.learner import column_squares
from streamtopic.topics.outer import outer_change
from streamtopic.topics.products import column_sums
from streamtopic.topics.recheck import NeedsRetrain, Rechecked, recheck
from streamtopic.topics.simplex_round import Round
from streamtopic.topics.threads import leaving_one, one_thread
from streamtopic.topics.vocabulary import choose_words

__all__ = ["NeedsRetrain", "Updated", "update"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
_SHARE_OF_TOLERANCE = 0.1
_FEW_DEAD = 8


@dataclass(frozen=True, slots=True)
class Updated:
    """The model of the changed counts."""

    fit: TopicFit


def update(
    fit: TopicFit, now: CountSource, delta: CountSource, passages: SignedPassages | None = None
) -> Updated | NeedsRetrain:
    """Carry a fit over to changed counts.

    fit: a model of the counts before; it is taken over (its arrays change in place) whatever the outcome.
    now: the counts after; delta: after minus before, over any words. Both made with the fit's weighting.
    passages: those that the change is made of, over the words of `delta`, if they are known: the same model for less.
    Cost: O(nnz(dQ) r + entries of touched rows * r + n r^2 + candidates^2 r), independent of the documents kept; with
    few passages, touched rows are read once for each passage and not for each topic.
    """
    try:
        if now.documents <= 0:
            return NeedsRetrain("no document is left")
        fit, change, frequency, may_anchor = _changed(fit, now, delta, passages)
        if fit.options.learner == "paper":
            rounds = [carried_first(fit, change)]
            checked = recheck(fit, change, frequency, may_anchor, rounds[0])
            if isinstance(checked, NeedsRetrain):
                return checked
            group = fit.group
        else:
            outcome = _beside(fit, change, frequency, may_anchor)
            if isinstance(outcome, NeedsRetrain):
                return outcome
            checked, rounds, group = outcome
        return _solved(fit, now.documents, change, checked, rounds, group)
    except CannotLearn as error:
        return NeedsRetrain(str(error))


def _changed(
    fit: TopicFit, now: CountSource, delta: CountSource, passages: SignedPassages | None
) -> tuple[TopicFit, Change, Int64, npt.NDArray[np.bool_]]:
    """Change Q in place, words that enter or leave included.

    Returns the fit, its internal words those of both; the change; the internal words' document frequencies, (n,), and
    whether they may be anchors.
    """
    keep, may_anchor = choose_words(now.frequency, now.documents, fit.options)
    kept = [now.words[k] for k in keep]
    inside = fit.held(kept)
    entered = inside < 0
    if entered.any():
        fit = _with_room(fit, kept)
        inside = fit.names.places(kept)
    ids = fit.held(delta.words)
    moved = _internal(fit, delta, ids)
    if entered.any():
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
    """Note the outer products that make up the change, or what of it concerns words that were in before and stay.

    ids: the internal position of each word that `passages` are over, or -1.
    """
    stays = (fit.mass > 0) & (change.mass > 0)
    some = passages.relabel(np.where((ids >= 0) & stays[ids], ids, -1))
    others = np.flatnonzero((fit.mass > 0) ^ (change.mass > 0))
    # Words that come or go bring pairs that these passages have not; what is none of either shows in sums of rows.
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
    squares = np.where(mass > 0, column_squares(mass, fit.options), fit.squares)
    return Change(symmetric, mass, squares, fit.squares)


def _removal(q: SymmetricCounts, dropped: npt.NDArray[np.intp]) -> Cooccurrence:
    """Return minus everything that Q holds for some words."""
    held = [q.row(k) for k in dropped]
    rows = np.repeat(dropped, np.diff(q.indptr)[dropped])
    columns, values = (np.concatenate(parts) for parts in zip(*held, strict=True))
    both = np.isin(columns, dropped)
    once = ~both | (rows <= columns)
    first, second = np.minimum(rows, columns)[once], np.maximum(rows, columns)[once]
    upper = coo_array((-values[once], (first, second)), shape=(q.n, q.n)).tocsr()
    upper.sort_indices()
    nothing = np.zeros(q.n, np.int64)
    return Cooccurrence(
        q.n, upper.indptr.astype(np.int64), upper.indices.astype(np.int32), upper.data, nothing, nothing, 0
    )


def _beside(
    fit: TopicFit, change: Change, frequency: Int64, may_anchor: npt.NDArray[np.bool_]
) -> tuple[Rechecked, list[Round], Int64] | NeedsRetrain:
    """Carry the rounds over while the anchors are searched again beside; what they give counts if those stay."""
    failed = None
    with one_thread(), leaving_one(), ThreadPoolExecutor(1) as beside:
        search = beside.submit(recheck, fit, change, frequency, may_anchor, None)
        try:
            first = carried_first(fit, change)
            second, group = carried_second(fit, change, first)
        except CannotLearn as error:
            failed = error
        checked = search.result()
    if isinstance(checked, NeedsRetrain):
        return checked
    if failed is not None:
        raise failed
    return checked, [first, second], group


def _solved(
    fit: TopicFit, documents: int, change: Change, checked: Rechecked, rounds: list[Round], group: Int64
) -> Updated:
    rounds[-1].solve(change.mass, rounds[-1].C)
    updated = TopicFit(
        options=fit.options,
        names=fit.names,
        documents=documents,
        q=fit.q,
        mass=change.mass,
        squares=change.squares,
        candidates=checked.candidates,
        gram=checked.gram,
        choice=checked.choice,
        group=group,
        rounds=rounds,
        updates=fit.updates + 1,
        gram_error=checked.gram_error,
    )
    if updated.certificate.from_products > _SHARE_OF_TOLERANCE * fit.options.tolerance:
        last = updated.rounds[-1]
        updated.rounds[-1] = Round.cold(fit.q, change.mass, change.squares, last.anchor_counts, last.C)
        del updated.certificate
    return Updated(updated)
