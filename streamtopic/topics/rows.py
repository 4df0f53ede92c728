"""Rows of a matrix of word amounts as documents that can be counted exactly."""

import numpy as np
from scipy.sparse import csr_array

from streamtopic.counts import MAX_LENGTH, DocumentBatch

__all__ = ["FIXED_POINT", "as_documents"]

FIXED_POINT = 1024


def as_documents(X: csr_array) -> DocumentBatch:
    """Turn the rows of X (documents, words) into passages of integer counts, one a row.

    A row of integers that sums to at most 8,192 is taken as it is. A row with fractions is multiplied by 1,024 and
    rounded; a row that would then exceed 8,192 is scaled down to it. Each row is turned by itself, so the same row
    always gives the same integers and what was added can be taken away.
    """
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    values = np.asarray(X.data, np.float64)
    fractional = np.zeros(X.shape[0], bool)
    np.logical_or.at(fractional, rows, values != np.rint(values))
    scale = np.where(fractional, float(FIXED_POINT), 1.0)
    total = np.zeros(X.shape[0])
    np.add.at(total, rows, values)
    # Rounding to nearest may carry a row over the limit, so a scaled row is cut rather than rounded.
    over = total * scale > MAX_LENGTH - 0.5 * fractional * np.diff(X.indptr)
    scale = np.where(over, MAX_LENGTH / np.maximum(total, 1e-300), scale)
    amounts = values * scale[rows]
    integers = np.where(over[rows], np.floor(amounts), np.rint(amounts)).astype(np.int64)
    kept = integers > 0
    lengths = np.bincount(rows[kept], weights=integers[kept], minlength=X.shape[0]).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=X.shape[0]))]).astype(np.int64)
    return DocumentBatch(
        indptr=indptr,
        words=X.indices[kept].astype(np.int32),
        counts=integers[kept].astype(np.int32),
        lengths=lengths,
        owners=np.arange(X.shape[0], dtype=np.int32),
        documents=X.shape[0],
    )
