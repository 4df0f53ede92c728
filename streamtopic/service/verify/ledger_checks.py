"""The ledger of a model, read from its begin as anybody can read it: whether it is one tree, and its entries fit."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamtopic.service.verify.finding import doubt, fails, holds
from streamtopic.signed import Envelope, LedgerReader, Receipt, RequestReceipt, receipt_id
from streamtopic.signed.checkpoints import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamtopic.service.verify.finding import Finding
    from streamtopic.signed import KeyRing, Ledger, Logged
    from streamtopic.streams import EventLog

__all__ = ["WholeLedger", "read_ledger"]

# Problems that a finding names one by one.
_NAMED = 5
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
        """Return how many receipts name a version, and each version since its base, as JSON values."""
        since = range(version.base, version.version + 1)
        ledger = {
            "entries": self.ledger.size,
            "root": text_of(self.ledger.root),
            "receipts": self.served.total(),
            "strays": self.ledger.strays,
        }
        return {
            "receipts": self.served[version.version],
            "since_base": [{"version": one, "receipts": self.served[one]} for one in since if self.served[one]],
            "ledger": ledger,
        }


def read_ledger(log: EventLog, model: str, keys: KeyRing) -> WholeLedger:
    """Return a model's ledger, read from its begin to its end.

    keys: of the ledger; they are not changed.

    Raises ComponentUnreachable.
    """
    reader = LedgerReader(log, model, replace(keys))
    found, restarts = WholeLedger(reader.ledger), reader.restarts
    for logged in reader.read():
        if reader.restarts != restarts:
            found, restarts = WholeLedger(reader.ledger), reader.restarts
        found.take(logged)
    # After a newer list of keys it was read again, and may have had no entry that counts.
    return found if reader.restarts == restarts else WholeLedger(reader.ledger)


def _some(texts: Sequence[str]) -> str:
    """Return some of many texts, and how many they are."""
    shown = "; ".join(texts[:_NAMED])
    return shown if len(texts) <= _NAMED else f"{shown}; {len(texts) - _NAMED} more"
