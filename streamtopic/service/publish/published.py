"""Read the releases topic back, and show versions, releases and receipts as JSON."""

import math
from dataclasses import asdict
from typing import Any

from streamtopic.client import ModelSubscriber
from streamtopic.errors import CheckFailed, UsageError
from streamtopic.signed import KeyRing, Receipt, Release
from streamtopic.state import ModelState
from streamtopic.streams import EventLog

__all__ = [
    "finite",
    "heads_of",
    "quality_of",
    "read_release",
    "receipt_fields",
    "topics_of",
    "versions_of",
]


def read_release(log: EventLog, state: ModelState, keys: KeyRing, version: int | None) -> Release:
    """Return a published version, the newest for None.

    Raises UsageError if it does not exist or is withdrawn, CheckFailed if it does not verify.
    """
    found = None
    with ModelSubscriber(log, model=state.model, public_key=keys, idle_seconds=0) as subscriber:
        for release in subscriber:
            if version in (None, release.version):
                found = release
        # Redis knows a withdrawal before the log does: the version that withdraws may still wait in the outbox.
        withdrawn = state.withdrawn() | subscriber.withdrawn
    number = version if found is None else found.version
    if number in withdrawn:
        raise UsageError(f"version {number} is withdrawn: it holds documents deleted since; take a later one")
    if found is None:
        recorded = {number for number, _ in state.releases()}
        if version in recorded:
            raise CheckFailed(
                f"version {version} is not proved by a ledger with this instance's key: compare the public key here "
                "with that of the service"
            )
        name = "no version" if version is None else f"no version {version}"
        raise UsageError(
            f"there is {name}: `streamtopic versions` lists them, `streamtopic status` shows the next step"
        )
    return found


_SHOWN = (
    "epsilon",
    "delta",
    "sigma",
    "guarantee",
    "ratio",
    "covered",
    "certificate",
    "reason",
    "base",
    "capacity",
    "cumulative_epsilon",
    "created",
    "forgotten",
)
"""Fields of a version's record in Redis that `versions --json` shows under their own names."""


def versions_of(state: ModelState, count: int | None = None) -> list[dict[str, Any]]:
    """Return the newest `count` versions in Redis as `versions --json` shows them, oldest first; None: all."""
    releases = state.releases(count)
    withdrawn = state.withdrawn(releases)
    found = []
    for version, record in releases:
        fields = {name: record[name] for name in _SHOWN}
        fields |= {"version": version, "withdrawn": version in withdrawn, "documents": record["m"]}
        fields["kind"] = record["made_by"]
        fields["seconds"] = round(record.get("seconds", 0.0), 4)
        # Only a service with tasks records heads.
        fields |= {name: dict(record.get(name, {})) for name in ("heads", "unfitted")}
        found.append(finite(fields))
    return found


def topics_of(release: Release, top: int) -> list[dict[str, Any]]:
    """Return a release's topics as `topics --json` shows them. top: number of words of each."""
    topics = release.topics(top)
    return [{"topic": topic.topic, "share": round(topic.share, 6), "words": list(topic.words)} for topic in topics]


def heads_of(release: Release, top: int) -> dict[str, Any]:
    """Return a release's heads by task, as `topics --json` shows them. top: number of words for each class."""
    found = {}
    for task in release.heads:
        head = release.head(task)
        topics = list(head.topics)
        classes = release.class_words(task, top)
        words = {name: list(some) for name, some in classes.items()}
        found[task] = {"topics": topics, "documents": head.documents, "classes": words}
    return found


def quality_of(release: Release) -> dict[str, float | None]:
    """Return NPMI and diversity of a release's top words, None for a figure that it does not have."""
    return {name: release.quality.get(name) for name in ("npmi", "diversity")}


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as JSON shows it."""
    return finite({"id": receipt.id, **asdict(receipt)})


def finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with None for infinities, which JSON does not have."""
    infinite = math.inf, -math.inf
    return {name: None if value in infinite else value for name, value in fields.items()}
