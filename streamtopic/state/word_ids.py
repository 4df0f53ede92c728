"""A partition's words: their ids, and documents to add as numbers of words.

    Vocabulary        the ids of words, and their statistics
    AddedDocuments    what the records of a batch add

Words have two numbers. An entry is the number of a word in a Lexicon, which knows all words that this process has met,
so that compiled code reads the texts. An id is the number of a word in Redis.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from streamtopic.compiled import kernel
from streamtopic.counts import DocumentBatch, add_statistics
from streamtopic.counts.arrays import Int32, Int64
from streamtopic.errors import StateCorrupt
from streamtopic.state.document_records import StoredDocument, ascending_rows, encode_records
from streamtopic.words.lexicon import Lexicon

__all__ = [
    "MAX_WORD_IDS",
    "AddedDocuments",
    "Vocabulary",
]

MAX_WORD_IDS = 1 << 26
"""Ids that a partition can give, those of words that are gone included. A writer holds up to 16 bytes for each, a
reader 8, and ids are numbers of 31 bits. A rebuild begins at 0 again."""


class Vocabulary:
    """The words of a partition that have an id: those of live documents, and those that changes name.

    A word loses its id with the second word statistics after its last document has gone: until then readers may follow
    changes that name it.

    next_id: the first id that was never given.
    lexicon: the Lexicon with the letters of these words; it may know other words too.
    """

    # An id is never given twice, even after its word has gone: changes that readers take up later still name it.

    def __init__(self, words: Sequence[bytes], ids: Int64, totals: Int64, lexicon: Lexicon, next_id: int = 0) -> None:
        """Take over the words of word statistics.

        ids: (k,) of the words.
        totals: (3, k) documents, occurrences and heavy documents of each.
        """
        self.lexicon = lexicon
        self.next_id = next_id
        self._numbers = np.full(1, -1, np.int32)
        # The last row is memory for counting.
        self._totals = np.zeros((4, 0), np.int64)
        # Whether a document with the word has gone since the last word statistics.
        self._left = np.zeros(0, np.bool_)
        self.give(words, ids)
        self._totals[:3, ids] = totals

    def __len__(self) -> int:
        return int((self._numbers >= 0).sum())

    def check(self) -> None:
        """Raise StateCorrupt unless every word that documents hold is known, and no count is below 0."""
        named = self._totals[0, self._numbers[self._numbers >= 0]]
        if (self._totals < 0).any() or (self._totals[0] > 0).sum() != (named > 0).sum():
            raise StateCorrupt("words and counts in Redis disagree: rebuild the state (`streamtopic rebuild`)")

    def words_to_keep(self) -> tuple[list[bytes], Int64, Int64]:
        """Return the words of the next word statistics, their ids, (k,) ascending, and their statistics, (3, k).

        Those are the words of live documents, and of documents that have gone since the last ones.
        """
        entry_of = np.full(self._totals.shape[1], -1, np.int64)
        entries = np.flatnonzero(self._numbers >= 0)
        entry_of[self._numbers[entries]] = entries
        ids = np.flatnonzero((entry_of >= 0) & (self._left | (self._totals[0] > 0)))
        words = self.lexicon.words()
        return [words[entry] for entry in entry_of[ids].tolist()], ids, self._totals[:3, ids]

    def summed(self) -> None:
        """Take note that the word statistics were written, and drop the words that they do not have."""
        entries = np.flatnonzero(self._numbers >= 0)
        ids = self._numbers[entries]
        self._numbers[entries[~self._left[ids] & (self._totals[0, ids] == 0)]] = -1
        self._left[:] = False

    def renewed(self, lexicon: Lexicon) -> "Vocabulary":
        """Return the same words with another lexicon, which takes them up."""
        found = Vocabulary(*self.words_to_keep(), lexicon, self.next_id)
        found._left[: len(self._left)] = self._left[: len(found._left)]
        return found

    def numbers(self) -> Int32:
        """Return the id of each entry of the lexicon, (entries or more,) int32; -1 for a word without one.

        The array is this object's own, since a copy of all words would take longer than to count a flush. Who writes
        into it puts back what was there.
        """
        entries = len(self.lexicon)
        if len(self._numbers) < entries:
            wide = np.full(2 * entries, -1, np.int32)
            wide[: len(self._numbers)] = self._numbers
            self._numbers = wide
        return self._numbers

    def give(self, words: Sequence[bytes], ids: Int64) -> None:
        """Give ids to words."""
        self.next_id = max(self.next_id, int(ids.max(initial=-1)) + 1)
        if self.next_id > self._totals.shape[1]:
            # Room for as many new words again, so that arrays are seldom copied.
            wide = np.zeros((4, max(1024, 2 * self.next_id)), np.int64)
            wide[:, : self._totals.shape[1]] = self._totals
            self._totals = wide
            self._left = np.append(self._left, np.zeros(wide.shape[1] - len(self._left), np.bool_))
        entries = self.lexicon.number(words)
        self.numbers()[entries] = ids

    def count(self, documents: DocumentBatch, sign: int) -> None:
        """Count documents that came, sign 1, or that went, sign -1. Their words are ids."""
        add_statistics(documents, np.full(documents.documents, sign, np.int64), self._totals)
        if sign < 0:
            self._left[documents.words] = True


@kernel
def _number(entries: Int32, numbers: Int32, next_number: int, ids: Int32, born: Int32) -> int:
    """Fill `ids`, and the begin of `born` with the entries that got an id. Return how many did."""
    found = 0
    for k in range(len(entries)):
        entry = entries[k]
        if numbers[entry] < 0:
            numbers[entry] = next_number + found
            born[found] = entry
            found += 1
        ids[k] = numbers[entry]
    return found


# Bytes of a document in Redis, and of its words in the change: 1.8 a word that is known (measured), and more than 10 a
# new one. A flush has to be bounded before it is encoded.
_BYTES_A_WORD = 5
_BYTES_A_DOCUMENT = 60
# Each subject is one more write of the commit, which costs Redis as much time as so many bytes.
_BYTES_A_SUBJECT = 375


@dataclass(frozen=True, slots=True, eq=False)
class AddedDocuments:
    """Documents to store and count, as columns: an object for each would take longer than to read its text.

    ids: of the documents.
    offsets: (k,) of the records that add them.
    batch: their passages. The words are numbers of the writer's lexicon, in any order in each passage.
    labels: of each document, task to class.
    subjects: of each document, the digests of its subjects, ascending.

    A place may hold a record that adds nothing, which has no passage.
    """

    ids: Sequence[bytes]
    offsets: Int64
    batch: DocumentBatch
    labels: Sequence[Mapping[str, str]]
    subjects: Sequence[tuple[bytes, ...]]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, places: Sequence[int]) -> "AddedDocuments":
        """Return some of the documents. places: ascending."""
        if len(places) == len(self):
            return self
        chosen = np.array(places, np.int64)
        return AddedDocuments(
            ids=[self.ids[k] for k in places],
            offsets=self.offsets[chosen],
            batch=self.batch.take(chosen),
            labels=[self.labels[k] for k in places],
            subjects=[self.subjects[k] for k in places],
        )

    def numbered(self, numbers: Int32, next_id: int) -> tuple[DocumentBatch, Int32]:
        """Return the documents with word ids, and the entries that get an id by this.

        numbers: (entries of the lexicon,) id of each, -1 for none. An entry that is met first gets the next id.
        next_id: the first id to give.
        """
        entries = self.batch.words
        ids, born = np.empty(len(entries), np.int32), np.empty(len(entries), np.int32)
        new = born[: _number(entries, numbers, next_id, ids, born)].copy()
        # The ids of new words hold from the commit on.
        numbers[new] = -1
        words, counts = ascending_rows(self.batch.indptr, ids, self.batch.counts)
        return replace(self.batch, words=words, counts=counts), new

    def bodies(self, places: Sequence[int], numbers: Int32, next_id: int) -> dict[int, bytes]:
        """Return the passages of the documents at these places as `StoredDocument.body` has them.

        numbers, next_id: as in `numbered`.
        """
        batch, _ = self.take(places).numbered(numbers, next_id)
        nothing = [0] * len(places)
        records = encode_records(batch, nothing, [{}] * len(places))
        return {place: StoredDocument.of(record).body for place, record in zip(places, records, strict=True)}

    def sizes(self) -> Int64:
        """Return about how many bytes each document takes in the state, (k,)."""
        words = np.bincount(self.batch.owners, np.diff(self.batch.indptr), len(self))
        sizes = _BYTES_A_DOCUMENT + _BYTES_A_WORD * words.astype(np.int64)
        if any(self.labels):
            for k, labels in enumerate(self.labels):
                sizes[k] += sum(map(len, chain.from_iterable(labels.items())))
        return sizes + _BYTES_A_SUBJECT * np.fromiter(map(len, self.subjects), np.int64, len(self))
