"""One version as it is in the log, and a proof of its envelope for a reader who has only the public key."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.signed import (
    Envelope,
    KeyRing,
    Opened,
    PublicKey,
    Refused,
    Release,
    ReleaseReader,
    Removed,
    Verifier,
    open_sealed,
    signature_of,
    signed_by,
    statement_digest,
    unpack_envelope,
)
from streamtopic.streams import EventLog

__all__ = ["Link", "Proof", "ReleasesTopic", "read_releases_topic"]

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
    def of(cls, data: bytes, key: Verifier) -> "Proof":
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
    def parse(cls, fields: Mapping[str, Any]) -> "Proof":
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
    def of(cls, release: Release) -> "Link":
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
    topic, reader = ReleasesTopic(wanted), ReleaseReader(log, model, keys)
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
