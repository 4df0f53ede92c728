"""The documents that a log leaves alive, read without any of the code that keeps the counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidEvent
from streamtopic.events import Add, Delete, decode_record
from streamtopic.service.recount import Numbering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamtopic.counts import Counts, Passage, Weighting
    from streamtopic.streams import EventLog, Record

__all__ = ["Retained", "documents_in_log"]

STRIDE = 1_000


@dataclass(frozen=True, slots=True)
class Retained:
    """The documents that a log leaves alive before some offsets, by partition and id, over numbers of words.

    labels: of those that have some, task to class. whole: whether the log still holds every record before them, so that
    nothing was erased.
    """

    alive: Mapping[tuple[int, str], Sequence[Passage]]
    labels: Mapping[tuple[int, str], Mapping[str, str]]
    numbering: Numbering
    whole: bool

    def recount(self, weighting: Weighting) -> Counts:
        """Count them from scratch."""
        return self.numbering.count(list(self.alive.values()), weighting)


def documents_in_log(
    log: EventLog, topic: str, offsets: Mapping[int, int], progress: Callable[[int, int | None], None]
) -> Retained:
    """Read what the log leaves alive before these offsets.

    Reads with the events' own codec, but with none of the code that keeps the counts.
    """
    total, done = sum(offsets.values()), 0
    alive: dict[tuple[int, str], Sequence[Passage]] = {}
    labels: dict[tuple[int, str], Mapping[str, str]] = {}
    numbering = Numbering()
    whole = True
    for partition, end in offsets.items():
        expected = 0
        for record in _records(log, topic, partition, end):
            whole &= record.offset == expected
            expected = record.next_offset
            _apply(record, alive, labels, numbering)
            if expected % STRIDE == 0:
                progress(done + expected, total)
        whole &= expected == end
        done += end
        progress(done, total)
    return Retained(alive, labels, numbering, whole)


def _records(log: EventLog, topic: str, partition: int, end: int) -> Iterator[Record]:
    offset = log.begin(topic, partition)
    while offset < end and (page := log.read(topic, partition, offset)):
        yield from (record for record in page if record.offset < end)
        offset = page[-1].next_offset


def _apply(
    record: Record,
    alive: dict[tuple[int, str], Sequence[Passage]],
    labels: dict[tuple[int, str], Mapping[str, str]],
    numbering: Numbering,
) -> None:
    try:
        event = decode_record(record)
    except InvalidEvent:
        return
    if isinstance(event, Add | Delete):
        labels.pop((record.partition, event.document), None)
    if isinstance(event, Add):
        alive[record.partition, event.document] = numbering.number(event.passages)
        if event.labels:
            labels[record.partition, event.document] = event.labels
    elif isinstance(event, Delete):
        alive.pop((record.partition, event.document), None)
