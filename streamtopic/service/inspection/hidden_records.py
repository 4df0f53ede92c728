"""Find records that cannot be read yet: a transaction that a producer has left open hides all records after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamtopic.streams import EventLog

__all__ = ["REMEDY", "Hidden", "hidden"]

REMEDY = (
    "end it: `kafka-transactions.sh find-hanging` and `abort`, or stop its producer and wait for the transaction's "
    "timeout; deny TransactionalId to producers of this topic"
)


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
