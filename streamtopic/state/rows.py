"""Passages of many documents in a few arrays, with words as entries of a lexicon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.state.lexicon import Lexicon

__all__ = ["RowSpan", "Rows", "WordPassage", "number_rows"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

WordPassage = tuple[int, Mapping[str, int]]
"""Tokens L, and counts of the words."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """One row a passage: lengths (rows,) int64 tokens L; its words and their counts are entries and counts, int32, from
    starts to stops, (rows,) int64, in any order.
    """

    lengths: Int64
    starts: Int64
    stops: Int64
    entries: Int32
    counts: Int32

    @classmethod
    def of(cls, passages: Sequence[WordPassage], lexicon: Lexicon) -> "Rows":
        """Lay out passages whose words are text; words not seen before come into the lexicon."""
        sizes = np.fromiter((len(words) for _, words in passages), np.int64, len(passages))
        stops = np.cumsum(sizes)
        words = chain.from_iterable(words for _, words in passages)
        counts = chain.from_iterable(words.values() for _, words in passages)
        return cls(
            lengths=np.fromiter((length for length, _ in passages), np.int64, len(passages)),
            starts=stops - sizes,
            stops=stops,
            entries=lexicon.number([word.encode("utf-8", "surrogatepass") for word in words]),
            counts=np.fromiter(counts, np.int32, int(sizes.sum())),
        )

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return the rows of all parts, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        before = np.cumsum([0, *(len(part.entries) for part in parts)])
        return cls(
            lengths=np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)]),
            starts=np.concatenate(
                [np.empty(0, np.int64), *(p.starts + b for p, b in zip(parts, before, strict=False))]
            ),
            stops=np.concatenate([np.empty(0, np.int64), *(p.stops + b for p, b in zip(parts, before, strict=False))]),
            entries=np.concatenate([np.empty(0, np.int32), *(part.entries for part in parts)]),
            counts=np.concatenate([np.empty(0, np.int32), *(part.counts for part in parts)]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class RowSpan:
    """The passages of one document: rows first ... stop - 1."""

    rows: Rows
    first: int
    stop: int

    @property
    def lengths(self) -> list[int]:
        """Tokens L of each passage."""
        found: list[int] = self.rows.lengths[self.first : self.stop].tolist()
        return found

    def values(self, numbers: Int32 | None = None) -> list[tuple[int, bytes, bytes]]:
        """Return each passage as (L, words, counts) by ascending number: equal for equal passages.

        numbers: of each entry, the entries themselves for None.
        """
        found = []
        for row in range(self.first, self.stop):
            place = slice(self.rows.starts[row], self.rows.stops[row])
            words = self.rows.entries[place] if numbers is None else numbers[self.rows.entries[place]]
            order = np.argsort(words)
            counts = self.rows.counts[place][order]
            found.append((int(self.rows.lengths[row]), words[order].tobytes(), counts.tobytes()))
        return found


@numba.njit(cache=True, nogil=True)
def number_rows(
    chosen: Int64, starts: Int64, stops: Int64, entries: Int32, counts: Int32, numbers: Int32, next_number: int
) -> tuple[Int64, Int32, Int32, Int32]:
    """Return the chosen rows by word number, ascending, as (indptr, words, counts), and the entries newly numbered.

    numbers: the number of each entry, -1 for none yet: those met get the next ones, in the order they are met.
    """
    indptr = np.zeros(len(chosen) + 1, np.int64)
    for k in range(len(chosen)):
        indptr[k + 1] = indptr[k] + stops[chosen[k]] - starts[chosen[k]]
    words = np.empty(indptr[-1], np.int32)
    amounts = np.empty(indptr[-1], np.int32)
    born = np.empty(len(numbers), np.int32)
    found = 0
    for k in range(len(chosen)):
        start = starts[chosen[k]]
        pairs = np.empty(stops[chosen[k]] - start, np.int64)
        for j in range(len(pairs)):
            entry = entries[start + j]
            if numbers[entry] < 0:
                numbers[entry] = next_number + found
                born[found] = entry
                found += 1
            pairs[j] = (np.int64(numbers[entry]) << 32) | np.int64(counts[start + j])
        pairs.sort()
        at = indptr[k]
        for j in range(len(pairs)):
            words[at + j] = pairs[j] >> 32
            amounts[at + j] = pairs[j] & 0xFFFFFFFF
    return indptr, words, amounts, born[:found].copy()
