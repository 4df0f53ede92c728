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
from streamtopic.topics.outer import OuterChange
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

    delta: dQ, signed; mass: (n,) row sums now; squares: (n,) D^2 now, squares_before: then; outer: dQ, or most of it,
    as outer products, where it is known of which passages it is made and that is of use.
    """

    delta: SymmetricCounts
    mass: Int64
    squares: Float
    squares_before: Float
    outer: OuterChange | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _AnchorShift:
    """A change of the anchors' summed rows N (r, n): entries here and there, and whole rows of Q added to some topics.

    entries: (r, n); rows: (m, n); mixing: (m, r) how often each of them is added to each topic; group: (n,) the sets
    that entries were summed over, -1 for a word in none.
    """

    entries: Int64
    rows: Int64
    mixing: Int64
    group: Int64


def carried_first(fit: TopicFit, change: Change) -> Round:
    """Return the first round on the changed Q; its rows are still the last solutions. It takes the round's arrays."""
    entries = dense_rows(change.delta, fit.choice.rows)
    group = np.full(fit.q.n, -1, np.int64)
    group[fit.choice.rows] = np.arange(len(fit.choice.rows))
    shift = _AnchorShift(entries, np.zeros((0, fit.q.n), np.int64), np.zeros((0, len(entries)), np.int64), group)
    return _carried(fit.rounds[0], fit.q, change, shift)


def carried_second(fit: TopicFit, change: Change, first: Round) -> tuple[Round, Int64]:
    """Return the second round on the changed Q, not solved yet, and the super-anchor of each word, (n,)."""
    solved = _solve_near_half(first, change.mass)
    _settle_near_half(first, fit.q, change.mass, solved)
    group = super_anchors(first, fit.q, change.mass, fit.choice.rows)
    return _carried(fit.rounds[1], fit.q, change, _members_shift(fit, change, group)), group


def _members_shift(fit: TopicFit, change: Change, group: Int64) -> _AnchorShift:
    """Return the change of the super-anchors' sums: changed rows of members, and rows of words that moved between sets.

    A word with a long row moves nearly all columns of its topics at once, so that one is taken as a whole.
    """
    entries = grouped_rows(change.delta, fit.group, fit.options.n_topics)
    moved = np.flatnonzero(group != fit.group)
    rows = dense_rows(fit.q, moved)
    mixing = np.zeros((len(moved), len(entries)), np.int64)
    for topics, sign in ((fit.group[moved], -1), (group[moved], 1)):
        inside = np.flatnonzero(topics >= 0)
        mixing[inside, topics[inside]] = sign
    long = np.count_nonzero(rows, axis=1) * _LONG > fit.q.n
    for k in np.flatnonzero(~long):
        for topic in np.flatnonzero(mixing[k]):
            entries[topic] += mixing[k, topic] * rows[k]
    return _AnchorShift(entries, rows[long], mixing[long], fit.group)


def _carried(before: Round, q: SymmetricCounts, change: Change, shift: _AnchorShift) -> Round:
    counts, thin, outer = before.anchor_counts, before.thin, change.outer
    counts += shift.entries
    sums = np.zeros((0, len(counts)), np.int64) if outer is None else outer.sums(shift.group, len(counts))
    explained = np.zeros_like(shift.entries) if outer is None else outer.explained(sums)
    # In integers, so what the outer products leave over is exact: self-pairs, and words that came or went.
    columns = np.flatnonzero((shift.entries != explained).any(axis=0) | (change.squares != change.squares_before))
    rest = counts[:, columns] - explained[:, columns]
    moved = np.ascontiguousarray((rest * change.squares[columns]).T) - thin[columns]
    whole = np.ascontiguousarray((shift.rows * change.squares).T)
    step = ThinShift(columns, moved, whole, shift.mixing, outer, sums)
    shifted = None if dearer_than_whole(q, change.delta, step) else product_shift(q, change.delta, thin, step)
    _add_whole(counts, shift)
    touched = columns if outer is None else np.union1d(columns, outer.words)
    topics = np.flatnonzero(shift.mixing.any(axis=0))
    thin[touched] = (counts[:, touched] * change.squares[touched]).T
    thin[:, topics] = (counts[topics] * change.squares).T
    if shifted is None:
        return _taken_anew(before, q, change)
    product, sizes = shifted
    # The change is summed by itself, so its rounding is of its own size; adding it rounds once at the product's, as do
    # entries of V that were rounded before they were compared.
    product += before.product
    product[change.mass == 0] = 0.0
    terms = np.diff(q.indptr) + np.diff(change.delta.indptr) + len(sums) + len(shift.rows) + 8
    error = before.error + _UNIT * (terms * sizes + 4 * np.abs(product).max(axis=1))
    error[change.mass == 0] = 0.0
    return _round(before, change, product, error)


def _add_whole(counts: Int64, shift: _AnchorShift) -> None:
    for row, topics in zip(shift.rows, shift.mixing, strict=True):
        for topic in np.flatnonzero(topics):
            counts[topic] += topics[topic] * row


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
