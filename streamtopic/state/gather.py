"""Compiled loops that add up pairs: chunks to rows of other words, and many such parts to one sorted triangle."""

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["accumulate", "relabel"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def relabel(
    rows: Int32, sizes: Int64, columns: Int32, values: Int64, new: Int64, chosen: npt.NDArray[np.bool_], sign: int
) -> tuple[Int64, Int32, Int64]:
    """Return a chunk's pairs under new word numbers, in upper CSR form with columns in any order in a row.

    new: each word's number among len(chosen), -1 to drop it; chosen: pairs without such a word are left out. Ids are in
    the order in which words arrived, so a pair may change sides of the diagonal.
    """
    n_words = len(chosen)
    indptr = np.zeros(n_words + 1, np.int64)
    k = 0
    for r in range(len(rows)):
        a = new[rows[r]]
        for _ in range(sizes[r]):
            b = new[columns[k]]
            k += 1
            if a >= 0 and b >= 0 and (chosen[a] or chosen[b]):
                indptr[min(a, b) + 1] += 1
    for row in range(n_words):
        indptr[row + 1] += indptr[row]
    fill = indptr[:-1].copy()
    out_columns = np.empty(indptr[n_words], np.int32)
    out_values = np.empty(indptr[n_words], np.int64)
    k = 0
    for r in range(len(rows)):
        a = new[rows[r]]
        for _ in range(sizes[r]):
            b = new[columns[k]]
            if a >= 0 and b >= 0 and (chosen[a] or chosen[b]):
                slot = fill[min(a, b)]
                fill[min(a, b)] = slot + 1
                out_columns[slot] = max(a, b)
                out_values[slot] = sign * values[k]
            k += 1
    return indptr, out_columns, out_values


@numba.njit(cache=True, nogil=True)
def accumulate(
    indptrs: Int64, columns: Int32, values: Int64, first: int, n_words: int
) -> tuple[Int64, Int32, Int64, bool]:
    """Return the sum of parts, columns ascending and zeros dropped; the flag says whether it fits into 64 bits.

    indptrs: (parts, rows + 1), each row absolute into `columns` and `values`; first: the word of the first row.
    """
    parts, rows = indptrs.shape[0], indptrs.shape[1] - 1
    indptr = np.zeros(rows + 1, np.int64)
    out_columns = np.empty(len(columns), np.int32)
    out_values = np.empty(len(columns), np.int64)
    sums = np.zeros(n_words, np.int64)
    seen = np.zeros(n_words, np.bool_)
    touched = np.empty(n_words, np.int32)
    used = 0
    fits = True
    for row in range(rows):
        found = 0
        for part in range(parts):
            for k in range(indptrs[part, row], indptrs[part, row + 1]):
                column = columns[k]
                if not seen[column]:
                    seen[column] = True
                    touched[found] = column
                    found += 1
                before = sums[column]
                after = before + values[k]
                if ((before ^ after) & (values[k] ^ after)) < 0:
                    fits = False
                sums[column] = after
        # Collecting a full row by looking at all columns is cheaper than sorting those that were met.
        if 16 * found > n_words - first - row:
            found = 0
            for column in range(first + row, n_words):
                if seen[column]:
                    touched[found] = column
                    found += 1
        else:
            touched[:found].sort()
        for column in touched[:found]:
            if sums[column] != 0:
                out_columns[used] = column
                out_values[used] = sums[column]
                used += 1
            sums[column] = 0
            seen[column] = False
        indptr[row + 1] = used
    return indptr, out_columns[:used].copy(), out_values[:used].copy(), fits
