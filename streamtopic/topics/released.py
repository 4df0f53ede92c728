"""What is published of a model, from its noised A and the retained counts alone.

Everything here is computed after noise: a function of (A noised, Q), so it adds nothing to what A reveals beyond the
counts that a retraining would have had as well.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.topics.fit import TopicFit

__all__ = ["Correlations", "topic_correlations", "topic_shares"]

Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """R (r, r), positive semidefinite, and the topics' shares (r,), non-negative, sum 1."""

    R: Float
    shares: Float


def topic_correlations(fit: TopicFit, A: Float) -> Correlations:
    """Return R = PSD(A^+ Q A^+^T) and shares z, its row sums, for a noised A (n', r) over `fit.words`.

    Cost: one pass over Q, nnz(Q) r. Source: the paper, section 3; Arora et al. 2013.
    """
    half = fit.restricted_product(A)
    inverse = np.linalg.pinv(A.T @ A, hermitian=True)
    R = inverse @ (A.T @ half) @ inverse
    values, vectors = np.linalg.eigh((R + R.T) / 2)
    R = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return Correlations((R + R.T) / 2, topic_shares(R))


def topic_shares(R: Float) -> Float:
    """Return the shares z of topics, (r,): row sums of R (r, r), none below 0, sum 1; equal ones where all are 0."""
    shares = np.maximum(R.sum(axis=1), 0.0)
    total = float(shares.sum())
    return np.asarray(shares / total) if total > 0 else np.full(len(shares), 1 / len(shares))
