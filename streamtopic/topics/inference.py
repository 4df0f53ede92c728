"""Topics of new documents, from a model alone. numpy only: subscribers load this.

theta maximises sum_w x_w log (A theta)_w + alpha sum_k log theta_k over the simplex: concave, one optimum, found by EM.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["fold_in"]

Float = npt.NDArray[np.float64]
_ENTRIES = 1 << 16


def fold_in(
    A: npt.ArrayLike,
    indptr: npt.NDArray[np.int64],
    words: npt.NDArray[np.integer],
    counts: npt.ArrayLike,
    *,
    alpha: float = 0.1,
    tolerance: float = 1e-5,
    iterations: int = 500,
) -> Float:
    """Return topic proportions, (documents, r), rows summing to 1.

    A: (n, r) columns on the simplex. Documents as CSR rows: indptr (documents + 1,), words (nnz,) positions in A,
    counts (nnz,). EM stops once no proportion of a document changes by more than `tolerance` in one step. A document
    without a word that the model knows gets equal proportions: the prior's mode.
    """
    table = np.asarray(A, np.float64)
    amounts = np.asarray(counts, np.float64)
    theta = np.full((len(indptr) - 1, table.shape[1]), 1.0 / table.shape[1])
    start = 0
    while start < len(theta):
        stop = int(np.searchsorted(indptr, indptr[start] + _ENTRIES, side="right")) - 1
        stop = min(max(stop, start + 1), len(theta))
        span = slice(int(indptr[start]), int(indptr[stop]))
        rows = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))
        known = table[words[span]].max(axis=1) > 0 if span.stop > span.start else np.zeros(0, bool)
        theta[start:stop] = _em(
            table[words[span][known]], rows[known], amounts[span][known], stop - start, alpha, tolerance, iterations
        )
        start = stop
    return theta


def _em(
    factors: Float,
    rows: npt.NDArray[np.int64],
    amounts: Float,
    documents: int,
    alpha: float,
    tolerance: float,
    iterations: int,
) -> Float:
    """EM for a block of documents; `factors` (nnz, r) are the rows of A, `rows` ascending."""
    r = factors.shape[1]
    theta = np.full((documents, r), 1.0 / r)
    present, first = np.unique(rows, return_index=True)
    active = present
    length = np.zeros(documents)
    np.add.at(length, rows, amounts)
    for _ in range(iterations):
        if not len(active):
            break
        ratio = amounts / np.einsum("ij,ij->i", factors, theta[rows])
        gathered = np.add.reduceat(factors * ratio[:, None], first, axis=0)
        changed = (theta[active] * gathered + alpha) / (length[active, None] + r * alpha)
        moving = np.abs(changed - theta[active]).max(axis=1) > tolerance
        theta[active] = changed
        if moving.all():
            continue
        active = active[moving]
        kept = np.isin(rows, active)
        factors, rows, amounts = factors[kept], rows[kept], amounts[kept]
        first = np.searchsorted(rows, active)
    return theta
