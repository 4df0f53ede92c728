"""The documents that a log leaves alive, read without any of the code that keeps the counts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from streamtopic.errors import InvalidEvent
from streamtopic.events import Add, Delete, decode_record
from streamtopic.service.recount import Numbering

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from streamtopic.counts import Counts, Passage, Weighting
    from streamtopic.streams import EventLog, Record

__all__ = ["Retained", "documents_in_log"]

STRIDE = 1_000


@dataclass(frozen=True, slots=True)
class Retained:
    """The documents that a log leaves alive before some offsets, by partition and id, over numbers of words.

    labels: of those that have some, task to class; added: offset of the record that each is of. whole: whether the log
    still holds every record before them, so that nothing was erased.
    """

    alive: Mapping[tuple[int, str], Sequence[Passage]]
    labels: Mapping[tuple[int, str], Mapping[str, str]]
    added: Mapping[tuple[int, str], int]
    numbering: Numbering
    whole: bool

    def added_before(self, offsets: Mapping[int, int]) -> Self:
        """Return only the documents that were added before these offsets, by partition."""
        alive = {key: body for key, body in self.alive.items() if self.added[key] < offsets.get(key[0], 0)}
        return replace(self, alive=alive)

    def recount(self, weighting: Weighting) -> Counts:
        """Count them from scratch."""
        return self.numbering.count(list(self.alive.values()), weighting)


def documents_in_log(
    log: EventLog,
    topic: str,
    offsets: Mapping[int, int],
    progress: Callable[[int, int | None], None],
    refused: Collection[tuple[int, int]] = (),
) -> Retained:
    """Read what the log leaves alive before these offsets. refused: places (partition, offset) of records to pass over.

    Reads with the events' own codec, but with none of the code that keeps the counts.
    """
    total, done = sum(offsets.values()), 0
    alive: dict[tuple[int, str], Sequence[Passage]] = {}
    labels: dict[tuple[int, str], Mapping[str, str]] = {}
    added: dict[tuple[int, str], int] = {}
    numbering = Numbering()
    whole = True
    for partition, end in offsets.items():
        expected = 0
        for record in _records(log, topic, partition, end):
            whole &= record.offset == expected
            expected = record.next_offset
            if (partition, record.offset) not in refused:
                _apply(record, alive, labels, added, numbering)
            if expected % STRIDE == 0:
                progress(done + expected, total)
        whole &= expected == end
        done += end
        progress(done, total)
    return Retained(alive, labels, added, numbering, whole)


def _records(log: EventLog, topic: str, partition: int, end: int) -> Iterator[Record]:
    offset = log.begin(topic, partition)
    while offset < end and (page := log.read(topic, partition, offset)):
        yield from (record for record in page if record.offset < end)
        offset = page[-1].next_offset


def _apply(
    record: Record,
    alive: dict[tuple[int, str], Sequence[Passage]],
    labels: dict[tuple[int, str], Mapping[str, str]],
    added: dict[tuple[int, str], int],
    numbering: Numbering,
) -> None:
    try:
        event = decode_record(record)
    except InvalidEvent:
        return
    if not isinstance(event, Add | Delete):
        return
    key = record.partition, event.document
    before, had = alive.pop(key, None), labels.pop(key, {})
    if isinstance(event, Add):
        alive[key] = numbering.number(event.passages)
        if event.labels:
            labels[key] = event.labels
        # An identical add changes nothing: the document is still of the record before.
        if before is None or had != event.labels or not _alike(before, alive[key]):
            added[key] = record.offset


def _alike(one: Sequence[Passage], other: Sequence[Passage]) -> bool:
    return len(one) == len(other) and all(
        a.length == b.length and dict(zip(a.words, a.counts, strict=True)) == dict(zip(b.words, b.counts, strict=True))
        for a, b in zip(one, other, strict=True)
    )
