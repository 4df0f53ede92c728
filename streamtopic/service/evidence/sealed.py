"""One version as it stands in the log, and what proves its envelope to whoever holds no more than the public key."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.release import Assembled, Assembler, Envelope, Release, Removed, open_release, unpack_envelope
from streamtopic.signing import PublicKey, signed_by, unpack, unseal
from streamtopic.streams import EventLog, TopicNames

__all__ = ["Proof", "Shelf", "read_shelf"]

_KIND = "release"


@dataclass(frozen=True, slots=True)
class Proof:
    """The signed envelope of a version, without its payload.

    release, payload: SHA-256 of the whole signed bytes and of the payload in them, hexadecimal; envelope: its canonical
    bytes; signature: Ed25519, over the digests of payload and envelope; size: of the whole, in bytes.
    """

    release: str
    payload: str
    envelope: bytes
    signature: bytes
    size: int

    @classmethod
    def of(cls, data: bytes, key: PublicKey) -> "Proof":
        """Take it from the signed bytes of a release. Raises InvalidRelease."""
        parts = unseal(_KIND, data, key)
        digest, payload = hashlib.sha256(data).hexdigest(), hashlib.sha256(parts["payload"]).hexdigest()
        return cls(digest, payload, parts["envelope"], unpack(data)["signature"], len(data))

    def open(self, key: PublicKey) -> Envelope:
        """Return the envelope. Raises InvalidRelease unless `key` signed it together with this very payload."""
        digests = {"envelope": hashlib.sha256(self.envelope).digest(), "payload": bytes.fromhex(self.payload)}
        signed_by(_KIND, digests, self.signature, key)
        try:
            return unpack_envelope(self.envelope)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRelease(f"a signed envelope has malformed fields ({error}): update this program") from error

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them, bytes in base 64."""
        return {
            "release_sha256": self.release,
            "payload_sha256": self.payload,
            "envelope": base64.b64encode(self.envelope).decode(),
            "signature": base64.b64encode(self.signature).decode(),
            "bytes": self.size,
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "Proof":
        """Undo `as_json`. Raises InvalidRelease."""
        try:
            bytes.fromhex(fields["payload_sha256"])
            envelope, signature = (base64.b64decode(fields[name], validate=True) for name in ("envelope", "signature"))
            return cls(fields["release_sha256"], fields["payload_sha256"], envelope, signature, int(fields["bytes"]))
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise InvalidRelease(f"no proof of a release: {type(error).__name__}") from error


@dataclass(slots=True)
class Shelf:
    """What the releases topic holds, read once for the sake of one version.

    wanted: its number. release, proof: that version, None where the log has none that verifies. standing: versions
    whose bytes are in the log. withdrawn: versions that a later one withdraws, or of which a chunk was tombstoned;
    retired: erased for their age alone. doubled: versions signed twice with two contents. refused: version to why
    its bytes do not verify. digests: SHA-256 of each version's bytes.
    """

    wanted: int
    release: Release | None = None
    proof: Proof | None = None
    standing: set[int] = field(default_factory=set)
    withdrawn: set[int] = field(default_factory=set)
    retired: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)


def read_shelf(log: EventLog, model: str, key: PublicKey, wanted: int) -> Shelf:
    """Read a model's releases topic up to its end; every release in it is verified. Raises ComponentUnreachable."""
    shelf, assembler = Shelf(wanted), Assembler()
    topic = TopicNames(model).releases
    if log.partitions(topic) == 0:
        return shelf
    offset = log.begin(topic, 0)
    while records := log.read(topic, 0, offset):
        offset = records[-1].next_offset
        for record in records:
            match assembler.take(record):
                case Assembled(version, data):
                    _shelve(shelf, version, data, model, key)
                case Removed(version, retired=retired):
                    (shelf.retired if retired else shelf.withdrawn).add(version)
                    shelf.standing.discard(version)
    shelf.retired -= shelf.withdrawn
    return shelf


def _shelve(shelf: Shelf, version: int, data: bytes, model: str, key: PublicKey) -> None:
    digest = hashlib.sha256(data).hexdigest()
    if shelf.digests.get(version) == digest:
        return
    try:
        release = open_release(data, key)
    except InvalidRelease as error:
        shelf.refused[version] = str(error)
        return
    envelope = release.envelope
    if (envelope.model, envelope.version) != (model, version):
        shelf.refused[version] = f"it says to be version {envelope.version} of {envelope.model}"
        return
    # The first release of a number is the one that subscribers hold.
    if version in shelf.digests:
        shelf.doubled.add(version)
        return
    shelf.digests[version] = digest
    shelf.standing.add(version)
    shelf.withdrawn.update(envelope.withdrawn)
    if version == shelf.wanted:
        shelf.release, shelf.proof = release, Proof.of(data, key)
