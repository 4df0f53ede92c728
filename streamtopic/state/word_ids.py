"""A partition's words: their ids, their limits, and the passages of many documents as numbers of words.

A Lexicon numbers all words that this process has met, so that texts are read by compiled code; a Vocabulary knows which
of these the partition's live documents hold, and under which id Redis counts them.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.errors import StateCorrupt, StateError
from streamtopic.lexicon import Lexicon
from streamtopic.state.segments import SegmentHead

__all__ = [
    "MANY_WORDS",
    "MAX_WORD_IDS",
    "NEARLY",
    "RowSpan",
    "Rows",
    "Vocabulary",
    "WordLimits",
    "WordPassage",
    "number_rows",
]


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

WordPassage = tuple[int, Mapping[str, int]]
"""Tokens L, and counts of the words."""

MAX_WORD_IDS = 1 << 26
"""Ids that a partition gives to words in all, those that are gone included: a writer holds up to 16 bytes for each, a
reader 8, and numbers of words are of 31 bits. Counting anew (`rebuild`) begins at 0."""

MANY_WORDS = 2_000_000
"""Words of live documents in a partition from which on the log speaks of them (docs/decisions/0029)."""

NEARLY = 0.8
"""The share of all word ids from which on they are spoken of."""

# Words that come and go around a mark are not worth a line each time.
_QUIET = 0.7

logger = logging.getLogger(__name__)


class Vocabulary:
    """Words of a partition that live documents hold. An id is never given twice, even after its word has gone.

    next_id: the first id never given. lexicon: where words are looked up, and where their letters are; it may know
    others too. Its length is the number of words.
    """

    def __init__(
        self, ids: Mapping[str, int], next_id: int, heads: Iterable[SegmentHead], lexicon: Lexicon | None = None
    ) -> None:
        self.next_id = next_id
        self.lexicon = Lexicon("") if lexicon is None else lexicon
        size = max(1024, 2 * next_id)
        self._frequency = np.zeros(size, np.int32)
        for head in heads:
            self._frequency[head.ids] += head.frequency.astype(np.int32)
        numbers = np.fromiter(ids.values(), np.int64, len(ids))
        self._check(numbers)
        self._entries = np.full(size, -1, np.int32)
        self._numbers = np.full(1, -1, np.int32)
        self._set(numbers, _encoded(ids))

    def __len__(self) -> int:
        return self._held

    def _check(self, numbers: Int64) -> None:
        if numbers.max(initial=-1) >= self.next_id:
            raise StateCorrupt("a word in Redis has an id that was never given: rebuild (`streamtopic rebuild`)")
        named = np.zeros(len(self._frequency), np.bool_)
        named[numbers] = True
        self._held = int(named.sum())
        if (self._frequency < 0).any() or ((self._frequency > 0) != named).any():
            raise StateCorrupt("words and counts in Redis disagree: rebuild the state (`streamtopic rebuild`)")

    def use(self, lexicon: Lexicon) -> None:
        """Look words up in this lexicon from now on."""
        numbers = np.flatnonzero(self._entries >= 0)
        words = [self.lexicon.word(entry) for entry in self._entries[numbers].tolist()]
        self.lexicon = lexicon
        self._numbers = np.full(1, -1, np.int32)
        self._set(numbers, words)

    def word(self, number: int) -> str:
        """Return the word that has this id."""
        return self.lexicon.word(int(self._entries[number])).decode("utf-8", "surrogatepass")

    def words(self) -> dict[int, str]:
        """Return all words by id."""
        return {number: self.word(number) for number in np.flatnonzero(self._entries >= 0).tolist()}

    def numbers(self) -> Int32:
        """Return the id of each entry of the lexicon, -1 for a word that no live document holds; a copy."""
        found = np.full(len(self.lexicon), -1, np.int32)
        known = min(len(found), len(self._numbers))
        found[:known] = self._numbers[:known]
        return found

    def frequency(self, ids: Int64) -> Int64:
        """Return in how many live documents each of these words is; 0 for ids not given yet."""
        known = ids < len(self._frequency)
        found = np.zeros(len(ids), np.int64)
        found[known] = self._frequency[ids[known]]
        return found

    def apply(self, born: Mapping[str, int], dead: Mapping[str, int], ids: Int64, frequency: Int64) -> None:
        """Take over what a committed flush changed: new words, gone words, differences in document frequency."""
        gone = np.fromiter(dead.values(), np.int64, len(dead))
        self._numbers[self._entries[gone]] = -1
        self._entries[gone] = -1
        self.next_id += len(born)
        if self.next_id > len(self._frequency):
            self._frequency = _longer(self._frequency, 2 * self.next_id, 0)
            self._entries = _longer(self._entries, 2 * self.next_id, -1)
        self._set(np.fromiter(born.values(), np.int64, len(born)), _encoded(born))
        self._held += len(born) - len(dead)
        self._frequency[ids] += frequency.astype(np.int32)

    def _set(self, numbers: Int64, words: Sequence[bytes]) -> None:
        entries = self.lexicon.number(words)
        if len(self._numbers) < len(self.lexicon):
            self._numbers = _longer(self._numbers, 2 * len(self.lexicon), -1)
        self._numbers[entries] = numbers
        self._entries[numbers] = entries


def _encoded(words: Iterable[str]) -> list[bytes]:
    return [word.encode("utf-8", "surrogatepass") for word in words]


def _longer(have: Int32, size: int, rest: int) -> Int32:
    found = np.full(size, rest, np.int32)
    found[: len(have)] = have
    return found


class WordLimits:
    """Looks after a partition's words for its writer. ids: how many word ids there are."""

    def __init__(self, partition: int, ids: int = MAX_WORD_IDS) -> None:
        self._partition = partition
        self._ids = ids
        self._said = False

    def check(self, given: int, wanted: int, offset: int) -> None:
        """Raise StateError where a flush needs more ids than there are.

        given: ids given so far; wanted: ids that the flush needs; offset: of its first record. Nothing of the flush is
        written then, so nothing is lost: a rebuild counts the same records and begins at the first id.
        """
        if given + wanted > self._ids:
            raise StateError(
                f"partition {self._partition} has given {given:,} of {self._ids:,} word ids, most to words that are "
                "gone, and has none for new ones: run `streamtopic rebuild`, which gives ids anew; all records from "
                f"offset {offset} on are still in the log"
            )

    def look(self, vocabulary: Vocabulary) -> None:
        """Warn once when words or ids become many, and again only after they were fewer."""
        held, given = len(vocabulary), vocabulary.next_id
        full = max(held / MANY_WORDS, given / (NEARLY * self._ids))
        if full > 1 and not self._said:
            remedy = "run `streamtopic rebuild` soon" if given > NEARLY * self._ids else "look what texts bring them"
            logger.warning(
                "partition %d holds %d words and has given %d word ids of %d: %s, see docs/operations.md",
                self._partition, held, given, self._ids, remedy,
                extra={"event": "words_many", "partition": self._partition, "words": held, "ids": given},
            )  # fmt: skip
        self._said = full > 1 or (self._said and full > _QUIET)


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
