"""The service's facts as JSON and people see them."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from streamtopic.service.decide import decision_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamtopic.receipts import Receipt
    from streamtopic.release import Release
    from streamtopic.service.runner import Service
    from streamtopic.service.standing import Base

__all__ = ["finite", "heads_of", "quality_of", "receipt_fields", "status_of", "topics_of", "version_fields"]


def version_fields(version: int, record: Mapping[str, Any], *, withdrawn: bool) -> dict[str, Any]:
    """Return a version as `versions --json` shows it. anchors_verified: the base's anchors held on the new counts."""
    fields = {
        "version": version,
        "kind": record["kind"],
        "documents": record["documents"],
        "forgotten": record["forget_set"],
        "epsilon": record["epsilon"],
        "delta": record["delta"],
        "sigma": record["sigma"],
        **_guarantee(record),
        "certificate": record["certificate"],
        "anchors_verified": record["kind"] == "unlearn",
        "seconds": round(record["seconds"], 4),
        "reason": record["reason"],
        "base": record["base"],
        "capacity": record["capacity"],
        "cumulative_epsilon": record["cumulative_epsilon"],
        "heads": dict(record.get("heads", {})),
        "unfitted": dict(record.get("unfitted", {})),
        "withdrawn": withdrawn,
        "created": record["created"],
    }
    return finite(fields)


def _guarantee(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a version's noise is proved by. covered: None where no proof has conditions to hold."""
    return {
        "guarantee": record.get("guarantee", "certified"),
        "ratio": record.get("ratio", 0.0),
        "covered": record.get("covered"),
    }


def topics_of(release: Release, top: int) -> list[dict[str, Any]]:
    """Return a release's topics as `topics --json` shows them."""
    return [
        {"topic": topic.topic, "share": round(topic.share, 6), "words": list(topic.words)}
        for topic in release.topics(top)
    ]


def heads_of(release: Release, top: int) -> dict[str, Any]:
    """Return a release's heads by task, with the words that speak for each class, as `topics --json` shows them."""
    found = {}
    for task in release.heads:
        head = release.head(task)
        words = {name: list(some) for name, some in release.class_words(task, top).items()}
        found[task] = {"topics": list(head.topics), "documents": head.documents, "classes": words}
    return found


def quality_of(release: Release) -> dict[str, float | None]:
    """Return NPMI and diversity of a release's top words; None where there was no sample."""
    return {name: release.quality.get(name) for name in ("npmi", "diversity")}


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as JSON shows it."""
    return finite({"id": receipt.id, **dataclasses.asdict(receipt)})


def finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Write infinities as None: JSON has none."""
    return {name: None if value in (math.inf, -math.inf) else value for name, value in fields.items()}


def _remarks(service: Service, base: Base | None) -> list[str]:
    """Return what an operator should know of the model: no capacity, conditions of the proof that fail, only noise."""
    said = []
    if base is not None and base.capacity == 0:
        said.append("capacity 0: every deletion is a retrain")
    newest = service.state.releases(1)
    record = newest[0][1] if newest else {}
    failed = [check["name"] for check in record.get("checks", []) if not check["holds"]]
    if failed:
        said.append(f"{len(failed)} of {len(record['checks'])} conditions of the proof fail: {', '.join(failed)}")
    if "vacuity" in record:
        said.append(record["vacuity"])
    return said


def status_of(service: Service) -> dict[str, Any]:
    """Return what `status --json` shows. lag: records that are not counted yet; words: of live documents, by partition.

    Of the last version: guarantee, ratio of the noise to the model, covered, unfitted tasks and why; remarks on it.
    """
    positions = service.reader.positions()
    standing, base = service.outlook.standing(), service.outlook.base()
    decided = service.state.decision()
    versions = service.versions()
    last = versions[-1] if versions else {"guarantee": None, "ratio": None, "covered": None, "unfitted": {}}
    totals: dict[str, int] = {}
    for meta in positions.values():
        for name, number in meta.totals.items():
            totals[name] = totals.get(name, 0) + number
    topic, now_ms = service.names.documents, service.connection.time_ms()
    lags = {partition: service.log.end(topic, partition) - meta.next_offset for partition, meta in positions.items()}
    # A service is alive while it moves: a lag alone only says that there is work.
    patience = service.settings.stalled_after * 1000
    stalled = [p for p, meta in positions.items() if lags[p] > 0 and now_ms - meta.moved_ms > patience]
    waiting = sum(len(service.reader.forgets(partition)) for partition in positions)
    return {
        "model": service.settings.model,
        "documents": standing.documents,
        "version": versions[-1]["version"] if versions else None,
        "base_documents": standing.base_documents,
        "forget_set": standing.forget_set,
        "capacity": standing.capacity,
        "capacity_rule": base.calibration.get("rule") if base else None,
        "capacity_left": max(standing.capacity - standing.forget_set, 0) if base else None,
        "unserved_deletions": standing.unserved,
        "new_documents": standing.new_documents,
        "cumulative_epsilon": versions[-1]["cumulative_epsilon"] if versions else 0.0,
        "epsilon_budget": service.settings.epsilon_budget,
        **{name: last[name] for name in ("guarantee", "ratio", "covered", "unfitted")},
        "remarks": _remarks(service, base),
        "decision": decided[0] if decided else decision_text(service.outlook.decide(standing)),
        "decided": decided[1] if decided else None,
        "words": {partition: meta.words for partition, meta in positions.items()},
        "word_limit": service.settings.max_partition_words,
        "lag": sum(lags.values()),
        "stalled_partitions": stalled,
        "receipts_waiting": waiting,
        "outbox": len(service.state.outbox()),
        "outcomes": totals,
        "running": not service.leads,
        "healthy": not stalled,
    }
