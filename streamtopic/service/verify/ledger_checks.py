"""The ledger of a model, read from its begin as anybody can read it: whether it is one tree, and its entries fit."""

from __future__ import annotations

from array import array
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.service.verify.finding import fails, holds, not_checked
from streamtopic.signed import Envelope, LedgerReader, Receipt, RequestReceipt, leaf_hash, receipt_id
from streamtopic.signed.checkpoints import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamtopic.service.verify.finding import Finding
    from streamtopic.signed import KeyRing, Ledger, Logged
    from streamtopic.streams import EventLog

__all__ = ["Served", "WholeLedger", "read_ledger"]

# Receipts of a version that a report lists one by one: more would make its file large, and the ledger has them all.
_LISTED = 200
# Problems that a finding names one by one.
_NAMED = 5
_RESTORE = "restore the ledger topic from a copy: whoever has one has every entry"
_OTHERS = "find out who else holds the signing key; `streamtopic keys revoke` makes its entries void"
_AGAIN = "do not rely on these receipts: find out who else holds the signing key"


@dataclass(slots=True)
class Served:
    """The receipts that name one version as the first without the document.

    receipts: how many.
    found: how many of them deleted a document that was there.
    first_received, last_received, last_applied: milliseconds since 1970; 0 without a receipt.
    slowest: longest time from a deletion's record to its subtraction, milliseconds.
    """

    receipts: int = 0
    found: int = 0
    first_received: int = 0
    last_received: int = 0
    last_applied: int = 0
    slowest: int = 0

    def take(self, receipt: Receipt) -> None:
        """Count a receipt in."""
        # 0 stands for none yet.
        self.first_received = min(self.first_received or receipt.received, receipt.received)
        self.last_received = max(self.last_received, receipt.received)
        self.last_applied = max(self.last_applied, receipt.applied)
        self.slowest = max(self.slowest, receipt.applied - receipt.received)
        self.receipts += 1
        self.found += receipt.found


@dataclass(slots=True)
class WholeLedger:
    """A ledger, and the facts that its entries say together.

    ledger: as it was read, to its end.
    listed: number of the version whose receipts are kept, 0 for none.
    versions: number to the entry of each version, ascending.
    served: version to its receipts.
    receipts: partition to the offset of each deletion with a receipt, in the order of the ledger.
    kept: at most `_LISTED` receipts of the version `listed`.
    contradictions: entries that do not fit those before them, in words.
    unserved: receipts that their version does not bear out, in words.
    """

    ledger: Ledger
    listed: int = 0
    versions: dict[int, Envelope] = field(default_factory=dict)
    served: dict[int, Served] = field(default_factory=dict)
    receipts: dict[int, array[int]] = field(default_factory=dict)
    kept: list[Logged] = field(default_factory=list)
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
            self._take_receipt(logged, entry)
        elif isinstance(entry, RequestReceipt) and entry.version and entry.version not in self.versions:
            self.unserved.append(f"receipt {entry.id} names version {entry.version}, which is not before it")

    def _take_receipt(self, logged: Logged, receipt: Receipt) -> None:
        self.receipts.setdefault(receipt.partition, array("q")).append(receipt.offset)
        self.served.setdefault(receipt.version, Served()).take(receipt)
        if receipt.version == self.listed and len(self.kept) < _LISTED:
            self.kept.append(logged)
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
            return not_checked(name, "it has no entry yet", "`streamtopic run` writes the first")
        missing = [range(ledger.start), *ledger.gaps] if ledger.start else ledger.gaps
        if missing:
            gaps = [f"{gap.start} to {gap.stop - 1}" for gap in missing]
            return fails(name, f"its topic lacks entries {_some(gaps)}", _RESTORE)
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
        number = sum(served.receipts for served in self.served.values())
        return holds(
            name, f"each of {number} receipts is of another deletion, and names a version that was cut after it"
        )

    def as_json(self, version: Envelope) -> dict[str, Any]:
        """Return the receipts of a version, and of the versions since its base, as JSON values."""
        wanted, base = version.version, version.base
        since = [{"version": one, **asdict(of)} for one, of in sorted(self.served.items()) if base <= one <= wanted]
        ledger = {
            "entries": self.ledger.size,
            "root": text_of(self.ledger.root),
            "receipts": sum(map(len, self.receipts.values())),
            "strays": self.ledger.strays,
        }
        return {
            "this_version": {"version": wanted, **asdict(self.served.get(wanted, Served()))},
            "since_base": since,
            "receipts": list(_listed(self.kept)),
            "ledger": ledger,
        }


def read_ledger(log: EventLog, model: str, keys: KeyRing, listed: int = 0) -> WholeLedger:
    """Return a model's ledger, read from its begin to its end.

    keys: of the ledger; they are not changed.
    listed: number of the version whose receipts are kept.

    Raises ComponentUnreachable.
    """
    reader = LedgerReader(log, model, replace(keys))
    found, restarts = WholeLedger(reader.ledger, listed), reader.restarts
    for logged in reader.read():
        if reader.restarts != restarts:
            found, restarts = WholeLedger(reader.ledger, listed), reader.restarts
        found.take(logged)
    # After a newer list of keys it was read again, and may have had no entry that counts.
    return found if reader.restarts == restarts else WholeLedger(reader.ledger, listed)


def _listed(receipts: Sequence[Logged]) -> Iterator[dict[str, Any]]:
    """Yield receipts as JSON values, each with its place in the ledger and its hash there."""
    for logged in receipts:
        receipt = logged.entry
        if isinstance(receipt, Receipt):
            yield {
                "index": logged.index,
                "digest": leaf_hash(logged.line.encode()).hex(),
                "document": receipt.document,
                "request": receipt.request,
                "received": receipt.received,
                "applied": receipt.applied,
                "found": receipt.found,
            }


def _some(texts: Sequence[str]) -> str:
    """Return some of many texts, and how many they are."""
    shown = "; ".join(texts[:_NAMED])
    return shown if len(texts) <= _NAMED else f"{shown}; {len(texts) - _NAMED} more"
