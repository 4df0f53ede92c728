"""Decode records of the documents topic, a batch at a time: plain adds by compiled loops, all else by `events`.

The compiled loops read msgpack maps of `op`, `text` or `counts`, `labels` and `ts`. They take a record only if there
is no doubt: ASCII text, or counts within their limits. They leave everything unusual or wrong to `events.decode`, which
names the reason. A record that they take gives the event that `events.decode` would give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.compiled import inner, kernel, once
from streamtopic.documents.events import (
    HEARTBEAT_KEY,
    MAX_COUNT,
    MAX_KEY,
    MAX_TEXT,
    MAX_VALUE,
    STRUCTURED,
    Add,
    Delete,
    Heartbeat,
    check_labels,
    dated,
    decode_record,
    document_of,
)
from streamtopic.documents.subjects import subject_digests
from streamtopic.errors import InvalidEvent
from streamtopic.state import AddedDocument, AddedDocuments, Batch, Rows, RowSpan
from streamtopic.streams import MURMUR2, partition_of
from streamtopic.streams.event_log import MAX_HEADERS, murmur2
from streamtopic.words.lexicon import INSERT, Table, Whole, ascii_tokens, find, leave, word_memory
from streamtopic.words.text import MAX_PASSAGE, MAX_WORD, MAX_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.documents.events import Event as RecordEvent
    from streamtopic.state import Lexicon
    from streamtopic.streams import Record

__all__ = ["Decoded", "Event", "decode_all"]


Event = AddedDocument | Delete | Heartbeat | InvalidEvent

# Bytes of an average document in Redis (measured: 1.8 a word). A flush has to be bounded before it is encoded.
_BYTES_A_WORD = 2
_BYTES_A_DOCUMENT = 60
# Each subject is one more write of the commit, which costs Redis as much time as so many bytes (MAX_FLUSH_RECORD_BYTES
# and MAX_FLUSH_WRITES).
_BYTES_A_SUBJECT = 375
# Keys of the service's own begin with the first, a few ids do as well; structured keys begin with the others.
_UNUSUAL = (HEARTBEAT_KEY[:3], *STRUCTURED)
_NO_LABELS: Mapping[str, str] = {}
# The lexicon grows by at most so many bytes at a time: a large record may hold few different words.
_GROWTH = 1 << 16

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]

LEFT, TAKEN = 0, 1

# One bit for each field: a field that is twice in a map is found, and the record is left to `events.decode`.
_OP = 1
_TEXT = 2
_COUNTS = 4
_TS = 8
_LABELS = 16
_NO_STRING = -1

_LONGEST_NAME = 6


def _name_of(text: bytes) -> int:
    """Return the number that represents a name of a few bytes: its size, then its bytes."""
    return int.from_bytes(bytes([len(text)]) + text)


# Kernels compare numbers: a comparison of bytes would be compiled at each place of a call.
_OP_NAME = _name_of(b"op")
_ADD_NAME = _name_of(b"add")
_TEXT_NAME = _name_of(b"text")
_COUNTS_NAME = _name_of(b"counts")
_TS_NAME = _name_of(b"ts")
_LABELS_NAME = _name_of(b"labels")

# Any: mypy knows a sequence and an int from the source; compiled, it takes an array and numpy's integers.
_murmur2: Any = once(murmur2)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Decoded records of one partition.

    records: (k,), in the order of the log.
    documents: (k,), the document of each record that is a plain add; for any other record its place holds nothing.
    others: place to the event of each other record, or the reason why it was refused.
    homes: (k,), the partition that the key of each record belongs to.
    lexicon: holds the words of added documents.
    batch: the same records as the state prepares them: keys, which are document ids, sizes, words.
    subjects: place of a record, as `batch` counts places, to the subjects that its add names, if it names any.
    """

    records: Sequence[Record]
    documents: AddedDocuments
    others: Mapping[int, Event]
    homes: Sequence[int]
    lexicon: Lexicon
    batch: Batch
    subjects: Mapping[int, Sequence[str]] = field(default_factory=dict)

    @property
    def next_offset(self) -> int:
        """The offset of the first record after these."""
        return self.records[-1].next_offset

    @property
    def events(self) -> list[Event]:
        """The event of each record, or the reason why it was refused. An object for each: read it once."""
        found: list[Event] = [*self.documents]
        for k, event in self.others.items():
            found[k] = event
        return found

    def split(self, at: int) -> tuple[Decoded, Decoded | None]:
        """Return the first `at` records, and the rest if there is one."""
        end = len(self.records)
        rest = self._part(at, end) if at < end else None
        return self._part(0, at), rest

    def _part(self, start: int, stop: int) -> Decoded:
        """Return the records from `start` to before `stop`."""
        here = slice(start, stop)
        batch = self.batch
        first = batch.start + start
        part = Batch(batch.keys[here], batch.sizes[here], batch.tables, first)
        records = self.records[here]
        documents = self.documents.span(start, stop)
        others = {k - start: event for k, event in self.others.items() if start <= k < stop}
        homes = self.homes[here]
        return Decoded(records, documents, others, homes, self.lexicon, part, self.subjects)


def decode_all(
    records: Sequence[Record],
    lexicon: Lexicon,
    partitions: int,
    partitioner: str = MURMUR2,
    secret: bytes = b"",
    *,
    days: bool = False,
) -> Decoded:
    """Decode records as `events.decode` does, plain adds by compiled code.

    records: of one partition, in the order of the log.
    lexicon: gets the words that it does not hold yet.
    partitions: number of partitions of the topic.
    partitioner: name of the hash that chooses a key's partition.
    secret: of the partition, for the digests of subjects.
    days: whether the day of a document is among its labels.
    """
    keys = [record.key or b"" for record in records]
    homes = _homes(keys, partitions, partitioner)
    values = [record.value or b"" for record in records]
    unusual = [k for k, record in enumerate(records) if not _is_usual(record)]
    for k in unusual:
        keys[k] = _live_key(records[k].key)
        values[k] = _readable(records[k])
    # Another thread may give entries to words meanwhile: records are also decoded ahead of the commit.
    with lexicon.lock:
        rows, taken, places, times = _scan(values, lexicon)
    labels, doubtful = _labels(values, places, times if days else [])
    left = {*np.flatnonzero(taken != TAKEN).tolist(), *doubtful}
    left.update(k for k in unusual if k not in left and not _may_add(records[k]))
    others: dict[int, Event | Add] = {k: _event(records[k]) for k in sorted(left)}
    sizes = _BYTES_A_DOCUMENT + _BYTES_A_WORD * (rows.stops - rows.starts)
    for k, (start, stop) in places.items():
        sizes[k] += stop - start
    # `_lay_out` fills in those of other adds.
    sizes[list(others)] = 0
    named = {k: add.subjects for k, add in others.items() if isinstance(add, Add) and add.subjects}
    of_others = _lay_out(others, records, sizes, lexicon, secret, days=days)
    numbers = np.arange(len(records))
    documents = AddedDocuments(
        ids=keys,
        offsets=np.array([record.offset for record in records], np.int64),
        rows=rows,
        firsts=numbers,
        # A text without a token has no passage.
        stops=numbers + (rows.lengths > 0),
        labels=labels,
        subjects=[()] * len(records),
    )
    batch = Batch(keys, sizes, [(rows, numbers), of_others])
    # `_lay_out` has replaced every Add by an AddedDocument.
    events = cast("dict[int, Event]", others)
    return Decoded(records, documents, events, homes, lexicon, batch, named)


def _is_usual(record: Record) -> bool:
    """Return whether a record's key and headers leave no doubt that it is an add, if its value is one.

    Nearly all records are usual, and a look at more takes longer than to read their texts.
    """
    key = record.key
    value = record.value
    if not key or not value or record.headers or len(key) > MAX_KEY or len(value) > MAX_VALUE:
        return False
    # isascii: it is much cheaper than decoding, and most keys are.
    return key.isascii() and not key.startswith(_UNUSUAL)


def _live_key(key: bytes | None) -> bytes:
    """Return a key that may have a document, b"" for any other: Redis is not asked for it, however long it is."""
    return key if key and len(key) <= MAX_KEY and key != HEARTBEAT_KEY else b""


def _scan(
    values: Sequence[bytes], lexicon: Lexicon
) -> tuple[Rows, npt.NDArray[np.uint8], dict[int, tuple[int, int]], list[int]]:
    """Return what compiled code finds in the values of records.

    That is a row for each record, LEFT or TAKEN for each, where in the values of taken records labels stand, and the
    `ts` of each taken record, -1 without one.
    """
    number = len(values)
    data, ends = _joined(values)
    kinds = np.zeros(number, np.uint8)
    labels = np.zeros((number, 3), np.int64)
    lengths = np.zeros(number, np.int64)
    stops = np.zeros(number, np.int64)
    # A word takes at least two bytes of a value: its letter and a space, or its length.
    most = len(data) // 2 + 1
    entries = np.empty(most, np.int32)
    counts = np.empty(most, np.int32)
    found = kinds, lengths, stops, labels, entries, counts
    keys, spans = word_memory()
    done = 0
    while True:
        # Made again in each round: a lexicon that has grown has more entries than marks.
        marks = np.full(lexicon.room, -1, np.int64)
        filled = scan(data, ends, done, lexicon.table, marks, *found, keys, spans)
        done = int(filled)
        if done == number:
            break
        wanted = len(values[done])
        lexicon.grow(min(wanted, _GROWTH))
    used = int(stops[-1]) if number else 0
    before = np.concatenate([[0], stops[:-1]])
    starts = before.astype(np.int64)
    begins = ends - np.array([len(value) for value in values], np.int64)
    labelled = (labels[:, 1] > 0) & (kinds == TAKEN)
    numbers = np.flatnonzero(labelled)
    within = labels[numbers, :2] - begins[numbers, np.newaxis]
    places = {k: (start, stop) for k, (start, stop) in zip(numbers.tolist(), within.tolist(), strict=True)}
    # Copies: a slice would keep the whole of both arrays in memory as long as one of its documents.
    entries = entries[:used].copy()
    counts = counts[:used].copy()
    rows = Rows(lengths, starts, stops, entries, counts)
    times = labels[:, 2].tolist()
    return rows, kinds, places, times


def _joined(values: Sequence[bytes]) -> tuple[Bytes, Int64]:
    """Return values one after the other, and where each ends, (values,): compiled code takes no list of bytes."""
    joined = bytearray().join(values)
    lengths = map(len, values)
    ends = np.fromiter(accumulate(lengths), np.int64, len(values))
    return np.frombuffer(joined, np.uint8), ends


def _readable(record: Record) -> bytes:
    """Return the value that compiled code looks at; b"", which it leaves, for a record that it must not take."""
    value = record.value
    if value is None or len(value) > MAX_VALUE or record.key == HEARTBEAT_KEY:
        return b""
    return value


def _may_add(record: Record) -> bool:
    """Return whether key and headers of a record allow that it is a plain add."""
    return document_of(record.key) is not None and len(record.headers) <= MAX_HEADERS


def _labels(
    values: Sequence[bytes], places: Mapping[int, tuple[int, int]], times: Sequence[int]
) -> tuple[list[Mapping[str, str]], list[int]]:
    """Return the labels in each value, and which values need a closer look for theirs.

    places: where in a value its labels are, msgpack.
    times: of the document in each value, milliseconds since 1970, -1 for none; () if no day is kept.
    """
    found = [_NO_LABELS] * len(values)
    doubtful = []
    for k, (start, stop) in places.items():
        try:
            found[k] = check_labels(msgpack.unpackb(values[k][start:stop]))
        except (ValueError, TypeError, msgpack.UnpackException, InvalidEvent):
            doubtful.append(k)
    for k, time_ms in enumerate(times):
        if time_ms >= 0:
            found[k] = dated(found[k], time_ms)
    return found, doubtful


def _event(record: Record) -> RecordEvent | InvalidEvent:
    """Return the event in a record, or the reason why it is refused."""
    try:
        return decode_record(record)
    except InvalidEvent as error:
        return error


def _lay_out(
    events: dict[int, Event | Add],
    records: Sequence[Record],
    sizes: npt.NDArray[np.int64],
    lexicon: Lexicon,
    secret: bytes,
    *,
    days: bool,
) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Replace each Add of `events` by a document with rows, and fill its size in.

    Return the rows of all these documents, and the index of the record that each row is of.
    """
    adds = [(k, event) for k, event in events.items() if isinstance(event, Add)]
    passages = [passage for _, event in adds for passage in event.passages]
    rows = Rows.of(passages, lexicon)
    owners = list[int]()
    row = 0
    for k, event in adds:
        first = row
        row += len(event.passages)
        words = sum(len(words) for _, words in event.passages)
        names = sum(len(task) + len(name) for task, name in event.labels.items())
        subjects = subject_digests(event.subjects, secret)
        of_words, of_subjects = _BYTES_A_WORD * words, _BYTES_A_SUBJECT * len(subjects)
        sizes[k] = _BYTES_A_DOCUMENT + names + of_words + of_subjects
        span = RowSpan(rows, first, row)
        document = event.document.encode()
        labels = dated(event.labels, event.timestamp_ms) if days else event.labels
        events[k] = AddedDocument(document, records[k].offset, span, labels, subjects)
        owners += [k] * len(event.passages)
    return rows, np.array(owners, np.int64)


def _homes(keys: Sequence[bytes], partitions: int, partitioner: str) -> list[int]:
    """Return the partition that each key belongs to."""
    # zlib's crc32 is compiled already, murmur2 is not.
    if partitioner != MURMUR2:
        return [partition_of(key, partitions, partitioner) for key in keys]
    data, ends = _joined(keys)
    homes = np.empty(len(keys), np.int64)
    partitions_of(data, ends, partitions, homes)
    found: list[int] = homes.tolist()
    return found


@kernel
def scan(
    data: Bytes, ends: Int64, first: Whole, table: Table, marks: Int64,
    kinds: Bytes, lengths: Int64, stops: Int64, labels: Int64, entries: Int32, counts: Int32,
    keys: UInt64, spans: Int64,
) -> Whole:  # fmt: skip
    """Read values from `first` on, until the table or `marks` has no room; return the value to go on with.

    data: bytes of all values, one after the other.
    ends: (values,), where each value ends in `data`.
    marks: (room,), where each entry of the table is in `entries`; a mark below the start of the present value's
        words means that the word has not occurred in it.
    kinds: (values,), filled with LEFT or TAKEN.
    lengths: (values,), filled with L, the number of tokens.
    stops: (values,), filled with where the words of each value end in `entries`.
    labels: (values, 3), filled with where the labels of a value begin and end in `data`, msgpack, zeros without any;
        and with its `ts`, -1 without one.
    entries, counts: filled with the words of all values in the order in which they first occur, and their counts.
    keys, spans: from `word_memory`.
    """
    used = stops[first - 1] if first else np.int64(0)
    start = ends[first - 1] if first else np.int64(0)
    for k in range(first, len(ends)):
        stop = ends[k]
        kinds[k] = LEFT
        lengths[k] = 0
        what, at, until = _fields(data, start, stop, labels[k])
        if what == _TEXT:
            length, used = ascii_tokens(data, at, until, table, marks, entries, counts, used, keys, spans)
        elif what == _COUNTS:
            length, used = _counts(data, at, table, marks, entries, counts, used)
        else:
            length = np.int64(-1)
        # The table is full. This value is read again from its start once there is more room.
        if table[4][1]:
            return k
        if length >= 0:
            kinds[k] = TAKEN
            lengths[k] = length
        stops[k] = used
        start = stop
    return len(ends)


@inner
def _number(data: Bytes, at: Whole, size: Whole) -> np.int64:
    """Return the big-endian number in the `size` bytes at `at`."""
    value = np.int64(0)
    for k in range(at, at + size):
        value = (value << 8) | np.int64(data[k])
    return value


@inner
def _string(data: Bytes, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Return where the string at `at` begins and ends; _NO_STRING and 0 if `at` does not hold a whole string."""
    if at >= stop:
        return _NO_STRING, 0
    kind = data[at]
    if 0xA0 <= kind <= 0xBF:
        begin = at + 1
        size = np.int64(kind & 0x1F)
    elif 0xD9 <= kind <= 0xDB:
        # str 8, str 16 and str 32: their size is in so many bytes.
        width = 1 << (kind - 0xD9)
        begin = at + 1 + width
        if begin > stop:
            return _NO_STRING, 0
        size = _number(data, at + 1, width)
    else:
        return _NO_STRING, 0
    if begin + size > stop:
        return _NO_STRING, 0
    return begin, begin + size


@inner
def _map(data: Bytes, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Return how many pairs the map at `at` has, -1 if there is no map, and where the pairs begin.

    A map of 32-bit length counts as no map: `events.decode` reads such a record.
    """
    if at < stop and 0x80 <= data[at] <= 0x8F:
        return np.int64(data[at] & 0x0F), at + 1
    if at + 3 <= stop and data[at] == 0xDE:
        return _number(data, at + 1, np.int64(2)), at + 3
    return np.int64(-1), at


@inner
def _unsigned(data: Bytes, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Return the whole number at `at` and where it ends; -1 if it is not one below 2**48."""
    if at >= stop:
        return np.int64(-1), at
    kind = data[at]
    if kind < 0x80:
        return np.int64(kind), at + 1
    if kind < 0xCC or kind > 0xCF:
        return np.int64(-1), at
    size = 1 << (kind - 0xCC)
    end = at + 1 + size
    if end > stop:
        return np.int64(-1), at
    # Eight bytes could overflow int64; times and counts need fewer than 48 bits.
    if size == 8 and (data[at + 1] or data[at + 2]):
        return np.int64(-1), at
    return _number(data, at + 1, size), end


@inner
def _name(data: Bytes, begin: Whole, end: Whole) -> Whole:
    """Return the number of a name as `_name_of` makes it; 0 if data[begin:end] is longer than any name."""
    name = np.int64(end - begin)
    if name > _LONGEST_NAME:
        return np.int64(0)
    for k in range(begin, end):
        name = (name << 8) | np.int64(data[k])
    return name


@once
def _fields(data: Bytes, at: Whole, stop: Whole, labels: Int64) -> tuple[Whole, Whole, Whole]:  # noqa: C901, PLR0911, PLR0912 -- a format is branches
    """Return _TEXT or _COUNTS and where that field begins and ends; 0 for a value that is to be left.

    A value without text and without counts also gives 0: `events.decode` knows whether it is a delete.
    """
    labels[:] = 0
    labels[2] = -1
    # Of one type from the start: numba would compile callees again for a literal.
    nowhere = np.int64(0)
    left = (0, nowhere, nowhere)
    number, at = _map(data, at, stop)
    seen = 0
    begin: Whole = nowhere
    end: Whole = nowhere
    for _ in range(number):
        name, behind = _string(data, at, stop)
        if name < 0:
            return left
        word = _name(data, name, behind)
        if word == _OP_NAME:
            field = _OP
            name, at = _string(data, behind, stop)
            if name < 0 or _name(data, name, at) != _ADD_NAME:
                return left
        elif word == _TEXT_NAME:
            field = _TEXT
            begin, end = _string(data, behind, stop)
            at = end
            if begin < 0 or end - begin > MAX_TEXT:
                return left
        elif word == _COUNTS_NAME:
            field = _COUNTS
            begin = behind
            end = at = _skip_counts(data, behind, stop)
        elif word == _TS_NAME:
            field = _TS
            value, at = _unsigned(data, behind, stop)
            if value < 0:
                return left
            labels[2] = value
        elif word == _LABELS_NAME:
            field = _LABELS
            at = _skip_labels(data, behind, stop)
            labels[0], labels[1] = behind, at
        else:
            return left
        if at < 0 or seen & field:
            return left
        seen |= field
    what = seen & (_TEXT | _COUNTS)
    if at != stop or not seen & _OP or what == _TEXT | _COUNTS:
        return left
    return what, begin, end


@once
def _skip_labels(data: Bytes, at: Whole, stop: Whole) -> Whole:
    """Return the end of a map of strings to strings, -1 if it is something else."""
    number, at = _map(data, at, stop)
    if number < 0:
        return np.int64(-1)
    for _ in range(2 * number):
        name, at = _string(data, at, stop)
        if name < 0:
            return np.int64(-1)
    return at


@once
def _skip_counts(data: Bytes, at: Whole, stop: Whole) -> Whole:
    """Return the end of a map of words to counts, -1 if a word or a count is out of bounds."""
    number, at = _map(data, at, stop)
    if number < 0 or number > MAX_WORDS:
        return np.int64(-1)
    for _ in range(number):
        word, at = _string(data, at, stop)
        if word < 0 or not 0 < at - word <= MAX_WORD:
            return np.int64(-1)
        count, at = _unsigned(data, at, stop)
        if not 0 < count <= MAX_COUNT:
            return np.int64(-1)
    return at


@once
def _counts(
    data: Bytes, at: Whole, table: Table, marks: Int64, entries: Int32, counts: Int32, used: Whole
) -> tuple[Whole, Whole]:
    """Take the words of a map that `_skip_counts` has passed; return L, -1 to leave it, and where its words end."""
    number, at = _map(data, at, len(data))
    begin = used
    length = np.int64(0)
    for _ in range(number):
        word, behind = _string(data, at, len(data))
        count, at = _unsigned(data, behind, len(data))
        plain = INSERT
        for k in range(word, behind):
            plain &= data[k] < 0x80
        # Other words are taken if they are known, since then they were found to be sound before.
        entry = find(data, word, behind, table, plain)
        # A word that is twice in the map: which of the two counts is for `events.decode` to say.
        if entry < 0 or marks[entry] >= begin:
            return leave(marks, entries, begin, used)
        marks[entry] = used
        entries[used] = entry
        counts[used] = count
        used += 1
        length += count
    if length > MAX_PASSAGE:
        return leave(marks, entries, begin, used)
    return length, used


@kernel
def partitions_of(keys: Bytes, ends: Int64, partitions: Whole, homes: Int64) -> None:
    """Write the partition of each key to `homes`, as `streams.partition_of`, for keys one after the other."""
    start = np.int64(0)
    for k in range(len(ends)):
        homes[k] = (_murmur2(keys, start, ends[k]) & 0x7FFFFFFF) % partitions
        start = ends[k]
