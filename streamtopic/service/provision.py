"""The topics of a model: made where they are missing, checked and brought to their settings where they exist."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from streamtopic.errors import StateMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.streams import EventLog, TopicNames

__all__ = ["Provisioned", "differing", "provision", "wanted_partitions"]


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What became of a topic. changed: setting to its value before (None: the broker's default) and now."""

    topic: str
    partitions: int
    action: Literal["made", "changed", "found"]
    changed: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)


def provision(
    log: EventLog, names: TopicNames, partitions: int, settings: Mapping[str, Mapping[str, str]]
) -> list[Provisioned]:
    """Make or check each topic in `settings`; safe to repeat, and beside running services.

    partitions: of the documents topic. Raises StateMismatch where a topic has another number of them: before
    anything is made or changed.
    """
    have = {topic: log.partitions(topic) for topic in settings}
    for topic, count in have.items():
        if count not in {0, wanted_partitions(names, topic, partitions)}:
            raise StateMismatch(_other_count(names, topic, count, partitions))
    return [
        _one(log, topic, wanted_partitions(names, topic, partitions), have[topic], settings[topic]) for topic in have
    ]


def wanted_partitions(names: TopicNames, topic: str, partitions: int) -> int:
    """Return how many partitions a topic must have: order matters in all but that of the documents."""
    return partitions if topic == names.documents else 1


def differing(log: EventLog, topic: str, wanted: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Return the settings of a topic that are not as wanted: (what it is, what it should be)."""
    have = log.settings(topic)
    return {name: (have.get(name), value) for name, value in wanted.items() if have.get(name) != value}


def _one(log: EventLog, topic: str, partitions: int, have: int, wanted: Mapping[str, str]) -> Provisioned:
    if not have:
        log.create(topic, partitions, wanted)
        return Provisioned(topic, partitions, "made")
    changed = differing(log, topic, wanted)
    if not changed:
        return Provisioned(topic, partitions, "found")
    log.configure(topic, {name: value for name, (_, value) in changed.items()})
    return Provisioned(topic, partitions, "changed", changed)


def _other_count(names: TopicNames, topic: str, have: int, partitions: int) -> str:
    if topic == names.documents:
        return (
            f"topic {topic} has {have} partitions, the settings say {partitions}: set partitions = {have}; or, to "
            f"change it, let Kafka make it {partitions} and run `streamtopic rebuild` (docs/operations.md)"
        )
    return f"topic {topic} has {have} partitions and must have 1: delete it if it is empty, then run this again"
