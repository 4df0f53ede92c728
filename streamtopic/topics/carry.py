"""Rounds carried over to changed counts: W' = W + dQ V + Q' (V' - V), at the cost of what changed.

What is compared or rounded is decided as a cold start would decide it: where rounding of these sums could matter, rows
are taken from counts again.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import super_anchors
from streamtopic.topics.products import dense_rows, grouped_rows, times
from streamtopic.topics.shifts import ThinShift, dearer_than_whole, product_shift
from streamtopic.topics.simplex import solve_rows
from streamtopic.topics.simplex_round import Round, gram, product_error

__all__ = ["Change", "carried_first", "carried_second"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]
_UNIT = 2.0**-53
_LONG = 8


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of Q over the internal words and what it does to the quantities around it.

    delta: dQ, signed; mass: (n,) row sums now; squares: (n,) D^2 now, squares_before: then.
    """

    delta: SymmetricCounts
    mass: Int64
    squares: Float
    squares_before: Float


@dataclass(frozen=True, slots=True, eq=False)
class _AnchorShift:
    """A change of the anchors' summed rows N (r, n): entries here and there, and whole rows of Q for some topics.

    entries: (r, n); topics: (t,) ascending; rows: (t, n).
    """

    entries: Int64
    topics: Positions
    rows: Int64


def carried_first(fit: TopicFit, change: Change) -> Round:
    """Return the first round on the changed Q; its rows are still the last solutions. It takes the round's arrays."""
    entries = dense_rows(change.delta, fit.choice.rows)
    shift = _AnchorShift(entries, np.zeros(0, np.intp), np.zeros((0, fit.q.n), np.int64))
    return _carried(fit.rounds[0], fit.q, change, shift)


def carried_second(fit: TopicFit, change: Change, first: Round) -> tuple[Round, Int64]:
    """Return the second round on the changed Q, not solved yet, and the super-anchor of each word, (n,)."""
    solved = _solve_near_half(first, change.mass)
    _settle_near_half(first, fit.q, change.mass, solved)
    group = super_anchors(first, fit.q, change.mass, fit.choice.rows)
    return _carried(fit.rounds[1], fit.q, change, _members_shift(fit, change, group)), group


def _members_shift(fit: TopicFit, change: Change, group: Int64) -> _AnchorShift:
    """Return the change of the super-anchors' sums: changed rows of members, and rows of words that moved between sets.

    A word with a long row moves nearly all columns of its topics at once, so those are taken as whole columns.
    """
    entries = grouped_rows(change.delta, fit.group, fit.options.n_topics)
    moved = np.flatnonzero(group != fit.group)
    rows = dense_rows(fit.q, moved)
    long = np.count_nonzero(rows, axis=1) * _LONG > fit.q.n
    steps = [(fit.group[moved], -1), (group[moved], 1)]
    for topics, sign in steps:
        short = (topics >= 0) & ~long
        np.add.at(entries, topics[short], sign * rows[short])
    changed = np.unique(np.concatenate([topics[(topics >= 0) & long] for topics, _ in steps]))
    whole = np.zeros((len(changed), fit.q.n), np.int64)
    for topics, sign in steps:
        here = (topics >= 0) & long
        np.add.at(whole, np.searchsorted(changed, topics[here]), sign * rows[here])
    return _AnchorShift(entries, changed.astype(np.intp), whole)


def _carried(before: Round, q: SymmetricCounts, change: Change, shift: _AnchorShift) -> Round:
    counts, thin = before.anchor_counts, before.thin
    counts += shift.entries
    counts[shift.topics] += shift.rows
    columns = np.flatnonzero(shift.entries.any(axis=0) | (change.squares != change.squares_before))
    whole = np.ascontiguousarray((shift.rows * change.squares).T)
    now = np.ascontiguousarray((counts[:, columns] * change.squares[columns]).T)
    moved = now - thin[columns]
    moved[:, shift.topics] -= whole[columns]
    step = ThinShift(columns, moved, shift.topics, whole)
    if dearer_than_whole(q, change.delta, step):
        thin[columns] = now
        thin[:, shift.topics] = (counts[shift.topics] * change.squares).T
        return _taken_anew(before, q, change)
    product, sizes = product_shift(q, change.delta, thin, step)
    thin[columns] = now
    thin[:, shift.topics] = (counts[shift.topics] * change.squares).T
    # The change is summed by itself, so its rounding is of its own size; adding it rounds once at the product's, as do
    # entries of V that were rounded before they were compared.
    product += before.product
    product[change.mass == 0] = 0.0
    terms = np.diff(q.indptr) + np.diff(change.delta.indptr) + 6
    error = before.error + _UNIT * (terms * sizes + 4 * np.abs(product).max(axis=1))
    error[change.mass == 0] = 0.0
    return _round(before, change, product, error)


def _taken_anew(before: Round, q: SymmetricCounts, change: Change) -> Round:
    """Return the round with its products from counts; its anchors' rows are those of now."""
    product = times(q, before.thin)
    return _round(before, change, product, product_error(np.diff(q.indptr), product, q.n))


def _round(before: Round, change: Change, product: Float, error: Float) -> Round:
    counts, thin = before.anchor_counts, before.thin
    G, sigma = gram(counts, thin, change.squares)
    start = np.where((change.mass > 0)[:, None], before.C, 0.0)
    return Round(counts, counts.sum(axis=1), thin, product, error, G, start, sigma)


def _solve_near_half(first: Round, mass: Int64) -> Positions:
    """Solve the rows whose last solution does not settle by its certificate on which side of 1/2 they lie now.

    The first round only decides who joins a super-anchor, so the other rows may stay as they were. Returns the rows.
    """
    near = _near_half(first, mass, np.flatnonzero(mass > 0))
    first.C[near] = solve_rows(first.G, first.B(mass, near), np.ascontiguousarray(first.C[near]))
    return near


def _near_half(first: Round, mass: Int64, among: Positions) -> Positions:
    errors, _ = first.errors(mass, None if len(among) == len(mass) else among)
    return np.asarray(among[np.abs(first.C[among].max(axis=1) - 0.5) <= 2 * errors])


def _settle_near_half(first: Round, q: SymmetricCounts, mass: Int64, solved: Positions) -> None:
    """Solve cold those of the rows just solved whose side of 1/2 is still within their error bound."""
    near = _near_half(first, mass, solved)
    if not len(near):
        return
    first.product[near] = times(q, first.thin, near)
    first.error[near] = product_error(np.diff(q.indptr)[near], first.product[near], q.n)
    first.C[near] = solve_rows(first.G, first.B(mass, near))
