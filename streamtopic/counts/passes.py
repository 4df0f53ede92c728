"""Single passes over compressed rows. Outputs are made by numpy, which puts large arrays on huge pages."""

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["touching_indptr", "touching_rows"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


@numba.njit(cache=True, nogil=True)
def touching_indptr(
    indptr: Int64, columns: Int32, kept: npt.NDArray[np.intp], ids: Int32, chosen: npt.NDArray[np.bool_]
) -> Int64:
    """Return row pointers of rows `kept`, whole where `chosen`, else with chosen columns only."""
    out = np.zeros(len(kept) + 1, np.int64)
    wanted = kept[chosen]
    for i in range(len(kept)):
        row = columns[indptr[kept[i]] : indptr[kept[i] + 1]]
        found = 0
        if chosen[i]:
            for column in row:
                found += ids[column] >= 0
        else:
            for column in wanted:
                k = np.searchsorted(row, column)
                found += k < len(row) and row[k] == column
        out[i + 1] = out[i] + found
    return out


@numba.njit(cache=True, nogil=True)
def touching_rows(
    indptr: Int64,
    columns: Int32,
    values: Int64,
    kept: npt.NDArray[np.intp],
    ids: Int32,
    chosen: npt.NDArray[np.bool_],
    out: Int64,
    out_columns: Int32,
    out_values: Int64,
) -> None:
    """Write what `touching_indptr` counted, columns renamed by `ids`."""
    wanted = kept[chosen]
    for i in range(len(kept)):
        first, last = indptr[kept[i]], indptr[kept[i] + 1]
        row, slot = columns[first:last], out[i]
        if chosen[i]:
            for k in range(len(row)):
                if ids[row[k]] >= 0:
                    out_columns[slot], out_values[slot] = ids[row[k]], values[first + k]
                    slot += 1
        else:
            for column in wanted:
                k = np.searchsorted(row, column)
                if k < len(row) and row[k] == column:
                    out_columns[slot], out_values[slot] = ids[column], values[first + k]
                    slot += 1
