"""Reading the documents that a snapshot counts. The result depends on these documents, and not on their history."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Self

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, allocating, inner, kernel
from streamtopic.counts import MAX_LENGTH, DocumentBatch, WordSets
from streamtopic.state.connection import Connection
from streamtopic.state.document_records import RECORD_VERSION, labels_part, unpack_labels, unreadable
from streamtopic.state.meta import Meta, read_position
from streamtopic.state.reader import PartitionView, Snapshot
from streamtopic.state.redis_keys import BUCKETS
from streamtopic.state.segments import get_varint

__all__ = ["StoredDocuments", "document_ids", "document_parts", "read_documents", "sample_words"]


Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_Counted = tuple[bytes, bytes, int, int]
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocuments:
    """Documents in the order of their ids.

    batch: their passages. Words are positions in the words that were asked for; other words are left out, but the
        lengths L count them.
    ids: id of each document, as its producer gave it.
    labels: of each document, task to class.
    whole: whether all documents of the snapshot were still there when they were read; if not, take a newer snapshot.
    """

    batch: DocumentBatch
    ids: tuple[bytes, ...]
    labels: tuple[Mapping[str, str], ...]
    whole: bool

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class _Record:
    """One chosen document.

    body: its record behind the labels.
    view: number of the partition's view in the snapshot.
    """

    id: bytes
    labels: Mapping[str, str]
    body: bytes
    view: int


def read_documents(
    connection: Connection,
    snapshot: Snapshot,
    words: Sequence[str],
    *,
    labelled: Collection[str] = (),
    limit: int | None = None,
) -> StoredDocuments:
    """Read the documents that a snapshot counts, in one pass over each partition's records.

    words: distinct words; those of the batch are positions in them.
    labelled: tasks; only documents with a label of one of them are read, all documents where it is empty.
    limit: about how many documents to read, None for all. Whole hashes of ids are read, the same of every partition, so
        that the choice depends on the ids alone.

    Raises StateCorrupt, StateMismatch, ComponentUnreachable.
    """
    buckets = BUCKETS if limit is None else _buckets(snapshot, limit)
    chosen: list[_Record] = []
    found = 0
    labels = _Labels(frozenset(labelled))
    for number, view in enumerate(snapshot.views):
        until = view.meta.end_of(snapshot.through)
        for bucket in range(buckets):
            counted = list(_counted(connection, view, bucket, until))
            found += len(counted)
            chosen += labels.chosen(counted, number)
    # By id: the order of the fields of a Redis hash depends on its history.
    chosen.sort(key=lambda record: record.id)
    places = _Places.of(snapshot.views, words)
    batch = places.batch(chosen)
    ids = [record.id for record in chosen]
    of_each = [record.labels for record in chosen]
    # The snapshot does not tell how many documents a part of the hashes holds.
    whole = found == snapshot.documents if buckets == BUCKETS else _unchanged(connection, snapshot)
    return StoredDocuments(batch, tuple(ids), tuple(of_each), whole)


def document_parts(
    connection: Connection, snapshot: Snapshot, words: Sequence[str]
) -> Iterator[tuple[DocumentBatch, Sequence[Mapping[str, str]]]]:
    """Yield all documents that a snapshot counts, part by part: their passages and their labels.

    words: distinct words; those of a batch are positions in them.
    A part holds the documents of one hash of ids, in the order of their ids: parts depend on the documents alone.
    Documents that came or went since the snapshot are missing: where all parts together have fewer than
    `snapshot.documents`, take a newer snapshot. Raises as `read_documents`.
    """
    places = _Places.of(snapshot.views, words)
    labels = _Labels(frozenset())
    for bucket in range(BUCKETS):
        chosen: list[_Record] = []
        for number, view in enumerate(snapshot.views):
            until = view.meta.end_of(snapshot.through)
            counted = list(_counted(connection, view, bucket, until))
            chosen += labels.chosen(counted, number)
        chosen.sort(key=lambda record: record.id)
        of_each = [record.labels for record in chosen]
        yield places.batch(chosen), of_each


def document_ids(connection: Connection, snapshot: Snapshot) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield all documents that a snapshot counts, part by part: a partition, and ids of documents in it.

    Documents that came or went since the snapshot are missing, as in `document_parts`. Raises as `read_documents`.
    """
    for view in snapshot.views:
        until = view.meta.end_of(snapshot.through)
        for bucket in range(BUCKETS):
            counted = _counted(connection, view, bucket, until)
            yield view.partition, [document for document, *_ in counted]


def _buckets(snapshot: Snapshot, limit: int) -> int:
    """Return how many hashes of each partition hold about `limit` documents together; all where there are no more."""
    if snapshot.documents <= limit:
        return BUCKETS
    wanted = BUCKETS * limit // snapshot.documents
    return max(1, wanted)


def _unchanged(connection: Connection, snapshot: Snapshot) -> bool:
    """Whether no document of the snapshot's epochs was deleted or replaced since, by the partitions' counters."""
    for view in snapshot.views:
        old = view.meta
        new, _ = read_position(connection, view.keys)
        through = old.epoch if snapshot.through is None else snapshot.through
        if new.folded > through:
            # Later epochs were folded into these, and their counters cannot be told apart any more.
            return False
        if _removed(old, through) != _removed(new, through):
            return False
    return True


def _removed(meta: Meta, through: int) -> int:
    """Return how many documents of epochs up to `through` were added and have left again."""
    added = 0
    for epoch, number in meta.counted.items():
        if epoch <= through:
            added += number
    return added - meta.live_through(through)


def _counted(connection: Connection, view: PartitionView, bucket: int, until: int) -> Iterator[_Counted]:
    """Yield (id, record, start and end of its labels) of the documents in a hash with offsets below `until`."""
    found = list(connection.scan(view.keys.documents(bucket)))
    records = [record for _, record in found]
    # Together, since one call of compiled code for each record would cost more than the reading.
    data, ends = _together(records)
    heads = _heads(data, ends)
    if len(heads) != len(found):
        raise unreadable()
    for (document, record), (offset, start, end) in zip(found, heads.tolist(), strict=True):
        if offset < until:
            yield document, record, start, end


def _together(strings: Sequence[bytes]) -> tuple[Bytes, Int64]:
    """Return strings one after the other, and the end of each."""
    whole = bytearray().join(strings)
    sizes = [len(string) for string in strings]
    return np.frombuffer(whole, np.uint8), np.cumsum(sizes, dtype=np.int64)


class _Labels:
    """Chooses documents by their labels. Many documents have the same labels, so each different text is read once."""

    def __init__(self, tasks: frozenset[str]) -> None:
        self._tasks = tasks
        self._known: dict[bytes, Mapping[str, str]] = {b"": _NO_LABELS}

    def chosen(self, counted: Sequence[_Counted], view: int) -> Iterator[_Record]:
        """Yield the documents with a label of one of the tasks; view: number of their partition's view."""
        for document, record, start, end in counted:
            head = record[start:end]
            packed = labels_part(head)
            labels = self._known.get(packed)
            if labels is None:
                labels, form = _unpacked(packed)
                # Labels beside a key are those of one document.
                if not form:
                    self._known[packed] = labels
            if not self._tasks or not self._tasks.isdisjoint(labels):
                body = record[end:]
                yield _Record(document, labels, body, view)


def _unpacked(packed: bytes) -> tuple[Mapping[str, str], bytes]:
    labels, form = unpack_labels(packed)
    texts = chain.from_iterable(labels.items())
    if not all(isinstance(text, str) for text in texts):
        raise unreadable()
    return MappingProxyType(dict(labels)), form


def _positions(view: PartitionView, place: Mapping[str, int], size: int) -> Int64:
    """Return the place of each word id of a partition, (size,) int64, -1 for a word without a place."""
    position = np.full(size, -1, np.int64)
    for number, word in view.names.items():
        position[number] = place.get(word, -1)
    return position


@dataclass(frozen=True, slots=True, eq=False)
class _Places:
    """The places of all partitions' words in one array, since each partition has word ids of its own.

    positions: place of each word id, -1 for a word without a place, partition after partition.
    starts: (partitions + 1,) where each partition begins.
    """

    positions: Int64
    starts: Int64

    @classmethod
    def of(cls, views: Sequence[PartitionView], words: Sequence[str]) -> Self:
        """Place the word ids of these partitions in `words`."""
        place = {word: k for k, word in enumerate(words)}
        tables = [np.zeros(0, np.int64)]
        starts = [0]
        for view in views:
            size = view.meta.next_word
            positions = _positions(view, place, size)
            tables.append(positions)
            starts.append(starts[-1] + size)
        return cls(np.concatenate(tables), np.array(starts, np.int64))

    def batch(self, records: Sequence[_Record]) -> DocumentBatch:
        """Return the passages of documents. Raises StateCorrupt."""
        bodies = [record.body for record in records]
        views_of = [record.view for record in records]
        data, ends = _together(bodies)
        partitions = np.array(views_of, np.int64)
        found = _passages(data, ends, partitions, self.positions, self.starts)
        indptr = found[0]
        if len(indptr) == 0:
            raise unreadable()
        return DocumentBatch(*found, len(records))


@allocating
def _heads(data: Bytes, ends: Int64) -> Int64:
    """Return (offset, start and end of the labels in the record) of each record, (k, 3); fewer if one is malformed."""
    heads = np.empty((len(ends), 3), np.int64)
    start = 0
    for k in range(len(ends)):
        record = data[start : ends[k]]
        start = ends[k]
        if len(record) == 0 or record[0] != RECORD_VERSION:
            return heads[:k]
        offset, at = get_varint(record, np.int64(1))
        size, at = get_varint(record, at)
        rest = np.uint64(len(record) - at)
        if at < 0 or size > rest or offset >> np.uint64(63):
            return heads[:k]
        head = heads[k]
        head[0] = np.int64(offset)
        head[1] = at
        head[2] = at + np.int64(size)
    return heads


@allocating
def _passages(
    data: Bytes, ends: Int64, of: Int64, positions: Int64, starts: Int64
) -> tuple[Int64, Int32, Int32, Int64, Int32]:
    """Read bodies of records into the arrays of a DocumentBatch; an empty indptr says that one is malformed.

    data, ends: the bodies one after the other, and the end of each.
    of: (bodies,) partition of each body.
    positions, starts: word w of partition p is at positions[starts[p] + w], -1 to leave it out.
    """
    # A passage takes two bytes at least and a word one, so no array is too short; untouched pages take no memory.
    most = len(data) // 2 + 1
    indptr = np.zeros(most, np.int64)
    lengths = np.empty(most, np.int64)
    owners = np.empty(most, np.int32)
    words = np.empty(len(data), np.int32)
    counts = np.empty(len(data), np.int32)
    nothing = words[:0]
    bad = indptr[:0], nothing, nothing, lengths[:0], nothing
    rows = 0
    used = 0
    start = 0
    for k in range(len(ends)):
        body = data[start : ends[k]]
        start = ends[k]
        part = of[k]
        position = positions[starts[part] : starts[part + 1]]
        passages, at = get_varint(body, np.int64(0))
        if at < 0 or passages > np.uint64(len(body)):
            return bad
        for _ in range(np.int64(passages)):
            length, at = get_varint(body, at)
            size, at = get_varint(body, at)
            if at < 0 or size > np.uint64(len(body)) or length > np.uint64(MAX_LENGTH):
                return bad
            free_words = words[used:]
            free_counts = counts[used:]
            at, held = _words(body, at, int(size), int(length), position, free_words, free_counts)
            if at < 0:
                return bad
            used += held
            lengths[rows] = np.int64(length)
            owners[rows] = k
            rows += 1
            indptr[rows] = used
        if at != len(body):
            return bad
    words = words[:used]
    counts = counts[:used]
    return indptr[: rows + 1], words, counts, lengths[:rows], owners[:rows]


@allocating
def _words(
    body: Bytes, at: Whole, size: int, length: int, position: Int64, words: Int32, counts: Int32
) -> tuple[Whole, int]:
    """Read a passage into `words`, ascending, and `counts`. Return its end, -1 if malformed, and its number of words.

    at: place of the first word in the body.
    size: number of words; length: tokens L, an upper bound of all counts together.
    position: of each word id, -1 to leave it out.
    """
    found = np.empty(size, np.int64)
    held = 0
    word = np.int64(-1)
    rest = np.int64(length)
    for _ in range(size):
        gap, at = get_varint(body, at)
        extra = np.uint64(0)
        if gap & np.uint64(1):
            extra, at = get_varint(body, at)
            extra += np.uint64(1)
        step = gap >> np.uint64(1)
        # Before any cast: a damaged number may be too large for a signed one.
        if at < 0 or step >= np.uint64(len(position)) or extra >= np.uint64(length):
            return -1, 0
        count = 1 + np.int64(extra)
        word += 1 + np.int64(step)
        rest -= count
        if word >= len(position) or rest < 0:
            return -1, 0
        place = position[word]
        if place >= 0:
            found[held] = (place << 32) | count
            held += 1
    # Word and count in one number, so that one plain sort moves both.
    _sort(found, held)
    for k in range(held):
        words[k] = found[k] >> 32
        counts[k] = found[k] & np.int64(0xFFFFFFFF)
        # Two ids of one word cannot both be live.
        if k and words[k] == words[k - 1]:
            return -1, 0
    return at, held


@inner
def _sort(values: Int64, size: int) -> None:
    """Sort values[:size] in place, ascending.

    This is Shell's method, with gaps that shrink by 4/9. It is for the words of a passage, a few hundred at most times:
    sorting them costs little beside reading them. numba's own sort is ten functions, which take longer to compile.
    """
    gap = size
    while gap > 1:
        gap = max(4 * gap // 9, 1)
        for k in range(gap, size):
            value = values[k]
            at = k
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value


def sample_words(
    connection: Connection, snapshot: Snapshot, words: Sequence[str], limit: int = 20_000
) -> WordSets | None:
    """Return the words of a sample of the documents that a snapshot counts, as positions in `words`.

    words: distinct words.
    limit: about how many documents to read. Whole hashes of ids are read; all where there are no more documents.

    A word of several passages of a document comes several times. None where all documents are read and some have come
    or gone since the snapshot. Raises StateCorrupt.
    """
    buckets = _buckets(snapshot, limit)
    place = {word: k for k, word in enumerate(words)}
    parts = []
    for view in snapshot.views:
        # One more, for the words that came after the snapshot: they have no place.
        size = view.meta.next_word + 1
        position = _positions(view, place, size)
        until = view.meta.end_of(snapshot.through)
        for bucket in range(buckets):
            part = _bucket(connection, view, bucket, position, until)
            parts.append(part)
    sample = WordSets.joined(parts)
    if buckets == BUCKETS and len(sample) != snapshot.documents:
        return None
    return sample


def _bucket(connection: Connection, view: PartitionView, bucket: int, position: Int64, until: int) -> WordSets:
    """Return the words of the documents in a hash with offsets below `until`."""
    scanned = connection.scan(view.keys.documents(bucket))
    records = [record for _, record in scanned]
    data, ends = _together(records)
    indptr = np.zeros(len(ends) + 1, np.int64)
    held = np.empty(len(data), np.int64)
    documents = _held(data, ends, position, until, indptr, held)
    if documents < 0:
        raise unreadable()
    indptr = indptr[: documents + 1]
    words = held[: indptr[-1]].copy()
    return WordSets(indptr, words)


@kernel
def _held(data: Bytes, ends: Int64, position: Int64, until: int, indptr: Int64, held: Int64) -> int:
    """Read the words of records with offsets below `until`. Return how many records these are, -1 if one is malformed.

    data, ends: the records one after the other, and the end of each.
    position: (ids + 1,) place of each word id, -1 to leave it out.
    indptr: (records + 1,) zeros, filled with where the words of each of these records end.
    held: (bytes,) filled with the words.
    """
    last = len(position) - 1
    used = 0
    documents = 0
    start = 0
    for end in ends:
        record = data[start:end]
        start = end
        if len(record) == 0 or record[0] != RECORD_VERSION:
            return -1
        offset, at = get_varint(record, np.int64(1))
        labels, at = get_varint(record, at)
        if at < 0:
            return -1
        passages, at = get_varint(record, at + np.int64(labels))
        if at < 0:
            return -1
        if np.int64(offset) >= until:
            continue
        for _ in range(np.int64(passages)):
            _, at = get_varint(record, at)
            size, at = get_varint(record, at)
            word = np.int64(-1)
            for _ in range(np.int64(size)):
                gap, at = get_varint(record, at)
                if gap & np.uint64(1):
                    _, at = get_varint(record, at)
                step = gap >> np.uint64(1)
                if at < 0 or step > np.uint64(last):
                    return -1
                word += 1 + np.int64(step)
                # Words that came after the snapshot have no place.
                place = position[word] if word < last else -1
                if place >= 0:
                    held[used] = place
                    used += 1
            if at < 0:
                return -1
        documents += 1
        indptr[documents] = used
    return documents
