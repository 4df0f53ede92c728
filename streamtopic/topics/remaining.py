"""What Algorithm 1 starts from: the base model's statistics, and the counts of the documents that remain.

    Statistics        C^S, P and |S|: what it takes from the base model beside counts; small enough to keep
    remaining         Q^F = Q^S less the forget set, and what follows from it, from the fit of S
    remaining_counts  the same from Q^F itself, which exact counts give without S or its model
    chosen_again      the anchors that a retraining on Q^F chooses

Source: Wei et al. (2025), algorithm 1, its statistics T(S) and its first two steps.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence, CountSource, SymmetricCounts
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.topics.anchors import AnchorChoice, farthest_rows, replay_rows
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.lazy_greedy import row_norms
from streamtopic.topics.learner import prepare
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.products import dense_rows, times
from streamtopic.topics.shifts import ThinShift, product_shift
from streamtopic.topics.simplex_round import gram

__all__ = ["Remaining", "Statistics", "chosen_again", "remaining", "remaining_counts"]

Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What Algorithm 1 takes from the base model beside counts; with Q^S and p^S, the T(S) of the paper.

    words: (n,) ascending; C: C^S (n, r), rows on the simplex; anchors: (r,) the words of P, by topic; documents: |S|.
    """

    words: tuple[str, ...]
    C: Float
    anchors: tuple[str, ...]
    documents: int

    @classmethod
    def of(cls, fit: TopicFit) -> Self:
        """Take them from A(S)."""
        return cls(fit.words, np.ascontiguousarray(fit.C[fit.live]), fit.anchors, fit.documents)


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """What Algorithm 1 knows once the forget set is out of the counts; nothing of it grows with m.

    names: the words of q; words: (n,) those that still occur; live: (n,) their positions in q; q: Q^F in integers; p:
    (n,) word masses, sum 1; start: (n, r) C^S; anchors: (r,) positions of P in `words`; candidates: positions in q of
    words that may be anchors; B = Qbar^F Qbar_P^F^T (n, r); G = Qbar_P^F Qbar_P^F^T (r, r); sigma_min: least singular
    value of Qbar_P^F; documents: |S| - |S_f|; changed: words in which the vocabularies of the base model and of a
    retraining differ, None where that is not known.
    """

    names: tuple[str, ...]
    words: tuple[str, ...]
    live: npt.NDArray[np.intp]
    q: SymmetricCounts
    p: Float
    start: Float
    anchors: npt.NDArray[np.intp]
    candidates: npt.NDArray[np.intp]
    B: Float
    G: Float
    sigma_min: float
    documents: int
    changed: int | None = None


def remaining(fit: TopicFit, forgotten: CountSource | None = None) -> Remaining:
    """Take the forget set out of the counts.

    fit: A(S), learned with learner "paper"; it stays as it is. forgotten: counts of S_f made with the fit's weighting,
    None for the empty forget set. Cost: a copy of Q's values, nnz(dQ) r and the columns of changed words times r.
    Raises UsageError for another learner, NegativeCounts where S_f cannot be part of S, CannotLearn where an anchor's
    row is gone or the anchors' rows have become dependent.
    """
    _require_published(fit.options)
    first, positions = fit.rounds[0], fit.choice.rows
    q, product, documents = fit.q, first.product, fit.documents
    if forgotten is not None:
        documents -= forgotten.documents
        taken = Cooccurrence.zero(q.n) - _over(fit, forgotten)
        q = _subtracted(fit.q, taken, documents)
        product = _product(fit, q, SymmetricCounts.of(taken))
    return _known(
        fit.names,
        q,
        positions,
        product,
        start=fit.C,
        candidates=fit.candidates,
        documents=documents,
    )


def remaining_counts(base: Statistics, source: CountSource, options: LearnerOptions) -> Remaining:
    """Return the same from Q^F itself: the base model is not needed, nor the counts of what was forgotten.

    source: counts of S - S_f, over any words; options: those that the base was learned with. The vocabulary is the one
    that a retraining chooses, so that no released word depends on what was forgotten: a word that leaves takes its row
    and column along, and one that enters starts at zero, since the step lands on the same point from anywhere.
    Cost: reading the counts once, and nnz(Q) r. Raises UsageError for another learner, CannotLearn where an anchor word
    has left the vocabulary, where its row is gone, or where the anchors' rows have become dependent.
    """
    _require_published(options)
    prepared = prepare(source, options)
    q, words = prepared.q, prepared.words
    place = {word: k for k, word in enumerate(words)}
    if lost := [word for word in base.anchors if word not in place]:
        raise CannotLearn("anchors", f"no retraining would keep the anchor word {lost[0]}: retrain from counts")
    start = np.zeros((len(words), base.C.shape[1]))
    stays = [k for k, word in enumerate(base.words) if word in place]
    start[[place[base.words[k]] for k in stays]] = base.C[stays]
    positions = np.array([place[word] for word in base.anchors], np.intp)
    return _known(
        words,
        q,
        positions,
        times(q, np.ascontiguousarray(dense_rows(q, positions).T.astype(float))),
        start=start,
        candidates=prepared.candidates,
        documents=source.documents,
        changed=len({*words} ^ {*base.words}),
    )


def chosen_again(left: Remaining) -> AnchorChoice:
    """Return the anchors that a retraining on Q^F chooses, by position in Q.

    The search is replayed from the inner products, n r^2; only where it leaves the known anchors, or a lead is within
    rounding, is it made anew. Raises CannotLearn where there are not r independent candidates.
    """
    mass = left.q.row_sums()
    candidates = left.candidates[mass[left.candidates] > 0]
    known = left.live[left.anchors]
    if np.isin(known, candidates).all():
        norms = row_norms(left.q, candidates, 1.0 / mass[candidates].astype(float))
        B = left.B[np.searchsorted(left.live, candidates)]
        choice = replay_rows(norms, B, left.G, np.searchsorted(candidates, known), left.q.n)
        if choice is not None:
            return AnchorChoice(candidates[choice.rows], choice.margin, choice.certain)
    return farthest_rows(left.q, candidates, mass, len(left.anchors))


def _known(
    names: tuple[str, ...],
    q: SymmetricCounts,
    positions: npt.NDArray[np.intp],
    product: Float,
    *,
    start: Float,
    candidates: npt.NDArray[np.intp],
    documents: int,
    changed: int | None = None,
) -> Remaining:
    """Return what follows from Q^F (n, n), P, the product Q^F Q_P^F^T (n, r) in units of the counts, and C^S (n, r)."""
    anchor_counts = dense_rows(q, positions)
    thin = np.ascontiguousarray(anchor_counts.T.astype(float))
    G, sigma_min = gram(anchor_counts, thin, np.ones(q.n))
    mass = q.row_sums()
    live = np.flatnonzero(mass)
    return Remaining(
        names=names,
        words=tuple(names[k] for k in live),
        live=live,
        q=q,
        p=mass[live] / float(sum(mass.tolist())),
        start=start[live],
        anchors=np.searchsorted(live, positions),
        candidates=candidates,
        B=product[live] / mass[live, None] / anchor_counts.sum(axis=1),
        G=G,
        sigma_min=sigma_min,
        documents=documents,
        changed=changed,
    )


def _require_published(options: LearnerOptions) -> None:
    if options.learner != "paper":
        raise UsageError('Algorithm 1 starts from the published learner: learn with learner="paper"')


def _over(fit: TopicFit, source: CountSource) -> Cooccurrence:
    """Bring counts over any words to the fit's."""
    ids = fit.held(source.words)
    known = np.flatnonzero(ids >= 0)
    return source.restrict(known).relabel(ids[known], len(fit.names))


def _subtracted(q: SymmetricCounts, taken: Cooccurrence, documents: int) -> SymmetricCounts:
    left = q.copy()
    if not left.add_within(taken) or documents < 0:
        raise NegativeCounts("the forget set is no part of the trained documents: forget only what was learned, once")
    return left


def _product(fit: TopicFit, q: SymmetricCounts, delta: SymmetricCounts) -> Float:
    """Return W^F = Q^F Q_P^F^T = W^S + dQ V^S + Q^F (V^F - V^S), V = Q_P^T, in the units of the counts."""
    first = fit.rounds[0]
    moved = dense_rows(delta, fit.choice.rows)
    columns = np.flatnonzero(moved.any(axis=0))
    whole, mixing = np.zeros((q.n, 0)), np.zeros((0, len(moved)), np.int64)
    shift, _ = product_shift(q, delta, first.thin, ThinShift(columns, moved.T[columns].astype(float), whole, mixing))
    return np.asarray(first.product + shift)
