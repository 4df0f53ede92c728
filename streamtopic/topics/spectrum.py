"""The leading eigenpairs of a Gram matrix, and a proof that none was missed."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cholesky
from scipy.linalg.blas import dsymv
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from streamtopic.topics.lapack import largest_pairs
from streamtopic.topics.threads import one_thread

__all__ = ["leading_eigenpairs"]

Float = npt.NDArray[np.float64]
_MANY = 1_000
_FEW = 40
_UNIT = 2.0**-53


def leading_eigenpairs(gram: Float, r: int, *, overwrite: bool = False) -> tuple[Float, Float]:
    """Return the r + 1 largest eigenvalues (all, if there are fewer), descending, and their vectors as columns.

    gram: (c, c), symmetric, positive semidefinite; overwrite: as in `largest_pairs`. Few pairs of a large matrix come
    from Lanczos' method, from a fixed start; whether it missed one is settled by a Cholesky factorisation of what is
    left below the last value. If that fails, as in all other cases, a dense solver does it.
    """
    c = len(gram)
    wanted = min(r + 1, c)
    if c > _MANY and wanted * _FEW < c:
        found = _lanczos(gram, wanted)
        if found is not None:
            return found
    # The reduction is bound by memory, so a second thread would not help on a quiet machine either.
    with one_thread():
        values, vectors = largest_pairs(gram, wanted, overwrite=overwrite)
    return values[::-1], vectors[:, ::-1]


def _lanczos(gram: Float, wanted: int) -> tuple[Float, Float] | None:
    start = np.random.default_rng(0).standard_normal(len(gram))
    # One triangle is read, half of what the whole matrix takes: memory is what binds. The transpose is the same matrix
    # in the order that BLAS has, so nothing is copied.
    product = LinearOperator(gram.shape, lambda v: dsymv(1.0, gram.T, v, lower=1), dtype=np.float64)
    try:
        with one_thread():
            values, vectors = eigsh(product, k=wanted, which="LA", v0=start, ncv=3 * wanted + 20)
    except ArpackError:
        return None
    values, vectors = values[::-1], vectors[:, ::-1]
    # Were an eigenvalue above this missed, the remainder would not be positive definite.
    ceiling = values[-1] + 64 * len(gram) * _UNIT * values[0]
    remainder = (vectors * values) @ vectors.T - gram
    remainder[np.diag_indices_from(remainder)] += ceiling
    try:
        with one_thread():
            cholesky(remainder.T, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return None
    return values, vectors
