"""Parts of a staged version: envelope, record, ledger entry, messages, withdrawals, base model; and how to read them.

After Redis was set back, the published versions count, and not those that Redis remembers: `adopt` and `account`.
"""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgpack
import numpy as np

from streamtopic.service.publish.published import PublishedVersion
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
    "kept_fields",
    "ledger_entry",
    "outgoing",
    "release_record",
    "replaced",
    "rounded",
    "shown_calibration",
    "stored_base",
]


# Most versions that one version retires. A `keep_versions` that was lowered by much takes effect over several versions.
_RETIRED = 20

# Fields of the envelope that the release record repeats under the same names.
_REPEATED = (
    "kind",
    "base",
    "epoch",
    "capacity",
    "counted",
    "previous",
    "commitment",
    "certificate",
    "epsilon",
    "delta",
    "guarantee",
    "covered",
    "revision",
    "sigma",
    "ratio",
    "cumulative_epsilon",
    "created",
)


def counted_of(snapshot: Snapshot) -> int:
    """Return the number of documents that were ever accepted into the epochs of a snapshot."""
    # A retraining reads closed epochs only; documents of the next epoch are not in it yet.
    through = float("inf") if snapshot.through is None else snapshot.through
    counted = 0
    for view in snapshot.views:
        epochs = view.meta.counted.items()
        counted += sum(number for epoch, number in epochs if epoch <= through)
    return counted


def forgotten_of(snapshot: Snapshot, base: Base) -> int:
    """Return the number of the base model's documents that are gone in a snapshot."""
    positions = {view.partition: view.meta for view in snapshot.views}
    return base_forget_set(positions, base.documents, base.epoch)


def ledger_entry(envelope: Envelope, digest: str) -> dict[str, Any]:
    """Return the entry of a version in the privacy ledger, by which it composes with other versions of its base.

    digest: that the noise was drawn for, "" for a version that was read back from the log.
    """
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
    """Return the record that Redis keeps of a version, for decisions, receipts and people.

    digest: names the release.
    chunks: number of its messages in the log, 0 where that is not known.
    warm: whether the model was carried over.
    reason: of the decision to make it.
    seconds: how long it took to make.
    unfitted: for each task without a head, the reason.
    facts: further fields, which subscribers do not get.
    """
    repeated = {name: getattr(envelope, name) for name in _REPEATED}
    cut = {str(partition): offset for partition, offset in envelope.cut.items()}
    guided = {name: list(seeds) for name, seeds in envelope.guided.items()}
    margin = float(min(envelope.margin, 1e300))
    return {
        **facts,
        **repeated,
        "cut": cut,
        "documents": envelope.m,
        "vocabulary": envelope.n,
        "topics": envelope.r,
        "forget_set": envelope.forgotten,
        "withdrawn": list(envelope.withdrawn),
        "anchors": list(envelope.anchors),
        "guided": guided,
        "margin": margin,
        "digest": digest,
        "chunks": chunks,
        "warm": warm,
        "reason": reason,
        "unfitted": dict(unfitted),
        "seconds": seconds,
    }


def holding(
    records: Sequence[tuple[int, Mapping[str, Any]]], withdrawn: Iterable[int], forgotten: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Return versions that hold one of these documents and are not withdrawn yet.

    records: number and record of each version.
    withdrawn: versions that are withdrawn already.
    forgotten: (partition, offset of its add) for each deleted document.
    """
    before = set(withdrawn)
    cuts = {version: record["cut"] for version, record in records}
    found = []
    forgotten_adds = [(str(partition), offset) for partition, offset in forgotten]
    for version, record in records:
        adds = _adds(record, cuts)
        # A version without a cut for a partition may hold any of its documents.
        holds = any(offset < adds.get(partition, math.inf) for partition, offset in forgotten_adds)
        if holds and version not in before:
            found.append(version)
    return tuple(found)


def _adds(record: Mapping[str, Any], cuts: Mapping[int, Mapping[str, int]]) -> Mapping[str, int]:
    """Return, by partition, the offset up to which a version holds added documents."""
    own: Mapping[str, int] = record["cut"]
    # An update under this guarantee covers the documents of its base model only.
    if own and record.get("guarantee") == "theorem":
        return cuts.get(record["base"], own)
    return own


def erasures(
    state: ModelState, records: Sequence[tuple[int, Mapping[str, Any]]], versions: Iterable[int], *, retired: bool
) -> list[OutboxRecord]:
    """Return the tombstones of versions.

    retired: whether they are erased for their age, and not for the documents that they hold.
    """
    chunks = {version: int(record["chunks"]) for version, record in records}
    found = []
    for version in versions:
        number = chunks.get(version, 0)
        messages = tombstones(version, number, retired=retired)
        found += [outgoing(state.model, message) for message in messages]
    return found


def replaced(state: ModelState, envelope: Envelope, keep_versions: int) -> list[OutboxRecord]:
    """Return the tombstones of versions that a new one withdraws, and of the oldest beyond `keep_versions`.

    Send them behind the new version, so that a subscriber is never left without one.
    """
    records = state.releases()
    withdrawn = state.withdrawn(records)
    oldest = envelope.version - keep_versions
    old = [version for version, _ in records if version <= oldest]
    # Usually it is one version; where the setting was lowered, a few at once.
    standing = [version for version in old if version not in withdrawn]
    retired = standing[-_RETIRED:]
    aged = set(retired) - set(envelope.withdrawn)
    erased = erasures(state, records, envelope.withdrawn, retired=False)
    return erased + erasures(state, records, aged, retired=True)


def outgoing(model: str, message: Message) -> OutboxRecord:
    """Return a message for the releases topic as the outbox keeps it."""
    topic = TopicNames(model).releases
    return OutboxRecord(topic, message.key or b"", message.value, message.headers)


def describe(made: Made, *, base: Base, kind: Kind, version: int, model: str, created: int) -> dict[str, Any]:
    """Return the envelope's facts about the model and its place among versions.

    created: milliseconds since 1970.
    """
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
        "r": len(made.anchors),
        "tolerance": made.tolerance,
        "certificate": _claimed(made),
        "anchors": made.anchors,
        "guided": dict(made.guided),
        "margin": _coarse(made.margin),
        "forgotten": forgotten_of(snapshot, base),
        "capacity": base.capacity,
        "created": created,
        "revision": REVISION,
    }


def _claimed(made: Made) -> float:
    """Return the certificate that a version claims: the tolerance, or infinity where nothing is certified."""
    # The exact one depends on the path to the model: its digits would tell candidates for a deleted document apart.
    return made.tolerance if made.certificate <= made.tolerance else math.inf


def _coarse(margin: float) -> float:
    """Return the greatest power of two up to a margin; 0 for a margin of 0 or nan."""
    # Like the exact certificate, all digits of a margin would tell candidates for a deleted document apart.
    if margin == math.inf:
        return margin
    if not margin > 0:
        return 0.0
    _, exponent = math.frexp(margin)
    return 2.0 ** (exponent - 1)


def adopt(state: ModelState, lease: Lease, published: Sequence[PublishedVersion]) -> list[int]:
    """Write the records of published versions that Redis does not know, and return their numbers."""
    # A Redis that was restored to an earlier moment may have forgotten versions that subscribers hold. Their numbers
    # must not be used again, their epsilon stays spent, and later deletions are measured against them.
    newest = state.releases(1)
    known = newest[0][0] if newest else 0
    accounted = state.ledger()
    adopted = []
    reason = "read back from the log"
    for one in published:
        envelope = one.envelope
        if envelope.version <= known:
            # The ledger alone may be lost. Epsilon that was spent stays spent.
            if envelope.version not in accounted:
                state.account_again(envelope.version, ledger_entry(envelope, ""))
            continue
        record = release_record(envelope, digest=one.digest, chunks=one.chunks, warm=False, reason=reason, seconds=0.0)
        entry = ledger_entry(envelope, "")
        outcome = state.adopt(lease, envelope.version, release=record, ledger=entry)
        # Another scheduler leads by now, and adopts the rest itself.
        if isinstance(outcome, Stale):
            break
        adopted.append(envelope.version)
    return adopted


def account(state: ModelState, rivals: Sequence[Envelope]) -> None:
    """Write the epsilon spent on releases that stand in the log under the number of another one."""
    # Subscribers may have taken either of the two, so both count.
    for envelope in rivals:
        entry = ledger_entry(envelope, "")
        state.account(envelope.version, str(envelope.created), entry)


_TRIED = (
    "limit",
    "random_limit",
    "aimed_limit",
    "updates",
    "complete",
    "sampled",
    "whole",
    "utility",
    "probability",
    "random",
    "aimed",
)


def stored_base(base: Base, new: NewBase, salt: bytes) -> StoredBase:
    """Return a base model as Redis keeps it. It is before noise, so subscribers never get it.

    A dashboard may read its fields, but not its bytes. The bytes hold all numbers that follow from the documents to the
    last digit, also shares of topics, documents of each anchor and constants (`kept_fields`).

    salt: secret bytes that are stored among the others.
    """
    # Every field of a mode is named here, and its value stands in the bytes only: updates must know which mode it was.
    fields: dict[str, Any] = {name: {} for name in new.fields}
    fields["documents"] = base.documents
    fields["anchors"] = list(base.anchors)
    fields["capacity"] = base.capacity
    fields["rules"] = new.fit.options.rules
    fields["calibration"] = shown_calibration(base.calibration)
    kept = {"calibration": dict(base.calibration), **new.fields}
    arrays: dict[str, Any] = dict(new.arrays)
    arrays["words"] = np.array(new.fit.words)
    arrays["A"] = new.fit.A
    packed = msgpack.packb(kept)
    arrays["kept"] = np.frombuffer(packed, np.uint8)
    # A dashboard reads the checksum of these bytes. Without a salt, who can guess the documents could learn the model
    # and compare.
    arrays["salt"] = np.frombuffer(salt, np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return StoredBase(base.epoch, base.version, fields, buffer.getvalue())


def kept_fields(stored: StoredBase) -> Mapping[str, Any]:
    """Return the facts in a base model's bytes: its calibration and, in the paper's mode, the figures of its noise.

    Where the bytes are gone, return the facts of its head.
    """
    if stored.blob:
        with np.load(io.BytesIO(stored.blob)) as arrays:
            if "kept" in arrays:
                found: dict[str, Any] = msgpack.unpackb(arrays["kept"].tobytes())
                return found
    # An earlier program kept all of them in the head.
    return stored.fields


def shown_calibration(found: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the facts of a capacity that a report shows, with three digits.

    found: all facts of the capacity, None where there are none.
    """
    known = found or {}
    # Counts of words and shares before noise are left out: with them, two base models could be subtracted.
    shown: dict[str, Any] = {name: known[name] for name in ("rule", "limit") if name in known}
    if "formula" in known:
        shown["formula"] = rounded(known["formula"])
    if tried := known.get("tried"):
        figures = {name: tried[name] for name in _TRIED if name in tried}
        shown["tried"] = rounded(figures)
    return shown


def rounded(value: object) -> Any:  # noqa: ANN401 -- whatever was given
    """Return the numbers of a value with three digits each."""
    # Three are enough to judge a capacity, and more would show more of the model before noise.
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.3g}")
    return value
