"""A writer's words: local ids and how many live documents hold each."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from streamtopic.errors import StateCorrupt
from streamtopic.state.lexicon import Lexicon
from streamtopic.state.segments import SegmentHead

__all__ = ["Vocabulary"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


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
