"""Whether the topics are as they must be: their partitions, the records that were counted, and those that are hidden.

A log may be cut, restored from a copy, or made again under its name. The records that come after that have offsets
below those that were counted, so nobody would read them, and deletes among them would be lost. That is why the state
names the record that was counted last and its topic (`LastRecord`), besides the next offset.

A transaction that a producer has left open hides all records after it, and they cannot be read yet (`hidden`).

Compaction and retention may take the last record away. Then the id of the topic and the end of the log have to do.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.console import instant
from streamtopic.errors import SettingsError, StateMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streamtopic.state import PartitionPosition
    from streamtopic.streams import EventLog, TopicNames

__all__ = [
    "END_TRANSACTION",
    "Departure",
    "Hidden",
    "check_counts",
    "count_remedy",
    "departures",
    "hidden",
    "wanted_partitions",
]

END_TRANSACTION = (
    "end it: `kafka-transactions.sh find-hanging` and `abort`, or stop its producer and wait for the transaction's "
    "timeout; deny TransactionalId to producers of this topic"
)

_REMEDY = (
    "restore the topic of before, or run `streamtopic rebuild`, and then send the documents and deletions again that "
    "the log lacks"
)


@dataclass(frozen=True, slots=True)
class Departure:
    """A way in which a log is not the one that was counted.

    partition: its number, None for the topic as a whole.
    fault: the facts.
    remedy: what to do about it.
    """

    partition: int | None
    fault: str
    remedy: str

    @property
    def text(self) -> str:
        """A sentence for an operator."""
        return f"{self.fault}: {self.remedy}"


def departures(
    log: EventLog, topic: str, partitions: int, positions: Mapping[int, PartitionPosition]
) -> list[Departure]:
    """Return the ways in which a log is not the one that was counted.

    topic: the documents topic.
    partitions: number of partitions of the model.
    positions: partition to what was counted of it.

    A user without the right to read documents goes by ids and offsets.

    Raises ComponentUnreachable, and SettingsError for a user who may not even see the topic.
    """
    known = log.describe(topic)
    if known.partitions != partitions:
        fault = (
            f"topic {topic} has {known.partitions} partitions and {partitions} are counted, and records of others, "
            "deletes perhaps among them, count for nothing"
        )
        return [Departure(None, fault, "make a model of another name (docs/operations.md)")]
    found = []
    for partition, meta in positions.items():
        departure = _of_offsets(log, topic, partition, meta) or _of_topic(known.id, topic, partition, meta)
        if departure is None:
            # Without the right to read, ids and offsets have to do.
            with suppress(SettingsError):
                departure = _of_last_record(log, topic, partition, meta)
        if departure is not None:
            found.append(departure)
    return found


def _of_offsets(log: EventLog, topic: str, partition: int, meta: PartitionPosition) -> Departure | None:
    begin = log.begin(topic, partition)
    end = log.end(topic, partition)
    counted = meta.next_offset
    if counted < begin:
        fault = (
            f"partition {partition} of {topic}: records {counted} to {begin - 1} left the log before they were "
            "counted, deletes perhaps among them"
        )
        return Departure(partition, fault, "run `streamtopic rebuild`")
    if counted > end:
        fault = (
            f"partition {partition} of {topic} ends at offset {end}, but records up to offset {counted} were counted, "
            "so the log was cut, or is another one"
        )
        return Departure(partition, fault, _REMEDY)
    return None


def _of_topic(known: str, topic: str, partition: int, meta: PartitionPosition) -> Departure | None:
    counted = meta.last
    if counted is None or not (known and counted.topic) or known == counted.topic:
        return None
    fault = (
        f"partition {partition} of {topic}: records up to offset {meta.next_offset} were counted in a topic with the "
        f"id {counted.topic}, and this one has the id {known}, so the topic was removed and made again"
    )
    return Departure(partition, fault, _REMEDY)


def _of_last_record(log: EventLog, topic: str, partition: int, meta: PartitionPosition) -> Departure | None:
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
    return Departure(partition, fault, _REMEDY)


@dataclass(frozen=True, slots=True)
class Hidden:
    """Records of a partition that an open transaction hides; deletes may be among them.

    partition: its number.
    records: how many records are hidden.
    since_ms: when the first of them was appended, milliseconds since 1970 by the broker's clock.
    """

    partition: int
    records: int
    since_ms: int

    @property
    def text(self) -> str:
        """A line for an operator."""
        return f"partition {self.partition}: {self.records} records hidden by an open transaction"

    @property
    def since(self) -> str:
        """Since when, as people read it in UTC."""
        return instant(self.since_ms, "seconds")


def hidden(log: EventLog, topic: str, partitions: Iterable[int]) -> list[Hidden]:
    """Return the records that open transactions hide now, by partition.

    Only a transaction that never ends is a fault.
    """
    found = []
    for partition in partitions:
        # Records that arrive between these two calls count as hidden as well, but not for long.
        readable = log.end(topic, partition)
        written = log.written_end(topic, partition)
        since = log.appended_ms(topic, partition, readable) if written > readable else None
        if since is not None:
            found.append(Hidden(partition, written - readable, since))
    return found


def wanted_partitions(names: TopicNames, topic: str, partitions: int) -> int:
    """Return the number of partitions that a topic must have."""
    # Kafka keeps the order of records within a partition only, and the order of all other topics matters.
    return partitions if topic == names.documents else 1


def check_counts(log: EventLog, names: TopicNames, partitions: int, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic, 0 if it does not exist.

    partitions: as of `provision`. Raises StateMismatch if a topic has another number.
    """
    have = {topic: log.partitions(topic) for topic in topics}
    for topic, count in have.items():
        wanted = wanted_partitions(names, topic, partitions)
        if count not in {0, wanted}:
            remedy = count_remedy(names, topic, count)
            raise StateMismatch(f"topic {topic} has {count} partitions, not {wanted}: {remedy}")
    return have


def count_remedy(names: TopicNames, topic: str, have: int) -> str:
    """Return what to do about a topic with a wrong number of partitions. have: its number."""
    if not have:
        return "make it with `streamtopic init`"
    if topic != names.documents:
        return "delete it if it is empty, then run this again"
    return f"set partitions = {have} where the model is new; else make a model of another name (docs/operations.md)"
