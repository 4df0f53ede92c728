"""The paper's own form of an unlearned head, v = (A^S)^+ A w, kept to show what it gives away.

Whoever holds A^S turns v into A^S v = P_S A w, P_S the projection on col(A^S), a space that the forgotten documents
helped to choose. A retraining without them would have released a B inside col(A^F). So the part of B outside col(A^F)
tells the two apart, however much noise v carries: noise on v is noise inside col(A^S). B = A w released with noise on
all of its n C numbers has no such part.
"""

import numpy as np
import numpy.typing as npt

from streamtopic.errors import CannotLearn

__all__ = ["component_outside", "literal_head"]

Float = npt.NDArray[np.float64]


def literal_head(A_before: Float, A: Float, w: Float) -> Float:
    """Return v = (A^S)^+ A w, (r, C), Algorithm 2's answer before noise; A^S v stands in for B.

    A_before: A^S (n, r); A (n, r) the unlearned one, over the same words; w (r, C). Raises CannotLearn where A^S has
    dependent columns, since v would then not be unique.
    """
    if np.linalg.matrix_rank(A_before) < A_before.shape[1]:
        raise CannotLearn("rank", "the topics of A^S depend on each other, so it has no left inverse: ask fewer topics")
    return np.asarray(np.linalg.lstsq(A_before, A @ w, rcond=None)[0])


def component_outside(B: Float, A: Float) -> float:
    """Return ||B - P B||_F / ||B||_F, P the projection on col(A): 0 to rounding where B = A w. B (n, C), A (n, r)."""
    basis = np.linalg.svd(A, full_matrices=False)
    kept = basis[0][:, basis[1] > basis[1][0] * 1e-12]
    size = float(np.linalg.norm(B))
    return float(np.linalg.norm(B - kept @ (kept.T @ B))) / size if size else 0.0
