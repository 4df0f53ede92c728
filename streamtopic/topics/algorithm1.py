"""Algorithm 1 of the paper to the letter: unlearning the base model by one Newton step and a projection.

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

from streamtopic.counts import SymmetricCounts
from streamtopic.errors import CannotLearn
from streamtopic.topics.products import times
from streamtopic.topics.remaining import Remaining, Statistics, chosen_again, remaining, remaining_counts
from streamtopic.topics.simplex import project_rows, solve_rows

__all__ = [
    "BaseModel",
    "Remaining",
    "Statistics",
    "chosen_again",
    "covariance",
    "newton_rows",
    "project_psd",
    "project_topics",
    "remaining",
    "remaining_counts",
    "retrain_rows",
    "unlearn_base",
]

Float = npt.NDArray[np.float64]
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, eq=False)
class BaseModel:
    """A topic model over `words`, before noise: C (n, r) rows on the simplex, A (n, r) columns on it, R (r, r)."""

    words: tuple[str, ...]
    C: Float
    A: Float
    R: Float


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
    return BaseModel(left.words, C, A, covariance(left.q, left.live, A))
