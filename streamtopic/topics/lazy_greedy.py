"""Sums over single rows of Q, in column order, for the lazy anchor search."""

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.compact import Compact, read

__all__ = ["row_dot", "row_norms"]

Float = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]


def row_norms(q: SymmetricCounts, rows: Positions, scale: Float) -> Float:
    """Return squared norms of scaled rows, (len(rows),)."""
    norms: Float = _row_norms(q.rows, rows, scale)
    return norms


def row_dot(q: SymmetricCounts, row: int, directions: Float, scale: float) -> Float:
    """Return the inner products of one scaled row with each direction, columns of `directions` (n, d), as (d,)."""
    products: Float = _row_dot(q.rows, row, directions, scale)
    return products


@numba.njit(cache=True, nogil=True)
def _row_norms(q: Compact, rows: Positions, scale: Float) -> Float:
    norms = np.zeros(len(rows))
    for i in range(len(rows)):
        w, total, factor = q.wide_indptr[rows[i]], 0.0, scale[i]
        for k in range(q.indptr[rows[i]], q.indptr[rows[i] + 1]):
            exact, w = read(q, k, w)
            value = float(exact) * factor
            total += value * value
        norms[i] = total
    return norms


@numba.njit(cache=True, nogil=True)
def _row_dot(q: Compact, row: int, directions: Float, scale: float) -> Float:
    products = np.zeros(directions.shape[1])
    w = q.wide_indptr[row]
    for k in range(q.indptr[row], q.indptr[row + 1]):
        exact, w = read(q, k, w)
        value = float(exact) * scale
        at = directions[q.columns[k]]
        for d in range(len(products)):
            products[d] += value * at[d]
    return products
