"""Records of the documents topic to events, a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, cast

import msgpack
import numpy as np

from streamtopic.errors import InvalidEvent
from streamtopic.events import HEARTBEAT_KEY, MAX_KEY, MAX_VALUE, Add, Delete, Heartbeat, check_labels, decode_record
from streamtopic.service.scan import TAKEN, partitions_of, scan
from streamtopic.state import AddedDocument, Rows, RowSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from streamtopic.state import Lexicon
    from streamtopic.streams import Record

__all__ = ["Decoded", "Event", "decode_all"]

Event = AddedDocument | Delete | Heartbeat | InvalidEvent

# What a record takes on average (measured: 1.8 bytes a word), so that a flush can be bounded before it is encoded.
_BYTES_A_WORD = 2
_BYTES_A_DOCUMENT = 60
_LIKELY = 0.97


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Records, the event in each or why there is none, and the partition that each key belongs to.

    sizes: about what each takes in the state, in bytes. lexicon: where the words of added documents are. tables: the
    rows of these documents, with the record that each row is of. start: where a part begins in what was decoded.
    """

    records: Sequence[Record]
    events: Sequence[Event]
    homes: Sequence[int]
    sizes: npt.NDArray[np.int64]
    lexicon: Lexicon
    tables: Sequence[tuple[Rows, npt.NDArray[np.int64]]]
    start: int = 0

    @property
    def next_offset(self) -> int:
        """Where reading goes on after these records."""
        return self.records[-1].next_offset

    def split(
        self, numbers: npt.NDArray[np.int32], max_records: int, max_bytes: int, max_writes: int
    ) -> tuple[Decoded, Decoded | None]:
        """Return the first records within these bounds, at least one, and the rest.

        numbers: the id of each entry of the lexicon, -1 for words that the state does not have. max_writes: documents
        and words to write or remove, a deletion with its entry for the receipt being two.
        """
        writes = self._writes(numbers)
        fits = [np.searchsorted(np.cumsum(self.sizes), max_bytes, side="right"),
                np.searchsorted(np.cumsum(writes), max_writes, side="right")]  # fmt: skip
        at = max(1, min(max_records, *map(int, fits)))
        return self._part(0, at), self._part(at, len(self.records)) if at < len(self.records) else None

    def fitting(self, numbers: npt.NDArray[np.int32], max_bytes: int, max_writes: int) -> int:
        """Return how many records like these on average are likely within these bounds."""
        bytes_each, writes_each = float(self.sizes.mean()), float(self._writes(numbers).mean())
        return max(1, int(_LIKELY * min(max_bytes / max(bytes_each, 1.0), max_writes / writes_each)))

    def new_words(self, numbers: npt.NDArray[np.int32]) -> int:
        """Return how many words the state does not have; numbers: as in `split`."""
        return int((self._writes(numbers) - np.where(self.sizes > 0, 1, 2)).sum())

    def _writes(self, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        whole = np.zeros(self.start + len(self.records), np.int64)
        for rows, owners in self.tables:
            new = np.flatnonzero(numbers[rows.entries] < 0)
            _, first = np.unique(rows.entries[new], return_index=True)
            of = owners[np.searchsorted(rows.stops, new[first], side="right")]
            np.add.at(whole, of[of < len(whole)], 1)
        return whole[self.start :] + np.where(self.sizes > 0, 1, 2)

    def _part(self, start: int, stop: int) -> Decoded:
        here = slice(start, stop)
        begin = self.start + start
        return Decoded(
            self.records[here], self.events[here], self.homes[here], self.sizes[here], self.lexicon, self.tables, begin
        )


def decode_all(records: Sequence[Record], lexicon: Lexicon, partitions: int) -> Decoded:
    """Decode records of a topic of so many partitions: each as `events.decode` does, plain adds by compiled code."""
    with lexicon.lock:
        rows, taken, labels = _scan(records, lexicon)
    events: list[Event | Add] = []
    for k, (record, kind) in enumerate(zip(records, taken.tolist(), strict=True)):
        event = _plain(record, rows, k, labels.get(k)) if kind == TAKEN else None
        events.append(_event(record) if event is None else event)
    words = rows.stops - rows.starts
    sizes = np.where(taken == TAKEN, _BYTES_A_DOCUMENT + _BYTES_A_WORD * words, 0)
    for k, (start, stop) in labels.items():
        sizes[k] += stop - start
    tables = [(rows, np.arange(len(records))), _lay_out(events, records, sizes, lexicon)]
    # Adds have been replaced by then.
    return Decoded(records, cast("list[Event]", events), _homes(records, partitions), sizes, lexicon, tables)


def _scan(
    records: Sequence[Record], lexicon: Lexicon
) -> tuple[Rows, npt.NDArray[np.uint8], dict[int, tuple[int, int]]]:
    """Return a row for each record, which of them were taken, and where in its value the labels of a record are."""
    values = [
        b"" if r.value is None or len(r.value) > MAX_VALUE or r.key == HEARTBEAT_KEY else r.value for r in records
    ]
    number, data = len(values), np.frombuffer(bytearray().join(values), np.uint8)
    ends = np.fromiter(accumulate(map(len, values)), np.int64, number)
    kinds, labels = np.zeros(number, np.uint8), np.zeros((number, 2), np.int64)
    lengths, stops = np.zeros(number, np.int64), np.zeros(number, np.int64)
    entries, counts = np.empty(len(data) // 2 + 1, np.int32), np.empty(len(data) // 2 + 1, np.int32)
    done = 0
    while True:
        marks = np.full(lexicon.room, -1, np.int64)
        done = int(scan(data, ends, done, lexicon.table, marks, kinds, lengths, stops, labels, entries, counts))
        if done == number:
            break
        lexicon.grow(len(values[done]))
    used = int(stops[-1]) if number else 0
    starts = np.concatenate([[0], stops[:-1]]).astype(np.int64)
    begins = ends - [len(value) for value in values]
    labelled = np.flatnonzero((labels[:, 1] > 0) & (kinds == TAKEN)).tolist()
    places = {k: (int(labels[k, 0] - begins[k]), int(labels[k, 1] - begins[k])) for k in labelled}
    return Rows(lengths, starts, stops, entries[:used].copy(), counts[:used].copy()), kinds, places


def _plain(record: Record, rows: Rows, row: int, labels: tuple[int, int] | None) -> AddedDocument | None:
    """Return the document of a record that was taken, None where its key or its labels need a closer look."""
    key, value = record.key, record.value
    if not key or len(key) > MAX_KEY or not (key.isascii() or _is_text(key)) or value is None:
        return None
    span = RowSpan(rows, row, row + 1 if rows.lengths[row] else row)
    if labels is None:
        return AddedDocument(key, record.offset, span)
    try:
        return AddedDocument(key, record.offset, span, check_labels(msgpack.unpackb(value[slice(*labels)])))
    except (ValueError, TypeError, msgpack.UnpackException, InvalidEvent):
        return None


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _event(record: Record) -> Add | Delete | Heartbeat | InvalidEvent:
    try:
        return decode_record(record)
    except InvalidEvent as error:
        return error


def _lay_out(
    events: list[Event | Add], records: Sequence[Record], sizes: npt.NDArray[np.int64], lexicon: Lexicon
) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Put documents with rows in place of adds; return the rows, and the record that each is of."""
    adds = [(k, event) for k, event in enumerate(events) if isinstance(event, Add)]
    rows = Rows.of([passage for _, event in adds for passage in event.passages], lexicon)
    row = 0
    for k, event in adds:
        first, row = row, row + len(event.passages)
        words = sum(len(words) for _, words in event.passages)
        names = sum(len(task) + len(name) for task, name in event.labels.items())
        sizes[k] = _BYTES_A_DOCUMENT + names + _BYTES_A_WORD * words
        events[k] = AddedDocument(event.document.encode(), records[k].offset, RowSpan(rows, first, row), event.labels)
    return rows, np.repeat(np.array([k for k, _ in adds], np.int64), [len(event.passages) for _, event in adds])


def _homes(records: Sequence[Record], partitions: int) -> list[int]:
    keys = [record.key or b"" for record in records]
    ends = np.fromiter(accumulate(map(len, keys)), np.int64, len(keys))
    homes: list[int] = partitions_of(np.frombuffer(bytearray().join(keys), np.uint8), ends, partitions).tolist()
    return homes
