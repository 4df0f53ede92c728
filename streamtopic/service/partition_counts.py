"""How many partitions the topics of a model have, and what to do about a topic with another number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import StateMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamtopic.streams import EventLog, TopicNames

__all__ = ["check_counts", "count_remedy", "wanted_partitions"]


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
