"""A writer's words: local ids and how many live documents hold each."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from streamtopic.errors import StateCorrupt
from streamtopic.state.segments import SegmentHead

__all__ = ["Vocabulary"]

Int64 = npt.NDArray[np.int64]


class Vocabulary:
    """Words of a partition that live documents hold. An id is never given twice, even after its word has gone.

    ids: word to id. next_id: the first id never given.
    """

    def __init__(self, ids: dict[str, int], next_id: int, heads: Iterable[SegmentHead]) -> None:
        self.ids = ids
        self.names = {number: word for word, number in ids.items()}
        self.next_id = next_id
        self._frequency = np.zeros(max(1024, 2 * next_id), np.int64)
        for head in heads:
            self._frequency[head.ids] += head.frequency
        self._check()

    def _check(self) -> None:
        named = np.zeros(len(self._frequency), np.bool_)
        named[list(self.names)] = True
        if (self._frequency < 0).any() or ((self._frequency > 0) != named).any():
            raise StateCorrupt("words and counts in Redis disagree: rebuild the state (`streamtopic rebuild`)")

    def frequency(self, ids: Int64) -> Int64:
        """Return in how many live documents each of these words is; 0 for ids not given yet."""
        known = ids < len(self._frequency)
        found = np.zeros(len(ids), np.int64)
        found[known] = self._frequency[ids[known]]
        return found

    def apply(self, born: Mapping[str, int], dead: Iterable[str], ids: Int64, frequency: Int64) -> None:
        """Take over what a committed flush changed: new words, gone words, differences in document frequency."""
        for word in dead:
            del self.names[self.ids.pop(word)]
        self.ids.update(born)
        self.names.update((number, word) for word, number in born.items())
        self.next_id += len(born)
        if self.next_id > len(self._frequency):
            larger = np.zeros(2 * self.next_id, np.int64)
            larger[: len(self._frequency)] = self._frequency
            self._frequency = larger
        self._frequency[ids] += frequency
