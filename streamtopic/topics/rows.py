"""Rows of a matrix of word amounts as documents that can be counted exactly."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamtopic.counts import MAX_LENGTH, DocumentBatch

__all__ = ["FIXED_POINT", "as_documents"]

FIXED_POINT = 1024
_BLOCK = 1 << 17
_Part = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def as_documents(X: csr_array) -> DocumentBatch:
    """Turn the rows of X (documents, words) into passages of integer counts, one a row.

    A row of integers that sums to at most 8,192 is taken as it is. A row with fractions is multiplied by 1,024 and
    rounded; a row that would then exceed 8,192 is scaled down to it. Each row is turned by itself, so the same row
    always gives the same integers and what was added can be taken away.
    """
    rows = X.shape[0]
    parts, start = [], 0
    # Some rows at a time: numbers on the way take several times what they become.
    while start < rows:
        stop = int(np.searchsorted(X.indptr, X.indptr[start] + _BLOCK, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        held = slice(X.indptr[start], X.indptr[stop])
        parts.append(_turned(X.indices[held], X.data[held], np.diff(X.indptr[start : stop + 1])))
        start = stop
    words, counts, sizes, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return DocumentBatch(
        indptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        words=words.astype(np.int32, copy=False),
        counts=counts.astype(np.int32, copy=False),
        lengths=lengths,
        owners=np.arange(rows, dtype=np.int32),
        documents=rows,
    )


def _turned(indices: npt.NDArray[np.int32], data: npt.NDArray[np.float64], sizes: npt.NDArray[np.int32]) -> _Part:
    """Return words, counts, entries of each row and lengths of some rows."""
    count = len(sizes)
    rows = np.repeat(np.arange(count), sizes)
    values = np.asarray(data, np.float64)
    fractional = np.zeros(count, bool)
    np.logical_or.at(fractional, rows, values != np.rint(values))
    scale = np.where(fractional, float(FIXED_POINT), 1.0)
    total = np.zeros(count)
    np.add.at(total, rows, values)
    # Rounding to nearest may carry a row over the limit, so a scaled row is cut rather than rounded.
    over = total * scale > MAX_LENGTH - 0.5 * fractional * sizes
    scale = np.where(over, MAX_LENGTH / np.maximum(total, 1e-300), scale)
    amounts = values * scale[rows]
    integers = np.where(over[rows], np.floor(amounts), np.rint(amounts)).astype(np.int64)
    kept = integers > 0
    lengths = np.bincount(rows[kept], weights=integers[kept], minlength=count).astype(np.int64)
    held = np.bincount(rows[kept], minlength=count)
    return indices[kept].astype(np.int32), integers[kept].astype(np.int32), held, lengths
