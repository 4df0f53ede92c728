"""Parts that are signed together: a canonical map of the parts' bytes, a key id and a signature."""

import hashlib
from collections.abc import Mapping

from streamtopic.errors import InvalidRelease
from streamtopic.signing.canonical import pack, unpack
from streamtopic.signing.keys import PublicKey, SigningKey

__all__ = ["seal", "signed_by", "unseal"]


def seal(kind: str, parts: Mapping[str, bytes], key: SigningKey) -> bytes:
    """Container of `parts`; `kind` keeps a signature on one kind of document from passing for another."""
    signature = key.sign(_message(kind, parts))
    return pack({"key": key.public.key_id, "kind": kind, "parts": dict(parts), "signature": signature})


def unseal(kind: str, data: bytes, key: PublicKey) -> dict[str, bytes]:
    """The parts of a container. Raises InvalidRelease if any byte of it is not as `seal` wrote it under `key`."""
    found = unpack(data)
    if not isinstance(found, dict) or set(found) != {"key", "kind", "parts", "signature"}:
        raise InvalidRelease("signed content is no sealed container")
    if found["kind"] != kind:
        raise InvalidRelease(f"signed content is a {str(found['kind'])[:40]!r}, not a {kind!r}")
    if found["key"] != key.key_id:
        raise InvalidRelease(
            f"signed with key {str(found['key'])[:16]!r}, not {key.key_id}: give its writer's public key"
        )
    parts, signature = found["parts"], found["signature"]
    if not isinstance(parts, dict) or not all(isinstance(part, bytes) for part in parts.values()):
        raise InvalidRelease("signed content has malformed parts")
    if not isinstance(signature, bytes):
        raise InvalidRelease("signed content has a malformed signature")
    key.verify(signature, _message(kind, parts))
    return parts


def signed_by(kind: str, digests: Mapping[str, bytes], signature: bytes, key: PublicKey) -> None:
    """Raise InvalidRelease unless `key` signed parts of these SHA-256 digests: a part can be shown without the rest."""
    key.verify(signature, _statement(kind, digests))


def _message(kind: str, parts: Mapping[str, bytes]) -> bytes:
    return _statement(kind, {name: hashlib.sha256(part).digest() for name, part in parts.items()})


def _statement(kind: str, digests: Mapping[str, bytes]) -> bytes:
    return b"streamtopic " + pack({"kind": kind, "parts": dict(digests)})
