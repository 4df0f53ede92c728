"""Decode records of the documents topic, a batch at a time: ASCII texts by a compiled loop, all else by `events`.

A record is plain if it is a map of `op`, `text`, `labels` and `ts` without any doubt. Everything unusual or
wrong is left to `events.decode`, which names the reason. A plain record gives the event that `events.decode` would
give.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import numpy.typing as npt

from streamtopic.compiled import kernel, once
from streamtopic.documents.events import (
    HEARTBEAT_KEY,
    MAX_KEY,
    MAX_TEXT,
    MAX_TIMESTAMP,
    MAX_VALUE,
    MAX_VALUES,
    STRUCTURED,
    Add,
    Delete,
    Heartbeat,
    check_labels,
    dated,
    decode_record,
    document_of,
    parse,
)
from streamtopic.documents.subjects import subject_digests
from streamtopic.errors import InvalidEvent
from streamtopic.state import AddedDocuments, Rows
from streamtopic.streams import MURMUR2, partition_of
from streamtopic.streams.event_log import MAX_HEADERS, murmur2
from streamtopic.words.lexicon import Table, Whole, ascii_tokens, word_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.documents.events import Event as RecordEvent
    from streamtopic.state import Lexicon
    from streamtopic.streams import Record

__all__ = ["Decoded", "Event", "decode_all"]


Event = Delete | Heartbeat | InvalidEvent

# Keys of the service's own begin with the first, a few ids do as well; structured keys begin with the others.
_UNUSUAL = (HEARTBEAT_KEY[:3], *STRUCTURED)
_NO_LABELS: Mapping[str, str] = {}
# The lexicon grows by at most so many bytes at a time: a large record may hold few different words.
_GROWTH = 1 << 16

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt64 = npt.NDArray[np.uint64]

# The fields of an add whose text compiled code counts.
_PLAIN = frozenset({"op", "text", "labels", "ts"})
# A short map of msgpack begins with this and the number of its fields.
_SHORT_MAP = 0x80

# Any: mypy knows a sequence and an int from the source; compiled, it takes an array and numpy's integers.
_murmur2: Any = once(murmur2)


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Decoded records of one partition.

    records: (k,), in the order of the log.
    documents: (k,), the document that each record adds; a record that adds none has the id that it is about, or b"".
    others: place to the event of each record that adds no document, or the reason why it was refused.
    homes: (k,), the partition that the key of each record belongs to.
    lexicon: holds the words of added documents.
    subjects: place to the subjects that an add names, if it names any.
    """

    records: Sequence[Record]
    documents: AddedDocuments
    others: Mapping[int, Event]
    homes: Sequence[int]
    lexicon: Lexicon
    subjects: Mapping[int, Sequence[str]]

    @property
    def next_offset(self) -> int:
        """The offset of the first record after these."""
        return self.records[-1].next_offset

    def split(self, at: int) -> tuple[Decoded, Decoded | None]:
        """Return the first `at` records, and the rest if there is one."""
        end = len(self.records)
        return (self._part(0, at), self._part(at, end)) if at < end else (self, None)

    def _part(self, start: int, stop: int) -> Decoded:
        """Return the records from `start` to before `stop`."""
        here = slice(start, stop)
        others = {k - start: event for k, event in self.others.items() if start <= k < stop}
        subjects = {k - start: named for k, named in self.subjects.items() if start <= k < stop}
        documents = self.documents.take(range(start, stop))
        return Decoded(self.records[here], documents, others, self.homes[here], self.lexicon, subjects)


def decode_all(
    records: Sequence[Record],
    lexicon: Lexicon,
    partitions: int,
    partitioner: str = MURMUR2,
    secret: bytes = b"",
    *,
    days: bool = False,
) -> Decoded:
    """Decode records as `events.decode` does, the texts of plain adds by compiled code.

    records: of one partition, in the order of the log.
    lexicon: gets the words that it does not hold yet.
    partitions: number of partitions of the topic.
    partitioner: name of the hash that chooses a key's partition.
    secret: of the partition, for the digests of subjects.
    days: whether the day of a document is among its labels.
    """
    homes = _homes([record.key or b"" for record in records], partitions, partitioner)
    keys = [_live_key(record.key) for record in records]
    labels: list[Mapping[str, str]] = [_NO_LABELS] * len(records)
    subjects: list[tuple[bytes, ...]] = [()] * len(records)
    texts = [b""] * len(records)
    left = set[int]()
    for k, record in enumerate(records):
        plain = _plain(record)
        if plain is None:
            left.add(k)
        else:
            texts[k], labels[k], time_ms = plain
            if days:
                labels[k] = dated(labels[k], time_ms)
    # Another thread may give entries to words meanwhile: records are also decoded ahead of the commit.
    with lexicon.lock:
        rows = _counted(texts, lexicon)
    left.update(np.flatnonzero(rows.lengths < 0).tolist())
    adds, others = dict[int, Add](), dict[int, Event]()
    for k in sorted(left):
        event = _event(records[k])
        if isinstance(event, Add):
            adds[k] = event
        else:
            others[k] = event
    # A text without a token has no passage.
    firsts, stops = np.arange(len(records)), np.arange(len(records)) + (rows.lengths > 0)
    if adds:
        passages = [add.passages for add in adds.values()]
        slow = AddedDocuments.of([keys[k] for k in adds], [records[k].offset for k in adds], passages, lexicon)
        firsts[list(adds)], stops[list(adds)] = slow.firsts + len(firsts), slow.stops + len(firsts)
        rows = rows.and_then(slow.rows)
        for k, add in adds.items():
            labels[k] = dated(add.labels, add.timestamp_ms) if days else add.labels
            subjects[k] = subject_digests(add.subjects, secret)
    offsets = np.array([record.offset for record in records], np.int64)
    documents = AddedDocuments(keys, offsets, rows, firsts, stops, labels, subjects)
    named = {k: add.subjects for k, add in adds.items() if add.subjects}
    return Decoded(records, documents, others, homes, lexicon, named)


def _plain(record: Record) -> tuple[bytes, Mapping[str, str], int | None] | None:
    """Return text, labels and time in milliseconds of an add of an ASCII text; None if there is a doubt that it is."""
    value = record.value
    if not value or len(value) > MAX_VALUE or not (_is_usual(record) or _may_add(record)):
        return None
    try:
        # `parse` bounds what a value may take first. A short map without lists needs no such look.
        short = value[0] & 0xF0 == _SHORT_MAP and len(value) <= MAX_VALUES
        fields = msgpack.unpackb(value, max_array_len=0) if short else parse(value)
        if not isinstance(fields, dict) or fields.get("op") != "add" or not fields.keys() <= _PLAIN:
            return None
        labels = check_labels(fields["labels"]) if "labels" in fields else _NO_LABELS
    except Exception:  # noqa: BLE001 -- whatever it is, `decode_record` refuses the record for it
        return None
    text, time_ms = fields.get("text"), fields.get("ts")
    # `type`, since True is an instance of int.
    timed = time_ms is None or (type(time_ms) is int and 0 <= time_ms <= MAX_TIMESTAMP)
    if not (timed and isinstance(text, str) and text.isascii() and len(text) <= MAX_TEXT):
        return None
    return text.encode(), labels, time_ms


def _is_usual(record: Record) -> bool:
    """Return whether a record's key and headers leave no doubt that it is an add, if its value is one.

    Nearly all records are usual, and a look at more takes longer than to read their texts.
    """
    key = record.key
    if not key or record.headers or len(key) > MAX_KEY:
        return False
    # isascii: it is much cheaper than decoding, and most keys are.
    return key.isascii() and not key.startswith(_UNUSUAL)


def _live_key(key: bytes | None) -> bytes:
    """Return a key that may have a document, b"" for any other: Redis is not asked for it, however long it is."""
    return key if key and len(key) <= MAX_KEY and key != HEARTBEAT_KEY else b""


def _counted(texts: Sequence[bytes], lexicon: Lexicon) -> Rows:
    """Return a row for each ASCII text. Its length is -1 if it has too many words for one passage."""
    number = len(texts)
    data, ends = _joined(texts)
    lengths = np.zeros(number, np.int64)
    stops = np.zeros(number, np.int64)
    # A word takes at least two bytes of a text: its letter and a space.
    most = len(data) // 2 + number
    entries = np.empty(most, np.int32)
    counts = np.empty(most, np.int32)
    keys, spans = word_memory()
    done = 0
    while True:
        # Made again in each round: a lexicon that has grown has more entries than marks.
        marks = np.full(lexicon.room, -1, np.int64)
        filled = scan(data, ends, done, lexicon.table, marks, lengths, stops, entries, counts, keys, spans)
        done = int(filled)
        if done == number:
            break
        wanted = len(texts[done])
        lexicon.grow(min(wanted, _GROWTH))
    used = int(stops[-1]) if number else 0
    starts = np.concatenate([[0], stops[:-1]]).astype(np.int64)
    # Copies: a slice would keep the whole of both arrays in memory as long as one of its documents.
    return Rows(lengths, starts, stops, entries[:used].copy(), counts[:used].copy())


def _joined(values: Sequence[bytes]) -> tuple[Bytes, Int64]:
    """Return values one after the other, and where each ends, (values,): compiled code takes no list of bytes."""
    joined = bytearray().join(values)
    lengths = map(len, values)
    ends = np.fromiter(accumulate(lengths), np.int64, len(values))
    return np.frombuffer(joined, np.uint8), ends


def _may_add(record: Record) -> bool:
    """Return whether key and headers of a record allow that it is a plain add."""
    return document_of(record.key) is not None and len(record.headers) <= MAX_HEADERS


def _event(record: Record) -> RecordEvent | InvalidEvent:
    """Return the event in a record, or the reason why it is refused."""
    try:
        return decode_record(record)
    except InvalidEvent as error:
        return error


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
    data: Bytes, ends: Int64, first: Whole, table: Table, marks: Int64, lengths: Int64, stops: Int64,
    entries: Int32, counts: Int32, keys: UInt64, spans: Int64,
) -> Whole:  # fmt: skip
    """Count ASCII texts from `first` on, until the table or `marks` has no room; return the text to go on with.

    data: bytes of all texts, one after the other.
    ends: (texts,), where each text ends in `data`.
    marks: (room,), where each entry of the table is in `entries`; a mark below the start of the present text's
        words means that the word has not occurred in it.
    lengths: (texts,), filled with L, the number of tokens; -1 for a text that does not fit into one passage.
    stops: (texts,), filled with where the words of each text end in `entries`.
    entries, counts: filled with the words of all texts in the order in which they first occur, and their counts.
    keys, spans: from `word_memory`.
    """
    used = stops[first - 1] if first else np.int64(0)
    start = ends[first - 1] if first else np.int64(0)
    for k in range(first, len(ends)):
        lengths[k], used = ascii_tokens(data, start, ends[k], table, marks, entries, counts, used, keys, spans)
        # The table is full. This text is read again from its start once there is more room.
        if table[4][1]:
            return k
        stops[k] = used
        start = ends[k]
    return len(ends)


@kernel
def partitions_of(keys: Bytes, ends: Int64, partitions: Whole, homes: Int64) -> None:
    """Write the partition of each key to `homes`, as `streams.partition_of`, for keys one after the other."""
    start = np.int64(0)
    for k in range(len(ends)):
        homes[k] = (_murmur2(keys, start, ends[k]) & 0x7FFFFFFF) % partitions
        start = ends[k]
