"""Rows of integers in few bytes, as the program's own loops write them."""

import numpy as np

from streamtopic.counts.compact import MARK, Compact, allocate


def pack(n_columns: int, indptr: np.ndarray, columns: np.ndarray, values: np.ndarray) -> Compact:
    """Return rows in few bytes. Columns ascend in each row."""
    # A negative value is large as an unsigned one.
    wide = values.view(np.uint64) >= MARK
    wide_before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(wide, out=wide_before[1:])
    out = allocate(n_columns, indptr, wide_before[indptr])
    out.columns[:] = columns
    out.low[:] = np.where(wide, MARK, values)
    out.wide_columns[:] = columns[wide]
    out.wide[:] = values[wide]
    return out


def values_of(q):
    """Return all values of working counts, in the order of their entries."""
    values = q.rows.low.astype(np.int64)
    values[q.rows.low == MARK] = q.rows.wide
    return values


def dense_of(q):
    """Return working counts as a dense matrix of Python integers, (n, n)."""
    dense = np.zeros((q.n, q.n), object)
    dense[np.repeat(np.arange(q.n), np.diff(q.indptr)), q.rows.columns] = values_of(q)
    return dense
