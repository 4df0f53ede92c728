"""Decode records of the documents topic, a batch at a time.

`events` reads each record, and the lexicon counts the words of all documents at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, kernel, once
from streamtopic.documents.events import (
    HEARTBEAT_KEY,
    MAX_KEY,
    Delete,
    Document,
    Heartbeat,
    decode_record,
    subject_digests,
)
from streamtopic.errors import InvalidEvent
from streamtopic.state import AddedDocuments
from streamtopic.streams.event_log import murmur2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.state import Lexicon
    from streamtopic.streams import Record
    from streamtopic.words.text import AnyText

__all__ = ["Decoded", "Event", "OwnTombstone", "decode_all"]


@dataclass(frozen=True, slots=True)
class OwnTombstone:
    """A tombstone that the service itself wrote after a suppressed add."""


Event = Delete | Heartbeat | OwnTombstone | InvalidEvent

_NO_LABELS: Mapping[str, str] = {}

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]

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

    def first(self, number: int) -> Decoded:
        """Return the first so many records."""
        if number == len(self.records):
            return self
        others = {k: event for k, event in self.others.items() if k < number}
        subjects = {k: named for k, named in self.subjects.items() if k < number}
        documents = self.documents.take(range(number))
        return Decoded(self.records[:number], documents, others, self.homes[:number], self.lexicon, subjects)


def decode_all(
    records: Sequence[Record],
    lexicon: Lexicon,
    partitions: int,
    secret: bytes = b"",
) -> Decoded:
    """Decode records as `events.decode` does, and count the words of their documents.

    records: of one partition, in the order of the log.
    lexicon: gets the words that it does not hold yet.
    partitions: number of partitions of the topic.
    secret: of the partition, for the digests of subjects.
    """
    number = len(records)
    homes = _homes([record.key or b"" for record in records], partitions)
    # Redis is not asked for a key that can have no document, however long it is.
    keys = [key if key and len(key) <= MAX_KEY and key != HEARTBEAT_KEY else b"" for _, _, _, key, *_ in records]
    labels: list[Mapping[str, str]] = [_NO_LABELS] * number
    subjects: list[tuple[bytes, ...]] = [()] * number
    texts: list[AnyText] = [""] * number
    others, named = dict[int, Event](), dict[int, Sequence[str]]()
    for k, record in enumerate(records):
        try:
            event = decode_record(record)
        except InvalidEvent as error:
            others[k] = error
            continue
        if not isinstance(event, Document):
            others[k] = event
            continue
        _, texts[k], labels[k], people = event
        if people:
            named[k] = people
            subjects[k] = subject_digests(people, secret)
    offsets = np.array([record.offset for record in records], np.int64)
    documents = AddedDocuments(keys, offsets, lexicon.documents(texts), labels, subjects)
    return Decoded(records, documents, others, homes, lexicon, named)


def _homes(keys: Sequence[bytes], partitions: int) -> list[int]:
    """Return the partition that each key belongs to."""
    # A bytearray, since compiled code takes no list of bytes, and numba another type for arrays over bytes.
    data = np.frombuffer(bytearray().join(keys), np.uint8)
    ends = np.fromiter(accumulate(map(len, keys)), np.int64, len(keys))
    homes = np.empty(len(keys), np.int64)
    partitions_of(data, ends, partitions, homes)
    found: list[int] = homes.tolist()
    return found


@kernel
def partitions_of(keys: Bytes, ends: Int64, partitions: Whole, homes: Int64) -> None:
    """Write the partition of each key to `homes`, as `streams.partition_of`, for keys one after the other."""
    start = np.int64(0)
    for k in range(len(ends)):
        homes[k] = (_murmur2(keys, start, ends[k]) & 0x7FFFFFFF) % partitions
        start = ends[k]
