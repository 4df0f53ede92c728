"""One version as it is staged: envelope, record, ledger entry, messages, withdrawals; and as it is read back.

After Redis was set back, published versions count, whatever Redis remembers of them: `adopt` and `account`.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np

from streamtopic.service.kept import shown_calibration
from streamtopic.service.published import PublishedVersion
from streamtopic.service.schedule.modeller import Made, NewBase
from streamtopic.service.schedule.situation import Base, base_forget_set
from streamtopic.signed import REVISION, Envelope, Kind, tombstones
from streamtopic.state import Lease, ModelState, OutboxRecord, Snapshot, Stale, StoredBase
from streamtopic.streams import Message, TopicNames

__all__ = [
    "account",
    "adopt",
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

# Tombstones for age in one version: a setting that was lowered by much takes effect over several versions.
_RETIRED = 20


def stored_base(base: Base, new: NewBase, salt: bytes) -> StoredBase:
    """Return a base model as Redis keeps it: before noise, so never for subscribers.

    Its fields are for whoever may look. Its bytes, which a dashboard may not read, hold what follows from the documents
    to the last digit: also shares of topics, documents of each anchor and constants (`kept_fields`).

    salt: secret bytes that go into the stored ones. Their checksum is kept where a dashboard reads it, and without a
        salt whoever can guess the documents could learn the model and compare.
    """
    fields: dict[str, Any] = {
        "documents": base.documents,
        "anchors": list(base.anchors),
        "capacity": base.capacity,
        "calibration": shown_calibration(base.calibration),
        **{name: {} for name in new.fields},
    }
    kept = {"calibration": dict(base.calibration), **new.fields}
    arrays: dict[str, Any] = {"words": np.array(new.fit.words), "A": new.fit.A, **new.arrays}
    arrays["kept"] = np.frombuffer(msgpack.packb(kept), np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays, salt=np.frombuffer(salt, np.uint8))
    return StoredBase(base.epoch, base.version, fields, buffer.getvalue())


def counted_of(snapshot: Snapshot) -> int:
    """Return how many documents were ever accepted into the epochs of a snapshot."""
    # A retraining reads closed epochs only, and documents of the next one are not in it yet.
    through = float("inf") if snapshot.through is None else snapshot.through
    return sum(n for view in snapshot.views for epoch, n in view.meta.counted.items() if epoch <= through)


def forgotten_of(snapshot: Snapshot, base: Base) -> int:
    """Return how many of the base's documents are gone in a snapshot."""
    positions = {view.partition: view.meta for view in snapshot.views}
    return base_forget_set(positions, base.documents, base.epoch)


def ledger_entry(envelope: Envelope, digest: str) -> dict[str, Any]:
    """Return the entry of a version in the privacy ledger: enough to compose it with others of its base."""
    return {"base": envelope.base, "scale": envelope.scale, "slack": envelope.slack, "digest": digest}


def release_record(
    envelope: Envelope,
    *,
    digest: str,
    chunks: int,
    warm: bool,
    reason: str,
    seconds: float,
    unfitted: Mapping[str, str] = MappingProxyType({}),
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the record that Redis keeps of a version: for decisions, for receipts and for people.

    digest: it names the release.
    chunks: how many messages it has in the log, 0 where that is not known.
    warm: whether the model was carried over.
    unfitted: tasks without a head, and why.
    facts: further fields, which no subscriber gets.
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
        "digest": digest,
        "previous": envelope.previous,
        "commitment": envelope.commitment,
        "anchors": list(envelope.anchors),
        "margin": float(min(envelope.margin, 1e300)),
        "certificate": envelope.certificate,
        "warm": warm,
        "reason": reason,
        "epsilon": envelope.epsilon,
        "delta": envelope.delta,
        "guarantee": envelope.guarantee,
        "covered": envelope.covered,
        "revision": envelope.revision,
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
    found = []
    for version, record in records:
        adds = _adds(record, cuts)
        holds = any(offset < adds.get(str(partition), math.inf) for partition, offset in forgotten)
        if holds and version not in before:
            found.append(version)
    return tuple(found)


def _adds(record: Mapping[str, Any], cuts: Mapping[int, Mapping[str, int]]) -> Mapping[str, int]:
    """Return, by partition, the offset up to which a version holds added documents."""
    # An update under this guarantee covers the documents of its base model only.
    own: Mapping[str, int] = record["cut"]
    base_only = record.get("guarantee") == "theorem"
    return cuts.get(record["base"], own) if own and base_only else own


def erasures(
    state: ModelState, records: Sequence[tuple[int, Mapping[str, Any]]], versions: Iterable[int], *, retired: bool
) -> list[OutboxRecord]:
    """Return the tombstones of versions. retired: whether they go for their age, not for the documents they hold."""
    chunks = {version: int(record["chunks"]) for version, record in records}
    messages = [
        message for version in versions for message in tombstones(version, chunks.get(version, 0), retired=retired)
    ]
    return [outgoing(state.model, message) for message in messages]


def replaced(state: ModelState, envelope: Envelope, keep_versions: int) -> list[OutboxRecord]:
    """Return the tombstones of versions that a new one withdraws, and of the oldest beyond `keep_versions`.

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
    made: Made, *, base: Base, kind: Kind, version: int, model: str, topics: int, created: int
) -> dict[str, Any]:
    """Return the envelope's facts about the model and its place among versions."""
    snapshot = made.snapshot
    return {
        "model": model,
        "version": version,
        "kind": kind,
        "parent": version - 1,
        "base": base.version,
        "epoch": base.epoch,
        "cut": dict(made.cut),
        "counted": counted_of(snapshot),
        "m": made.documents,
        "n": len(made.words),
        "r": topics,
        "tolerance": made.tolerance,
        "certificate": _claimed(made),
        "anchors": made.anchors,
        "margin": _coarse(made.margin),
        "forgotten": forgotten_of(snapshot, base),
        "capacity": base.capacity,
        "created": created,
        "revision": REVISION,
    }


def _claimed(made: Made) -> float:
    """Return the certificate that a version claims: the tolerance, or infinity where nothing is certified."""
    # The exact one depends on the path to the model, so with all its digits it would tell candidates for a deleted
    # document apart.
    return made.tolerance if made.certificate <= made.tolerance else math.inf


def _coarse(margin: float) -> float:
    """Return the greatest power of two up to a margin; 0 for a margin of 0 or nan."""
    # Like the exact certificate, all digits of a margin would tell candidates for a deleted document apart.
    if margin == math.inf:
        return margin
    return 2.0 ** (math.frexp(margin)[1] - 1) if margin > 0 else 0.0


def adopt(state: ModelState, lease: Lease, published: Sequence[PublishedVersion]) -> list[int]:
    """Write the records of published versions that Redis does not know, and return their numbers.

    A Redis that was restored to an earlier moment may have forgotten versions that subscribers hold. Their numbers
    must not be used again, their epsilon stays spent, and deletions since then are measured against them.
    """
    newest = state.releases(1)
    known = newest[0][0] if newest else 0
    adopted = []
    for one in published:
        envelope = one.envelope
        if envelope.version <= known:
            continue
        record = release_record(
            envelope, digest=one.digest, chunks=one.chunks, warm=False, reason="read back from the log", seconds=0.0
        )
        outcome = state.adopt(lease, envelope.version, release=record, ledger=ledger_entry(envelope, ""))
        # Another scheduler leads by now, and adopts the rest itself.
        if isinstance(outcome, Stale):
            break
        adopted.append(envelope.version)
    return adopted


def account(state: ModelState, rivals: Sequence[Envelope]) -> None:
    """Write the epsilon spent on releases that stand in the log under another one's number."""
    # Subscribers may have taken either of the two, so both were paid for.
    for envelope in rivals:
        state.account(envelope.version, str(envelope.created), ledger_entry(envelope, ""))
