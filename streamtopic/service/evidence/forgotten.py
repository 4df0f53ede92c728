"""What was forgotten by a version, told from receipts and from deletions that still wait; no document is named."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from streamtopic.receipts import ReceiptReader, digest_of
from streamtopic.service.evidence.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.errors import InvalidRelease
    from streamtopic.receipts import Receipt
    from streamtopic.service.parts import Parts
    from streamtopic.signing import PublicKey
    from streamtopic.state import Forget
    from streamtopic.streams import EventLog

__all__ = ["LISTED", "Receipts", "Waiting", "read_receipts", "read_waiting"]

LISTED = 200
"""So many receipts of a version are listed one by one; `streamtopic receipts export` gives all."""


@dataclass(slots=True)
class Served:
    """Receipts that name one version as the first without the document. Times: milliseconds since 1970.

    tokens: of the documents that were found; slowest: longest time from a deletion's record to its subtraction.
    """

    version: int
    receipts: int = 0
    found: int = 0
    tokens: int = 0
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
        self.tokens += receipt.length


@dataclass(slots=True)
class Receipts:
    """The chain of receipts, and those of one version. listed: at most LISTED of that version's, as JSON has them."""

    wanted: int
    served: dict[int, Served] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    last: int = 0
    head: str = ""
    strays: int = 0
    lost: list[tuple[int, int]] = field(default_factory=list)
    refused: int = 0

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
        if self.refused:
            detail = f"{self.refused} records of the topic are no receipts signed by this key; {total} are"
            remedy = "find out who else may write to the receipts topic"
            return Finding(name, passed=False, detail=detail, source="log", remedy=remedy)
        detail = (
            f"{total} receipts, each signed, numbered without a gap; number {self.last} has digest {self.head or '-'}"
        )
        if self.strays:
            detail += f"; {self.strays} compete with them and do not count"
        return Finding(name, passed=True, detail=detail, source="log")


def read_receipts(log: EventLog, model: str, key: PublicKey, version: int) -> Receipts:
    """Read a model's receipts topic up to its end. Raises ComponentUnreachable."""
    found = Receipts(version)

    def refuse(_: InvalidRelease) -> None:
        found.refused += 1

    reader = ReceiptReader(log, model, key, refuse=refuse)
    wanted: set[bytes] = set()
    for receipt in reader.read():
        found.served.setdefault(receipt.version, Served(receipt.version)).take(receipt)
        if receipt.version == version and len(wanted) < LISTED:
            wanted.add(receipt.id.encode())
    refused = found.refused
    if wanted:
        found.listed = [_listed(receipt, record.value or b"") for receipt, record in reader.records(wanted)]
    found.refused = refused  # the second pass meets them again
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
        "tokens": receipt.length,
    }


@dataclass(frozen=True, slots=True)
class Waiting:
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


def read_waiting(parts: Parts, cut: Mapping[int, int] | None) -> Waiting:
    """Read the deletions that wait. cut: up to where the version reflects each partition, None where not known."""
    forgets = [(partition, forget) for partition in parts.reader.positions() for forget in _forgets(parts, partition)]
    asked = [forget for _, forget in forgets if forget.wants_receipt]
    held = [
        forget
        for partition, forget in forgets
        if cut and forget.found and forget.offset >= cut.get(partition, 0) > forget.document_offset
    ]
    positions, topic = parts.reader.positions(), parts.names.documents
    return Waiting(
        deletions=len(asked),
        held=len(held) if cut else None,
        oldest=min((forget.received_ms for forget in asked), default=None),
        lag=sum(parts.log.end(topic, partition) - meta.next_offset for partition, meta in positions.items()),
    )


def _forgets(parts: Parts, partition: int) -> Iterator[Forget]:
    offset, stream = 0, parts.reader.forgets(partition)
    while page := stream.read(offset):
        yield from page
        offset = page[-1].offset + 1
