"""Document records: the word counts that are subtracted when the document is deleted.

A record is `version, offset, length of the labels, labels (msgpack), number of passages, passages`. Where the document
has subjects, the labels are a msgpack list of two: the digests of the subjects, then the labels. Where it came under a
key that is not its id, a list of labels and key stands in the place of the labels. A passage is `L,
number of distinct words, words`. A word is its gap to the word before, times two; one is added if its count is above
one, and `count - 2` follows. All integers are varints. Equal documents have equal bytes behind the offset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, kernel
from streamtopic.counts import DocumentBatch, Passage
from streamtopic.documents.subjects import DIGEST_BYTES, MAX_SUBJECTS
from streamtopic.errors import StateCorrupt
from streamtopic.formats import STORED_DOCUMENT
from streamtopic.state.segments import get_varint, put_varint

__all__ = [
    "RECORD_VERSION",
    "StoredDocument",
    "decode_records",
    "encode_records",
    "labels_part",
    "unpack_labels",
    "unreadable",
]

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
RECORD_VERSION = STORED_DOCUMENT.written

# The first byte of a msgpack list of two, and the bytes that a digest takes in the list behind it.
_WITH_SUBJECTS = 0x92
_SHORT_LIST = 0x90
_PACKED_DIGEST = 2 + DIGEST_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocument:
    """A live document as Redis holds it.

    offset: of the record that added it.
    passages: counts over the partition's word ids.
    labels: task to class.
    subjects: digests of the subjects, ascending.
    form: key of the record that added it; b"" where the key is the id itself.
    """

    offset: int
    passages: tuple[Passage, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    subjects: tuple[bytes, ...] = ()
    form: bytes = b""

    @property
    def length(self) -> int:
        """Tokens L of all passages."""
        return sum(passage.length for passage in self.passages)

    def values(self) -> list[tuple[int, bytes, bytes]]:
        """Return each passage as (L, words, counts), with bytes for the arrays: equal for equal passages."""
        found = []
        for passage in self.passages:
            words = passage.words.tobytes()
            counts = passage.counts.tobytes()
            found.append((passage.length, words, counts))
        return found


def encode_records(
    batch: DocumentBatch,
    offsets: Sequence[int] | Int64,
    labels: Sequence[Mapping[str, str]],
    subjects: Sequence[tuple[bytes, ...]] = (),
    forms: Sequence[bytes] = (),
) -> list[bytes]:
    """Return the record of each document of a batch.

    batch: documents whose words are word ids of the partition.
    offsets: of the record that added each document.
    labels: of each document, task to class.
    subjects: of each document, the digests of its subjects, ascending; () where no document has any.
    forms: of each document, its key where that is not the id, else b""; () for b"" each.
    """
    numbers = np.arange(batch.documents + 1)
    firsts = np.searchsorted(batch.owners, numbers)
    number = len(labels)
    of_subjects = subjects or [()] * number
    of_forms = forms or [b""] * number
    of_each = zip(labels, of_subjects, of_forms, strict=True)
    packed = [_packed(*of_one) for of_one in of_each]
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


def _packed(labels: Mapping[str, str], subjects: tuple[bytes, ...], form: bytes) -> bytes:
    if not (labels or subjects or form):
        return b""
    # Sorted, so that equal labels have equal bytes: the state must not depend on a producer's order.
    ordered = dict(sorted(labels.items()))
    labelled = [ordered, form] if form else ordered
    part = bytes(msgpack.packb(labelled))
    if subjects:
        digests = bytes(msgpack.packb(subjects))
        return bytes([_WITH_SUBJECTS]) + digests + part
    return part


def labels_part(packed: bytes) -> bytes:
    """Return the packed labels of a document without its subjects. Raises StateCorrupt."""
    # A list of labels and key begins with a map, and one of subjects and labels with a list.
    if len(packed) < 2 or packed[0] != _WITH_SUBJECTS or packed[1] & 0xF0 != _SHORT_LIST:
        return packed
    # The list of digests is short, so its first byte holds its length.
    digests = packed[1] & 0x0F
    if not 0 < digests <= MAX_SUBJECTS:
        raise unreadable()
    return packed[2 + digests * _PACKED_DIGEST :]


def _subjects(packed: bytes) -> tuple[bytes, ...]:
    """Return the digests of subjects in front of the labels. Raises StateCorrupt."""
    labels = labels_part(packed)
    if len(labels) == len(packed):
        return ()
    end = len(packed) - len(labels)
    try:
        digests = msgpack.unpackb(packed[1:end])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise unreadable() from error
    readable = all(isinstance(digest, bytes) for digest in digests)
    if not readable:
        raise unreadable()
    return tuple(digests)


def decode_records(records: Sequence[bytes]) -> list[StoredDocument]:
    """Undo `encode_records`. Raises StateCorrupt for bytes that are not a record."""
    return [_decode_record(record) for record in records]


def _decode_record(record: bytes) -> StoredDocument:
    # A bytearray, because numba treats arrays over bytes as another, read-only type.
    data = np.frombuffer(bytearray(record), np.uint8)
    if not record or record[0] != RECORD_VERSION:
        raise unreadable()
    # Each word and each passage takes a byte at least.
    words = np.empty(len(data), np.int32)
    counts = np.empty(len(data), np.int32)
    pieces = np.empty((len(data), 2), np.int64)
    offset, start, stop, passages, used = map(int, _decode(data, words, counts, pieces))
    if passages < 0:
        raise unreadable()
    packed = record[start:stop]
    subjects = _subjects(packed)
    labels, form = unpack_labels(labels_part(packed))
    # Copies: a slice would keep the whole of both arrays in memory.
    words = words[:used].copy()
    counts = counts[:used].copy()
    found = list[Passage]()
    start = 0
    for length, distinct in pieces[:passages].tolist():
        stop = start + distinct
        here = slice(start, stop)
        found.append(Passage(length, words[here], counts[here]))
        start = stop
    return StoredDocument(offset, tuple(found), labels, subjects, form)


def unpack_labels(packed: bytes) -> tuple[Mapping[str, str], bytes]:
    """Return the labels in a record, and the key that is not the id, else b"". Raises StateCorrupt."""
    try:
        found = msgpack.unpackb(packed) if packed else {}
        labels, form = found if isinstance(found, list) else (found, b"")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise unreadable() from error
    if not isinstance(labels, dict) or not isinstance(form, bytes):
        raise unreadable()
    return labels, form


def unreadable() -> StateCorrupt:
    """Return the error for a stored document that cannot be read."""
    return StateCorrupt("a stored document cannot be read: rebuild the state from the log (`streamtopic rebuild`)")


@kernel
def _encode(
    firsts: Int64, indptr: Int64, words: Int32, counts: Int32, lengths: Int64, offsets: Int64, names: Bytes,
    label_ends: Int64, out: Bytes, ends: Int64,
) -> Whole:  # fmt: skip
    """Write the records one behind the other to `out`, and the end of each to `ends`. Return the end of the last."""
    documents = len(firsts) - 1
    at: Whole = np.int64(0)
    label = np.int64(0)
    for document in range(documents):
        out[at] = RECORD_VERSION
        at = put_varint(out, at + 1, np.uint64(offsets[document]))
        at = put_varint(out, at, np.uint64(label_ends[document] - label))
        while label < label_ends[document]:
            out[at] = names[label]
            label += 1
            at += 1
        first = firsts[document]
        stop = firsts[document + 1]
        at = put_varint(out, at, np.uint64(stop - first))
        for row in range(first, stop):
            begin = indptr[row]
            end = indptr[row + 1]
            at = put_varint(out, at, np.uint64(lengths[row]))
            at = put_varint(out, at, np.uint64(end - begin))
            previous = -1
            for k in range(begin, end):
                word = words[k]
                count = counts[k]
                # Most words of a document occur once: these take no byte for their count.
                repeated = count > 1
                gap = word - previous - 1
                at = put_varint(out, at, np.uint64(2 * gap + repeated))
                if repeated:
                    at = put_varint(out, at, np.uint64(count - 2))
                previous = word
        ends[document] = at
    return at


@kernel
def _decode(data: Bytes, words: Int32, counts: Int32, pieces: Int64) -> tuple[Whole, Whole, Whole, Whole, Whole]:
    """Read a record into `words`, `counts` and `pieces`, as long as the record each.

    pieces: filled with (L, distinct words) of each passage.
    Returns the offset, where the labels begin and end, the number of passages, -1 if malformed, and of words.
    """
    malformed = 0, 0, 0, -1, 0
    offset, start = get_varint(data, np.int64(1))
    size, start = get_varint(data, start)
    # Each passage takes a byte at least. Larger numbers are damage, and must not become negative ones.
    if start < 0 or size > np.uint64(len(data)) or offset >> np.uint64(63):
        return malformed
    stop = start + np.int64(size)
    passages, at = get_varint(data, stop)
    if at < 0 or passages > np.uint64(len(data)):
        return malformed
    used = 0
    for piece in range(np.int64(passages)):
        length, at = get_varint(data, at)
        size, at = get_varint(data, at)
        if at < 0 or size > np.uint64(len(data)):
            return malformed
        pieces[piece, 0] = np.int64(length)
        pieces[piece, 1] = np.int64(size)
        previous = np.int64(-1)
        for _ in range(np.int64(size)):
            gap, at = get_varint(data, at)
            count = np.uint64(0)
            if gap & np.uint64(1):
                extra, at = get_varint(data, at)
                count = extra + np.uint64(1)
            if at < 0 or used == len(words):
                return malformed
            step = np.int64(gap >> np.uint64(1))
            previous = np.int64(previous + 1 + step)
            words[used] = previous
            counts[used] = np.int64(count) + 1
            used += 1
    if at != len(data):
        return malformed
    return np.int64(offset), start, stop, np.int64(passages), used
