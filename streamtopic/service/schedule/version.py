"""Parts of a staged version: envelope, record, messages, withdrawals, base model; and how to read them.

After Redis was set back, the versions of the ledger count, and not those that Redis remembers: `follow_ledger`.
"""

import dataclasses
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from streamtopic.errors import StateCorrupt
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.service.schedule.modeller import Made
from streamtopic.service.schedule.situation import Base, Guarantee, accepted
from streamtopic.signed import Envelope, Runs, SentRelease, line_of, sent_releases, tombstones
from streamtopic.state import DocumentCounts, Lease, ModelState, OutboxRecord, Stale, StoredBase
from streamtopic.streams import EventLog, Message, TopicNames

__all__ = [
    "counted_of",
    "describe",
    "erasures",
    "follow_ledger",
    "holding",
    "kept_of",
    "outgoing",
    "release_record",
    "replaced",
    "rounded",
    "stored_base",
]


# Most versions that one version retires. A `keep_versions` that was lowered by much takes effect over several versions.
_RETIRED = 20
_SALT_BYTES = 32

_OTHERWISE = {"cut", "withdrawn", "release"}
_REPEATED = tuple(field.name for field in dataclasses.fields(Envelope) if field.name not in _OTHERWISE)
"""Fields of the envelope that the release record has as they are."""


def counted_of(counts: DocumentCounts, base: Base) -> int:
    """Return the number of documents that were ever accepted among those that counts are of."""
    return base.counted if counts.partial else accepted(counts.positions)


def release_record(
    envelope: Envelope, *, chunks: int, reason: str, facts: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the record that Redis keeps of a version, for decisions, the publisher and people.

    chunks: number of its messages in the releases topic.
    reason: of the decision to make it.
    facts: further fields, which subscribers do not get.
    """
    repeated = {name: getattr(envelope, name) for name in _REPEATED}
    cut = {str(partition): offset for partition, offset in envelope.cut.items()}
    withdrawn = list(envelope.withdrawn)
    own = {"cut": cut, "withdrawn": withdrawn, "digest": envelope.release, "chunks": chunks, "reason": reason}
    return {**facts, **repeated, **own, "entry": line_of(envelope)}


def holding(
    records: Sequence[tuple[int, Mapping[str, Any]]], withdrawn: Container[int], forgotten: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Return versions that hold one of these documents and are not withdrawn yet.

    records: number and record of each version.
    withdrawn: versions that are withdrawn already.
    forgotten: (partition, offset of its add) for each deleted document.
    """
    cuts = {version: record["cut"] for version, record in records}
    found = []
    forgotten_adds = [(str(partition), offset) for partition, offset in forgotten]
    for version, record in records:
        adds = _adds(record, cuts)
        # A version without a cut for a partition may hold any of its documents.
        holds = any(offset < adds.get(partition, math.inf) for partition, offset in forgotten_adds)
        if holds and version not in withdrawn:
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
    state: ModelState, records: Sequence[tuple[int, Mapping[str, Any]]], versions: Iterable[int]
) -> list[OutboxRecord]:
    """Return the tombstones of versions."""
    chunks = {version: int(record["chunks"]) for version, record in records}
    found = []
    for version in versions:
        number = chunks.get(version, 0)
        messages = tombstones(version, number)
        found += [outgoing(state.model, message) for message in messages]
    return found


def replaced(state: ModelState, withdrawn: Runs, envelope: Envelope, keep_versions: int) -> list[OutboxRecord]:
    """Return the tombstones of versions that a new one withdraws, and of the oldest beyond `keep_versions`.

    withdrawn: the versions that were withdrawn before.

    Send them after the new version, so that a subscriber is never left without one.
    """
    # Usually it is one version; if the setting was lowered, a few at once.
    standing = withdrawn.gaps(max(envelope.version - keep_versions, 0))
    aged = set(standing.newest(_RETIRED)) - set(envelope.withdrawn)
    records = state.releases_among(Runs.of(aged.union(envelope.withdrawn)).pairs())
    known = {version for version, _ in records}
    return erasures(state, records, [*envelope.withdrawn, *sorted(aged & known)])


def outgoing(model: str, message: Message) -> OutboxRecord:
    """Return a message for the releases topic as the outbox keeps it."""
    topic = TopicNames(model).releases
    return OutboxRecord(topic, message.key or b"", message.value, message.headers)


def describe(made: Made, base: Base, forgotten: int) -> dict[str, Any]:
    """Return the envelope's facts about the model.

    forgotten: documents of the base model that its counts do not hold any more.
    """
    # The exact certificate depends on the path to the model: its digits would tell candidates for a deleted document
    # apart. So a version claims the tolerance, or infinity if nothing is certified.
    claimed = made.tolerance if made.certificate <= made.tolerance else math.inf
    return {
        "base": base.version,
        "cut": made.counts.offsets,
        "counted": counted_of(made.counts, base),
        "m": made.documents,
        "n": len(made.words),
        "r": len(made.anchors),
        "tolerance": made.tolerance,
        "certificate": claimed,
        "forgotten": forgotten,
        "capacity": base.capacity,
    }


def follow_ledger(state: ModelState, lease: Lease, ledger: LedgerWriter, log: EventLog) -> bool:
    """Record the versions that the ledger has and Redis has not, or has with other bytes; return whether there are any.

    ledger: read to its end.

    Raises ComponentUnreachable, StateMismatch.
    """
    # A Redis that was set back has forgotten versions that subscribers hold. Their numbers must not be used again,
    # their epsilon stays spent, and later deletions are measured against them.
    newest = state.releases(1)
    known, record = newest[0] if newest else (0, {})
    read = ledger.ledger
    if read.newest < known or (read.newest == known and read.digest(known) in {None, record.get("digest")}):
        return False
    sent = sent_releases(log, state.model)
    for envelope in _versions(ledger, range(max(known, 1), read.newest + 1)):
        if envelope.version == known and envelope.release == record["digest"]:
            continue
        recorded = _recorded(envelope, sent.get(envelope.version, SentRelease()))
        # Another scheduler leads by now, and records the rest itself.
        if isinstance(state.adopt(lease, envelope.version, recorded), Stale):
            return True
    _erase_again(state, lease, sorted(read.withdrawn - state.withdrawn_alone()), sent)
    return True


def _versions(ledger: LedgerWriter, numbers: range) -> list[Envelope]:
    """Return the entries of versions, oldest first; those that are void are left out."""
    names = [f"version/{number}" for number in numbers]
    found = ledger.find(names)
    entries = [found[name][0].entry for name in names if name in found]
    return [entry for entry in entries if isinstance(entry, Envelope)]


def _recorded(envelope: Envelope, sent: SentRelease) -> dict[str, Any]:
    """Return the record of a version that only the ledger tells of."""
    # Its bytes were in Redis alone, so it needs a successor.
    facts = {"unsent": not sent.complete}
    return release_record(envelope, chunks=sent.chunks, reason="read back from the ledger", facts=facts)


def _erase_again(state: ModelState, lease: Lease, withdrawn: Sequence[int], sent: Mapping[int, SentRelease]) -> None:
    """Erase the versions among these that are in their topic: their tombstones may have waited in Redis."""
    standing = [version for version in withdrawn if version in sent]
    if standing:
        records = [(version, {"chunks": sent[version].chunks}) for version in standing]
        state.withdraw(lease, standing, erasures(state, records, standing))


def stored_base(base: Base, kept: bytes, salt: bytes) -> StoredBase:
    """Return a base model as Redis keeps it. It is before noise, so subscribers never get it.

    `serve` may read its fields, but not its bytes, which hold numbers that follow from the documents to the last digit.

    kept: that its mode keeps (`kept_of`).
    salt: 32 secret bytes, which come before them.
    """
    fields = dataclasses.asdict(base)
    del fields["version"], fields["start"]
    # `serve` reads the checksum of these bytes. Without a salt, who can guess the documents could learn the model and
    # compare.
    return StoredBase(base.version, base.start, fields, salt + kept if kept else b"")


def kept_of(stored: StoredBase, guarantee: Guarantee) -> bytes:
    """Undo `stored_base`: return the bytes that a mode keeps. Raises StateCorrupt if another mode made the base model.

    guarantee: of the mode; that of certified mode keeps nothing.
    """
    if not (kept := stored.blob[_SALT_BYTES:]):
        raise StateCorrupt(f"the base model was not kept for {guarantee} mode: run `streamtopic unlearn --retrain`")
    return kept


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
