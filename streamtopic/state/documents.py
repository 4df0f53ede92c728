"""Reading the documents that counts are of. The result depends on these documents, and not on their history."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamtopic.counts import DocumentBatch, WordSets
from streamtopic.state.document_counts import DocumentCounts, Part
from streamtopic.state.document_records import unpack_names
from streamtopic.state.redis_keys import BUCKETS

__all__ = ["StoredDocuments", "document_parts", "read_documents", "sample_words"]


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocuments:
    """Documents in the order of their ids.

    batch: their passages. Words are positions in the words that were asked for; other words are left out, but the
        lengths L count them.
    ids: id of each document, as its producer gave it.
    labels: of each document, task to class.
    """

    batch: DocumentBatch
    ids: tuple[bytes, ...]
    labels: tuple[Mapping[str, str], ...]

    def __len__(self) -> int:
        return len(self.ids)


def read_documents(
    counts: DocumentCounts, words: Sequence[str], *, labelled: Collection[str] = (), limit: int | None = None
) -> StoredDocuments:
    """Read documents in one pass over the records of each partition.

    words: distinct words; those of the batch are positions in them.
    labelled: tasks; only documents with a label of one of them are read, all documents if it is empty.
    limit: about how many documents to read, None for all. Whole hashes of ids are read, the same of every partition, so
        that the choice depends on the ids alone.

    Raises CutGone, StateCorrupt, ComponentUnreachable.
    """
    most = BUCKETS if limit is None else _most(counts, limit)
    labels = _Labels(frozenset(labelled))
    found = [_chosen(part, labels) for parts in _buckets(counts, words, most, ids=True) for part in parts]
    return _by_id(found)


def document_parts(
    counts: DocumentCounts, words: Sequence[str]
) -> Iterator[tuple[DocumentBatch, Sequence[Mapping[str, str]]]]:
    """Yield all documents, part by part: their passages and their labels.

    words: distinct words; those of a batch are positions in them.
    A part holds the documents of some hashes of ids, in the order of their ids: parts depend on the documents alone.
    Raises as `read_documents`.
    """
    labels = _Labels(frozenset())
    for parts in _buckets(counts, words, BUCKETS, ids=True):
        stored = _by_id([_chosen(part, labels) for part in parts])
        yield stored.batch, stored.labels


def sample_words(counts: DocumentCounts, words: Sequence[str], limit: int = 20_000) -> WordSets:
    """Return the words of a sample of the documents, as positions in `words`.

    words: distinct words.
    limit: about how many documents to read. Whole hashes of ids are read; all if there are no more documents.

    A word of several passages of a document comes several times. Raises as `read_documents`.
    """
    found = []
    for parts in _buckets(counts, words, _most(counts, limit)):
        for batch in (part.found.batch for part in parts):
            rows = np.searchsorted(batch.owners, np.arange(batch.documents + 1))
            found.append(WordSets(batch.indptr[rows], batch.words.astype(np.int64)))
    return WordSets.joined(found)


def _most(counts: DocumentCounts, limit: int) -> int:
    """Return how many hashes of each partition hold about `limit` documents together; all if there are no more."""
    if counts.documents <= limit:
        return BUCKETS
    wanted = BUCKETS * limit // counts.documents
    return max(1, wanted)


def _buckets(counts: DocumentCounts, words: Sequence[str], most: int, *, ids: bool = False) -> Iterator[list[Part]]:
    """Yield the documents of each hash, over these words."""
    position = {word: k for k, word in enumerate(counts.words)}
    places = np.array([position.get(word, -1) for word in words], np.int64)
    # The last one is for words that no document has.
    numbers = np.append(counts.numbers, -1)
    return counts.buckets(numbers[places], ids=ids, most=most)


class _Labels:
    """Chooses documents by their labels. Many documents have the same labels, so each different text is read once."""

    def __init__(self, tasks: frozenset[str]) -> None:
        self._tasks = tasks
        self._known: dict[bytes, Mapping[str, str]] = {}

    def read(self, names: bytes) -> Mapping[str, str]:
        """Return the labels of a document. names: its labels and subjects, as they are stored."""
        labels = self._known.get(names)
        if labels is not None:
            return labels
        labels, subjects = unpack_names(names)
        # Digests differ from document to document: kept, they would fill the memory.
        if not subjects:
            self._known[names] = labels
        return labels

    def choose(self, labels: Mapping[str, str]) -> bool:
        """Return whether a document has a label of one of the tasks."""
        return not self._tasks or not self._tasks.isdisjoint(labels)


def _chosen(part: Part, labels: _Labels) -> StoredDocuments:
    """Return the chosen documents of a part, in any order."""
    of_each = [labels.read(part.records.data[start:end]) for start, end in part.found.labels.tolist()]
    chosen = [k for k, one in enumerate(of_each) if labels.choose(one)]
    batch = part.found.batch.take(np.array(chosen, np.intp))
    ids = tuple(part.ids[part.found.places[k]] for k in chosen)
    return StoredDocuments(batch, ids, tuple(of_each[k] for k in chosen))


def _by_id(parts: Sequence[StoredDocuments]) -> StoredDocuments:
    """Return the documents of all parts in the order of their ids: that of a Redis hash depends on its history."""
    ids = [document for part in parts for document in part.ids]
    labels = [one for part in parts for one in part.labels]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
    batch = DocumentBatch.stacked([part.batch for part in parts]).select(order)
    return StoredDocuments(batch, tuple(ids[k] for k in order.tolist()), tuple(labels[k] for k in order.tolist()))
