"""Which partitions a process works on: its share in a group of processes that work on the same topic."""

from collections.abc import Mapping
from typing import Protocol

from streamtopic.streams.event_log import EventLog
from streamtopic.streams.kafka_log import KafkaLog

__all__ = ["AllPartitions", "Membership", "open_membership"]


class Membership(Protocol):
    """A process's place in its group.

    Ownership is a matter of efficiency, not of safety: a member that was stopped may believe for a while that it owns
    what another has taken over. Who may write is decided where it is written.
    """

    def poll(self, seconds: float) -> frozenset[int]:
        """Take part in the group, for up to `seconds` while there is something to wait for; partitions owned now.

        To be called every few seconds. Raises SettingsError where the group is refused to this user, and
        ComponentUnreachable after many minutes without an answer.
        """
        ...

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Tell tools that measure lag where reading goes on. Errors are not reported: nobody relies on it."""
        ...

    def leave(self) -> None:
        """Give the partitions up, so that others take them at once."""
        ...


class AllPartitions:
    """A group of one, which owns all of `count` partitions: what a log in files has."""

    def __init__(self, count: int) -> None:
        self._owned = frozenset(range(count))

    def poll(self, seconds: float) -> frozenset[int]:  # noqa: ARG002 - there is nothing to wait for
        """See Membership.poll."""
        return self._owned

    def commit(self, offsets: Mapping[int, int]) -> None:
        """See Membership.commit; nobody asks."""

    def leave(self) -> None:
        """See Membership.leave."""
        self._owned = frozenset()


def open_membership(log: EventLog, topic: str, group: str, session_timeout_ms: int) -> Membership:
    """A place in `group`, whose members share the partitions of `topic`: a consumer group in Kafka, else all of them.

    session_timeout_ms: a member that has not been heard of for so long loses its partitions; the brokers allow 6 s to
    30 minutes by default.
    """
    if isinstance(log, KafkaLog):
        from streamtopic.streams.kafka_membership import KafkaMembership

        return KafkaMembership(log.options, topic, group, session_timeout_ms)
    return AllPartitions(log.partitions(topic))
