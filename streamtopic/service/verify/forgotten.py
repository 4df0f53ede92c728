"""The deletions that a version reflects, told from receipts and from those that still wait; no document is named."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from streamtopic.service.verify.finding import Finding
from streamtopic.signed import Receipt, ReceiptReader, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.signed import Verifier
    from streamtopic.state import Forget, Reader
    from streamtopic.streams import EventLog

__all__ = ["LISTED", "ChainSummary", "WaitingDeletions", "read_receipts", "read_waiting"]

# Receipts of a version that a report lists one by one, so that its file stays small; `receipts export` gives all.
LISTED = 200


@dataclass(slots=True)
class Served:
    """ChainSummary that name one version as the first without the document. Times: milliseconds since 1970.

    slowest: longest time from a deletion's record to its subtraction.
    """

    version: int
    receipts: int = 0
    found: int = 0
    first_received: int = 0
    last_received: int = 0
    last_applied: int = 0
    slowest: int = 0

    def take(self, receipt: Receipt) -> None:
        """Count one in."""
        self.first_received = min(self.first_received or receipt.received, receipt.received)
        self.last_received = max(self.last_received, receipt.received)
        self.last_applied = max(self.last_applied, receipt.applied)
        self.slowest = max(self.slowest, receipt.applied - receipt.received)
        self.receipts += 1
        self.found += receipt.found


@dataclass(slots=True)
class ChainSummary:
    """The chain of receipts, and those of one version. listed: at most LISTED of that version's, as JSON has them.

    names: version to the digests and commitments that receipts name it by; unbound: receipts that name a number only.
    """

    wanted: int
    served: dict[int, Served] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    last: int = 0
    head: str = ""
    strays: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    refused: int = 0
    names: dict[int, set[tuple[str, str]]] = field(default_factory=dict)
    unbound: int = 0

    def take(self, receipt: Receipt) -> None:
        """Count one of the chain in."""
        self.served.setdefault(receipt.version, Served(receipt.version)).take(receipt)
        if receipt.release:
            self.names.setdefault(receipt.version, set()).add((receipt.release, receipt.commitment))
        else:
            self.unbound += 1

    def as_json(self, base: int) -> dict[str, Any]:
        """Return them as JSON has them. base: version that the wanted one descends from."""
        since = [asdict(served) for version, served in sorted(self.served.items()) if base <= version <= self.wanted]
        return {
            "this_version": asdict(self.served.get(self.wanted, Served(self.wanted))),
            "since_base": since,
            "receipts": self.listed,
            "receipts_listed": len(self.listed),
            "chain": {
                "receipts": sum(served.receipts for served in self.served.values()),
                "last": self.last,
                "head": self.head,
                "strays": self.strays,
                "lost": [list(gap) for gap in self.lost],
                "refused": self.refused,
            },
        }

    def finding(self) -> Finding:
        """Say whether the chain is whole."""
        name = "receipts"
        total = sum(served.receipts for served in self.served.values())
        if self.lost:
            gaps = ", ".join(f"{first} to {last}" for first, last in self.lost)
            detail = f"receipts {gaps} are missing from the chain"
            return Finding(name, passed=False, detail=detail, source="log", remedy="restore the receipts topic")
        detail = (
            f"{total} receipts, each signed, numbered without a gap; number {self.last} has digest {self.head or '-'}"
        )
        if self.strays:
            detail += f"; {self.strays} compete with them and do not count"
        if self.refused:
            # Nothing can be taken out of this topic, so one such record must not fail all reports to come.
            detail += f"; other records that are not receipts signed by this key were passed over: {self.refused}"
        return Finding(name, passed=True, detail=detail, source="log")


def read_receipts(log: EventLog, model: str, key: Verifier, version: int) -> ChainSummary:
    """Read a model's receipts topic up to its end. Raises ComponentUnreachable."""
    found = ChainSummary(version)
    reader = ReceiptReader(log, model, key)
    # The chain is read twice: which receipts stand in it is known only at its end.
    wanted: set[bytes] = set()
    for receipt in reader.read():
        found.take(receipt)
        if receipt.version == version and len(wanted) < LISTED:
            wanted.add(receipt.id.encode())
    if wanted:
        found.listed = [
            _listed(link, record.value or b"") for link, record in reader.records(wanted) if isinstance(link, Receipt)
        ]
    found.refused = reader.skipped
    found.last, found.head = reader.chain.head.sequence, reader.chain.head.digest
    found.strays = reader.chain.strays
    found.lost = [(gap.start, gap.stop - 1) for gap in reader.chain.lost]
    return found


def _listed(receipt: Receipt, data: bytes) -> dict[str, Any]:
    return {
        "sequence": receipt.sequence,
        "sha256": digest_of(data),
        "document": receipt.document,
        "request": receipt.request,
        "received": receipt.received,
        "applied": receipt.applied,
        "found": receipt.found,
        "signed": base64.b64encode(data).decode(),
    }


@dataclass(frozen=True, slots=True)
class WaitingDeletions:
    """Deletions without a receipt yet. held: of documents that the version still holds; None: nobody knows any more.

    oldest: time of the oldest, milliseconds since 1970, None without one. lag: records of the documents topic that are
    not counted yet, among which there may be more.
    """

    deletions: int
    held: int | None
    oldest: int | None
    lag: int

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return asdict(self)

    def finding(self, version: int) -> Finding:
        """Say whether the version holds documents that are deleted by now."""
        name = "deletions"
        if self.held is None:
            detail = "documents were moved to other partitions since: it counts as holding each that is deleted"
            return Finding(name, None, detail, "records", "take a version that was made later")
        if self.held:
            detail = f"version {version} holds {self.held} documents that are deleted by now; a version without is due"
            return Finding(name, None, detail, "records", "`streamtopic unlearn` makes it now")
        detail = "no document that is deleted by now is in this version"
        detail += f"; {self.lag} records are not counted yet, which may delete more" if self.lag else ""
        return Finding(name, passed=True, detail=detail, source="records")


def read_waiting(log: EventLog, reader: Reader, topic: str, cut: Mapping[int, int] | None) -> WaitingDeletions:
    """Read the deletions that wait.

    topic: that of the documents. cut: up to where the version reflects each partition, None where nobody knows.
    """
    positions = reader.positions()
    asked, held = [], 0
    for partition in positions:
        reflected = (cut or {}).get(partition, 0)
        for forget in _forgets(reader, partition):
            if forget.wants_receipt:
                asked.append(forget.received_ms)
            # The version holds a document that came before its cut and was deleted after it.
            held += forget.found and forget.offset >= reflected > forget.document_offset
    return WaitingDeletions(
        deletions=len(asked),
        held=held if cut else None,
        oldest=min(asked, default=None),
        lag=sum(log.end(topic, partition) - meta.next_offset for partition, meta in positions.items()),
    )


def _forgets(reader: Reader, partition: int) -> Iterator[Forget]:
    offset, stream = 0, reader.forgets(partition)
    while page := stream.read(offset):
        yield from page
        offset = page[-1].offset + 1
