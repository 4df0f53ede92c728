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
from streamtopic.topics.shifts import add_gram_columns, add_gram_outer, add_gram_reweighted, add_gram_shift
from streamtopic.topics.simplex_round import Round

__all__ = ["NeedsRetrain", "Rechecked", "recheck"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class NeedsRetrain:
    """A cold start from counts is needed; `reason` says why, in words for an operator."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Rechecked:
    """The same anchors, verified. candidates: positions that may be anchors now; gram, gram_error: as in TopicFit."""

    choice: AnchorChoice
    candidates: Positions
    gram: Float | None
    gram_error: float = 0.0


def recheck(
    fit: TopicFit, change: Change, frequency: Int64, may_anchor: npt.NDArray[np.bool_], first: Round | None
) -> Rechecked | NeedsRetrain:
    """Search the anchors again. It changes nothing of the fit but its Gram matrix, so that it may run beside the rest.

    frequency: (n,) documents that hold each internal word; may_anchor: (n,); first: the first round on the changed
    counts, which the learner "paper" verifies from. Raises CannotLearn where the counts span too few directions.
    """
    candidates = candidate_positions(frequency, may_anchor, fit.options)
    if len(candidates) < fit.options.n_topics:
        return NeedsRetrain(f"only {len(candidates)} words may still be anchors")
    gram, error = None, 0.0
    if first is not None:
        choice = _replayed(fit, candidates, change, first) or farthest_rows(
            fit.q, candidates, change.mass, fit.options.n_topics
        )
    else:
        gram, error = _changed_gram(fit, candidates, change)
        choice = choose_in_gram(gram, change.mass, candidates, fit.q.n, fit.options, error)
    if not np.array_equal(choice.rows, fit.choice.rows):
        return NeedsRetrain(changed_anchors(fit.anchors, [fit.names[k] for k in choice.rows]))
    if not choice.certain:
        return NeedsRetrain("two words are equally far out, so the choice of anchors cannot be verified")
    return Rechecked(choice, fit.candidates if first is not None else candidates, gram, error)


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


def _changed_gram(fit: TopicFit, candidates: Positions, change: Change) -> tuple[Float, float]:
    """Return Q'_c D'^2 Q'_c^T from the one before, and the bound on the error that updates have added to it."""
    known = np.isin(candidates, fit.candidates)
    place = np.zeros(fit.q.n, bool)
    place[candidates[known]] = True
    outer = change.outer
    columns = _columns_that_changed(change, place) if outer is None else outer.others
    reweighted = np.count_nonzero(change.squares != change.squares_before)
    if fit.gram is None or 4 * (len(columns) + reweighted) > fit.q.n:
        return candidate_gram(fit.q, candidates, change.squares), 0.0
    gram = fit.gram
    if not np.array_equal(candidates, fit.candidates):
        gram = _rearranged(gram, np.where(known, np.searchsorted(fit.candidates, candidates), -1))
    add_gram_reweighted(gram, fit.q, change.delta, candidates, change.squares, change.squares_before)
    if outer is not None:
        # A candidate that was one before is in the vocabulary before and after, so it is none of the others.
        add_gram_outer(gram, fit.q, change.delta, outer, candidates, change.squares)
        add_gram_columns(gram, fit.q, change.delta, candidates, change.squares, columns)
    else:
        add_gram_shift(gram, fit.q, change.delta, candidates, change.squares, columns)
    if not known.all():
        fresh = dense_rows(fit.q, candidates[~known]) * change.squares
        product = times(fit.q, np.ascontiguousarray(fresh.T), candidates)
        gram[:, ~known], gram[~known] = product, product.T
    return gram, _grown_error(fit, gram, candidates, known, change, len(columns))


def _grown_error(
    fit: TopicFit, gram: Float, candidates: Positions, known: npt.NDArray[np.bool_], change: Change, columns: int
) -> float:
    """Bound the norm of the error that updates have added to the Gram matrix, in units of p.

    With k = Q_c D and d = dQ_c D, rows divided by their masses: a term of d k^T or d d^T is rounded once for each
    column that changed, or for each passage and word of one; those of k k^T where entries are added, weights change, or
    columns are taken as they were and as they are. Norms are Frobenius norms, |k|^2 the trace.
    """
    outer = change.outer
    terms = columns if outer is None else outer.longest + outer.passages.passages
    mass, before = change.mass[candidates].astype(float), np.maximum(fit.mass[candidates], 1)
    d = _change_norm(change, candidates, mass)
    k = float(np.sqrt(gram.diagonal() @ (1 / mass**2))) + d
    reweighted = int(np.count_nonzero(change.squares != change.squares_before))
    whole = reweighted + (0 if outer is None else columns)
    new = _UNIT * (2 * (terms + 16) * d * k + 2 * (whole + 8) * k**2)
    return new + fit.gram_error * float((before[known] / mass[known]).max(initial=1.0)) ** 2


def _change_norm(change: Change, candidates: Positions, mass: Float) -> float:
    """Bound the Frobenius norm of dQ_c D with rows divided by their masses, (c,), also if nothing cancelled in it."""
    scale = np.zeros(len(change.mass))
    scale[candidates] = 1 / mass
    rows = np.repeat(np.arange(len(scale)), np.diff(change.delta.indptr))
    columns, values, outer = change.delta.columns, change.delta.values * scale[rows], change.outer
    if outer is None:
        return float(np.sqrt((values * values) @ change.squares[columns]))
    # A passage adds w (h h^T - diag(h)), and both parts are at most w h h^T; the other words' columns are as they are.
    left, right = (np.sqrt((outer.X * outer.X) @ (part * part)) for part in (scale, np.sqrt(change.squares)))
    other = np.zeros(len(scale), bool)
    other[outer.others] = True
    beside = np.sqrt((values * values) @ np.where(other, change.squares, 0.0)[columns])
    return float(2 * np.abs(outer.passages.weights) @ (left * right) + beside)


def _rearranged(gram: Float, places: Positions) -> Float:
    """Return rows and columns of a matrix in another order, 0 for those at place -1."""
    out = np.empty((len(places), len(places)))
    _rearrange(gram, places, out)
    return out


def _columns_that_changed(change: Change, candidate: npt.NDArray[np.bool_]) -> Positions:
    """Return the columns in which some candidate's row changed."""
    columns = np.repeat(np.arange(len(candidate)), np.diff(change.delta.indptr))
    changed = np.zeros(len(candidate), bool)
    changed[columns[candidate[change.delta.columns]]] = True
    return np.flatnonzero(changed)


@numba.njit(cache=True, nogil=True)
def _rearrange(gram: Float, places: Positions, out: Float) -> None:
    for i in range(len(places)):
        for j in range(len(places)):
            known = places[i] >= 0 and places[j] >= 0
            out[i, j] = gram[places[i], places[j]] if known else 0.0
