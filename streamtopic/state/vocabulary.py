"""A writer's words: local ids and how many live documents hold each."""

from collections.abc import Iterable, Mapping

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

    names: id to word. next_id: the first id never given. lexicon: where words are looked up; it may know others too.
    """

    def __init__(
        self, ids: Mapping[str, int], next_id: int, heads: Iterable[SegmentHead], lexicon: Lexicon | None = None
    ) -> None:
        self.names = {number: word for word, number in ids.items()}
        self.next_id = next_id
        self.use(Lexicon("") if lexicon is None else lexicon)
        self._frequency = np.zeros(max(1024, 2 * next_id), np.int64)
        for head in heads:
            self._frequency[head.ids] += head.frequency
        self._check()

    def _check(self) -> None:
        if max(self.names, default=-1) >= self.next_id:
            raise StateCorrupt("a word in Redis has an id that was never given: rebuild (`streamtopic rebuild`)")
        named = np.zeros(len(self._frequency), np.bool_)
        named[list(self.names)] = True
        if (self._frequency < 0).any() or ((self._frequency > 0) != named).any():
            raise StateCorrupt("words and counts in Redis disagree: rebuild the state (`streamtopic rebuild`)")

    def use(self, lexicon: Lexicon) -> None:
        """Look words up in this lexicon from now on."""
        self.lexicon = lexicon
        self._numbers = np.full(1, -1, np.int32)
        self._set(self.names.values(), list(self.names))

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
        for number in dead.values():
            del self.names[number]
        self._set(dead, -1)
        self.names.update((number, word) for word, number in born.items())
        self._set(born, list(born.values()))
        self.next_id += len(born)
        if self.next_id > len(self._frequency):
            larger = np.zeros(2 * self.next_id, np.int64)
            larger[: len(self._frequency)] = self._frequency
            self._frequency = larger
        self._frequency[ids] += frequency

    def _set(self, words: Iterable[str], numbers: list[int] | int) -> None:
        entries = self.lexicon.number([word.encode("utf-8", "surrogatepass") for word in words])
        if len(self._numbers) < len(self.lexicon):
            larger = np.full(2 * len(self.lexicon), -1, np.int32)
            larger[: len(self._numbers)] = self._numbers
            self._numbers = larger
        self._numbers[entries] = numbers
