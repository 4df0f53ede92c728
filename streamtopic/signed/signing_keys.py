"""Ed25519 key pairs and secrets, in files that only their owner can read."""

import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from streamtopic.errors import InvalidRelease, SettingsError, UnknownKey
from streamtopic.security.private_files import new_file, open_to_others

__all__ = ["PublicKey", "SigningKey", "Verifier", "load_secret", "new_secret", "new_signing_key"]

SECRET_BYTES = 32
_HEXADECIMAL = set("0123456789abcdefABCDEF")
_GIVE_PUBLIC = "give signing.pub or root.pub, as `streamtopic keys new` made it, or the key in hexadecimal digits"


class Verifier(Protocol):
    """Verifies signatures: one public key, or the keys of a list (KeyRing)."""

    def verify(self, signature: bytes, message: bytes, key_id: str | None = None) -> str:
        """Return the id of the key that signed `message`.

        signature: 64 bytes.
        key_id: the key that the message names as its signer; None to try every known key.

        Raises UnknownKey if that key is not known here, InvalidRelease if the signature does not verify.
        """
        ...

    def admit(self, key_id: str, kind: str, number: int, digest: str) -> None:
        """Raise InvalidRelease if that key was revoked, and the list does not count this content as from before.

        Call it after `verify`, once the signed content has been read.

        key_id: the key that signed.
        kind: release, receipt or statement; receipt for a completion too, which is in the same chain.
        number: version or sequence number of the content.
        digest: SHA-256 of its sealed bytes, hexadecimal.
        """
        ...


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies (a Verifier).

    raw: its 32 bytes.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != SECRET_BYTES:
            raise SettingsError(
                f"a public key has {SECRET_BYTES} bytes, not {len(self.raw)}: give signing.pub's content"
            )

    @classmethod
    def load(cls, source: "PublicKey | str | bytes | Path") -> "PublicKey":
        """Return the key in a PEM file, PEM text, 64 hexadecimal digits or 32 bytes. Raises SettingsError."""
        if isinstance(source, PublicKey):
            return source
        if isinstance(source, bytes) and len(source) == SECRET_BYTES:
            return cls(source)
        text = source.decode(errors="replace") if isinstance(source, bytes) else str(source)
        if len(text) == 2 * SECRET_BYTES and set(text) <= _HEXADECIMAL:
            return cls(bytes.fromhex(text))
        is_pem = text.lstrip().startswith("-----BEGIN")
        data = text.encode() if is_pem else _read(Path(text), "public key", _GIVE_PUBLIC)
        try:
            key = serialization.load_pem_public_key(data)
        except ValueError as error:
            raise SettingsError(f"public key: {error}; give signing.pub of `streamtopic keys new`") from error
        if not isinstance(key, Ed25519PublicKey):
            raise SettingsError("public key: not of type Ed25519; give signing.pub of `streamtopic keys new`")
        return cls(key.public_bytes_raw())

    @property
    def key_id(self) -> str:
        """16 hexadecimal digits that name the key."""
        # Names a key and does not prove it: each signature is verified with the whole key.
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def pem(self) -> bytes:
        """The key as PEM, which other tools read."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def verify(self, signature: bytes, message: bytes, key_id: str | None = None) -> str:
        """See Verifier.verify."""
        if key_id not in (None, self.key_id):
            raise UnknownKey(
                f"signed with key {str(key_id)[:16]!r}, not {self.key_id}: give its writer's public key, or the root "
                "key that its key list is signed with"
            )
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            # Without the cause: it is an empty exception of another library.
            raise InvalidRelease(f"the signature is not that of key {self.key_id}: do not use this") from None
        return self.key_id

    def admit(self, key_id: str, kind: str, number: int, digest: str) -> None:
        """See Verifier.admit. It never raises: only a key list can revoke a key."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs. Signatures are deterministic (RFC 8032), so a retry gives the same bytes."""

    _private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """Return a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, seed: bytes) -> Self:
        """Return the key of a 32-byte seed."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the key in a PEM file. Raises SettingsError if it is missing, of another type, or open to others."""
        try:
            key = serialization.load_pem_private_key(_read_private(path, "signing key"), None)
        except (ValueError, TypeError) as error:
            raise SettingsError(f"signing key {path}: {error}; make one with `streamtopic keys new`") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise SettingsError(f"signing key {path}: not of type Ed25519; make one with `streamtopic keys new`")
        return cls(key)

    @property
    def public(self) -> PublicKey:
        """The public half, which verifies."""
        return PublicKey(self._private.public_key().public_bytes_raw())

    def save(self, path: Path) -> None:
        """Write a PEM file that only its owner can read. Raises SettingsError if the file exists."""
        encoding = serialization.Encoding.PEM
        form = serialization.PrivateFormat.PKCS8
        _write(path, self._private.private_bytes(encoding, form, serialization.NoEncryption()), 0o600)

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._private.sign(message)


def new_signing_key(private: Path, public: Path) -> str:
    """Write a new key pair to two PEM files, and return its key id. Raises SettingsError if one of the files exists."""
    key = SigningKey.generate()
    key.save(private)
    _write(public, key.public.pem, 0o644)
    return key.public.key_id


def new_secret(path: Path) -> bytes:
    """Write 32 random bytes to a file that only its owner can read. Raises SettingsError if the file exists."""
    secret = secrets.token_bytes(SECRET_BYTES)
    _write(path, secret.hex().encode() + b"\n", 0o600)
    return secret


def load_secret(path: Path) -> bytes:
    """Return the secret in a file of `new_secret`.

    Raises SettingsError if the file is missing, malformed or open to others.
    """
    try:
        secret = bytes.fromhex(_read_private(path, "secret").decode())
    except ValueError as error:
        raise SettingsError(f"secret {path}: not hexadecimal; restore it from your backup") from error
    if len(secret) < SECRET_BYTES:
        raise SettingsError(f"secret {path}: shorter than {SECRET_BYTES} bytes; restore it from your backup")
    return secret


def _read_private(path: Path, name: str) -> bytes:
    data = _read(path, name)
    if open_to_others(path):
        raise SettingsError(f"{name} {path} can be read by others: run `chmod 600 {path}`")
    return data


def _read(path: Path, name: str, remedy: str = "make one with `streamtopic keys new`") -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{name} {path}: {error.strerror}; {remedy}") from error


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A new file: a key that is overwritten is lost with all that it signed or salted.
        with new_file(path, mode) as file:
            file.write(data)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}; choose another place") from error
