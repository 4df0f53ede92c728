"""The event log: topics, their partitions and settings, and whether deletes stay long enough to be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.service.doctor.finding import Finding, fail, ok, warn
from streamtopic.service.provision import differing, wanted_partitions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.service.parts import Parts

__all__ = ["examine_log"]

INIT = "run `streamtopic init`"


def examine_log(parts: Parts) -> Iterator[Finding]:
    """Look at each topic."""
    for topic, wanted in parts.topic_settings.items():
        count = parts.log.partitions(topic)
        right = wanted_partitions(parts.names, topic, parts.settings.partitions)
        if not count:
            yield fail(topic, "there is no such topic", INIT)
        elif count != right:
            remedy = f"set partitions = {count}, or see docs/operations.md on changing the number"
            yield fail(topic, f"{count} partitions, not {right}", remedy)
        else:
            yield _settings(parts, topic, count, wanted)


def _settings(parts: Parts, topic: str, count: int, wanted: Mapping[str, str]) -> Finding:
    if parts.settings.kafka is None:
        return ok(topic, f"{count} partition(s), in files")
    changed = differing(parts.log, topic, wanted)
    if not changed:
        return ok(topic, f"{count} partition(s), settings as they should be")
    detail = ", ".join(f"{name} is {have or 'not set'}, not {value}" for name, (have, value) in changed.items())
    if "cleanup.policy" in changed:
        return fail(topic, detail, f"{INIT}: documents or receipts would be lost, or deleted text would stay")
    return warn(topic, detail, INIT)
