"""Adding up the pairs of many segments, exactly and without holding them all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamtopic.counts.compact import pack, unpack
from streamtopic.counts.upper import Panel
from streamtopic.errors import CountsOverflow
from streamtopic.state import gather
from streamtopic.state.keys import PartitionKeys
from streamtopic.state.meta import ManifestEntry
from streamtopic.state.segments import PairChunk, SegmentHead

__all__ = ["PANEL_PAIRS", "WAITING_BYTES", "SignedSegment", "joined", "merged_pairs"]

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
) -> list[Panel]:
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
                total.add(
                    *gather.relabel(chunk.rows, chunk.sizes, chunk.columns, chunk.values, new, chosen, segment.sign)
                )
    return total.result()


def joined(panels: list[Panel]) -> tuple[Int64, Int32, Int64]:
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
        self._panels = [Panel(a, pack(n_words, np.zeros(b - a + 1, np.int64), *empty)) for a, b in pairwise(edges)]
        self._parts: list[tuple[Int64, Int32, Int64]] = []
        self._waiting = 0

    def add(self, indptr: Int64, columns: Int32, values: Int64) -> None:
        """Take one part. Raises CountsOverflow."""
        self._parts.append((indptr, columns, values))
        self._waiting += indptr.nbytes + columns.nbytes + values.nbytes
        if self._waiting > WAITING_BYTES:
            self._fold()

    def result(self) -> list[Panel]:
        """Return the sum of what was taken. Raises CountsOverflow."""
        self._fold()
        return self._panels

    def _fold(self) -> None:
        before, self._panels = self._panels[::-1], []
        while before:
            self._panels += self._folded(before.pop())
        self._parts, self._waiting = [], 0

    def _folded(self, panel: Panel) -> list[Panel]:
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
        columns, values = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
        del parts, held
        indptr, columns, values, fits = gather.accumulate(indptrs, columns, values, panel.first, self._n)
        if not fits:
            raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
        return list(self._cut(panel.first, indptr, columns, values))

    def _cut(self, first: int, indptr: Int64, columns: Int32, values: Int64) -> Iterator[Panel]:
        start, rows = 0, len(indptr) - 1
        while start < rows:
            stop = int(np.searchsorted(indptr, indptr[start] + PANEL_PAIRS, side="right")) - 1
            stop = min(max(stop, start + 1), rows)
            held = slice(indptr[start], indptr[stop])
            sizes = indptr[start : stop + 1] - indptr[start]
            yield Panel(first + start, pack(self._n, sizes, columns[held], values[held]))
            start = stop
