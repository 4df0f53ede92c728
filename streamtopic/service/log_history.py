"""Whether the documents topic still is the one whose records were counted.

A log may be cut, restored from a copy, or made again under its name. The records that come after that have offsets
below those that were counted, so nobody would read them, and deletes among them would be lost. That is why the state
names the record that was counted last and its topic (`LastRecord`), besides the next offset.

Compaction and retention may take the last record away. Then the id of the topic and the end of the log have to do.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.state import Meta
    from streamtopic.streams import EventLog

__all__ = ["Departure", "departures"]

_REMEDY = (
    "restore the topic of before, or run `streamtopic rebuild`, and then send the documents and deletions again that "
    "the log lacks"
)


@dataclass(frozen=True, slots=True)
class Departure:
    """A way in which a log is not the one that was counted. fault: the facts; remedy: what to do about it."""

    fault: str
    remedy: str

    @property
    def text(self) -> str:
        """A sentence for an operator."""
        return f"{self.fault}: {self.remedy}"


def departures(
    log: EventLog, topic: str, partitions: int, positions: Mapping[int, Meta], *, read: bool = True
) -> list[Departure]:
    """Return the ways in which a log is not the one that was counted.

    topic: the documents topic.
    partitions: number of partitions of the model.
    positions: partition to what was counted of it.
    read: whether the last record of each partition is read and compared. A user without the right to read documents
        goes by ids and offsets.

    Raises ComponentUnreachable, and SettingsError for a user who may not even see the topic.
    """
    known = log.describe(topic)
    if known.partitions != partitions:
        fault = (
            f"topic {topic} has {known.partitions} partitions and {partitions} are counted, and records of others, "
            "deletes perhaps among them, count for nothing"
        )
        return [Departure(fault, "make a model of another name (docs/operations.md)")]
    found = []
    for partition, meta in positions.items():
        departure = _of_offsets(log, topic, partition, meta) or _of_topic(known.id, topic, partition, meta)
        if departure is None and read:
            # Without the right to read, ids and offsets have to do.
            with suppress(SettingsError):
                departure = _of_last_record(log, topic, partition, meta)
        if departure is not None:
            found.append(departure)
    return found


def _of_offsets(log: EventLog, topic: str, partition: int, meta: Meta) -> Departure | None:
    begin = log.begin(topic, partition)
    end = log.end(topic, partition)
    counted = meta.next_offset
    if counted < begin:
        fault = (
            f"partition {partition} of {topic}: records {counted} to {begin - 1} left the log before they were "
            "counted, deletes perhaps among them"
        )
        return Departure(fault, "run `streamtopic rebuild`")
    if counted > end:
        fault = (
            f"partition {partition} of {topic} ends at offset {end}, but records up to offset {counted} were counted, "
            "so the log was cut, or is another one"
        )
        return Departure(fault, _REMEDY)
    return None


def _of_topic(known: str, topic: str, partition: int, meta: Meta) -> Departure | None:
    counted = meta.last
    if counted is None or not (known and counted.topic) or known == counted.topic:
        return None
    fault = (
        f"partition {partition} of {topic}: records up to offset {meta.next_offset} were counted in a topic with the "
        f"id {counted.topic}, and this one has the id {known}, so the topic was removed and made again"
    )
    return Departure(fault, _REMEDY)


def _of_last_record(log: EventLog, topic: str, partition: int, meta: Meta) -> Departure | None:
    counted = meta.last
    if counted is None or counted.offset < log.begin(topic, partition):
        return None
    records = log.read(topic, partition, counted.offset, max_records=1)
    if not records or records[0].offset != counted.offset or records[0].digest == counted.digest:
        return None
    fault = (
        f"partition {partition} of {topic}: records up to offset {meta.next_offset} were counted, and the one that was "
        f"counted at offset {counted.offset} is another one now, so the log was cut and written again"
    )
    return Departure(fault, _REMEDY)
