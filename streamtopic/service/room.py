"""Room for words: a partition holds so many at most, and a document that would bring more is refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.errors import InvalidEvent
from streamtopic.state import MAX_FLUSH_WRITES, MAX_WORD_IDS, AddedDocument, StoredDocument

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from streamtopic.service.decoding import Decoded
    from streamtopic.state.vocabulary import Vocabulary

__all__ = ["LIMITS", "NEARLY", "NO_ROOM", "WORDS", "Room", "WordLimits", "WordWatch"]

WORDS = 2_000_000
"""Words of live documents that a partition holds by default (docs/decisions/0023)."""

NO_ROOM = "partition-words"
"""The reason code of documents that were refused because their words found no room."""

NEARLY = 0.8
"""The share of a limit from which on it is spoken of."""

_QUIET = 0.7

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WordLimits:
    """words: of live documents in a partition; ids: given in all, to words that are gone as well."""

    words: int = WORDS
    ids: int = MAX_WORD_IDS

    def may_be_met(self, held: int, given: int, new: int) -> bool:
        """Return whether `new` more words could pass a limit where `held` are live and `given` ids were given."""
        return held + new > self.words or given + new > self.ids


LIMITS = WordLimits()


class Room:
    """Follows a partition's live words from record to record.

    vocabulary: as of the state that the records are applied to; numbers: the id of each entry of its lexicon, -1 for
    none. After each record the number of live words is that of the documents that are live then, so what is refused
    does not depend on how a log is cut into flushes; ids do, since words that come and go in one flush get none.
    """

    def __init__(self, limits: WordLimits, vocabulary: Vocabulary, numbers: npt.NDArray[np.int32]) -> None:
        self.held = len(vocabulary)
        self._limits = limits
        self._spare = limits.ids - vocabulary.next_id
        self._first = vocabulary.next_id
        # A new word goes by its entry, behind all ids.
        self._keys = np.where(numbers < 0, self._first + np.arange(len(numbers)), numbers)
        self._frequency = np.zeros(self._first + len(numbers), np.int64)
        self._frequency[: self._first] = vocabulary.frequency(np.arange(self._first))
        self._met = np.zeros(len(numbers), np.bool_)

    def replace(self, old: StoredDocument | AddedDocument | None, new: AddedDocument | None) -> InvalidEvent | None:
        """Take `old` out and `new` in; the reason why not where `new` brings words that find no room."""
        gone, come = self._words(old), self._words(new)
        touched = np.union1d(gone, come)
        before = int((self._frequency[touched] > 0).sum())
        self._frequency[gone] -= 1
        self._frequency[come] += 1
        held = self.held + int((self._frequency[touched] > 0).sum()) - before
        unnamed = come[come >= self._first] - self._first
        unnamed = unnamed[~self._met[unnamed]]
        problem = self._problem(held, len(unnamed))
        if problem is None:
            self.held, self._spare = held, self._spare - len(unnamed)
            self._met[unnamed] = True
        else:
            self._frequency[come] -= 1
            self._frequency[gone] += 1
        return problem

    def _problem(self, held: int, unnamed: int) -> InvalidEvent | None:
        # A document that leaves no more words than there were is taken even where the limit was lowered.
        if held > max(self._limits.words, self.held):
            return InvalidEvent(NO_ROOM, f"the partition holds {self.held:,} words of at most {self._limits.words:,}")
        if unnamed > max(self._spare, 0):
            return InvalidEvent(NO_ROOM, f"the partition has given {self._limits.ids - self._spare:,} word ids")
        return None

    def _words(self, document: StoredDocument | AddedDocument | None) -> npt.NDArray[np.int64]:
        """Return the distinct words of a document."""
        if document is None:
            return np.empty(0, np.int64)
        if isinstance(document, StoredDocument):
            parts = [passage.words for passage in document.passages]
        else:
            rows = document.passages.rows
            parts = [
                self._keys[rows.entries[rows.starts[k] : rows.stops[k]]]
                for k in range(document.passages.first, document.passages.stop)
            ]
        return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


class WordWatch:
    """Looks after a partition's words for its writer: makes room where a limit is near, and says so in the log."""

    def __init__(self, partition: int, limits: WordLimits) -> None:
        self._partition = partition
        self._limits = limits
        self._said = 0

    def room(self, vocabulary: Vocabulary, numbers: npt.NDArray[np.int32], decoded: Decoded) -> Room | None:
        """Return what follows the words of these records, None where no limit can be met: that costs much less."""
        held, given = len(vocabulary), vocabulary.next_id
        # A flush has no more new words than writes, unless a single record has.
        if len(decoded.records) > 1 and not self._limits.may_be_met(held, given, MAX_FLUSH_WRITES):
            return None
        if not self._limits.may_be_met(held, given, decoded.new_words(numbers)):
            return None
        return Room(self._limits, vocabulary, numbers)

    def look(self, vocabulary: Vocabulary, totals: Mapping[str, int]) -> None:
        """Warn once when a limit comes near, and once when documents are refused, until there is room again."""
        held, given, refused = len(vocabulary), vocabulary.next_id, totals.get("rejected_words", 0)
        full = max(held / self._limits.words, given / self._limits.ids)
        stage = 2 if refused else int(full > NEARLY)
        if stage > self._said:
            what = "documents with new words are refused" if refused else "documents with new words will be refused"
            remedy = "run `streamtopic rebuild`" if given > NEARLY * self._limits.ids else "raise max_partition_words"
            logger.warning(
                "partition %d holds %d words of at most %d and has given %d ids of at most %d: %s (%s); %s, see "
                "docs/operations.md",
                self._partition, held, self._limits.words, given, self._limits.ids, what, NO_ROOM, remedy,
            )  # fmt: skip
        # Words that come and go around the mark are not worth a line each time.
        self._said = 0 if full < _QUIET and not refused else max(stage, self._said)
