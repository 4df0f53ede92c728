"""Algorithm 1 of the paper to the letter: unlearning the base model by one Newton step and a projection.

    remaining        Q^F = Q^S less the forget set, p^F, and the inner products of rows of Qbar^F with the anchors' rows
    newton_rows      C^S - H^-1 grad, the step on the loss of Q^F
    unlearn_base     Abar, Rbar: the step, its projection on the simplex of topics, columns normalised
    retrain_rows     A^F, R^F on the same anchors, with the exact constrained optimum in place of the step

Since the step lands on the same point from any start, U(S_f, A(S)) and the reference run of the paper's definition,
U(empty set, A(S - S_f)), agree to rounding wherever anchors and words do; the proof bounds the larger ||Abar - A^F||.
Noise and the projections after it are privacy/theorem.py's. The service's certified mode solves the constrained
problem exactly instead (topics/update.py); this is for theorem mode and for comparison.
Source: Wei et al. (2025), algorithm 1 (alg:unlearn) and the proof of theorem 1 in its appendix B.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Cooccurrence, CountSource, SymmetricCounts
from streamtopic.errors import CannotLearn, NegativeCounts, UsageError
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.products import add_columns_product, add_sparse_product, dense_rows, times
from streamtopic.topics.simplex import project_rows, solve_rows
from streamtopic.topics.simplex_round import gram

__all__ = [
    "BaseModel",
    "Remaining",
    "covariance",
    "newton_rows",
    "project_psd",
    "project_topics",
    "remaining",
    "retrain_rows",
    "unlearn_base",
]

Float = npt.NDArray[np.float64]
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """What Algorithm 1 knows once the forget set is out of the counts; nothing of it grows with m.

    words: (n,) those that still occur; rows: (n,) their positions in q; q: Q^F in integers; p: (n,) word masses, sum 1;
    start: (n, r) C^S; anchors: (r,) positions of P in `words`; B = Qbar^F Qbar_P^F^T (n, r); G = Qbar_P^F Qbar_P^F^T
    (r, r); sigma_min: least singular value of Qbar_P^F; documents: |S| - |S_f|.
    """

    words: tuple[str, ...]
    rows: npt.NDArray[np.intp]
    q: SymmetricCounts
    p: Float
    start: Float
    anchors: npt.NDArray[np.intp]
    B: Float
    G: Float
    sigma_min: float
    documents: int


@dataclass(frozen=True, slots=True, eq=False)
class BaseModel:
    """A topic model over `words`, before noise: C (n, r) rows on the simplex, A (n, r) columns on it, R (r, r)."""

    words: tuple[str, ...]
    C: Float
    A: Float
    R: Float


def remaining(fit: TopicFit, forgotten: CountSource | None = None) -> Remaining:
    """Take the forget set out of the counts.

    fit: A(S), learned with learner "paper"; it stays as it is. forgotten: counts of S_f made with the fit's weighting,
    None for the empty forget set. Cost: a copy of Q's values, nnz(dQ) r and the columns of changed words times r.
    Raises UsageError for another learner, NegativeCounts where S_f cannot be part of S, CannotLearn where an anchor's
    row is gone or the anchors' rows have become dependent.
    """
    if fit.options.learner != "paper":
        raise UsageError('Algorithm 1 starts from the published learner: learn with learner="paper"')
    first, positions = fit.rounds[0], fit.choice.rows
    q, product, documents = fit.q, first.product, fit.documents
    if forgotten is not None:
        documents -= forgotten.documents
        taken = Cooccurrence.zero(q.n) - _over(fit, forgotten)
        q = _subtracted(fit.q, taken, documents)
        product = _product(fit, q, SymmetricCounts.of(taken))
    anchor_counts = dense_rows(q, positions)
    thin = np.ascontiguousarray(anchor_counts.T.astype(float))
    G, sigma_min = gram(anchor_counts, thin, np.ones(q.n))
    mass = q.row_sums()
    live = np.flatnonzero(mass)
    B = product[live] / mass[live, None] / anchor_counts.sum(axis=1)
    return Remaining(
        words=tuple(fit.names[k] for k in live),
        rows=live,
        q=q,
        p=mass[live] / float(sum(mass.tolist())),
        start=fit.C[live],
        anchors=np.searchsorted(live, positions),
        B=B,
        G=G,
        sigma_min=sigma_min,
        documents=documents,
    )


def newton_rows(C: Float, B: Float, G: Float) -> Float:
    """Return C_i - H^-1 grad L(C_i) for every row: L(v) = ||Qbar_i - v^T Qbar_P||^2, grad = 2 (G v - B_i), H = 2 G.

    C, B: (n, r); G: (r, r). L is quadratic, so the step lands on B G^-1, the unconstrained optimum, from any C; its
    rows sum to about 1 but may be negative. Raises CannotLearn where G is singular.
    """
    values = np.linalg.eigvalsh(G)
    if not values[0] > len(G) * _UNIT * values[-1]:
        raise CannotLearn("rank", "the anchors' rows are dependent, so there is no Newton step: retrain from counts")
    gradient = 2 * (C @ G - B)
    return np.asarray(C - np.linalg.solve(2 * G, gradient.T).T)


def unlearn_base(left: Remaining) -> BaseModel:
    """Return Abar and Rbar: the Newton step from C^S, rows projected on the simplex, columns of diag(p) C normalised.

    Cost: n r^2 for the rows, nnz(Q) r for R.
    """
    return _model(left, project_rows(newton_rows(left.start, left.B, left.G)))


def retrain_rows(left: Remaining) -> BaseModel:
    """Return A^F and R^F: every row the exact constrained optimum on Q^F, on the same anchors.

    This is what A(S - S_f) returns wherever it finds the same anchors and words. Cost: an active-set solve a row.
    """
    return _model(left, solve_rows(left.G, np.ascontiguousarray(left.B), np.ascontiguousarray(left.start)))


def covariance(q: SymmetricCounts, rows: npt.NDArray[np.intp], A: Float) -> Float:
    """Return R = A^+ Q A^+^T (r, r), symmetric, for A (n, r) over these rows of Q; entries of Q sum to 1.

    Raises CannotLearn where the columns of A are dependent.
    """
    U, values, V = np.linalg.svd(A, full_matrices=False)
    if not values[-1] > len(A) * _UNIT * values[0]:
        raise CannotLearn("rank", "two topics have become the same, so R is not defined: ask fewer topics")
    pseudoinverse = (V.T / values) @ U.T
    wide = np.zeros((q.n, A.shape[1]))
    wide[rows] = pseudoinverse.T
    R = pseudoinverse @ times(q, wide)[rows] / float(sum(q.row_sums().tolist()))
    return np.asarray((R + R.T) / 2)


def project_topics(A: Float) -> Float:
    """Project each column of A (n, r) on the simplex of words in Euclidean distance."""
    return np.ascontiguousarray(project_rows(np.ascontiguousarray(A.T)).T)


def project_psd(R: Float) -> Float:
    """Return the nearest positive semidefinite matrix to a symmetric R (r, r) in the Frobenius norm."""
    values, vectors = np.linalg.eigh((R + R.T) / 2)
    projected = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return np.asarray((projected + projected.T) / 2)


def _model(left: Remaining, C: Float) -> BaseModel:
    joint = left.p[:, None] * C
    A = joint / joint.sum(axis=0)
    return BaseModel(left.words, C, A, covariance(left.q, left.rows, A))


def _over(fit: TopicFit, source: CountSource) -> Cooccurrence:
    """Bring counts over any words to the fit's."""
    place = {word: k for k, word in enumerate(fit.names)}
    known = np.array([k for k, word in enumerate(source.words) if word in place], np.intp)
    ids = np.array([place[source.words[k]] for k in known], np.int64)
    return source.restrict(known).relabel(ids, len(fit.names))


def _subtracted(q: SymmetricCounts, taken: Cooccurrence, documents: int) -> SymmetricCounts:
    left = SymmetricCounts(q.n, q.indptr, q.columns, q.values.copy())
    if not left.add_within(taken) or (len(left.values) and int(left.values.min()) < 0) or documents < 0:
        raise NegativeCounts("the forget set is no part of the trained documents: forget only what was learned, once")
    return left


def _product(fit: TopicFit, q: SymmetricCounts, delta: SymmetricCounts) -> Float:
    """Return W^F = Q^F Q_P^F^T = W^S + dQ V^S + Q^F (V^F - V^S), V = Q_P^T, in the units of the counts."""
    first = fit.rounds[0]
    product = first.product.copy()
    add_sparse_product(product, delta, first.thin)
    moved = dense_rows(delta, fit.choice.rows)
    columns = np.flatnonzero(moved.any(axis=0))
    add_columns_product(product, q, columns, np.ascontiguousarray(moved.T[columns].astype(float)))
    return product
