"""Opens the event log that a user names, in a folder or in Kafka, and the share of a process in its partitions."""

from pathlib import Path
from typing import Protocol

from streamtopic.streams.event_log import EventLog
from streamtopic.streams.file_log import FileLog
from streamtopic.streams.kafka_options import SERVERS, KafkaOptions

__all__ = ["AllPartitions", "Membership", "open_log", "open_membership"]


class Membership(Protocol):
    """The place of a process in its group.

    Ownership is a matter of efficiency, not of safety: a member that was stopped may believe for a while that it owns a
    partition which another has taken over. The fencing token in Redis decides who may write.
    """

    def poll(self, seconds: float) -> frozenset[int]:
        """Take part in the group; return the partitions that this process owns now.

        seconds: how long to wait for a change.

        Call it every few seconds. Raises SettingsError if the cluster refuses the group to this user, and
        ComponentUnreachable after many minutes without an answer.
        """
        ...

    @property
    def lost(self) -> str:
        """Why this process has no contact with its group now; "" if it has, though it may own no partition."""
        ...

    def leave(self) -> None:
        """Give the partitions up, so that others take ownership at once."""
        ...


class AllPartitions:
    """A group of one process, which owns all `count` partitions: for a log in files."""

    def __init__(self, count: int) -> None:
        self._owned = frozenset(range(count))

    def poll(self, seconds: float) -> frozenset[int]:  # noqa: ARG002 - there is nothing to wait for
        """See Membership.poll."""
        return self._owned

    @property
    def lost(self) -> str:
        """See Membership.lost."""
        return ""

    def leave(self) -> None:
        """See Membership.leave."""
        self._owned = frozenset()


def open_membership(log: EventLog, topic: str, group: str, session_timeout_ms: int) -> Membership:
    """Return a place in a group: of a consumer group in Kafka, of a group of one for a log in files.

    topic: whose partitions the members share.
    group: name of the group.
    session_timeout_ms: a member that is silent for so long loses its partitions; brokers allow 6 s to 30 minutes by
        default.
    """
    options = getattr(log, "options", None)
    if isinstance(options, KafkaOptions):
        from streamtopic.streams.kafka_membership import KafkaMembership

        return KafkaMembership(options, topic, group, session_timeout_ms)
    return AllPartitions(log.partitions(topic))


def open_log(where: str | Path | KafkaOptions | EventLog) -> tuple[EventLog, bool]:
    """Return the event log at a place, and whether it was opened here: then the caller must close it.

    where: Kafka's servers as `host:port[,host:port]`, KafkaOptions with credentials, a folder with a log in files, or
        an open log.
    """
    # A folder that is called like a server can be given as a Path.
    if isinstance(where, str) and SERVERS.match(where):
        where = KafkaOptions(where)
    if isinstance(where, KafkaOptions):
        from streamtopic.streams.kafka_log import KafkaLog

        return KafkaLog(where), True
    if isinstance(where, str | Path):
        return FileLog(where), True
    return where, False
