"""Facts about one version that the signed records of the log prove.

Proof             proves its envelope for a reader who has only the public key
ChainSummary      the receipts of the deletions that it forgot; no document is named
WaitingDeletions  deletions that have no receipt yet
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease
from streamtopic.service.verify.finding import fails, holds, not_checked
from streamtopic.signed import (
    Envelope,
    KeyRing,
    Opened,
    PublicKey,
    Receipt,
    ReceiptReader,
    Refused,
    Release,
    ReleaseReader,
    Removed,
    Verifier,
    digest_of,
    open_sealed,
    signature_of,
    signed_by,
    statement_digest,
    unpack_envelope,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamtopic.service.verify.finding import Finding
    from streamtopic.state import Forget, Reader
    from streamtopic.streams import EventLog

__all__ = [
    "LISTED",
    "ChainSummary",
    "Link",
    "Proof",
    "ReleasesTopic",
    "WaitingDeletions",
    "read_receipts",
    "read_releases_topic",
    "read_waiting",
]


_KIND = "release"


@dataclass(frozen=True, slots=True)
class Proof:
    """The signed envelope of a version, without its payload.

    release: SHA-256 of the whole signed bytes, hexadecimal.
    payload: SHA-256 of the payload, hexadecimal.
    envelope: its canonical bytes.
    signature: Ed25519, over the digests of payload and envelope.
    size: of the whole signed bytes, in bytes.
    key: id of the key that signed it; "" for a proof from a file.
    """

    release: str
    payload: str
    envelope: bytes
    signature: bytes
    size: int
    key: str = ""

    @classmethod
    def of(cls, data: bytes, key: Verifier) -> Proof:
        """Return the proof in the signed bytes of a release. Raises InvalidRelease unless `key` verifies them."""
        sealed = open_sealed(_KIND, data, key)
        payload = hashlib.sha256(sealed.parts["payload"]).hexdigest()
        return cls(
            release=sealed.digest,
            payload=payload,
            envelope=sealed.parts["envelope"],
            signature=signature_of(data),
            size=len(data),
            key=sealed.key,
        )

    def open(self, key: Verifier) -> Envelope:
        """Return the envelope. Raises InvalidRelease unless `key` signed it together with this very payload."""
        return self.opened(key)[0]

    def opened(self, key: Verifier) -> tuple[Envelope, str]:
        """Return the envelope, and the id of the key that signed it. Raises as `open`."""
        # The signature first: nothing is built from an envelope that nobody has signed.
        signer = signed_by(_KIND, self._digests, self.signature, key)
        envelope = unpack_envelope(self.envelope)
        key.admit(signer, _KIND, envelope.version, self.release)
        return envelope, signer

    @property
    def digest(self) -> str:
        """The digest that names the version; the next version and receipts repeat it."""
        return statement_digest(_KIND, self._digests)

    @property
    def _digests(self) -> dict[str, bytes]:
        """SHA-256 of each part, which are signed."""
        envelope = hashlib.sha256(self.envelope).digest()
        return {"envelope": envelope, "payload": bytes.fromhex(self.payload)}

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values, bytes in base 64."""
        return {
            "digest": self.digest,
            "release_sha256": self.release,
            "payload_sha256": self.payload,
            "envelope": base64.b64encode(self.envelope).decode(),
            "signature": base64.b64encode(self.signature).decode(),
            "bytes": self.size,
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Proof:
        """Return the proof in fields that `as_json` made. Raises InvalidRelease for any others."""
        try:
            # Every property relies on this being hexadecimal.
            bytes.fromhex(fields["payload_sha256"])
            return cls(
                release=fields["release_sha256"],
                payload=fields["payload_sha256"],
                envelope=base64.b64decode(fields["envelope"], validate=True),
                signature=base64.b64decode(fields["signature"], validate=True),
                size=int(fields["bytes"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
            raise InvalidRelease(f"this is not the proof of a release: {type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Link:
    """The signed digests that bind a version to other versions and to its counts.

    digest: names the version itself.
    previous: digest of the version before; "" in a version of an older program.
    commitment: to the retained counts; "" in a version of an older program.
    """

    digest: str
    previous: str
    commitment: str

    @classmethod
    def of(cls, release: Release) -> Link:
        """Return the link of a release."""
        return cls(release.digest, release.envelope.previous, release.envelope.commitment)


@dataclass(slots=True)
class ReleasesTopic:
    """The versions in the releases topic, read once for the sake of one of them.

    wanted: number of that version.
    release, proof: of that version; None if the log has no version with this number that verifies.
    standing: versions whose bytes are in the log.
    withdrawn: versions that a later version or a statement withdraws.
    retired: versions with a tombstone for their age, which are not withdrawn.
    erased: versions with a tombstone, which are neither withdrawn nor retired; anybody may have written it.
    doubled: versions that were signed twice with two contents.
    refused: version to the reason why its bytes do not verify.
    digests: version to the SHA-256 of its bytes, hexadecimal.
    links: version to its links; the link of the first content in the log comes first.
    """

    wanted: int
    release: Release | None = None
    proof: Proof | None = None
    standing: set[int] = field(default_factory=set)
    withdrawn: set[int] = field(default_factory=set)
    retired: set[int] = field(default_factory=set)
    erased: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    links: dict[int, list[Link]] = field(default_factory=dict)

    def named(self, version: int) -> frozenset[str]:
        """Return the digests by which the log names a version: its own, else those that the next version repeats."""
        own = {link.digest for link in self.links.get(version, ())}
        # The chain outlives the bytes that it names, so a version that compaction has removed is still known.
        after = {link.previous for link in self.links.get(version + 1, ())}
        return frozenset(own or after - {""})


def read_releases_topic(log: EventLog, model: str, public_key: KeyRing | PublicKey, wanted: int) -> ReleasesTopic:
    """Return the versions in a model's releases topic, read up to its end; every release in it is verified.

    wanted: number of the version that is kept whole.

    Raises ComponentUnreachable.
    """
    keys = KeyRing.load(public_key, model)
    topic = ReleasesTopic(wanted)
    reader = ReleaseReader(log, model, keys)
    for found in reader.read():
        match found:
            case Opened():
                _take_in(topic, found, keys)
            case Refused(version, reason, rival):
                # The first release of a number is the one that subscribers hold.
                if rival is None:
                    topic.refused[version] = str(reason)
                else:
                    topic.doubled.add(version)
                    topic.links.setdefault(version, []).append(Link.of(rival))
            case Removed(version, retired=retired):
                tombstoned = topic.retired if retired else topic.erased
                tombstoned.add(version)
                topic.standing.discard(version)
    if reader.statement is not None:
        topic.withdrawn.update(reader.statement.withdrawn)
    # Only now, since the version or statement that withdraws one may come behind its tombstones.
    topic.retired -= topic.withdrawn
    topic.erased -= topic.withdrawn
    return topic


def _take_in(topic: ReleasesTopic, found: Opened, keys: KeyRing) -> None:
    """Note a release that verifies."""
    release = found.release
    topic.digests[release.version] = found.digest
    # In front: a rival may have been read before this one, if the key of the release that it competed with was revoked.
    topic.links.setdefault(release.version, []).insert(0, Link.of(release))
    topic.standing.add(release.version)
    topic.withdrawn.update(release.envelope.withdrawn)
    if release.version == topic.wanted:
        topic.release, topic.proof = release, Proof.of(found.data, keys)


# Receipts of a version that a report lists one by one. More would make its file large; `receipts export` gives all.
LISTED = 200


@dataclass(slots=True)
class Served:
    """The receipts that name one version as the first without the document.

    version: its number.
    receipts: how many.
    found: how many of them deleted a document that was there.
    first_received, last_received, last_applied: milliseconds since 1970; 0 without a receipt.
    slowest: longest time from a deletion's record to its subtraction, milliseconds.
    """

    version: int
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
class ChainSummary:
    """The chain of receipts, and the receipts of one version.

    wanted: number of that version.
    served: version to its receipts.
    listed: at most LISTED receipts of the wanted version, as JSON values.
    last: number of the newest link of the chain.
    head: its digest.
    strays: links that compete with those of the chain.
    lost: (first, last) number of each gap.
    refused: records that are neither receipts nor completions signed by this key.
    names: version to the (digest, commitment) pairs that receipts name it by.
    unbound: receipts that name a version by its number only.
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
        """Count a receipt of the chain in."""
        self.served.setdefault(receipt.version, Served(receipt.version)).take(receipt)
        if receipt.release:
            self.names.setdefault(receipt.version, set()).add((receipt.release, receipt.commitment))
        else:
            self.unbound += 1

    def as_json(self, base: int) -> dict[str, Any]:
        """Return the summary as JSON values.

        base: version that the wanted one descends from.
        """
        wanted = self.served.get(self.wanted, Served(self.wanted))
        since = [asdict(served) for version, served in sorted(self.served.items()) if base <= version <= self.wanted]
        lost = [list(gap) for gap in self.lost]
        chain = {
            "receipts": self._receipts,
            "last": self.last,
            "head": self.head,
            "strays": self.strays,
            "lost": lost,
            "refused": self.refused,
        }
        return {
            "this_version": asdict(wanted),
            "since_base": since,
            "receipts": self.listed,
            "receipts_listed": len(self.listed),
            "chain": chain,
        }

    @property
    def _receipts(self) -> int:
        return sum(served.receipts for served in self.served.values())

    def finding(self) -> Finding:
        """Return whether the chain is whole."""
        name = "receipts"
        if self.lost:
            gaps = ", ".join(f"{first} to {last}" for first, last in self.lost)
            detail = f"receipts {gaps} are missing from the chain"
            return fails(name, detail, "log", "restore the receipts topic")
        detail = f"{self._receipts} receipts, each signed, numbered without a gap"
        detail += f"; number {self.last} has digest {self.head or '-'}"
        if self.strays:
            detail += f"; {self.strays} compete with them and do not count"
        if self.refused:
            # Nothing can be removed from this topic, so one such record must not fail every later report.
            detail += f"; other records that are not receipts signed by this key were passed over: {self.refused}"
        return holds(name, detail, "log")


def read_receipts(log: EventLog, model: str, key: Verifier, version: int) -> ChainSummary:
    """Return a summary of a model's receipts topic, read up to its end.

    key: verifies the receipts.
    version: number of the version whose receipts are listed.

    Raises ComponentUnreachable.
    """
    found = ChainSummary(version)
    reader = ReceiptReader(log, model, key)
    # The topic is read twice, since only its end tells which receipts are in the chain.
    wanted: set[bytes] = set()
    for receipt in reader.read():
        found.take(receipt)
        if receipt.version == version and len(wanted) < LISTED:
            wanted.add(receipt.id.encode())
    if wanted:
        for link, record in reader.records(wanted):
            if isinstance(link, Receipt):
                found.listed.append(_listed(link, record.value or b""))
    chain = reader.chain
    found.refused = reader.skipped
    found.last = chain.head.sequence
    found.head = chain.head.digest
    found.strays = chain.strays
    found.lost = [(gap.start, gap.stop - 1) for gap in chain.lost]
    return found


def _listed(receipt: Receipt, data: bytes) -> dict[str, Any]:
    """Return a receipt as JSON values."""
    # With the signed bytes, so that the file of a report proves its receipts without the topic.
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
    """Deletions without a receipt yet.

    deletions: how many.
    held: deleted documents that the version still holds; None if this cannot be known any more.
    oldest: time of the oldest deletion, milliseconds since 1970; None if there is no deletion.
    lag: records of the documents topic that are not counted yet; they may be deletions too.
    """

    deletions: int
    held: int | None
    oldest: int | None
    lag: int

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)

    def finding(self, version: int) -> Finding:
        """Return whether the version holds documents that are deleted by now."""
        name = "deletions"
        if self.held is None:
            detail = "documents were moved to other partitions since: the version may hold each that is deleted"
            return not_checked(name, detail, "records", "take a version that was made later")
        if self.held:
            # Not a failure: until `max_forget_lag` is over the service may wait for more deletions.
            detail = f"version {version} holds {self.held} documents that are deleted by now; a version without is due"
            return not_checked(name, detail, "records", "`streamtopic unlearn` makes it now")
        detail = "no document that is deleted by now is in this version"
        if self.lag:
            detail += f"; {self.lag} records are not counted yet, which may delete more"
        return holds(name, detail, "records")


def read_waiting(log: EventLog, reader: Reader, topic: str, cut: Mapping[int, int] | None) -> WaitingDeletions:
    """Return the deletions that wait.

    topic: name of the documents topic.
    cut: partition to the offset up to which its records are in the version; None if documents were moved since.

    Raises ComponentUnreachable.
    """
    positions = reader.positions()
    received = list[int]()
    held = lag = 0
    for partition, meta in positions.items():
        lag += log.end(topic, partition) - meta.next_offset
        reflected = (cut or {}).get(partition, 0)
        for forget in _forgets(reader, partition):
            # A document that another record replaced is forgotten as well, but nobody asked for a receipt.
            if forget.wants_receipt:
                received.append(forget.received_ms)
            # The version holds a document that came before its cut and was deleted after it.
            held += forget.found and forget.offset >= reflected > forget.document_offset
    return WaitingDeletions(len(received), held if cut else None, min(received, default=None), lag)


def _forgets(reader: Reader, partition: int) -> Iterator[Forget]:
    """Yield the deletions of a partition that wait, page by page."""
    offset = 0
    stream = reader.forgets(partition)
    while page := stream.read(offset):
        yield from page
        offset = page[-1].offset + 1
