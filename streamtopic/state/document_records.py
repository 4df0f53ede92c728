"""Document records: the word counts that are subtracted when the document is deleted.

A record is `offset, length of the names, names, number of passages, passages`. The names are nothing, or
labels and digests of subjects as a msgpack list of two. A passage is `L, number of distinct words, words`. A word is
its gap to the word before, times two; one is added if its count is above one, and `count - 2` follows. All integers
are varints. Equal documents have equal bytes after the offset.

One compiled pass reads many records: `decode_batch` gives them as a batch over the words that are asked for. Of a
StoredDocument only what comes before its passages is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from types import MappingProxyType

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, allocating, inner, kernel
from streamtopic.counts import MAX_LENGTH, TWICE, DocumentBatch
from streamtopic.errors import StateCorrupt

__all__ = [
    "EVERY_OFFSET",
    "DecodedRecords",
    "Records",
    "StoredDocument",
    "ascending_rows",
    "decode_batch",
    "encode_records",
    "record_offset",
    "unpack_names",
]

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

EVERY_OFFSET = 1 << 62
"""An offset after all records."""

_NO_LABELS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocument:
    """A live document as Redis holds it.

    record: its bytes.
    offset: of the record that added it.
    body: its passages as bytes, equal for equal passages.
    labels: task to class.
    subjects: digests of the subjects, ascending.
    """

    record: bytes
    offset: int
    body: bytes = b""
    labels: Mapping[str, str] = field(default_factory=dict)
    subjects: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, record: bytes) -> "StoredDocument":
        """Read what comes before the passages of a record. Raises StateCorrupt for bytes that are not a record."""
        offset, at = _whole(record, 0)
        size, begin = _whole(record, at)
        end = begin + size
        if end >= len(record):
            raise unreadable()
        return cls(record, offset, record[end:], *unpack_names(record[begin:end]))


def record_offset(record: bytes) -> int:
    """Return the offset of the log's record that added a document. Raises StateCorrupt for bytes that are no record."""
    return _whole(record, 0)[0]


def _whole(record: bytes, at: int) -> tuple[int, int]:
    """Return the varint at a place, and where it ends. Python reads a few faster than it calls compiled code."""
    value = 0
    for shift in range(0, 63, 7):
        byte = record[at] if at < len(record) else 0xFF
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise unreadable()


def encode_records(
    batch: DocumentBatch,
    offsets: Sequence[int] | Int64,
    labels: Sequence[Mapping[str, str]],
    subjects: Sequence[tuple[bytes, ...]] = (),
) -> list[bytes]:
    """Return the record of each document of a batch.

    batch: documents whose words are word ids of the partition.
    offsets: of the record that added each document.
    labels: of each document, task to class.
    subjects: of each document, the digests of its subjects, ascending; () if no document has any.
    """
    numbers = np.arange(batch.documents + 1)
    firsts = np.searchsorted(batch.owners, numbers)
    number = len(labels)
    of_subjects = subjects or [()] * number
    packed = [b""] * number
    if any(labels) or any(of_subjects):
        packed = [_packed(*of_one) for of_one in zip(labels, of_subjects, strict=True)]
    sizes = [len(label) for label in packed]
    label_ends = np.cumsum(sizes, dtype=np.int64)
    joined = bytearray().join(packed)
    names = np.frombuffer(joined, np.uint8)
    places = np.array(offsets, np.int64)
    arrays = batch.indptr, batch.words, batch.counts, batch.lengths
    # The most that varints of these numbers can take: growing the array inside the loop would cost more.
    for_words = 10 * len(batch.words)
    for_heads = 16 * len(batch.lengths) + 32 * batch.documents
    most = for_words + for_heads + len(names) + 16
    out = np.empty(most, np.uint8)
    ends = np.empty(batch.documents, np.int64)
    used = _encode(firsts, *arrays, places, names, label_ends, out, ends)
    whole = out[:used].tobytes()
    edges = [0, *ends.tolist()]
    return [whole[start:end] for start, end in pairwise(edges)]


def _packed(labels: Mapping[str, str], subjects: tuple[bytes, ...]) -> bytes:
    if not (labels or subjects):
        return b""
    # Sorted, so that equal labels have equal bytes: the state must not depend on a producer's order.
    return bytes(msgpack.packb((dict(sorted(labels.items())), subjects)))


def unpack_names(packed: bytes) -> tuple[Mapping[str, str], tuple[bytes, ...]]:
    """Return the labels in a record, and the digests of subjects. Raises StateCorrupt."""
    if not packed:
        return _NO_LABELS, ()
    try:
        labels, subjects = msgpack.unpackb(packed)
        readable = all(type(text) is str for text in chain.from_iterable(labels.items()))
        readable &= all(type(digest) is bytes for digest in subjects)
    except (AttributeError, ValueError, TypeError, msgpack.UnpackException) as error:
        raise unreadable() from error
    if not readable:
        raise unreadable()
    return MappingProxyType(labels), tuple(subjects)


def unreadable() -> StateCorrupt:
    """Return the error for a stored document that cannot be read."""
    return StateCorrupt("a stored document cannot be read: rebuild the state from the log (`streamtopic rebuild`)")


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Stored documents in one piece.

    data: all records, one after the other.
    ends: (k,) the end of each record in `data`.
    """

    data: bytes
    ends: Int64

    @classmethod
    def of(cls, records: Sequence[bytes]) -> "Records":
        """Lay records one after the other."""
        return cls(b"".join(records), np.cumsum([len(record) for record in records], dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRecords:
    """The chosen ones of some records.

    batch: their passages, in the order of the records.
    places: (documents,) the number of each document's record.
    labels: (documents, 2) where the labels of each begin and end in the data.
    offsets: (documents,) of the log's record that added each.
    """

    batch: DocumentBatch
    places: Int64
    labels: Int64
    offsets: Int64

    def take(self, documents: npt.NDArray[np.intp]) -> "DecodedRecords":
        """Return some of the documents. documents: their numbers, ascending."""
        batch = self.batch.take(documents)
        return DecodedRecords(batch, self.places[documents], self.labels[documents], self.offsets[documents])


def decode_batch(records: Records, positions: Int64, before: int) -> DecodedRecords:
    """Return the documents that were added before an offset.

    positions: (ids,) the position of each word id among the words that are asked for, -1 for a word to leave out. All
        ids that these documents may hold are among them.
    before: offset.

    Every passage stays, and its length counts the words that are left out. Raises StateCorrupt for other bytes.
    """
    # A copy that can be written to: numba compiles a kernel once more for an array that cannot.
    data = np.frombuffer(bytearray(records.data), np.uint8)
    documents, places, labels, offsets, indptr, ids, amounts, lengths, limited, owners = _decode(
        data, records.ends, positions, before
    )
    if documents < 0:
        raise unreadable()
    words, counts = ascending_rows(indptr, ids, amounts)
    # Two ids of one word cannot both be live.
    twice = np.flatnonzero(words[1:] == words[:-1]) + 1
    if not np.isin(twice, indptr).all():
        raise unreadable()
    batch = DocumentBatch(indptr, words, counts, lengths, limited, owners, documents)
    return DecodedRecords(batch, places, labels, offsets)


@inner
def _put(out: Bytes, at: Whole, value: np.uint64) -> Whole:
    """Write `value` at `at`; return the position after it. The caller sees to ten free bytes.

    at: np.int64 in a kernel also at the beginning, since numba compiles the function again for a literal.
    """
    rest = np.uint64(value)
    while rest > np.uint64(127):
        out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@inner
def _get(data: Bytes, at: Whole) -> tuple[np.uint64, Whole]:
    """Read an integer at `at`; return it and the position after it, which is -1 for a malformed one.

    With a position of -1 it returns -1 again, so that a caller may read several integers and look once.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    if at < 0:
        return value, -1
    while at < len(data) and shift < np.uint64(70):
        byte = data[at]
        at += 1
        value |= np.uint64(byte & np.uint8(127)) << shift
        if byte < np.uint8(128):
            return value, at
        shift += np.uint64(7)
    return value, -1


@allocating
def _decode(
    data: Bytes, ends: Int64, positions: Int64, before: int
) -> tuple[int, Int64, Int64, Int64, Int64, Int32, Int32, Int64, Int64, Int32]:
    """Return the number of chosen documents, -1 if a record is malformed; places, labels, offsets; their batch."""
    # A passage takes two bytes at least and a word one, so no array is too short; untouched pages take no memory.
    most = len(data) // 2 + 1
    places = np.empty(len(ends), np.int64)
    labels = np.empty((len(ends), 2), np.int64)
    offsets = np.empty(len(ends), np.int64)
    indptr = np.zeros(most + 1, np.int64)
    lengths = np.empty(most, np.int64)
    limited = np.empty(most, np.int64)
    owners = np.empty(most, np.int32)
    # Word and count in one number.
    entries = np.empty(len(data), np.int64)
    documents = 0
    rows = np.int64(0)
    start = np.int64(0)
    for k in range(len(ends)):
        record = data[start : ends[k]]
        begin = start
        start = ends[k]
        offset, body = _head(record)
        if body < 0:
            documents = -1
            break
        if offset >= before:
            continue
        size, at = _get(record, body)
        stop = at + np.int64(size)
        free = indptr[rows:], lengths[rows:], limited[rows:], owners[rows:]
        held = _body(record[stop:], positions, documents, free[0], free[1], free[2], free[3], entries)
        if held < 0:
            documents = -1
            break
        places[documents] = k
        offsets[documents] = offset
        labels[documents, 0] = begin + at
        labels[documents, 1] = begin + stop
        rows += held
        documents += 1
    used = entries[: indptr[rows]]
    taken = max(documents, 0)
    words = (used >> 32).astype(np.int32)
    counts = (used & 0xFFFFFFFF).astype(np.int32)
    chosen = places[:taken], labels[:taken], offsets[:taken]
    batch = indptr[: rows + 1].copy(), words, counts, lengths[:rows].copy(), limited[:rows].copy(), owners[:rows].copy()
    return (documents, *chosen, *batch)


@inner
def _head(record: Bytes) -> tuple[np.int64, Whole]:
    """Return the offset in a record, and where the length of its labels begins, -1 if the record is malformed."""
    offset, at = _get(record, np.int64(0))
    size, behind = _get(record, at)
    if behind < 0 or size > np.uint64(len(record) - behind) or offset >> np.uint64(63):
        return np.int64(0), -1
    return np.int64(offset), at


@inner
def _body(
    body: Bytes, positions: Int64, document: int, indptr: Int64, lengths: Int64, limited: Int64,
    owners: Int32, entries: Int64,
) -> Whole:  # fmt: skip
    """Read the passages of one record. Return how many there are, -1 if they are malformed.

    indptr, lengths, limited, owners: places for the rows of this document and of later ones. The rows before them end
        at indptr[0].
    entries: of all documents, a word's position above 32 bits with its count.
    """
    passages, at = _get(body, np.int64(0))
    if at < 0 or passages > np.uint64(len(body)):
        return -1
    for row in range(np.int64(passages)):
        length, at = _get(body, at)
        size, at = _get(body, at)
        if at < 0 or size > np.uint64(len(body)) or length > np.uint64(MAX_LENGTH):
            return -1
        first = indptr[row]
        at, used, limited[row] = _words(body, at, np.int64(size), np.int64(length), positions, entries, first)
        if at < 0:
            return -1
        lengths[row] = np.int64(length)
        owners[row] = document
        indptr[row + 1] = used
    return np.int64(passages) if at == len(body) else np.int64(-1)


@inner
def _words(
    body: Bytes, at: Whole, size: Whole, rest: Whole, positions: Int64, entries: Int64, used: Whole
) -> tuple[Whole, Whole, Whole]:
    """Read the words of one passage to `entries`.

    Return its end, -1 if it is malformed, the end of the entries, and its tokens if a word counts at most twice.

    size: number of words.
    rest: tokens of the passage.
    """
    word = np.int64(-1)
    limited = rest
    for _ in range(size):
        gap, at = _get(body, at)
        count = np.int64(1)
        if gap & np.uint64(1):
            extra, at = _get(body, at)
            # A damaged number may be too large for a signed one.
            count = np.int64(min(extra, np.uint64(MAX_LENGTH))) + 2
        step = gap >> np.uint64(1)
        rest -= count
        if at < 0 or step >> np.uint64(31) or rest < 0:
            return -1, used, limited
        word += 1 + np.int64(step)
        if word >= len(positions):
            return -1, used, limited
        limited -= max(count - TWICE, np.int64(0))
        place = positions[word]
        if place >= 0:
            entries[used] = (place << 32) | count
            used += 1
    return at, used, limited


def ascending_rows(indptr: Int64, ids: Int32, counts: Int32) -> tuple[Int32, Int32]:
    """Return the ids of each row in ascending order, and its counts with them.

    indptr: (rows + 1,) where each row begins.
    ids: of 0 or more, each once in a row.
    """
    owners = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    # One sort of all rows takes about half the time of a sort of each.
    order = np.argsort((owners << 32) | ids)
    return ids[order], counts[order]


@kernel
def _encode(
    firsts: Int64, indptr: Int64, words: Int32, counts: Int32, lengths: Int64, offsets: Int64, names: Bytes,
    label_ends: Int64, out: Bytes, ends: Int64,
) -> Whole:  # fmt: skip
    """Write the records one after the other to `out`, and the end of each to `ends`. Return the end of the last."""
    documents = len(firsts) - 1
    at: Whole = np.int64(0)
    label = np.int64(0)
    for document in range(documents):
        at = _put(out, at, np.uint64(offsets[document]))
        at = _put(out, at, np.uint64(label_ends[document] - label))
        while label < label_ends[document]:
            out[at] = names[label]
            label += 1
            at += 1
        first = firsts[document]
        stop = firsts[document + 1]
        at = _put(out, at, np.uint64(stop - first))
        for row in range(first, stop):
            begin = indptr[row]
            end = indptr[row + 1]
            at = _put(out, at, np.uint64(lengths[row]))
            at = _put(out, at, np.uint64(end - begin))
            previous = -1
            for k in range(begin, end):
                word = words[k]
                count = counts[k]
                # Most words of a document occur once: these take no byte for their count.
                repeated = count > 1
                gap = word - previous - 1
                at = _put(out, at, np.uint64(2 * gap + repeated))
                if repeated:
                    at = _put(out, at, np.uint64(count - 2))
                previous = word
        ends[document] = at
    return at
