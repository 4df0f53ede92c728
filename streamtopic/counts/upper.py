"""Upper triangles in few bytes, in panels of whole rows: grown row by row, restricted, mirrored panel by panel.

Mirroring writes the last rows first. Those need nothing of the panels behind them, so a panel is given back as soon as
its rows are written, and the whole takes hardly more memory than its result.
"""

from dataclasses import dataclass
from typing import Self

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts.compact import Compact, allocate, fits, pack, put, read, seek

__all__ = ["Panel", "RowWriter", "mirrored", "restricted"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Rows first, first + 1, ... of an upper triangle."""

    first: int
    rows: Compact

    @property
    def stop(self) -> int:
        """The row behind the last."""
        return self.first + len(self.rows.indptr) - 1


class RowWriter:
    """Rows appended in order; the arrays grow by what comes, which the system does without a copy."""

    def __init__(self, n_columns: int) -> None:
        self._n = n_columns
        self._sizes: list[Int64] = []
        self._wide_sizes: list[Int64] = []
        nothing = np.zeros(1, np.int64)
        self._rows = allocate(n_columns, nothing, nothing)

    def append(self, sizes: Int64, columns: Int32, values: Int64) -> Self:
        """Take rows of these sizes, columns ascending in each."""
        part = pack(self._n, np.concatenate([[0], np.cumsum(sizes)]), columns, values)
        rows = self._rows
        for array, more in (
            (rows.columns, part.columns),
            (rows.low, part.low),
            (rows.wide_columns, part.wide_columns),
            (rows.wide, part.wide),
        ):
            held = len(array)
            array.resize(held + len(more), refcheck=False)
            array[held:] = more
        self._sizes.append(np.diff(part.indptr))
        self._wide_sizes.append(np.diff(part.wide_indptr))
        return self

    def result(self) -> Compact:
        """Return all rows."""
        begin = [np.zeros(1, np.int64)]
        indptr, wide_indptr = (np.cumsum(np.concatenate(begin + sizes)) for sizes in (self._sizes, self._wide_sizes))
        return self._rows._replace(indptr=indptr, wide_indptr=wide_indptr)


def restricted(m: Compact, keep: Positions, n_columns: int, chosen: npt.NDArray[np.bool_] | None = None) -> Compact:
    """Return the rows and columns at these ascending positions of an upper triangle, zeros left out.

    chosen: one a word of `keep`; entries without such a word are left out too.
    """
    wanted = np.ones(len(keep), bool) if chosen is None else chosen
    ids = np.full(n_columns, -1, np.int64)
    ids[keep] = np.arange(len(keep))
    sizes, wide = np.zeros(len(keep) + 1, np.int64), np.zeros(len(keep) + 1, np.int64)
    _restricted_sizes(m, keep, ids, wanted, sizes, wide)
    out = allocate(len(keep), np.cumsum(sizes), np.cumsum(wide))
    _restrict(m, keep, ids, wanted, out)
    return out


def mirrored(n: int, panels: list[Panel]) -> Compact:
    """Return both triangles of an upper one, zeros left out. Panels are taken off the list as they are used up."""
    sizes, wide = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    for panel in panels:
        _mirrored_sizes(panel.rows, panel.first, sizes, wide)
    out = allocate(n, np.cumsum(sizes), np.cumsum(wide))
    while panels:
        start, stop = panels[-1].first, panels[-1].stop
        fill, wide_fill = out.indptr[start:stop].copy(), out.wide_indptr[start:stop].copy()
        for panel in panels:
            _mirror(panel.rows, panel.first, start, stop, fill, wide_fill, out)
        del panel
        panels.pop()
    return out


@numba.njit(cache=True, nogil=True)
def _restricted_sizes(
    m: Compact, keep: Positions, ids: Int64, chosen: npt.NDArray[np.bool_], sizes: Int64, wide: Int64
) -> None:
    for i in range(len(keep)):
        w = m.wide_indptr[keep[i]]
        for k in range(m.indptr[keep[i]], m.indptr[keep[i] + 1]):
            value, w = read(m, k, w)
            column = ids[m.columns[k]]
            if column >= 0 and value != 0 and (chosen[i] or chosen[column]):
                sizes[i + 1] += 1
                wide[i + 1] += not fits(value)


@numba.njit(cache=True, nogil=True)
def _restrict(m: Compact, keep: Positions, ids: Int64, chosen: npt.NDArray[np.bool_], out: Compact) -> None:
    slot, wide = 0, 0
    for i in range(len(keep)):
        w = m.wide_indptr[keep[i]]
        for k in range(m.indptr[keep[i]], m.indptr[keep[i] + 1]):
            value, w = read(m, k, w)
            column = ids[m.columns[k]]
            if column >= 0 and value != 0 and (chosen[i] or chosen[column]):
                wide = put(out, slot, wide, column, value)
                slot += 1


@numba.njit(cache=True, nogil=True)
def _mirrored_sizes(m: Compact, first: int, sizes: Int64, wide: Int64) -> None:
    for i in range(len(m.indptr) - 1):
        row, w = first + i, m.wide_indptr[i]
        for k in range(m.indptr[i], m.indptr[i + 1]):
            value, w = read(m, k, w)
            if value != 0:
                column = np.int64(m.columns[k])
                other = column != row
                sizes[row + 1] += 1
                sizes[column + 1] += other
                if not fits(value):
                    wide[row + 1] += 1
                    wide[column + 1] += other


@numba.njit(cache=True, nogil=True)
def _mirror(m: Compact, first: int, start: int, stop: int, fill: Int64, wide: Int64, out: Compact) -> None:
    """Write what rows first ... of the upper triangle add to rows start ... stop - 1 of both.

    fill, wide: (stop - start,) the next place of each row. Called for all panels in order, so that entries left of the
    diagonal arrive in column order, before those of the row itself.
    """
    for i in range(len(m.indptr) - 1):
        row = first + i
        k, w = seek(m, i, start)
        while k < m.indptr[i + 1] and m.columns[k] < stop:
            value, w = read(m, k, w)
            column = np.int64(m.columns[k])
            if value != 0 and column != row:
                at = column - start
                wide[at] = put(out, fill[at], wide[at], row, value)
                fill[at] += 1
            k += 1
        if row >= start:
            own, w = row - start, m.wide_indptr[i]
            for k in range(m.indptr[i], m.indptr[i + 1]):
                value, w = read(m, k, w)
                if value != 0:
                    wide[own] = put(out, fill[own], wide[own], int(m.columns[k]), value)
                    fill[own] += 1
