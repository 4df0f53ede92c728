"""A partition's words: their ids, and the passages of many documents as numbers of words.

Words have two numbers. An entry is the number of a word in a Lexicon, which knows all words that this process has met,
so that compiled code reads the texts. An id is the number of a word in Redis; a Vocabulary holds the ids of the words
of live documents.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import kernel
from streamtopic.errors import StateCorrupt
from streamtopic.state.document_records import ascending_rows
from streamtopic.words.lexicon import Lexicon

__all__ = [
    "MANY_WORDS",
    "MAX_WORD_IDS",
    "NEARLY",
    "Rows",
    "Vocabulary",
    "WordPassage",
    "number_rows",
    "word_bytes",
    "word_text",
]


Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

WordPassage = tuple[int, Mapping[str, int]]
"""A passage as (tokens L, word to its count)."""

MAX_WORD_IDS = 1 << 26
"""Ids that a partition can give, those of words that are gone included. A writer holds up to 16 bytes for each, a
reader 8, and ids are numbers of 31 bits. A rebuild begins at 0 again."""

MANY_WORDS = 2_000_000
"""Words of live documents in a partition above which `doctor` warns (docs/decisions/0006)."""

NEARLY = 0.8
"""Share of all word ids above which `doctor` warns."""


class Vocabulary:
    """The words of a partition's live documents. Its length is the number of words.

    next_id: the first id that was never given.
    lexicon: the Lexicon with the letters of these words; it may know other words too.
    """

    # An id is never given twice, even after its word has gone: changes that readers take up later still name it.

    def __init__(self, words: Sequence[bytes], ids: Int64, totals: Int64, lexicon: Lexicon) -> None:
        """Take over the words of live documents at a moment.

        ids: (k,) of the words.
        totals: (3, k) documents, occurrences and heavy documents of each.
        """
        self.next_id = int(ids.max(initial=-1)) + 1
        self.lexicon = lexicon
        # Room for as many new words again, so that arrays are seldom copied.
        size = max(1024, 2 * self.next_id)
        self._held = len(words)
        self._totals = np.zeros((3, size), np.int64)
        self._totals[:, ids] = totals
        self._entries = np.full(size, -1, np.int32)
        self._numbers = np.full(1, -1, np.int32)
        self._set(ids, words)

    def __len__(self) -> int:
        return self._held

    def check(self, words: int, next_id: int) -> None:
        """Raise StateCorrupt unless there are so many words, ids below this one, and documents with each word alone."""
        named = self._entries >= 0
        if self._held != words or self.next_id > next_id or named.sum() != words:
            raise StateCorrupt("words and counts in Redis disagree: rebuild the state (`streamtopic rebuild`)")
        if (self._totals < 0).any() or ((self._totals[0] > 0) != named).any():
            raise StateCorrupt("words and counts in Redis disagree: rebuild the state (`streamtopic rebuild`)")
        self.next_id = next_id
        self._make_room()

    def held(self) -> tuple[list[bytes], Int64, Int64]:
        """Return the words, their ids, (k,) ascending, and their statistics, (3, k)."""
        ids = np.flatnonzero(self._entries >= 0)
        words = self.lexicon.words()
        return [words[entry] for entry in self._entries[ids].tolist()], ids, self._totals[:, ids]

    def use(self, lexicon: Lexicon) -> None:
        """Change to another lexicon, which takes up the words of live documents."""
        numbers = np.flatnonzero(self._entries >= 0)
        entries = self._entries[numbers].tolist()
        words = [self.lexicon.word(entry) for entry in entries]
        self.lexicon = lexicon
        self._numbers = np.full(1, -1, np.int32)
        self._set(numbers, words)

    def word(self, number: int) -> bytes:
        """Return the word that has this id."""
        return self.lexicon.word(int(self._entries[number]))

    def numbers(self) -> Int32:
        """Return the id of each entry of the lexicon, (entries or more,) int32; -1 for a word of no live document.

        The array is this object's own, since a copy of all words would take longer than to count a flush. Who writes
        into it puts back what was there.
        """
        self._reach(len(self.lexicon))
        return self._numbers

    def _reach(self, entries: int) -> None:
        if len(self._numbers) < entries:
            self._numbers = _longer(self._numbers, 2 * entries, -1)

    def frequency(self, ids: Int64) -> Int64:
        """Return the number of live documents with each of these words, (ids,) int64; 0 for ids not given yet."""
        known = ids < self._totals.shape[1]
        found = np.zeros(len(ids), np.int64)
        found[known] = self._totals[0, ids[known]]
        return found

    def rename(self, born: Mapping[bytes, int], dead: Mapping[bytes, int]) -> None:
        """Take over words of a committed change.

        born: new words with their ids.
        dead: words that no live document holds any more, with their ids.
        """
        gone = np.fromiter(dead.values(), np.int64, len(dead))
        given = np.fromiter(born.values(), np.int64, len(born))
        if gone.max(initial=-1) >= self.next_id or (self._entries[gone] < 0).any():
            raise StateCorrupt("a change in Redis ends a word that is not there: run `streamtopic rebuild`")
        self._numbers[self._entries[gone]] = -1
        self._entries[gone] = -1
        self.next_id = max(self.next_id, int(given.max(initial=-1)) + 1)
        self._make_room()
        self._set(given, list(born))
        self._held += len(born) - len(dead)

    def count(self, ids: Int64, totals: Int64) -> None:
        """Add to the statistics of words. totals: (3, ids)."""
        # Row by row: numpy takes three times as long for all at once.
        for row, change in zip(self._totals, totals, strict=True):
            row[ids] += change

    def _make_room(self) -> None:
        if self.next_id > self._totals.shape[1]:
            wide = np.zeros((3, 2 * self.next_id), np.int64)
            wide[:, : self._totals.shape[1]] = self._totals
            self._totals = wide
            self._entries = _longer(self._entries, 2 * self.next_id, -1)

    def _set(self, numbers: Int64, words: Sequence[bytes]) -> None:
        entries = self.lexicon.number(words)
        self._reach(len(self.lexicon))
        self._numbers[entries] = numbers
        self._entries[numbers] = entries


def word_bytes(word: str) -> bytes:
    """Return a word as Redis and lexicons hold it."""
    # Half a surrogate pair, which JSON allows in a text, is not UTF-8; it must come back as it came.
    return word.encode("utf-8", "surrogatepass")


def word_text(stored: bytes) -> str:
    """Undo `word_bytes`."""
    return stored.decode("utf-8", "surrogatepass")


def _encoded(words: Iterable[str]) -> list[bytes]:
    return [word_bytes(word) for word in words]


def _longer(have: Int32, size: int, rest: int) -> Int32:
    found = np.full(size, rest, np.int32)
    found[: len(have)] = have
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Passages as rows. The words of row r are entries[starts[r]:stops[r]], in any order, with counts at these places.

    lengths: (rows,) int64, tokens L.
    starts, stops: (rows,) int64.
    entries: (words,) int32, numbers in a lexicon.
    counts: (words,) int32.
    """

    lengths: Int64
    starts: Int64
    stops: Int64
    entries: Int32
    counts: Int32

    @classmethod
    def of(cls, passages: Sequence[WordPassage], lexicon: Lexicon) -> "Rows":
        """Lay out passages whose words are text. Words that are new to the lexicon come into it."""
        texts = [words for _, words in passages]
        lengths = np.array([length for length, _ in passages], np.int64)
        sizes = np.array([len(words) for words in texts], np.int64)
        stops = np.cumsum(sizes)
        words = chain.from_iterable(texts)
        counts = chain.from_iterable(words.values() for words in texts)
        entries = lexicon.number(_encoded(words))
        amounts = np.fromiter(counts, np.int32, int(sizes.sum()))
        return cls(lengths, stops - sizes, stops, entries, amounts)

    def and_then(self, more: "Rows") -> "Rows":
        """Return these rows and then more of them."""
        before = len(self.entries)
        return Rows(
            lengths=np.concatenate([self.lengths, more.lengths]),
            starts=np.concatenate([self.starts, more.starts + before]),
            stops=np.concatenate([self.stops, more.stops + before]),
            entries=np.concatenate([self.entries, more.entries]),
            counts=np.concatenate([self.counts, more.counts]),
        )


def number_rows(
    chosen: Int64, starts: Int64, stops: Int64, entries: Int32, counts: Int32, numbers: Int32, next_number: int
) -> tuple[Int64, Int32, Int32, Int32]:
    """Return the chosen rows as (indptr, words, counts), words by ascending id, and the entries that got an id here.

    chosen: (k,) the rows to return, in this order.
    starts, stops, entries, counts: as in `Rows`.
    numbers: (entries,) id of each entry, -1 for none. An entry that is met first gets the next id.
    next_number: the first id to give.
    """
    sizes = stops[chosen] - starts[chosen]
    indptr = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    ids = np.empty(indptr[-1], np.int32)
    born = np.empty(len(ids), np.int32)
    firsts = starts[chosen]
    found = _number(firsts, indptr, entries, numbers, next_number, ids, born)
    new = born[:found].copy()
    # The ids of new words hold from the commit on.
    numbers[new] = -1
    ascending, amounts = ascending_rows(firsts, indptr, ids, counts)
    return indptr, ascending, amounts, new


@kernel
def _number(
    firsts: Int64, indptr: Int64, entries: Int32, numbers: Int32, next_number: int, ids: Int32, born: Int32
) -> int:
    """Fill `ids`, and the begin of `born` with the entries that got an id. Return how many did.

    firsts: (k,) where each row begins in `entries`.
    indptr: (k + 1,) where its ids go.
    """
    found = 0
    for k in range(len(firsts)):
        at = indptr[k]
        for j in range(indptr[k + 1] - at):
            entry = entries[firsts[k] + j]
            if numbers[entry] < 0:
                numbers[entry] = next_number + found
                born[found] = entry
                found += 1
            ids[at + j] = numbers[entry]
    return found
