"""Counts from small dense matrices."""

import numpy as np

from packed import pack
from streamtopic.counts import SymmetricCounts


def dense_counts(Q):
    """Return a symmetric integer matrix as counts."""
    rows, columns = np.nonzero(Q)
    indptr = np.searchsorted(rows, np.arange(len(Q) + 1)).astype(np.int64)
    return SymmetricCounts(len(Q), pack(len(Q), indptr, columns.astype(np.int32), Q[rows, columns].astype(np.int64)))
