"""The sum of several segments of one partition, row by row, with a few chunks of each in memory."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, allocating, inner
from streamtopic.counts import PairBlock
from streamtopic.counts.count_pairs import ONE, drain
from streamtopic.errors import CountsOverflow
from streamtopic.state.segments import PairChunk, SegmentHead

__all__ = ["MOST", "Source", "fused_head", "fused_rows"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]

MOST = 8
"""Segments that can be added at a time. Always so many arrays are passed: numba compiles anew for another number."""

T = TypeVar("T", bound=np.generic)
Parts = tuple[npt.NDArray[Any], ...]
# Half of the largest 64-bit number: the check adds floats, which round.
_ROOM = 2.0**62


class Source:
    """Pairs that are read chunk by chunk, of one segment or of the rows of several.

    place: (ids,) position of each of its ids among the ids of the result.
    chunks: its row chunks in order, each valid until the next one but one.

    The pairs that were read and not used yet:
    rows, sizes: (k,) rows as positions of the result, and the number of pairs of each.
    columns, values: (pairs,) columns as positions of the segment itself.
    largest: the largest value that was read so far, without its sign.
    """

    # Columns are translated in the kernel, pair by pair: here it would take another array of all pairs.

    def __init__(self, place: Int64, chunks: Iterator[PairChunk]) -> None:
        self.place = place.astype(np.int32)
        self._chunks = chunks
        self.exhausted = False
        self.rows = np.empty(0, np.int32)
        self.sizes = np.empty(0, np.int64)
        self.columns = np.empty(0, np.int32)
        self.values = np.empty(0, np.int64)
        self.largest = 0.0

    @property
    def complete(self) -> int:
        """The row before which all rows are complete. The last row that was read may go on in the next chunk."""
        return int(self.rows[-1]) if len(self.rows) else -1

    def advance(self) -> None:
        """Read one more chunk, or learn that there is none."""
        chunk = next(self._chunks, None)
        if chunk is None:
            self.exhausted = True
            return
        rows = self.place[chunk.rows]
        self.rows = _joined(self.rows, rows)
        self.sizes = _joined(self.sizes, chunk.sizes)
        self.columns = _joined(self.columns, chunk.columns)
        self.values = _joined(self.values, chunk.values)
        # Without an array of absolute values, and once for each pair.
        least = float(chunk.values.min(initial=0))
        most = float(chunk.values.max(initial=0))
        self.largest = max(self.largest, most, -least)

    def drop(self, rows: int, pairs: int) -> None:
        """Drop the first rows, which were used, with their pairs."""
        self.rows = self.rows[rows:]
        self.sizes = self.sizes[rows:]
        self.columns = self.columns[pairs:]
        self.values = self.values[pairs:]


def _joined(left: npt.NDArray[T], right: npt.NDArray[T]) -> npt.NDArray[T]:
    return np.concatenate([left, right]) if len(left) else right


def fused_head(heads: Sequence[SegmentHead]) -> tuple[SegmentHead, list[Int64]]:
    """Return the sum of heads, and for each of them the positions of its ids among the ids of the sum."""
    ids_of_each = [head.ids for head in heads]
    ids = np.unique(np.concatenate(ids_of_each))
    places = [np.searchsorted(ids, head.ids) for head in heads]
    frequency, tokens, heavy = np.zeros((3, len(ids)), np.int64)
    for head, place in zip(heads, places, strict=True):
        frequency[place] += head.frequency
        tokens[place] += head.tokens
        heavy[place] += head.heavy
    added = sum(head.added for head in heads)
    removed = sum(head.removed for head in heads)
    head_of_all = SegmentHead(ids, frequency, tokens, heavy, added, removed)
    return head_of_all, places


def fused_rows(sources: Sequence[Source], n_words: int) -> Iterator[PairBlock]:
    """Yield the sums of all pairs in blocks of whole rows; pairs with a sum of zero are left out.

    sources: the segments, at most MOST.
    n_words: number of ids of the result.

    Raises CountsOverflow.
    """
    if len(sources) > MOST:
        raise ValueError(f"at most {MOST} segments can be merged at a time, not {len(sources)}")
    nothing = np.empty(0, np.int64)
    padded = [*sources]
    while len(padded) < MOST:
        padded.append(Source(nothing, iter(())))
    sums = np.zeros(n_words, np.int64)
    touched = np.zeros(n_words // 64 + 1, np.uint64)
    first = 0
    while first < n_words:
        for source in padded:
            behind = source.complete <= first
            if behind and not source.exhausted:
                source.advance()
        unfinished = [source.complete for source in padded if not source.exhausted]
        before = min(unfinished, default=n_words)
        if before <= first:
            # A row that is longer than a chunk: read on until one behind it begins.
            continue
        _check_room(padded)
        yield _add(padded, first, before, sums, touched)
        first = before


def _check_room(sources: Sequence[Source]) -> None:
    # Each segment has a pair once at most, so the largest values bound every sum.
    bound = sum(source.largest for source in sources)
    if bound >= _ROOM:
        raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")


def _add(sources: Sequence[Source], first: int, before: int, sums: Int64, touched: UInt64) -> PairBlock:
    """Return rows first to before - 1 of the sum, and drop them from the sources."""
    stops = [int(np.searchsorted(source.rows, before)) for source in sources]
    used = []
    for source, stop in zip(sources, stops, strict=True):
        pairs = source.sizes[:stop].sum()
        used.append(int(pairs))
    # numba takes tuples of arrays, not lists of objects.
    places = tuple(source.place for source in sources)
    rows = tuple(source.rows for source in sources)
    sizes = tuple(source.sizes for source in sources)
    columns = tuple(source.columns for source in sources)
    values = tuple(source.values for source in sources)
    ends = np.array(stops, np.int64)
    total = sum(used)
    block = _add_rows(first, before, places, rows, sizes, columns, values, ends, total, sums, touched)
    for source, stop, pairs in zip(sources, stops, used, strict=True):
        source.drop(stop, pairs)
    return PairBlock(first, *block)


@allocating
def _add_rows(
    first: int, before: int, places: Parts, rows: Parts, sizes: Parts, columns: Parts, values: Parts, stops: Int64,
    pairs: int, sums: Int64, touched: UInt64,
) -> tuple[Int64, Int32, Int64]:  # fmt: skip
    """Return rows first to before - 1 of the sum as (sizes, columns, values).

    places, rows, sizes, columns, values: of each source, as in `Source`.
    stops: (sources,) number of rows to use of each.
    pairs: number of pairs of these rows.
    sums: (n_words,) zeros; zeros again afterwards.
    touched: (n_words / 64 + 1,) one bit for each word, zeros; zeros again afterwards.
    """
    row_at = np.zeros(len(stops), np.int64)
    pair_at = np.zeros(len(stops), np.int64)
    out_sizes = np.zeros(before - first, np.int64)
    out_columns = np.empty(pairs, np.int32)
    out_values = np.empty(pairs, np.int64)
    used: Whole = np.int64(0)
    for row in range(first, before):
        last = np.int64(-1)
        for part in range(len(stops)):
            # A row that was cut into chunks comes in several pieces.
            while row_at[part] < stops[part] and rows[part][row_at[part]] == row:
                start = pair_at[part]
                stop = start + sizes[part][row_at[part]]
                end = _add_row(places[part], columns[part], values[part], start, stop, sums, touched)
                last = max(last, np.int64(end))
                pair_at[part] = stop
                row_at[part] += 1
        begin = used
        used = drain(sums, touched, row, int(last), out_columns, out_values, used)
        out_sizes[row - first] = used - begin
    return out_sizes, out_columns[:used], out_values[:used]


@inner
def _add_row(place: Int32, columns: Int32, values: Int64, start: int, stop: int, sums: Int64, touched: UInt64) -> int:
    """Add a piece of a row; return its last column."""
    column = np.int32(-1)
    for k in range(start, stop):
        column = place[columns[k]]
        sums[column] += values[k]
        touched[column >> 6] |= ONE << np.uint64(column & 63)
    return int(column)
