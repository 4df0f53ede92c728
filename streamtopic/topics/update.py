"""The same model after a change of counts, at the cost of the change.

    counts       Q' = Q + dQ in place; words below their threshold lose row and column
    anchors      searched again on the changed Gram matrix (default) or rows (paper): same anchors, or a retrain
    rounds       W' = W + dQ V + Q' (V' - V): touches the entries of changed rows and columns only
    topics       every row solved again from its last support; certificate

What is compared or rounded is decided exactly as a cold start would decide it; where rounding of the delta products
could change a decision, that decision is made again from counts. A cold start from the same counts gives the same
model within the certificate (and the same bits of all discrete choices).
Source: the paper's Algorithm 1 with an exact solve in place of its projected Newton step; docs/decisions say why.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array

from streamtopic.counts import Cooccurrence, CountSource, SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.anchors import AnchorChoice, changed_anchors, farthest_rows, replay_rows
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.lazy_greedy import row_norms
from streamtopic.topics.learner import (
    candidate_positions,
    choose_in_gram,
    column_squares,
    super_anchors,
)
from streamtopic.topics.products import (
    add_columns_product,
    add_sparse_product,
    candidate_gram,
    dense_part,
    dense_rows,
    times,
)
from streamtopic.topics.simplex import solve_rows
from streamtopic.topics.simplex_round import Round, gram, product_error
from streamtopic.topics.vocabulary import choose_words

__all__ = ["NeedsRetrain", "Updated", "update"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
_SHARE_OF_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Updated:
    """The model of the changed counts."""

    fit: TopicFit


@dataclass(frozen=True, slots=True)
class NeedsRetrain:
    """A cold start from counts is needed; `reason` says why, in words for an operator."""

    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A change of Q over the internal words and what it does to the quantities around it."""

    delta: SymmetricCounts
    mass: Int64
    squares: Float
    touched: npt.NDArray[np.intp]


def update(fit: TopicFit, now: CountSource, delta: CountSource) -> Updated | NeedsRetrain:
    """Carry a fit over to changed counts.

    fit: a model of the counts before; it is taken over (its arrays change in place) whatever the outcome.
    now: the counts after; delta: after minus before, over any words. Both made with the fit's weighting.
    Cost: O(nnz(dQ) r + entries of touched rows * r + n r^2 + candidates^2 r), independent of the documents kept.
    """
    try:
        if now.documents <= 0:
            return NeedsRetrain("no document is left")
        keep, may_anchor = choose_words(now.frequency, now.documents, fit.options)
        if _entered(fit, now, keep):
            fit, change = _replace(fit, now, keep)
        else:
            change = _apply(fit, _internal(fit, delta), now, keep)
        first = _moved(fit.rounds[0], fit, change, dense_rows(change.delta, fit.choice.rows))
        choice = _choose_again(fit, now, keep, may_anchor, change, first)
        if isinstance(choice, NeedsRetrain):
            return choice
        return _resolve(fit, now.documents, change, choice, first)
    except CannotLearn as error:
        return NeedsRetrain(str(error))


def _entered(fit: TopicFit, now: CountSource, keep: npt.NDArray[np.intp]) -> bool:
    live = {name for name, mass in zip(fit.names, fit.mass.tolist(), strict=True) if mass}
    return any(now.words[k] not in live for k in keep)


def _positions(fit: TopicFit, words: list[str]) -> Int64:
    place = {word: k for k, word in enumerate(fit.names)}
    return np.array([place[word] for word in words], np.int64)


def _internal(fit: TopicFit, delta: CountSource) -> Cooccurrence:
    """Bring the change to the fit's internal words."""
    place = {word: k for k, word in enumerate(fit.names)}
    known = np.array([k for k, word in enumerate(delta.words) if word in place], np.intp)
    ids = np.array([place[delta.words[k]] for k in known], np.int64)
    return delta.restrict(known).relabel(ids, len(fit.names))


def _replace(fit: TopicFit, now: CountSource, keep: npt.NDArray[np.intp]) -> tuple[TopicFit, _Change]:
    """Take Q from the counts themselves, where words enter; the change is then the difference. Cost: nnz(Q)."""
    kept = [now.words[k] for k in keep]
    names = sorted({*fit.words, *kept})
    before = fit.q.upper().relabel(fit.places(names), len(names))
    place = {name: k for k, name in enumerate(names)}
    whole = now.restrict(keep).relabel([place[word] for word in kept], len(names))
    fit = fit.over(names, SymmetricCounts.of(whole))
    return fit, _consequences(fit, whole - before)


def _apply(fit: TopicFit, delta: Cooccurrence, now: CountSource, keep: npt.NDArray[np.intp]) -> _Change:
    """Change Q in place and return the whole change, dropped words included. Cost: nnz(dQ)."""
    if not fit.q.add_within(delta):
        fit.q = SymmetricCounts.of(fit.q.upper() + delta)
    stays = np.zeros(len(fit.names), bool)
    stays[_positions(fit, [now.words[k] for k in keep])] = True
    dropped = np.flatnonzero((fit.mass > 0) & ~stays)
    if len(dropped):
        removal = _removal(fit.q, dropped)
        fit.q.add_within(removal)
        delta = delta + removal
    return _consequences(fit, delta)


def _consequences(fit: TopicFit, delta: Cooccurrence) -> _Change:
    symmetric = SymmetricCounts.of(delta)
    mass = fit.mass + symmetric.row_sums()
    if not mass.any():
        raise CannotLearn("pairs", "no two words of the vocabulary occur together any more: add documents")
    if mass.min() < 0:
        raise CannotLearn("negative", "a word's co-occurrences fell below zero: the change does not fit the counts")
    squares = np.where(mass > 0, column_squares(mass, fit.options), fit.squares)
    touched = np.diff(symmetric.indptr) > 0
    return _Change(symmetric, mass, squares, np.flatnonzero(touched | (squares != fit.squares)))


def _removal(q: SymmetricCounts, dropped: npt.NDArray[np.intp]) -> Cooccurrence:
    """Return minus everything that Q holds for some words."""
    rows = np.concatenate([np.repeat(k, q.indptr[k + 1] - q.indptr[k]) for k in dropped])
    spans = [slice(q.indptr[k], q.indptr[k + 1]) for k in dropped]
    columns = np.concatenate([q.columns[span] for span in spans]).astype(np.int64)
    values = np.concatenate([q.values[span] for span in spans])
    both = np.isin(columns, dropped)
    once = ~both | (rows <= columns)
    first, second = np.minimum(rows, columns)[once], np.maximum(rows, columns)[once]
    upper = coo_array((-values[once], (first, second)), shape=(q.n, q.n)).tocsr()
    upper.sort_indices()
    nothing = np.zeros(q.n, np.int64)
    return Cooccurrence(
        q.n, upper.indptr.astype(np.int64), upper.indices.astype(np.int32), upper.data, nothing, nothing, 0
    )


def _choose_again(
    fit: TopicFit,
    now: CountSource,
    keep: npt.NDArray[np.intp],
    may_anchor: npt.NDArray[np.bool_],
    change: _Change,
    first: Round,
) -> AnchorChoice | NeedsRetrain:
    """Search the anchors again; the same ones, decided with certainty, or a retrain."""
    inside = _positions(fit, [now.words[k] for k in keep])
    frequency, may = np.zeros(len(fit.names), np.int64), np.zeros(len(fit.names), bool)
    frequency[inside], may[inside] = now.frequency[keep], may_anchor & (change.mass[inside] > 0)
    candidates = candidate_positions(frequency, may, fit.options)
    if len(candidates) < fit.options.n_topics:
        return NeedsRetrain(f"only {len(candidates)} words may still be anchors")
    if fit.options.learner == "paper":
        choice = _replayed(fit, candidates, change, first) or farthest_rows(
            fit.q, candidates, change.mass, fit.options.n_topics
        )
    else:
        fit.gram = _changed_gram(fit, candidates, change)
        fit.candidates = candidates
        choice = choose_in_gram(fit.gram, change.mass, candidates, fit.q.n, fit.options, fit.updates + 1)
    if not np.array_equal(choice.rows, fit.choice.rows):
        return NeedsRetrain(changed_anchors(fit.anchors, [fit.names[k] for k in choice.rows]))
    if not choice.certain:
        return NeedsRetrain("two words are equally far out, so the choice of anchors cannot be verified")
    return choice


def _replayed(fit: TopicFit, candidates: npt.NDArray[np.intp], change: _Change, first: Round) -> AnchorChoice | None:
    """Verify the paper's anchors from the products that the first round carries along."""
    if not np.isin(fit.choice.rows, candidates).all():
        return None
    scale = 1.0 / np.maximum(change.mass[candidates], 1).astype(float)
    norms = row_norms(fit.q.indptr, fit.q.values, candidates, scale)
    chosen = np.searchsorted(candidates, fit.choice.rows)
    choice = replay_rows(norms, first.B(change.mass)[candidates], first.G, chosen, fit.q.n * (1 + fit.updates))
    return None if choice is None else AnchorChoice(candidates[choice.rows], choice.margin, choice.certain)


def _changed_gram(fit: TopicFit, candidates: npt.NDArray[np.intp], change: _Change) -> Float:
    """Return Q'_c D'^2 Q'_c^T from the one before.

    K' = K + Y + Y^T + Q_c (D'^2 - D^2) Q_c^T with Y = dQ_c D'^2 (Q_c + dQ_c / 2)^T, all over touched columns only.
    """
    known = np.isin(candidates, fit.candidates)
    place = np.zeros(fit.q.n, bool)
    place[candidates[known]] = True
    columns = _columns_that_changed(change, fit.squares, place)
    if fit.gram is None or 4 * len(columns) > fit.q.n:
        return candidate_gram(fit.q, candidates, change.squares)
    inside = np.searchsorted(fit.candidates, candidates[known])
    shift = dense_part(change.delta, columns, candidates[known])
    before = dense_part(fit.q, columns, candidates[known]) - shift
    Y = (shift * change.squares[columns, None]).T @ (before + shift / 2)
    part = fit.gram[np.ix_(inside, inside)] + Y + Y.T
    moved = change.squares[columns] - fit.squares[columns]
    some = np.flatnonzero(moved)
    if len(some):
        part += (before[some] * moved[some, None]).T @ before[some]
    if known.all():
        return np.asarray(part)
    result = np.empty((len(candidates), len(candidates)))
    result[np.ix_(known, known)] = part
    fresh = dense_rows(fit.q, candidates[~known]) * change.squares
    product = times(fit.q, np.ascontiguousarray(fresh.T), candidates)
    result[:, ~known], result[~known] = product, product.T
    return result


def _columns_that_changed(change: _Change, squares: Float, candidate: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Return the columns in which some candidate's row, or the column's weight, changed."""
    columns = np.repeat(np.arange(len(candidate)), np.diff(change.delta.indptr))
    changed = change.squares != squares
    changed[columns[candidate[change.delta.columns]]] = True
    return np.flatnonzero(changed)


def _resolve(fit: TopicFit, documents: int, change: _Change, choice: AnchorChoice, first: Round) -> Updated:
    rounds = [first]
    group = fit.group
    if fit.options.learner == "default":
        _solve_near_half(rounds[0], change.mass)
        _settle_near_half(rounds[0], fit.q, change.mass)
        group = super_anchors(rounds[0], fit.q, change.mass, choice.rows)
        second = fit.rounds[1]
        rounds.append(_moved(second, fit, change, _group_shift(fit, change, group)))
    rounds[-1].solve(change.mass, rounds[-1].C)
    updated = TopicFit(
        options=fit.options,
        names=fit.names,
        documents=documents,
        q=fit.q,
        mass=change.mass,
        squares=change.squares,
        candidates=fit.candidates,
        gram=fit.gram,
        choice=choice,
        group=group,
        rounds=rounds,
        updates=fit.updates + 1,
    )
    if updated.certificate.from_products > _SHARE_OF_TOLERANCE * fit.options.tolerance:
        last = updated.rounds[-1]
        updated.rounds[-1] = Round.cold(fit.q, change.mass, change.squares, last.anchor_counts, last.C)
        del updated.certificate
    return Updated(updated)


def _group_shift(fit: TopicFit, change: _Change, group: Int64) -> Int64:
    """Return the change of the super-anchors' summed rows, (r, n): changed rows, and words that moved between sets."""
    shift = np.zeros_like(fit.rounds[1].anchor_counts)
    member = change.touched[fit.group[change.touched] >= 0]
    np.add.at(shift, fit.group[member], dense_rows(change.delta, member))
    moved = np.flatnonzero(group != fit.group)
    rows = dense_rows(fit.q, moved)
    left, joined = fit.group[moved] >= 0, group[moved] >= 0
    np.subtract.at(shift, fit.group[moved][left], rows[left])
    np.add.at(shift, group[moved][joined], rows[joined])
    return shift


def _moved(before: Round, fit: TopicFit, change: _Change, shift: Int64) -> Round:
    """Return a round with anchor counts N + shift on the changed Q; its rows are still the last solutions."""
    counts = before.anchor_counts + shift
    thin = np.ascontiguousarray((counts * change.squares).T)
    columns = np.flatnonzero((thin != before.thin).any(axis=1))
    moved = np.ascontiguousarray(thin[columns] - before.thin[columns])
    product = before.product
    shifted = _change_of_product(fit, change, before.thin, columns, moved)
    product += shifted
    product[change.mass == 0] = 0.0
    # The change is summed by itself, so its rounding is of its own size; adding it rounds once at the product's.
    sizes = _change_of_product(
        fit,
        replace(change, delta=change.delta.magnitudes()),
        before.thin.max(axis=1, keepdims=True),
        columns,
        np.abs(moved).max(axis=1, keepdims=True),
    )[:, 0]
    terms = np.diff(fit.q.indptr) + np.diff(change.delta.indptr) + 4
    error = before.error + 2.0**-53 * (terms * sizes + np.abs(product).max(axis=1))
    error[change.mass == 0] = 0.0
    G, sigma = gram(counts, thin, change.squares)
    start = np.where((change.mass > 0)[:, None], before.C, 0.0)
    return Round(counts, counts.sum(axis=1), thin, product, error, G, start, sigma)


def _change_of_product(
    fit: TopicFit, change: _Change, thin: Float, columns: npt.NDArray[np.intp], moved: Float
) -> Float:
    """Return dQ V + Q' dV, (n, r), for V (n, r) and the rows of dV that are not zero."""
    total = np.zeros((fit.q.n, thin.shape[1]))
    add_sparse_product(total, change.delta, np.ascontiguousarray(thin))
    add_columns_product(total, fit.q, columns, moved)
    return total


def _solve_near_half(first: Round, mass: Int64) -> None:
    """Solve the rows whose last solution does not settle by its certificate on which side of 1/2 they lie now.

    The first round only decides who joins a super-anchor, so the other rows may stay as they were.
    """
    near = _near_half(first, mass)
    first.C[near] = solve_rows(first.G, first.B(mass)[near], np.ascontiguousarray(first.C[near]))


def _near_half(first: Round, mass: Int64) -> npt.NDArray[np.intp]:
    errors, _ = first.errors(mass)
    return np.flatnonzero((np.abs(first.C.max(axis=1) - 0.5) <= 2 * errors) & (mass > 0))


def _settle_near_half(first: Round, q: SymmetricCounts, mass: Int64) -> None:
    """Solve cold the rows whose membership of a super-anchor is within their error bound of changing."""
    near = _near_half(first, mass)
    if not len(near):
        return
    first.product[near] = times(q, first.thin, near)
    first.error[near] = product_error(np.diff(q.indptr)[near], first.product[near])
    first.C[near] = solve_rows(first.G, first.B(mass)[near])
