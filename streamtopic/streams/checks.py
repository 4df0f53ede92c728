"""What every event log refuses, in the same words."""

import re

from streamtopic.errors import StateMismatch, UsageError

__all__ = ["check_count", "check_new_topic", "check_offset", "check_partition", "check_topic"]

TOPIC = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,249}\Z")


def check_new_topic(topic: str, partitions: int) -> None:
    """Raise UsageError for a topic that cannot be made."""
    if not TOPIC.match(topic):
        raise UsageError(f"topic name {topic!r} is not usable: 1 to 249 letters, digits, dots, dashes, underscores")
    if partitions < 1:
        raise UsageError(f"topic {topic} needs at least one partition, not {partitions}")


def check_count(topic: str, existing: int, wanted: int) -> None:
    """Raise StateMismatch for a topic that is there with another number of partitions."""
    if existing != wanted:
        raise StateMismatch(
            f"topic {topic} has {existing} partitions, not {wanted}: set partitions = {existing}, or rebuild "
            "into a new log"
        )


def check_topic(topic: str, count: int, where: object) -> int:
    """Return a topic's number of partitions. Raises UsageError where there is no such topic."""
    if not count:
        raise UsageError(f"there is no topic {topic} {where}: create it with `streamtopic init`")
    return count


def check_partition(topic: str, partition: int, count: int) -> None:
    """Raise UsageError for a partition that the topic does not have."""
    if not 0 <= partition < count:
        raise UsageError(f"topic {topic} has partitions 0 to {count - 1}, not {partition}")


def check_offset(topic: str, partition: int, offset: int, begin: int, end: int) -> None:
    """Raise StateMismatch for an offset from which the log cannot be read."""
    if not begin <= offset <= end:
        raise StateMismatch(
            f"{topic}/{partition} holds offsets {begin} to {end}, so offset {offset} cannot be read: its records "
            "are gone or this is another log; run `streamtopic rebuild`"
        )
