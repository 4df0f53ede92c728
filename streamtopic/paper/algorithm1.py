"""Algorithm 1 of the paper to the letter: unlearning the base model by one Newton step and a projection.

    BaseStatistics    T(S): all that it needs of the base model besides counts; small enough to keep
    remaining         Q^F = Q^S less the forget set, and the matrices that follow, from the fit of S
    remaining_counts  the same from Q^F itself, which exact counts give without S or its model
    chosen_again      the anchors that a retraining on Q^F chooses
    newton_rows       C^S - H^-1 grad, the step on the loss of Q^F
    unlearn_base      Abar, Rbar: the step, its projection on the simplex of topics, columns normalised
    retrain_rows      A^F, R^F on the same anchors, with the exact constrained optimum in place of the step
    literal_head      Algorithm 2's answer for a task on top of these topics

The step lands on the same point from any start. So U(S_f, A(S)) and the reference run of the paper's definition,
U(empty set, A(S - S_f)), agree to rounding wherever anchors and words do; the proof bounds the larger ||Abar - A^F||.
Noise, and the projections after it, are in theorem.py. The service's certified mode solves the constrained problem
exactly instead (topics/update.py); this file is for theorem mode and for comparison.
Source: Wei et al. (2025), algorithm 1 (alg:unlearn) and the proof of theorem 1 in its appendix B.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence, CountSource, SymmetricCounts
from streamtopic.counts.arrays import places
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.paper.capacity_formulas import ModelConstants, fit_constants
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import prepare
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.mixtures import gram
from streamtopic.topics.paper_anchors import farthest_rows
from streamtopic.topics.products import dense_rows, times
from streamtopic.topics.simplex import project_rows, solve_rows

__all__ = [
    "BaseModel",
    "BaseStatistics",
    "Remaining",
    "chosen_again",
    "covariance",
    "literal_head",
    "newton_rows",
    "project_psd",
    "remaining",
    "remaining_counts",
    "retrain_rows",
    "unlearn_base",
]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class BaseStatistics:
    """The paper's T(S): the part of the base model that its updates, their noise and their conditions rest on.

    words: (n,), ascending.
    C: C^S, (n, r), rows on the simplex.
    anchors: (r,), the words of P, by topic.
    documents: m = |S|.
    length: L, mean number of tokens of these words in a document.
    constants: a, p, gamma, eps0 as the base model has them.
    q_norm: the greatest word mass. It bounds ||Q||_2, since rows of a symmetric non-negative Q sum to word masses.
    rarest: the least word mass.
    """

    words: tuple[str, ...]
    C: Float
    anchors: tuple[str, ...]
    documents: int
    length: float
    constants: ModelConstants
    q_norm: float
    rarest: float

    @classmethod
    def of(cls, fit: TopicFit, source: CountSource) -> Self:
        """Take the statistics from A(S). source: the counts that it was learned from."""
        place = {word: k for k, word in enumerate(source.words)}
        tokens = source.tokens[[place[word] for word in fit.words]]
        return cls(
            words=fit.words,
            C=fit.C,
            anchors=fit.anchors,
            documents=fit.documents,
            length=int(tokens.sum()) / fit.documents,
            constants=fit_constants(fit),
            q_norm=float(fit.p.max()),
            rarest=float(fit.p.min()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """The input of Algorithm 1 after the forget set is out of the counts. Its sizes do not grow with m.

    words: (n,), the words that still occur.
    q: Q^F in integers, (n, n).
    mass: sums of its rows.
    p: (n,), word masses, sum 1.
    start: (n, r), C^S.
    anchors: (r,), positions of P in `words`.
    candidates: positions of words that may be anchors.
    B: (n, r), Qbar^F Qbar_P^F^T.
    G: (r, r), Qbar_P^F Qbar_P^F^T.
    sigma_min: the least singular value of Qbar_P^F.
    documents: |S| - |S_f|.
    """

    words: tuple[str, ...]
    q: SymmetricCounts
    mass: Int64
    p: Float
    start: Float
    anchors: npt.NDArray[np.intp]
    candidates: npt.NDArray[np.intp]
    B: Float
    G: Float
    sigma_min: float
    documents: int


def remaining(fit: TopicFit, forgotten: CountSource | None = None) -> Remaining:
    """Take the forget set out of the counts.

    fit: A(S), learned with learner "paper"; it stays as it is.
    forgotten: counts of S_f made with the fit's weighting, None for the empty forget set.
    Cost: a copy of Q's values, and nnz(Q) r. Raises UsageError for another learner; NegativeCounts if S_f cannot be
    part of S; CannotLearn if an anchor's row is gone, or if the rows of the anchors have become dependent.
    """
    _require_published(fit.options)
    q = fit.q
    documents = fit.documents
    if forgotten is not None:
        documents -= forgotten.documents
        # Negative counts, because matrices of counts are changed by adding.
        taken = SymmetricCounts.of(Cooccurrence.zero(q.n) - _over(fit, forgotten))
        q = _subtracted(q, taken, documents)
    return _known(fit.words, q, fit.choice, start=fit.C, candidates=fit.candidates, documents=documents)


def remaining_counts(base: BaseStatistics, source: CountSource, options: LearnerOptions) -> Remaining:
    """Return the input of Algorithm 1 from Q^F itself, without the counts of S and of S_f.

    base: T(S).
    source: counts of S - S_f, over any words.
    options: the options that the base was learned with.
    Cost: reading the counts once, and nnz(Q) r. Raises UsageError for another learner, CannotLearn if an anchor word
    has left the vocabulary, if its row is gone, or if the anchors' rows have become dependent.
    """
    _require_published(options)
    # A retraining would choose this same vocabulary, so that released words do not depend on forgotten documents.
    # A word that leaves takes its row and column along.
    prepared = prepare(source, options)
    q = prepared.q
    words = prepared.words
    place = {word: k for k, word in enumerate(words)}
    lost = [word for word in base.anchors if word not in place]
    if lost:
        raise CannotLearn("anchors", f"a retraining would drop the anchor word {lost[0]}: retrain from counts")
    # A word that enters starts at zero: the step lands on the same point from anywhere.
    start = np.zeros((len(words), base.C.shape[1]))
    stays = [k for k, word in enumerate(base.words) if word in place]
    start[[place[base.words[k]] for k in stays]] = base.C[stays]
    positions = np.array([place[word] for word in base.anchors], np.intp)
    return _known(words, q, positions, start=start, candidates=prepared.candidates, documents=source.documents)


def chosen_again(left: Remaining) -> npt.NDArray[np.intp]:
    """Return the anchors that a retraining on Q^F chooses, by position in Q.

    Cost: that of a search. Raises CannotLearn if there are not r independent candidates.
    """
    return farthest_rows(left.q, left.candidates, left.mass, len(left.anchors))


def _known(
    words: tuple[str, ...],
    q: SymmetricCounts,
    positions: npt.NDArray[np.intp],
    *,
    start: Float,
    candidates: npt.NDArray[np.intp],
    documents: int,
) -> Remaining:
    """Return the input of Algorithm 1 for Q^F (n, n) and the anchors P.

    words: of Q^F, also those that no document holds any more.
    positions: (r,), of the anchors in `words`.
    start: (n, r), C^S.
    """
    anchor_counts = dense_rows(q, positions)
    thin = np.ascontiguousarray(anchor_counts.T.astype(float))
    G, sigma_min = gram(anchor_counts, thin)
    mass = q.row_sums()
    # A word that no document holds any more has no row on the simplex, and a retraining would not know it.
    live = np.flatnonzero(mass)
    place = places(len(mass), live)
    mass = mass[live]
    # Summed as Python integers: a total of int64 could overflow in a large corpus.
    total = float(sum(mass.tolist()))
    anchor_mass = anchor_counts.sum(axis=1)
    rows = times(q, thin)[live] / mass[:, None]
    candidates = place[candidates]
    return Remaining(
        words=tuple(words[k] for k in live),
        q=q if len(live) == q.n else q.only(live),
        mass=mass,
        p=mass / total,
        start=start[live],
        anchors=place[positions],
        candidates=candidates[candidates >= 0],
        B=rows / anchor_mass,
        G=G,
        sigma_min=sigma_min,
        documents=documents,
    )


def _require_published(options: LearnerOptions) -> None:
    # Algorithm 1 takes rows of anchor words; the default learner has averages of rows in their place.
    if options.learner != "paper":
        raise UsageError('Algorithm 1 starts from the published learner: learn with learner="paper"')


def _over(fit: TopicFit, source: CountSource) -> Cooccurrence:
    """Bring counts over any words to the fit's words."""
    ids = fit.words.places(source.words)
    known = np.flatnonzero(ids >= 0)
    return source.restrict(known).relabel(ids[known], len(fit.words))


def _subtracted(q: SymmetricCounts, taken: SymmetricCounts, documents: int) -> SymmetricCounts:
    """Return Q^F; taken: the negative counts of S_f; documents: |S| - |S_f|."""
    # The fit stays as it is, so that one base model can serve several forget sets.
    left = q.plus(taken)
    # Numbers below zero are among the wide ones.
    if left.rows.wide.min(initial=0) < 0 or documents < 0:
        raise NegativeCounts(
            "the forget set holds documents that were not learned: give each learned document once at the most"
        )
    return left


_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class BaseModel:
    """A topic model before noise.

    words: (n,), ascending.
    C: (n, r), rows on the simplex of topics.
    A: (n, r), columns on the simplex of words.
    R: (r, r), the covariance of topics.
    """

    words: tuple[str, ...]
    C: Float
    A: Float
    R: Float


def newton_rows(C: Float, B: Float, G: Float) -> Float:
    """Return C_i - H^-1 grad L(C_i) for every row: L(v) = ||Qbar_i - v^T Qbar_P||^2, grad = 2 (G v - B_i), H = 2 G.

    C: (n, r), rows that the step starts from.
    B: (n, r), Qbar Qbar_P^T.
    G: (r, r), Qbar_P Qbar_P^T.

    L is quadratic, so the step lands on B G^-1, the unconstrained optimum, from any C. Its rows sum to about 1, and
    entries may be negative. Raises CannotLearn if G is singular.
    """
    values = np.linalg.eigvalsh(G)
    # With a smaller eigenvalue the solution would be rounding alone.
    if not values[0] > len(G) * _UNIT * values[-1]:
        raise CannotLearn("rank", "the Newton step needs independent rows of anchors: retrain from counts")
    # B G^-1 is the same point; the step is written as the paper has it, so that the two can be compared.
    gradient = 2 * (C @ G - B)
    step = np.linalg.solve(2 * G, gradient.T).T
    return np.asarray(C - step)


def unlearn_base(left: Remaining) -> BaseModel:
    """Return Abar and Rbar: the Newton step from C^S, rows projected on the simplex, columns of diag(p) C normalised.

    Cost: n r^2 for the rows, nnz(Q) r for R.
    """
    stepped = newton_rows(left.start, left.B, left.G)
    return _model(left, project_rows(stepped))


def retrain_rows(left: Remaining) -> BaseModel:
    """Return A^F and R^F: every row the exact constrained optimum on Q^F, on the same anchors.

    A(S - S_f) returns this model wherever it finds the same anchors and words. Cost: an active-set solve a row.
    """
    # The solver is compiled for arrays in C order, and slices of live words need not be.
    B = np.ascontiguousarray(left.B)
    start = np.ascontiguousarray(left.start)
    return _model(left, solve_rows(left.G, B, start))


def covariance(q: SymmetricCounts, A: Float) -> Float:
    """Return R = A^+ Q A^+^T (r, r), symmetric, with Q scaled so that its entries sum to 1.

    q: counts of pairs, (n, n).
    A: (n, r), topics.
    Raises CannotLearn if the columns of A are dependent.
    """
    U, values, V = np.linalg.svd(A, full_matrices=False)
    if not values[-1] > len(A) * _UNIT * values[0]:
        raise CannotLearn("rank", "two topics have become the same, so R is not defined: ask for fewer topics")
    pseudoinverse = (V.T / values) @ U.T
    # Q is applied to thin matrices only: it is sparse, and a dense copy would not fit in memory.
    applied = times(q, np.ascontiguousarray(pseudoinverse.T))
    # Summed as Python integers, as in `_known`.
    total = float(sum(q.row_sums().tolist()))
    R = pseudoinverse @ applied / total
    # Exact symmetry, which rounding took away: noise is drawn for the upper triangle alone.
    return np.asarray((R + R.T) / 2)


def project_psd(R: Float) -> Float:
    """Return the nearest positive semidefinite matrix to a symmetric R (r, r) in the Frobenius norm."""
    values, vectors = np.linalg.eigh((R + R.T) / 2)
    kept = np.maximum(values, 0.0)
    projected = (vectors * kept) @ vectors.T
    # A product is symmetric up to rounding only.
    return np.asarray((projected + projected.T) / 2)


def _model(left: Remaining, C: Float) -> BaseModel:
    """Return the model of C (n, r): A by Bayes' rule from C and the word masses p, and R."""
    joint = left.p[:, None] * C
    A = joint / joint.sum(axis=0)
    return BaseModel(left.words, C, A, covariance(left.q, A))


def literal_head(A_before: Float, A: Float, w: Float) -> Float:
    """Return v = (A^S)^+ A w, (r, C): Algorithm 2's answer before noise, kept to show its leak.

    A_before: A^S, (n, r), over the same words as A.
    A: (n, r), the unlearned topics.
    w: (r, C), the weights of the head on topics.

    A holder of A^S turns v into A^S v = P_S A w, where P_S projects on col(A^S), a space that the forgotten documents
    helped to choose. A retraining without them would have released a B inside col(A^F). So the part of B outside
    col(A^F) tells the two apart, however much noise v carries: noise on v is noise inside col(A^S). The service
    releases B = A w with noise on all of its n C numbers, which has no such part.
    Raises CannotLearn if A^S has dependent columns, since v would then not be unique.
    """
    if np.linalg.matrix_rank(A_before) < A_before.shape[1]:
        raise CannotLearn("rank", "topics of A^S depend on each other, so it has no left inverse: ask for fewer topics")
    solution = np.linalg.lstsq(A_before, A @ w, rcond=None)
    return np.asarray(solution[0])
