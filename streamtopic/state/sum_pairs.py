"""The exact sum of the pairs of many segments, in bounded memory. Readers add segments up in this way.

Rows of many flushes are counted together: they leave far fewer pairs to add up than each flush by itself.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, allocating, kernel
from streamtopic.counts import PairBlock
from streamtopic.counts.arrays import UInt64, row_ends
from streamtopic.counts.compact import UpperRows, pack, unpack
from streamtopic.counts.count_pairs import ONE, drain
from streamtopic.errors import CountsOverflow
from streamtopic.state.meta import ManifestEntry
from streamtopic.state.redis_keys import PartitionKeys
from streamtopic.state.segments import FlushRows, SegmentHead, decode_rows, pair_chunks
from streamtopic.state.word_ids import ascending_rows

__all__ = [
    "PANEL_PAIRS",
    "ROW_BYTES",
    "WAITING_BYTES",
    "SignedSegment",
    "accumulate",
    "joined",
    "merged_pairs",
    "relabel",
]


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

WAITING_BYTES = 96 << 20
"""Bytes of parts of segments that wait. With more, they are added to the sum: each addition writes all of it anew."""

PANEL_PAIRS = 1 << 20
"""Pairs of a panel, which may be one row with more. One panel at a time is held twice, old and new."""

ROW_BYTES = 4 << 20
"""Bytes of rows that are counted together, as about twenty times as many. One segment may have more."""

# So many at the beginning, when nobody knows yet where the pairs will be.
_FIRST_PANELS = 32


@dataclass(frozen=True, slots=True, eq=False)
class SignedSegment:
    """A segment to add or to take away.

    positions: (ids,) int64, position of each of its words, -1 for a word without one.
    sign: 1 to add, -1 to take away.
    """

    keys: PartitionKeys
    entry: ManifestEntry
    head: SegmentHead
    positions: Int64
    sign: int


def merged_pairs(
    segments: Sequence[SignedSegment],
    where: Int64,
    chosen: npt.NDArray[np.bool_],
    string: Callable[[SignedSegment, int], bytes],
) -> list[UpperRows]:
    """Return the sum of the pairs of kept words with a chosen word, as panels of its upper triangle in order.

    where: (positions,) int64, new position of each word among the kept, -1 to drop it.
    chosen: (kept,) bool, one for each kept word.
    string: reads the k-th string of a segment.

    Beside the result, of six bytes a pair, it holds WAITING_BYTES, one panel and ROW_BYTES of rows, however much is
    read. Raises CountsOverflow, StateCorrupt, and as `string` does.
    """
    # Sums of integers: the order of segments and chunks, and so their history, leaves no trace in the result.
    total = _Sum(len(chosen))
    rows = list[SignedSegment]()
    for segment in segments:
        new = _renamed(segment, where)
        if (new < 0).all():
            continue
        if segment.entry.rows:
            rows.append(segment)
            continue
        for chunk in pair_chunks(segment.entry, len(new), partial(string, segment)):
            part = relabel(chunk.rows, chunk.sizes, chunk.columns, chunk.values, new, chosen, segment.sign)
            total.add(*part)
    for group in _together(rows):
        found = [_kept_rows(segment, where, string) for segment in group]
        for block in _ascending(found).blocks(len(chosen)):
            total.add(*_chosen_pairs(block, chosen))
    return total.result()


def _renamed(segment: SignedSegment, where: Int64) -> Int64:
    """Return the new position of each word of a segment, (ids,) int64, -1 to drop it."""
    known = segment.positions >= 0
    new = np.full(len(segment.positions), -1, np.int64)
    new[known] = where[segment.positions[known]]
    return new


def _together(segments: Sequence[SignedSegment]) -> Iterator[list[SignedSegment]]:
    """Yield segments with rows in groups of at most ROW_BYTES, or of one segment."""
    # Sums stay within 64 bits: so few bytes hold the rows of a million passages at most.
    group = list[SignedSegment]()
    size = 0
    for segment in segments:
        if group and size + segment.entry.size > ROW_BYTES:
            yield group
            group = []
            size = 0
        group.append(segment)
        size += segment.entry.size
    if group:
        yield group


def _kept_rows(segment: SignedSegment, where: Int64, string: Callable[[SignedSegment, int], bytes]) -> FlushRows:
    """Return the rows of a segment over the kept words, which are in any order, with signed weights."""
    found = decode_rows(string(segment, 1), len(segment.head.ids))
    new = _renamed(segment, where)
    words = new.astype(np.int32)[found.words]
    weights = segment.sign * found.weights
    kept = words >= 0
    if kept.all():
        return FlushRows(found.indptr, words, found.counts, weights)
    places = row_ends(kept.astype(np.int64))
    return FlushRows(places[found.indptr], words[kept], found.counts[kept], weights)


def _ascending(parts: Sequence[FlushRows]) -> FlushRows:
    """Return all rows one below the other, the words of each in ascending order. parts: at least one."""
    rows = FlushRows.joined(parts)
    # Ids have the order in which words arrived, and these numbers another one.
    words, counts = ascending_rows(rows.indptr[:-1], rows.indptr, rows.words, rows.counts)
    return FlushRows(rows.indptr, words, counts, rows.weights)


def joined(panels: list[UpperRows]) -> tuple[Int64, Int32, Int64]:
    """Return panels as one upper triangle, (indptr, columns, values) with eight bytes a value. Empties the list."""
    sizes = [np.diff(panel.rows.indptr) for panel in panels]
    start = np.zeros(1, np.int64)
    indptr = np.cumsum(np.concatenate([start, *sizes]))
    columns = np.empty(indptr[-1], np.int32)
    values = np.empty(indptr[-1], np.int64)
    # Each panel is freed as soon as it is copied: all of them beside the result would double the peak.
    while panels:
        panel = panels.pop()
        held = slice(indptr[panel.first], indptr[panel.stop])
        columns[held] = panel.rows.columns
        unpack(panel.rows, values[held])
    return indptr, columns, values


def _chosen_pairs(block: PairBlock, chosen: npt.NDArray[np.bool_]) -> tuple[Int64, Int32, Int64]:
    """Return the pairs of a block with a chosen word as (indptr, columns, values) of an upper triangle.

    chosen: as in `merged_pairs`.
    """
    stop = block.first + len(block.sizes)
    # Copies, since the next block but one is written to the same memory.
    if chosen.all():
        amounts = np.zeros(len(chosen), np.int64)
        amounts[block.first : stop] = block.sizes
        return row_ends(amounts), block.columns.copy(), block.values.copy()
    numbers = np.arange(block.first, stop)
    rows = np.repeat(numbers, block.sizes)
    kept = chosen[rows] | chosen[block.columns]
    amounts = np.bincount(rows[kept], minlength=len(chosen))
    return row_ends(amounts), block.columns[kept], block.values[kept]


class _Sum:
    """A sum of parts. They wait until there are WAITING_BYTES of them, and are then added panel by panel."""

    def __init__(self, n_words: int) -> None:
        self._n = n_words
        edges = np.linspace(0, n_words, _FIRST_PANELS + 1).astype(np.int64)
        columns = np.zeros(0, np.int32)
        values = np.zeros(0, np.int64)
        self._panels = []
        for first, stop in pairwise(np.unique(edges).tolist()):
            indptr = np.zeros(stop - first + 1, np.int64)
            self._panels.append(UpperRows(first, pack(n_words, indptr, columns, values)))
        self._parts: list[tuple[Int64, Int32, Int64]] = []
        self._waiting = 0

    def add(self, indptr: Int64, columns: Int32, values: Int64) -> None:
        """Add one part, an upper triangle with columns in any order. Raises CountsOverflow."""
        self._parts.append((indptr, columns, values))
        self._waiting += indptr.nbytes + columns.nbytes + values.nbytes
        if self._waiting > WAITING_BYTES:
            self._fold()

    def result(self) -> list[UpperRows]:
        """Return the sum of all parts. Raises CountsOverflow."""
        self._fold()
        return self._panels

    def _fold(self) -> None:
        # The old panel goes as soon as the new one stands, so both are never held as a whole.
        before = self._panels[::-1]
        self._panels = []
        while before:
            self._panels += self._folded(before.pop())
        self._parts = []
        self._waiting = 0

    def _folded(self, panel: UpperRows) -> list[UpperRows]:
        """Return a panel with the waiting parts of its rows added; several panels where it has become large."""
        # Parts of counted rows hold a few words each, so most panels need not be written anew for them.
        waiting = [part for part in self._parts if part[0][panel.first] < part[0][panel.stop]]
        if not waiting:
            return [panel]
        held = np.empty(len(panel.rows.low), np.int64)
        unpack(panel.rows, held)
        rows = slice(panel.first, panel.stop + 1)
        wide = panel.rows.columns.astype(np.int32)
        parts = [(panel.rows.indptr, wide, held)]
        for indptr, columns, values in waiting:
            first = indptr[panel.first]
            some = slice(first, indptr[panel.stop])
            starts = indptr[rows] - first
            parts.append((starts, columns[some], values[some]))
        indptrs = []
        start = 0
        for indptr, _, values in parts:
            indptrs.append(indptr + start)
            start += len(values)
        columns = np.concatenate([part[1] for part in parts])
        values = np.concatenate([part[2] for part in parts])
        # `accumulate` makes arrays of the same size again, so the parts must be freed first.
        del parts, held, wide
        places = np.stack(indptrs)
        indptr, columns, values, fits = accumulate(places, columns, values, panel.first, self._n)
        if not fits:
            raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
        return list(self._cut(panel.first, indptr, columns, values))

    def _cut(self, first: int, indptr: Int64, columns: Int32, values: Int64) -> Iterator[UpperRows]:
        start = 0
        rows = len(indptr) - 1
        while start < rows:
            end = indptr[start] + PANEL_PAIRS
            stop = int(np.searchsorted(indptr, end, side="right")) - 1
            # One row at least: a row may have more pairs than a panel.
            stop = min(max(stop, start + 1), rows)
            held = slice(indptr[start], indptr[stop])
            sizes = indptr[start : stop + 1] - indptr[start]
            packed = pack(self._n, sizes, columns[held], values[held])
            yield UpperRows(first + start, packed)
            start = stop


@allocating
def relabel(
    rows: Int32, sizes: Int64, columns: Int32, values: Int64, new: Int64, chosen: npt.NDArray[np.bool_], sign: int
) -> tuple[Int64, Int32, Int64]:
    """Return the pairs of a chunk under new word numbers, as (indptr, columns, values) of an upper triangle.

    rows, sizes, columns, values: as in `PairChunk`.
    new: (ids,) number of each word, below len(chosen); -1 to drop it.
    chosen: (numbers,) bool; pairs without a chosen word are left out.
    sign: factor of the values.

    The columns of a row are in any order.
    """
    # Ids have the order in which words arrived, numbers another one, so a pair may cross the diagonal: hence min, max.
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


def accumulate(
    indptrs: Int64, columns: Int32, values: Int64, first: int, n_words: int
) -> tuple[Int64, Int32, Int64, bool]:
    """Return the sum of parts as (indptr, columns, values), columns ascending and zeros dropped.

    The fourth value says whether the sum fits into 64 bits.

    indptrs: (parts, rows + 1), places in `columns` and `values`, absolute.
    first: the word of the first row.
    n_words: number of words.
    """
    indptr = np.zeros(indptrs.shape[1], np.int64)
    out_columns = np.empty(len(columns), np.int32)
    out_values = np.empty(len(columns), np.int64)
    sums = np.zeros(n_words, np.int64)
    touched = np.zeros(n_words // 64 + 1, np.uint64)
    fits = bool(_accumulate(indptrs, columns, values, first, indptr, out_columns, out_values, sums, touched))
    used = indptr[-1]
    return indptr, out_columns[:used].copy(), out_values[:used].copy(), fits


@kernel
def _accumulate(
    indptrs: Int64, columns: Int32, values: Int64, first: int, indptr: Int64, out_columns: Int32, out_values: Int64,
    sums: Int64, touched: UInt64,
) -> bool:  # fmt: skip
    """Fill indptr (rows + 1,), out_columns and out_values. Return whether the sum fits into 64 bits.

    indptrs, columns, values, first: as in `accumulate`.
    sums: (n_words,) zeros.
    touched: (n_words / 64 + 1,) one bit for each word, zeros.
    """
    used: Whole = np.int64(0)
    fits = True
    for row in range(len(indptr) - 1):
        last = np.int64(-1)
        for part in range(len(indptrs)):
            for k in range(indptrs[part, row], indptrs[part, row + 1]):
                column = np.int64(columns[k])
                touched[column >> 6] |= ONE << np.uint64(column & 63)
                last = max(last, column)
                before = sums[column]
                after = before + values[k]
                # Two numbers of one sign have a sum of the other sign: it has wrapped around.
                if ((before ^ after) & (values[k] ^ after)) < 0:
                    fits = False
                sums[column] = after
        used = drain(sums, touched, first + row, last, out_columns, out_values, used)
        indptr[row + 1] = used
    return fits
