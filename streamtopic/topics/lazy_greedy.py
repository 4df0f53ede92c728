"""Sums over single rows of Q, in column order, for the lazy anchor search."""

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["row_dot", "row_norms"]

Float = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def row_norms(indptr: Int64, values: Int64, rows: npt.NDArray[np.intp], scale: Float) -> Float:
    """Return squared norms of scaled rows, (len(rows),)."""
    norms = np.zeros(len(rows))
    for i in range(len(rows)):
        for k in range(indptr[rows[i]], indptr[rows[i] + 1]):
            value = float(values[k]) * scale[i]
            norms[i] += value * value
    return norms


@numba.njit(cache=True, nogil=True)
def row_dot(columns: npt.NDArray[np.int32], values: Int64, directions: Float, scale: float) -> Float:
    """Return the inner products of one scaled row with each direction, columns of `directions` (n, d), as (d,)."""
    products = np.zeros(directions.shape[1])
    for k in range(len(columns)):
        value = float(values[k]) * scale
        at = directions[columns[k]]
        for d in range(len(products)):
            products[d] += value * at[d]
    return products
