"""One version, from a learned model to what is staged: envelope, record, ledger entry, signed chunks, withdrawals."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from streamtopic.release import Envelope, Kind, tombstones
from streamtopic.service.modelling import Modelled
from streamtopic.service.standing import Base, base_forget_set
from streamtopic.service.theorem import Unlearned
from streamtopic.service.theorem_base import TheoremBase
from streamtopic.state import ModelState, OutboxRecord, Snapshot, StoredBase
from streamtopic.streams import Message, TopicNames
from streamtopic.topics.fit import TopicFit

__all__ = [
    "describe",
    "erasures",
    "forgotten_of",
    "holding",
    "ledger_entry",
    "outgoing",
    "release_record",
    "replaced",
    "stored_base",
]

_RETIRED = 20


def stored_base(base: Base, fit: TopicFit, theorem: TheoremBase | None = None) -> StoredBase:
    """Return the base model as Redis keeps it: before noise, so never for subscribers.

    theorem: what theorem mode starts from, kept with it.
    """
    fields: dict[str, Any] = {
        "documents": base.documents,
        "anchors": list(base.anchors),
        "capacity": base.capacity,
        "calibration": dict(base.calibration),
    }
    buffer, words = io.BytesIO(), np.array(fit.words)
    if theorem is None:
        np.savez_compressed(buffer, words=words, A=fit.A)
    else:
        np.savez_compressed(buffer, words=words, A=fit.A, C=theorem.statistics.C)
        fields["theorem"] = theorem.fields
    return StoredBase(base.epoch, base.version, fields, buffer.getvalue())


def counted_of(snapshot: Snapshot) -> int:
    """Return how many documents were ever accepted into the epochs of a snapshot."""
    through = float("inf") if snapshot.through is None else snapshot.through
    return sum(n for view in snapshot.views for epoch, n in view.meta.counted.items() if epoch <= through)


def forgotten_of(snapshot: Snapshot, base: Base) -> int:
    """Return how many of the base's documents are gone in a snapshot."""
    positions = {view.partition: view.meta for view in snapshot.views}
    return base_forget_set(positions, base.documents, base.epoch)


def ledger_entry(envelope: Envelope, digest: str) -> dict[str, Any]:
    """Return what the privacy ledger keeps of a version: enough to compose it with others of its base."""
    return {"base": envelope.base, "scale": envelope.scale, "slack": envelope.slack, "digest": digest}


def release_record(
    envelope: Envelope,
    *,
    chunks: int,
    warm: bool,
    reason: str,
    seconds: float,
    unfitted: Mapping[str, str] = MappingProxyType({}),
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return what Redis keeps of a version: for decisions, for receipts and for people.

    chunks: of the release in the log, 0 if not known. unfitted: tasks without a head, and why. facts: fields besides,
    which no subscriber gets.
    """
    return {
        **facts,
        "kind": envelope.kind,
        "base": envelope.base,
        "epoch": envelope.epoch,
        "cut": {str(partition): offset for partition, offset in envelope.cut.items()},
        "documents": envelope.m,
        "vocabulary": envelope.n,
        "topics": envelope.r,
        "forget_set": envelope.forgotten,
        "capacity": envelope.capacity,
        "counted": envelope.counted,
        "chunks": chunks,
        "withdrawn": list(envelope.withdrawn),
        "anchors": list(envelope.anchors),
        "margin": float(min(envelope.margin, 1e300)),
        "certificate": envelope.certificate,
        "warm": warm,
        "reason": reason,
        "epsilon": envelope.epsilon,
        "delta": envelope.delta,
        "guarantee": envelope.guarantee,
        "covered": envelope.covered,
        "sigma": envelope.sigma,
        "ratio": envelope.ratio,
        "unfitted": dict(unfitted),
        "cumulative_epsilon": envelope.cumulative_epsilon,
        "created": envelope.created,
        "seconds": seconds,
    }


def holding(
    records: Sequence[tuple[int, Mapping[str, Any]]], withdrawn: Iterable[int], forgotten: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Return versions that hold one of these documents and are not withdrawn yet.

    forgotten: (partition, offset of its add) for each document that is gone.
    """
    before, cuts = set(withdrawn), {version: record["cut"] for version, record in records}
    return tuple(
        version
        for version, record in records
        if version not in before
        and any(offset < _adds(record, cuts).get(str(partition), math.inf) for partition, offset in forgotten)
    )


def _adds(record: Mapping[str, Any], cuts: Mapping[int, Mapping[str, int]]) -> Mapping[str, int]:
    """Return up to where a version holds added documents: under the theorem, those of its base model only."""
    own: Mapping[str, int] = record["cut"]
    return cuts.get(record["base"], own) if own and record.get("guarantee") == "theorem" else own


def erasures(
    state: ModelState, records: Sequence[tuple[int, Mapping[str, Any]]], versions: Iterable[int], *, retired: bool
) -> list[OutboxRecord]:
    """Return the tombstones of versions; `retired`: they go because of their age, not because of what they hold."""
    chunks = {version: int(record["chunks"]) for version, record in records}
    messages = [
        message for version in versions for message in tombstones(version, chunks.get(version, 0), retired=retired)
    ]
    return [outgoing(state.model, message) for message in messages]


def replaced(state: ModelState, envelope: Envelope, keep_versions: int) -> list[OutboxRecord]:
    """Return tombstones of what a version replaces: those that it withdraws, and the oldest beyond `keep_versions`.

    They go behind the new version, so that a subscriber is never left without one.
    """
    records, withdrawn = state.releases(), state.withdrawn()
    old = [version for version, _ in records if version <= envelope.version - keep_versions]
    # Each version brings one more past its time; where the setting was lowered, it is a few at once.
    retired = [version for version in old if version not in withdrawn][-_RETIRED:]
    return [
        *erasures(state, records, envelope.withdrawn, retired=False),
        *erasures(state, records, set(retired) - set(envelope.withdrawn), retired=True),
    ]


def outgoing(model: str, message: Message) -> OutboxRecord:
    """Return a message for the releases topic as the outbox keeps it."""
    return OutboxRecord(TopicNames(model).releases, message.key or b"", message.value, message.headers)


def describe(
    modelled: Modelled | Unlearned, *, base: Base, kind: Kind, version: int, model: str, topics: int, created: int
) -> dict[str, Any]:
    """Return the envelope's facts about the model and its place among versions."""
    snapshot = modelled.snapshot
    return {
        "model": model,
        "version": version,
        "kind": kind,
        "parent": version - 1,
        "base": base.version,
        "epoch": base.epoch,
        "cut": dict(modelled.cut),
        "counted": counted_of(snapshot),
        "m": modelled.documents,
        "n": len(modelled.words),
        "r": topics,
        "tolerance": modelled.tolerance,
        "certificate": modelled.certificate,
        "anchors": modelled.anchors,
        "margin": modelled.margin,
        "forgotten": forgotten_of(snapshot, base),
        "capacity": base.capacity,
        "created": created,
    }
