"""The sum of the pairs of many segments, exactly and without holding them all: how a reader merges."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts.compact import UpperRows, pack, unpack
from streamtopic.errors import CountsOverflow
from streamtopic.state.meta import ManifestEntry
from streamtopic.state.redis_keys import PartitionKeys
from streamtopic.state.segments import PairChunk, SegmentHead

__all__ = ["PANEL_PAIRS", "WAITING_BYTES", "SignedSegment", "accumulate", "joined", "merged_pairs", "relabel"]


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

WAITING_BYTES = 96 << 20
"""What parts of segments may take before they are added to the sum."""
PANEL_PAIRS = 1 << 20
"""Pairs of a panel, or one row: what is written anew at once."""
_FIRST_PANELS = 32


@dataclass(frozen=True, slots=True, eq=False)
class SignedSegment:
    """A segment to add (sign 1) or take away (-1); positions: each of its ids' word position, -1 for none."""

    keys: PartitionKeys
    entry: ManifestEntry
    head: SegmentHead
    positions: Int64
    sign: int


def merged_pairs(
    segments: Sequence[SignedSegment],
    where: Int64,
    chosen: npt.NDArray[np.bool_],
    chunks: Callable[[SignedSegment], Iterable[PairChunk]],
) -> list[UpperRows]:
    """Return the sum of the pairs of kept words with a chosen one, as panels of its upper triangle in order.

    where: each word position's new position among the kept, -1 to drop it; chosen: one a kept word. Integer sums: the
    order of segments and chunks, and so their history, leaves no trace in the result. Beside the result, in six bytes
    a pair, it holds WAITING_BYTES and what one panel takes, however much is read.
    """
    total = _Sum(len(chosen))
    for segment in segments:
        known = segment.positions >= 0
        new = np.full(len(segment.positions), -1, np.int64)
        new[known] = where[segment.positions[known]]
        if (new >= 0).any():
            for chunk in chunks(segment):
                total.add(*relabel(chunk.rows, chunk.sizes, chunk.columns, chunk.values, new, chosen, segment.sign))
    return total.result()


def joined(panels: list[UpperRows]) -> tuple[Int64, Int32, Int64]:
    """Return panels as one upper triangle with eight bytes a value; they are taken off the list as they are used up."""
    indptr = np.cumsum(np.concatenate([np.zeros(1, np.int64), *(np.diff(panel.rows.indptr) for panel in panels)]))
    columns, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.int64)
    while panels:
        panel = panels.pop()
        held = slice(indptr[panel.first], indptr[panel.stop])
        columns[held] = panel.rows.columns
        unpack(panel.rows, values[held])
    return indptr, columns, values


class _Sum:
    """Parts wait until they take a certain room; then they are added to the sum, one panel of it after the other."""

    def __init__(self, n_words: int) -> None:
        self._n = n_words
        edges = np.unique(np.linspace(0, n_words, _FIRST_PANELS + 1).astype(np.int64)).tolist()
        empty = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self._panels = [UpperRows(a, pack(n_words, np.zeros(b - a + 1, np.int64), *empty)) for a, b in pairwise(edges)]
        self._parts: list[tuple[Int64, Int32, Int64]] = []
        self._waiting = 0

    def add(self, indptr: Int64, columns: Int32, values: Int64) -> None:
        """Take one part. Raises CountsOverflow."""
        self._parts.append((indptr, columns, values))
        self._waiting += indptr.nbytes + columns.nbytes + values.nbytes
        if self._waiting > WAITING_BYTES:
            self._fold()

    def result(self) -> list[UpperRows]:
        """Return the sum of what was taken. Raises CountsOverflow."""
        self._fold()
        return self._panels

    def _fold(self) -> None:
        before, self._panels = self._panels[::-1], []
        while before:
            self._panels += self._folded(before.pop())
        self._parts, self._waiting = [], 0

    def _folded(self, panel: UpperRows) -> list[UpperRows]:
        """Return a panel with what waits for its rows, in several where it has become large."""
        held = np.empty(len(panel.rows.low), np.int64)
        unpack(panel.rows, held)
        rows = slice(panel.first, panel.stop + 1)
        parts = [(panel.rows.indptr, panel.rows.columns.astype(np.int32), held)]
        for indptr, columns, values in self._parts:
            some = slice(indptr[panel.first], indptr[panel.stop])
            parts.append((indptr[rows] - indptr[panel.first], columns[some], values[some]))
        starts = np.cumsum([0, *(len(values) for _, _, values in parts[:-1])])
        indptrs = np.stack([indptr + start for (indptr, _, _), start in zip(parts, starts, strict=True)])
        columns = np.concatenate([part[1] for part in parts])
        values = np.concatenate([part[2] for part in parts])
        del parts, held
        indptr, columns, values, fits = accumulate(indptrs, columns, values, panel.first, self._n)
        if not fits:
            raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
        return list(self._cut(panel.first, indptr, columns, values))

    def _cut(self, first: int, indptr: Int64, columns: Int32, values: Int64) -> Iterator[UpperRows]:
        start, rows = 0, len(indptr) - 1
        while start < rows:
            stop = int(np.searchsorted(indptr, indptr[start] + PANEL_PAIRS, side="right")) - 1
            stop = min(max(stop, start + 1), rows)
            held = slice(indptr[start], indptr[stop])
            sizes = indptr[start : stop + 1] - indptr[start]
            yield UpperRows(first + start, pack(self._n, sizes, columns[held], values[held]))
            start = stop


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
