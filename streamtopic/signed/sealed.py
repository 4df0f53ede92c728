"""Parts that are signed together: a canonical map of the parts' bytes, a key id and a signature."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamtopic.errors import InvalidRelease
from streamtopic.signed.canonical import pack
from streamtopic.signed.signing_keys import SigningKey, Verifier

__all__ = ["Sealed", "kind_of", "open_sealed", "seal", "signature_of", "signed_by", "statement_digest", "unseal"]

_MOST_PARTS = 8
_LONGEST_NAME = 64
# Type bytes of msgpack: short strings and maps hold their length themselves.
_MAP, _TEXT, _TEXT_8 = 0x80, 0xA0, 0xD9
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4}


@dataclass(frozen=True, slots=True)
class Sealed:
    """Parts whose signature was verified. key: id of the key that signed them; digest: SHA-256 of the whole bytes."""

    parts: dict[str, bytes]
    key: str
    digest: str


def seal(kind: str, parts: Mapping[str, bytes], key: SigningKey) -> bytes:
    """Container of `parts`; `kind` keeps a signature on one kind of document from passing for another."""
    signature = key.sign(_message(kind, parts))
    return pack({"key": key.public.key_id, "kind": kind, "parts": dict(parts), "signature": signature})


def open_sealed(kind: str, data: bytes, key: Verifier) -> Sealed:
    """The parts of a container. Raises InvalidRelease if any byte of it is not as `seal` wrote it under `key`.

    UnknownKey where the key that is named is not known. Until the signature is verified nothing is built from the
    bytes but slices of them, so they take no more memory than they are long.
    """
    found = _container(data)
    if found["kind"] != kind:
        raise InvalidRelease(f"signed content is a {str(found['kind'])[:40]!r}, not a {kind!r}")
    parts: dict[str, bytes] = found["parts"]
    signer = key.verify(found["signature"], _message(kind, parts), found["key"])
    return Sealed(parts, signer, hashlib.sha256(data).hexdigest())


def unseal(kind: str, data: bytes, key: Verifier) -> dict[str, bytes]:
    """The parts of a container; see `open_sealed`."""
    return open_sealed(kind, data, key).parts


def kind_of(data: bytes) -> str:
    """The kind that a container says it is of, unverified. Raises InvalidRelease for bytes that are no container."""
    found: str = _container(data)["kind"]
    return found


def signature_of(data: bytes) -> bytes:
    """The signature in a container. Raises InvalidRelease for bytes that are no container."""
    found: bytes = _container(data)["signature"]
    return found


def signed_by(kind: str, digests: Mapping[str, bytes], signature: bytes, key: Verifier) -> str:
    """Return the id of the key that signed parts of these SHA-256 digests: a part can be shown without the rest.

    Raises InvalidRelease unless `key` did.
    """
    return key.verify(signature, _statement(kind, digests))


def statement_digest(kind: str, digests: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the bytes that a signature is over, in hexadecimal: it names the parts, whoever signs them.

    digests: SHA-256 of each part. So a part of many bytes need not be there to tell whether it is the one named.
    """
    return hashlib.sha256(_statement(kind, digests)).hexdigest()


def _message(kind: str, parts: Mapping[str, bytes]) -> bytes:
    return _statement(kind, {name: hashlib.sha256(part).digest() for name, part in parts.items()})


def _statement(kind: str, digests: Mapping[str, bytes]) -> bytes:
    return b"streamtopic " + pack({"kind": kind, "parts": dict(digests)})


def _container(data: bytes) -> dict[str, Any]:
    """Read what `seal` writes and nothing else: a general reader would build whatever an unsigned value announces."""
    try:
        found = _Reader(data).container()
        canonical = pack(found) == data
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRelease("signed content is not a sealed container") from error
    if not canonical:
        raise InvalidRelease("signed content is not in canonical form")
    return found


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def container(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self._map()):
            name = self._text()
            found[name] = self._parts() if name == "parts" else self._bytes() if name == "signature" else self._text()
        if set(found) != {"key", "kind", "parts", "signature"}:
            raise InvalidRelease("signed content is not a sealed container")
        return found

    def _parts(self) -> dict[str, bytes]:
        return {self._text(): self._bytes() for _ in range(self._map())}

    def _map(self) -> int:
        count = self._byte() - _MAP
        if not 0 <= count <= _MOST_PARTS:
            raise InvalidRelease("signed content is not a sealed container")
        return count

    def _text(self) -> str:
        kind = self._byte()
        length = self._byte() if kind == _TEXT_8 else kind - _TEXT
        if not 0 <= length <= _LONGEST_NAME:
            raise InvalidRelease("signed content is not a sealed container")
        return self._slice(length).decode()

    def _bytes(self) -> bytes:
        width = _BYTES.get(self._byte())
        if width is None:
            raise InvalidRelease("signed content has malformed parts")
        return self._slice(int.from_bytes(self._slice(width)))

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _slice(self, length: int) -> bytes:
        self._at += length
        if self._at > len(self._data):
            raise InvalidRelease("signed content ends too early")
        return self._data[self._at - length : self._at]
