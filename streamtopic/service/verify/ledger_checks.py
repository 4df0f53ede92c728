"""Checks that neither count nor learn again: the ledger as anybody can read it, and one version against it.

The ledger is one tree, and its entries fit each other. A version has the bytes that the ledger names, noise as large as
its claim needs, and leaves no bytes of withdrawn ones in the log.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.errors import CheckFailed, UsageError
from streamtopic.paper.capacity_formulas import theorem_sigma
from streamtopic.privacy.accounting import Composition
from streamtopic.service.finding import Finding, doubt, fails, holds
from streamtopic.signed import (
    Envelope,
    LedgerProof,
    LedgerReader,
    Receipt,
    Refused,
    Release,
    ReleaseReader,
    RequestReceipt,
    receipt_id,
    sent_releases,
)
from streamtopic.signed.checkpoints import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.service.opened import Opened
    from streamtopic.signed import KeyRing, Ledger, Logged, Payload
    from streamtopic.state import Reader
    from streamtopic.streams import EventLog

__all__ = [
    "InLog",
    "Waiting",
    "WholeLedger",
    "read_ledger",
    "read_waiting",
    "release_findings",
    "version_in_log",
]

Record = Mapping[str, Any]
"""What Redis keeps of a version besides its release."""

_UNUSABLE = "do not use this version: `streamtopic unlearn --retrain`"
_STILL_THERE = "`streamtopic run` erases them; if they come again, see who may write to the releases topic"

# Of a few double precision operations on the way from scale to epsilon and back.
_ROUNDING = 1e-9
# Problems that a finding names one by one.
_NAMED = 5
# A page follows topics over so many versions: more lines than these are not read, and each version is in memory.
_MOST_EARLIER = 12
_RESTORE = "restore the ledger topic from a copy: whoever has one has every entry"
_OTHERS = "find out who else holds the signing key; `streamtopic keys revoke` makes its entries void"
_AGAIN = "do not rely on these receipts: find out who else holds the signing key"


@dataclass(slots=True)
class WholeLedger:
    """A ledger, and the facts that its entries say together.

    ledger: as it was read, to its end.
    versions: number to the entry of each version, ascending.
    served: version to the number of receipts that name it as the first without their document.
    receipts: partition to the offset of each deletion with a receipt, in the order of the ledger.
    contradictions: entries that do not fit those before them, in words.
    unserved: receipts that their version does not bear out, in words.
    """

    ledger: Ledger
    versions: dict[int, Envelope] = field(default_factory=dict)
    served: Counter[int] = field(default_factory=Counter)
    receipts: dict[int, array[int]] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)
    unserved: list[str] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """Number of the newest version whose entry was read, 0 before the first."""
        return next(reversed(self.versions), 0)

    def take(self, logged: Logged) -> None:
        """Count an entry in."""
        entry = logged.entry
        if isinstance(entry, Envelope | Receipt | RequestReceipt) and entry.model != self.ledger.keys.model:
            self.contradictions.append(f"entry {logged.index} is about model {entry.model}")
        elif isinstance(entry, Envelope):
            if entry.version <= self.newest:
                again = f"entry {logged.index} is of version {entry.version}, and one of version {self.newest}"
                self.contradictions.append(f"{again} comes before it")
            else:
                self.versions[entry.version] = entry
        elif isinstance(entry, Receipt):
            self._take_receipt(entry)
        elif isinstance(entry, RequestReceipt) and entry.version and entry.version not in self.versions:
            self.unserved.append(f"receipt {entry.id} names version {entry.version}, which is not before it")

    def _take_receipt(self, receipt: Receipt) -> None:
        self.receipts.setdefault(receipt.partition, array("q")).append(receipt.offset)
        self.served[receipt.version] += 1
        version = self.versions.get(receipt.version)
        if version is None:
            self.unserved.append(f"receipt {receipt.id} names version {receipt.version}, which is not before it")
        # Without a document there is nothing that a version could still hold.
        elif receipt.found and version.cut.get(receipt.partition, 0) <= receipt.offset:
            self.unserved.append(f"receipt {receipt.id} names version {receipt.version}, which was cut before it")

    def findings(self) -> tuple[Finding, Finding]:
        """Return whether the ledger is one tree without a gap, and whether its receipts are borne out."""
        return self._tree(), self._receipts()

    def _tree(self) -> Finding:
        name, ledger = "ledger", self.ledger
        if not ledger.size:
            return doubt(name, "it has no entry yet", "`streamtopic run` writes the first")
        if ledger.missing:
            return fails(name, f"its topic lacks entries {_some(ledger.missing)}", _RESTORE)
        if self.contradictions:
            return fails(name, _some(self.contradictions), _OTHERS)
        detail = f"{ledger.size} entries are one tree of root {text_of(ledger.root)}, without a gap, each version once"
        if ledger.strays:
            # Nothing can be removed from this topic, so a stranger's record must not fail every later check.
            detail += f"; records that are not of it were passed over: {ledger.strays}"
        return holds(name, detail)

    def _receipts(self) -> Finding:
        name, problems = "receipts", list(self.unserved)
        for partition, offsets in self.receipts.items():
            values, times = np.unique(np.frombuffer(offsets, np.int64), return_counts=True)
            model = self.ledger.keys.model
            again = [receipt_id(model, partition, offset) for offset in values[times > 1].tolist()]
            problems += [f"receipt {one} is in the ledger twice" for one in again]
        if problems:
            return fails(name, _some(problems), _AGAIN)
        return holds(
            name,
            f"each of {self.served.total()} receipts is of another deletion, and names a version that was cut after it",
        )

    def as_json(self, version: Envelope) -> dict[str, Any]:
        """Return how many receipts name a version, and what the ledger has, as JSON values."""
        ledger = {
            "entries": self.ledger.size,
            "root": text_of(self.ledger.root),
            "receipts": self.served.total(),
            "strays": self.ledger.strays,
        }
        return {"receipts": self.served[version.version], "ledger": ledger}


def read_ledger(log: EventLog, keys: KeyRing) -> WholeLedger:
    """Return a model's ledger, read from its begin to its end.

    keys: of the ledger; they are not changed.

    Raises ComponentUnreachable.
    """
    reader = LedgerReader(log, keys.model, replace(keys))
    found = WholeLedger(reader.ledger)
    for page in reader.read():
        if page.anew:
            found = WholeLedger(reader.ledger)
        for logged in page.entries:
            found.take(logged)
    # It may have been read again, after a newer list of keys, and have no page that counts.
    return found if found.ledger is reader.ledger else WholeLedger(reader.ledger)


def _some(texts: Sequence[str]) -> str:
    """Return some of many texts, and how many they are."""
    shown = "; ".join(texts[:_NAMED])
    return shown if len(texts) <= _NAMED else f"{shown}; {len(texts) - _NAMED} more"


@dataclass(frozen=True, slots=True)
class InLog:
    """A version that verifies, and what else log and Redis hold of it.

    release: the version.
    standing: versions of which a part is in the releases topic.
    whole: the ledger.
    record: of the version in Redis; empty if Redis was set back to before it.
    earlier: the newest releases before it that are not withdrawn, oldest first.
    withdrawn: numbers of the versions that must not be used, as far as ledger and Redis know them.
    """

    release: Release
    standing: frozenset[int]
    whole: WholeLedger
    record: Record = field(default_factory=dict)
    earlier: tuple[Release, ...] = ()
    withdrawn: AbstractSet[int] = frozenset()

    @property
    def envelope(self) -> Envelope:
        """The facts of the version."""
        return self.release.envelope


def version_in_log(service: Opened, whole: WholeLedger, version: int) -> InLog:
    """Return a version from the log, which is read up to its end.

    whole: the ledger.

    Raises UsageError if there is no such version to examine, CheckFailed if its bytes are not as the ledger says,
    ComponentUnreachable.
    """
    found: Release | None = None
    refused = ""
    earlier: deque[Release] = deque(maxlen=_MOST_EARLIER)
    for news in ReleaseReader(whole.ledger).read(service.log):
        match news:
            case Refused(version=number, reason=why) if number == version:
                refused = str(why)
            case Release() if news.version == version:
                found = news
            case Release() if news.version < version and news.version not in whole.ledger.withdrawn:
                earlier.append(news)
    records = service.state.releases()
    known, withdrawn = dict(records), whole.ledger.withdrawn | service.state.withdrawn(records)
    # First, since nobody should use a withdrawn version, whether or not its bytes are still in the log.
    if version in withdrawn:
        raise UsageError(f"version {version} is withdrawn: it holds documents deleted since; report on a later one")
    if version not in whole.versions:
        raise UsageError(
            f"there is no version {version} in the log: `streamtopic versions` lists them, and `streamtopic status` "
            "says what is waiting"
        )
    sent = sent_releases(service.log, service.settings.model)
    if not refused and version not in sent and version < whole.newest:
        raise UsageError(f"version {version} was erased, as for its age (`keep_versions`): report on a later one")
    # Its chunks may have been tombstoned after they were read.
    if found is None or version not in sent or not sent[version].complete:
        reason = refused or "they are missing, and nobody has withdrawn it"
        raise CheckFailed(
            f"the bytes of version {version} in the log are not those that the ledger names: {reason}; see who may "
            "write to the releases topic"
        )
    standing = frozenset(number for number, one in sent.items() if one.has_chunks)
    before = [release for release in earlier if release.version not in withdrawn]
    before.sort(key=lambda release: release.version)
    return InLog(found, standing, whole, known.get(version, {}), tuple(before), withdrawn)


def release_findings(known: InLog) -> Iterator[Finding]:
    """Yield the checks of a version against its own bytes, the ledger, and the other versions in the log."""
    envelope, payload = known.envelope, known.release.payload
    yield _bytes(known)
    yield _noise(payload, envelope, known.record)
    yield from _conditions(envelope, known.record)
    yield _composition(envelope, known.whole)
    yield from _withdrawal(known)


def _bytes(known: InLog) -> Finding:
    """Say which bytes these are: only bytes that the ledger names, and that make a model, are read as a version."""
    index, envelope = LedgerProof.parse(known.release.proof).index, known.envelope
    topics = "topics are withheld" if known.release.payload.A is None else f"{envelope.r} topics"
    detail = f"its bytes have SHA-256 {known.release.digest}, as entry {index} of the ledger says"
    return holds("release", f"{detail}: a model of {envelope.n} words, {topics}")


def _noise(payload: Payload, envelope: Envelope, record: Record) -> Finding:
    """Whether the noise is as large as the claim needs (analytic Gaussian mechanism)."""
    name, scale, delta = "noise", envelope.scale, envelope.delta
    if not _noised(envelope):
        return fails(name, f"its scale is {scale:g} and its slack {envelope.slack:g}: that is no noise", _UNUSABLE)
    spent = Composition.of([(scale, envelope.slack)]).epsilon(delta)
    detail = f"of {scale:.6g} times the distance that two models may have, it makes ({spent:.6g}, {delta:g})"
    detail += f"; ({envelope.epsilon:g}, {delta:g}) is claimed"
    problem = _smaller_than_said(payload, envelope, record)
    if not spent <= envelope.epsilon * (1 + _ROUNDING):
        problem = "the claim is smaller than that"
    return holds(name, detail) if problem is None else fails(name, f"{detail}; {problem}", _UNUSABLE)


def _noised(envelope: Envelope) -> bool:
    return envelope.scale > 0 and envelope.slack >= 0


def _smaller_than_said(payload: Payload, envelope: Envelope, record: Record) -> str | None:
    """Return why sigma is smaller than the scale times the distance of two models, None if it is not or is unknown."""
    # A record that was made from the ledger has neither the noise of each head nor the constants of the paper.
    if payload.A is None:
        heads = (record.get("heads") or {}).values()
        # Each head has its own noise, and all of them together must be enough.
        mu = Composition.of([(head["sigma"] / head["sensitivity"], 0.0) for head in heads]).mu
        return "the noise of the heads is smaller than that" if mu * envelope.scale > 1 + _ROUNDING else None
    apart, scale = 2 * envelope.tolerance, envelope.scale
    if envelope.guarantee == "theorem":
        constants = record.get("constants") or {}
        if not constants.get("delta_A"):
            return None
        apart = constants["delta_A"]
        scale = theorem_sigma(1.0, constants["epsilon_each"], envelope.delta)
    needed = apart * scale
    if envelope.sigma >= needed * (1 - _ROUNDING):
        return None
    return f"sigma is {envelope.sigma:.6g}, and should be {needed:.6g} for models {apart:.3g} apart"


def _conditions(envelope: Envelope, record: Record) -> Iterator[Finding]:
    """Yield whether every condition of the paper's proof held."""
    name = "conditions"
    if envelope.covered:
        yield holds(name, "every condition of the paper's proof held")
    elif envelope.covered is False:
        checks = record.get("checks") or []
        failing = sum(not check["holds"] for check in checks)
        many = f"{failing} of {len(checks)}" if checks else "some"
        detail = f"{many} conditions of the paper's proof do not hold, so its promise is not proved for this version"
        # Not a failure: without its conditions the claim is neither proved nor refuted.
        yield doubt(name, detail, "the certified mode (setting `guarantee`) rests on no such condition")


def _composition(envelope: Envelope, whole: WholeLedger) -> Finding:
    """Whether all versions of the base add up to the epsilon that the version says."""
    name = "composition"
    # Withdrawn versions as well: they were seen, so their epsilon is spent.
    versions = [one for one in whole.versions.values() if one.base == envelope.base and one.version <= envelope.version]
    noise = [(one.scale, one.slack) for one in versions if _noised(one)]
    what = f"{len(versions)} versions of base {envelope.base}"
    if envelope.guarantee == "private":
        # Each version's noise is that of its whole period.
        before = [one for one in whole.versions.values() if one.version <= envelope.version]
        periods = {one.base: (one.scale, one.slack) for one in before if one.guarantee == "private" and _noised(one)}
        noise, what = list(periods.values()), f"{len(periods)} periods"
    spent = Composition.of(noise).epsilon(envelope.delta)
    said = envelope.cumulative_epsilon
    detail = f"{what} together are ({spent:.4g}, {envelope.delta:g})"
    if not math.isclose(said, spent, rel_tol=1e-6):
        detail += f"; the version says {said:.4g}"
    if said >= spent * (1 - _ROUNDING):
        return holds(name, detail)
    return fails(name, detail, "trust the larger; `streamtopic unlearn --retrain`")


def _withdrawal(known: InLog) -> Iterator[Finding]:
    """Yield whether the bytes of versions that hold forgotten documents have left the log."""
    withdrawn = known.whole.ledger.withdrawn
    if not withdrawn:
        return
    name, left = "withdrawal", sorted(withdrawn & known.standing)
    detail = f"versions withdrawn, since they hold forgotten documents or break their promise: {len(withdrawn)}"
    if left:
        yield fails(name, f"{detail}; not yet erased: {', '.join(map(str, left))}", _STILL_THERE)
    else:
        yield holds(name, f"{detail}; their bytes are tombstoned")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Deletions without a receipt yet.

    deletions: how many.
    held: deleted documents that the version still holds.
    oldest: time of the oldest deletion, milliseconds since 1970; None if there is no deletion.
    lag: records of the documents topic that are not counted yet; they may be deletions too.
    """

    deletions: int
    held: int
    oldest: int | None
    lag: int

    def finding(self, version: int) -> Finding:
        """Return whether the version holds documents that are deleted by now."""
        name = "deletions"
        if self.held:
            # Not a failure: until `max_forget_lag` is over the service may wait for more deletions.
            detail = f"version {version} holds {self.held} documents that are deleted by now; a version without is due"
            return doubt(name, detail, "`streamtopic unlearn` makes it now")
        detail = "no document that is deleted by now is in this version"
        if self.lag:
            detail += f"; {self.lag} records are not counted yet, which may delete more"
        return holds(name, detail)


def read_waiting(service: Opened, reader: Reader, envelope: Envelope) -> Waiting:
    """Return the deletions that wait. envelope: of the version. Raises ComponentUnreachable."""
    received = list[int]()
    held = lag = 0
    for partition, meta in reader.positions().items():
        lag += service.log.end(service.names.documents, partition) - meta.next_offset
        reflected = envelope.cut.get(partition, 0)
        for forget in reader.forgets(partition).each():
            # A document that another record replaced is forgotten as well, but nobody asked for a receipt.
            if forget.wants_receipt:
                received.append(forget.received_ms)
            # The version holds a document that came before its cut and was deleted after it.
            held += forget.found and forget.offset >= reflected > forget.document_offset
    return Waiting(len(received), held, min(received, default=None), lag)
