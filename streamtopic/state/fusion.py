"""Several segments of one partition to one, row by row, without holding more than a few chunks of each."""

from collections.abc import Callable, Iterator, Sequence

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.counts import PairBlock
from streamtopic.errors import CountsOverflow
from streamtopic.state.segments import PairChunk, SegmentHead

__all__ = ["Source", "fused_head", "fused_rows"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]

_ONE = np.uint64(1)
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT = np.zeros(64, np.int64)
for _k in range(64):
    _BIT[((int(_DE_BRUIJN) << _k) % (1 << 64)) >> 58] = _k


class Source:
    """A segment that is read chunk by chunk.

    place: the position of each of its ids among the ids of the result. chunks: how many it has; read: the k-th.
    """

    def __init__(self, place: Int64, chunks: int, read: Callable[[int], PairChunk]) -> None:
        self.place = place
        self._chunks = chunks
        self._read = read
        self._used = 0
        self._rows, self._sizes = np.empty(0, np.int64), np.empty(0, np.int64)
        self._columns, self._values = np.empty(0, np.int32), np.empty(0, np.int64)

    @property
    def exhausted(self) -> bool:
        """Whether every chunk was read."""
        return self._used == self._chunks

    @property
    def complete(self) -> int:
        """The row before which all was read, while there are more chunks: one may end within a row."""
        return int(self._rows[-1]) if len(self._rows) else -1

    def advance(self) -> None:
        """Read one more chunk."""
        chunk = self._read(self._used)
        self._used += 1
        place = self.place.astype(np.int32)
        self._rows = np.concatenate([self._rows, self.place[chunk.rows]])
        self._sizes = np.concatenate([self._sizes, chunk.sizes])
        self._columns = np.concatenate([self._columns, place[chunk.columns]])
        self._values = np.concatenate([self._values, chunk.values])

    def take(self, before: int) -> tuple[Int64, Int64, Int32, Int64]:
        """Return and forget the rows before this one."""
        at = int(np.searchsorted(self._rows, before))
        pairs = int(self._sizes[:at].sum())
        taken = self._rows[:at], self._sizes[:at], self._columns[:pairs], self._values[:pairs]
        self._rows, self._sizes = self._rows[at:], self._sizes[at:]
        self._columns, self._values = self._columns[pairs:], self._values[pairs:]
        return taken


def fused_head(heads: Sequence[SegmentHead]) -> tuple[SegmentHead, list[Int64]]:
    """Return the sum of heads, over the ids of any, and where among these the ids of each are."""
    ids = np.unique(np.concatenate([head.ids for head in heads]))
    places = [np.searchsorted(ids, head.ids) for head in heads]
    frequency, tokens = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    for head, place in zip(heads, places, strict=True):
        frequency[place] += head.frequency
        tokens[place] += head.tokens
    added, removed = sum(head.added for head in heads), sum(head.removed for head in heads)
    return SegmentHead(ids, frequency, tokens, added, removed), places


def fused_rows(sources: Sequence[Source], n_words: int) -> Iterator[PairBlock]:
    """Yield the sums of all pairs, those that are zero left out, in blocks of whole rows. Raises CountsOverflow."""
    sums, touched = np.zeros(n_words, np.int64), np.zeros(n_words // 64 + 1, np.uint64)
    first = 0
    while first < n_words:
        for source in sources:
            if not source.exhausted and source.complete <= first:
                source.advance()
        before = min((source.complete for source in sources if not source.exhausted), default=n_words)
        if before <= first:
            continue
        taken = [source.take(before) for source in sources]
        starts = np.cumsum([[0, 0], *([len(rows), len(values)] for rows, _, _, values in taken)], axis=0)
        sizes, columns, values, fits = _add_rows(
            first,
            before,
            np.concatenate([rows for rows, _, _, _ in taken]),
            np.concatenate([sizes for _, sizes, _, _ in taken]),
            np.concatenate([columns for _, _, columns, _ in taken]),
            np.concatenate([values for _, _, _, values in taken]),
            starts,
            sums,
            touched,
        )
        if not fits:
            raise CountsOverflow("a pair count exceeds 64 bits: too many documents for one model, split the corpus")
        yield PairBlock(first, sizes, columns, values)
        first = before


@numba.njit(cache=True, nogil=True)
def _add_rows(
    first: int, before: int, rows: Int64, sizes: Int64, columns: Int32, values: Int64, starts: Int64, sums: Int64,
    touched: UInt64,
) -> tuple[Int64, Int32, Int64, bool]:  # fmt: skip
    """Return rows first ... before - 1 of the sum as (sizes, columns, values), and whether all fit into 64 bits.

    rows, sizes, columns, values: of one part behind the other, each ascending; starts: (parts + 1, 2) where the rows
    and the pairs of each begin. sums, touched: zeros, and left as such.
    """
    row_at, pair_at = starts[:-1, 0].copy(), starts[:-1, 1].copy()
    out_sizes = np.zeros(before - first, np.int64)
    out_columns = np.empty(len(columns), np.int32)
    out_values = np.empty(len(columns), np.int64)
    used = 0
    fits = True
    for row in range(first, before):
        last = np.int64(-1)
        for part in range(len(row_at)):
            # A row that was cut into chunks comes in several pieces.
            while row_at[part] < starts[part + 1, 0] and rows[row_at[part]] == row:
                stop = pair_at[part] + sizes[row_at[part]]
                for k in range(pair_at[part], stop):
                    column = columns[k]
                    sum_before = sums[column]
                    after = sum_before + values[k]
                    fits &= ((sum_before ^ after) & (values[k] ^ after)) >= 0
                    sums[column] = after
                    touched[column >> 6] |= _ONE << np.uint64(column & 63)
                if stop > pair_at[part] and columns[stop - 1] > last:
                    last = np.int64(columns[stop - 1])
                pair_at[part] = stop
                row_at[part] += 1
        begin = used
        for group in range(row >> 6, (last >> 6) + 1):
            bits = touched[group]
            touched[group] = 0
            while bits != 0:
                low = bits & (~bits + _ONE)
                bits ^= low
                column = (group << 6) + _BIT[(low * _DE_BRUIJN) >> np.uint64(58)]
                if sums[column] != 0:
                    out_columns[used] = column
                    out_values[used] = sums[column]
                    sums[column] = 0
                    used += 1
        out_sizes[row - first] = used - begin
    return out_sizes, out_columns[:used], out_values[:used], fits
