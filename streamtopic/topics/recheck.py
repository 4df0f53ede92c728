"""The anchors searched again on changed counts: the same ones, decided with certainty, or a retrain."""

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.topics.anchors import AnchorChoice, changed_anchors, farthest_rows, replay_rows
from streamtopic.topics.carry import Change
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.lazy_greedy import row_norms
from streamtopic.topics.learner import candidate_positions, choose_in_gram
from streamtopic.topics.products import candidate_gram, dense_rows, times
from streamtopic.topics.shifts import add_gram_shift
from streamtopic.topics.simplex_round import Round

__all__ = ["NeedsRetrain", "Rechecked", "recheck"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class NeedsRetrain:
    """A cold start from counts is needed; `reason` says why, in words for an operator."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Rechecked:
    """The same anchors, verified. candidates: positions that may be anchors now; gram: (c, c) of theirs, or None."""

    choice: AnchorChoice
    candidates: Positions
    gram: Float | None


def recheck(
    fit: TopicFit, change: Change, frequency: Int64, may_anchor: npt.NDArray[np.bool_], first: Round | None
) -> Rechecked | NeedsRetrain:
    """Search the anchors again. It reads the fit and changes nothing, so that it may run beside the rest.

    frequency: (n,) documents that hold each internal word; may_anchor: (n,); first: the first round on the changed
    counts, which the learner "paper" verifies from. Raises CannotLearn where the counts span too few directions.
    """
    candidates = candidate_positions(frequency, may_anchor, fit.options)
    if len(candidates) < fit.options.n_topics:
        return NeedsRetrain(f"only {len(candidates)} words may still be anchors")
    gram = None
    if first is not None:
        choice = _replayed(fit, candidates, change, first) or farthest_rows(
            fit.q, candidates, change.mass, fit.options.n_topics
        )
    else:
        gram = _changed_gram(fit, candidates, change)
        choice = choose_in_gram(gram, change.mass, candidates, fit.q.n, fit.options, fit.updates + 1)
    if not np.array_equal(choice.rows, fit.choice.rows):
        return NeedsRetrain(changed_anchors(fit.anchors, [fit.names[k] for k in choice.rows]))
    if not choice.certain:
        return NeedsRetrain("two words are equally far out, so the choice of anchors cannot be verified")
    return Rechecked(choice, fit.candidates if first is not None else candidates, gram)


def _replayed(fit: TopicFit, candidates: Positions, change: Change, first: Round) -> AnchorChoice | None:
    """Verify the paper's anchors from the products that the first round carries along."""
    if not np.isin(fit.choice.rows, candidates).all():
        return None
    scale = 1.0 / np.maximum(change.mass[candidates], 1).astype(float)
    norms = row_norms(fit.q, candidates, scale)
    chosen = np.searchsorted(candidates, fit.choice.rows)
    B = first.B(change.mass, candidates)
    choice = replay_rows(norms, B, first.G, chosen, fit.q.n * (1 + fit.updates))
    return None if choice is None else AnchorChoice(candidates[choice.rows], choice.margin, choice.certain)


def _changed_gram(fit: TopicFit, candidates: Positions, change: Change) -> Float:
    """Return Q'_c D'^2 Q'_c^T from the one before, over the columns that changed only."""
    known = np.isin(candidates, fit.candidates)
    place = np.zeros(fit.q.n, bool)
    place[candidates[known]] = True
    columns = _columns_that_changed(change, place)
    if fit.gram is None or 4 * len(columns) > fit.q.n:
        return candidate_gram(fit.q, candidates, change.squares)
    gram = _rearranged(fit.gram, np.where(known, np.searchsorted(fit.candidates, candidates), -1))
    add_gram_shift(gram, fit.q, change.delta, candidates, change.squares, change.squares_before, columns)
    if not known.all():
        fresh = dense_rows(fit.q, candidates[~known]) * change.squares
        product = times(fit.q, np.ascontiguousarray(fresh.T), candidates)
        gram[:, ~known], gram[~known] = product, product.T
    return gram


def _rearranged(gram: Float, places: Positions) -> Float:
    """Return rows and columns of a matrix in another order, 0 for those at place -1."""
    out = np.empty((len(places), len(places)))
    _rearrange(gram, places, out)
    return out


def _columns_that_changed(change: Change, candidate: npt.NDArray[np.bool_]) -> Positions:
    """Return the columns in which some candidate's row, or the column's weight, changed."""
    columns = np.repeat(np.arange(len(candidate)), np.diff(change.delta.indptr))
    changed = change.squares != change.squares_before
    changed[columns[candidate[change.delta.columns]]] = True
    return np.flatnonzero(changed)


@numba.njit(cache=True, nogil=True)
def _rearrange(gram: Float, places: Positions, out: Float) -> None:
    for i in range(len(places)):
        for j in range(len(places)):
            known = places[i] >= 0 and places[j] >= 0
            out[i, j] = gram[places[i], places[j]] if known else 0.0
