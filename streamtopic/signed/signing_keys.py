"""Ed25519 keys in the form of signed notes, and secrets, in files that only their owner can read.

A key has a name, which is in each of its signatures: the origin of the ledger that it signs. Formats:
c2sp.org/signed-note.
"""

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from streamtopic.errors import InvalidRelease, SettingsError
from streamtopic.security.private_files import new_file, open_to_others

__all__ = [
    "COSIGNATURE",
    "ED25519",
    "PublicKey",
    "SigningKey",
    "from_base64",
    "key_hash",
    "load_secret",
    "new_secret",
    "new_signing_key",
]

SECRET_BYTES = 32
ED25519 = b"\x01"
"""The type of a plain Ed25519 key and its signatures, in the first byte of an encoded key."""
COSIGNATURE = b"\x04"
"""The type of the key of a witness (c2sp.org/tlog-cosignature)."""

_PRIVATE = "PRIVATE+KEY+"
_LONGEST_NAME = 200
_GIVE_PUBLIC = "give signing.pub or root.pub, as `streamtopic keys new` made it"
_MAKE = "make one with `streamtopic keys new`"


def from_base64(text: str) -> bytes:
    """Return the bytes of a text in base64, none for any other text.

    Bytes have one text: Python itself passes over bits after the last byte.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return b""
    return data if base64.b64encode(data).decode() == text else b""


def key_hash(name: str, encoded: bytes) -> bytes:
    """Return the 4 bytes that name a key next to its name. encoded: type byte and public key."""
    return hashlib.sha256(name.encode(errors="replace") + b"\n" + encoded).digest()[:4]


def _check_name(name: str) -> str:
    """Return a name that notes can carry. Raises SettingsError for any other."""
    usable = 0 < len(name) <= _LONGEST_NAME and name.isprintable() and "+" not in name
    if not usable or any(letter.isspace() for letter in name):
        raise SettingsError(
            f"a key cannot be named {name[:40]!r}: give a name without spaces and +, as example.org/news"
        )
    return name


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies.

    name: the origin of the ledger that it signs, or the name of a witness.
    raw: its 32 bytes.
    kind: ED25519, or COSIGNATURE for that of a witness, who signs checkpoints that only grew.
    """

    name: str
    raw: bytes
    kind: bytes = ED25519

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.raw) != SECRET_BYTES:
            raise SettingsError(f"a public key has {SECRET_BYTES} bytes, not {len(self.raw)}: {_GIVE_PUBLIC}")

    @classmethod
    def load(cls, source: "PublicKey | str | Path") -> "PublicKey":
        """Return the key in a text `name+hash+base64`, or in a file that holds one. Raises SettingsError."""
        if isinstance(source, PublicKey):
            return source
        text = str(source).strip()
        # A path may hold a plus too, but not two of them followed by a key.
        if isinstance(source, Path) or text.count("+") < 2 or Path(text).exists():
            text = _read(Path(text), "public key", _GIVE_PUBLIC).decode(errors="replace").strip()
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str, kind: bytes = ED25519) -> "PublicKey":
        """Return the key of a kind in a text `name+hash+base64`. Raises SettingsError."""
        name, _, rest = text.partition("+")
        digits, _, encoded = rest.partition("+")
        data = from_base64(encoded)
        if data[:1] != kind or key_hash(name, data).hex() != digits:
            raise SettingsError(f"public key {text[:80]!r} is not in the form name+hash+key: {_GIVE_PUBLIC}")
        return cls(name, data[1:], kind)

    @property
    def hash(self) -> bytes:
        """The 4 bytes that name the key next to its name."""
        return key_hash(self.name, self.kind + self.raw)

    @property
    def key_id(self) -> str:
        """`hash` in 8 hexadecimal digits, for people."""
        # Names a key and does not prove it: each signature is verified with the whole key.
        return self.hash.hex()

    def __str__(self) -> str:
        """Return the key as text: name, hash and key."""
        return f"{self.name}+{self.key_id}+{base64.b64encode(self.kind + self.raw).decode()}"

    def verify(self, signature: bytes, message: bytes) -> None:
        """Raise InvalidRelease unless this key made the signature of a message."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            # Without the cause: it is an empty exception of another library.
            raise InvalidRelease(f"the signature is not that of key {self.key_id}: do not use this") from None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs. Signatures are deterministic (RFC 8032), so a retry gives the same bytes.

    name: the origin of the ledger that it signs.
    """

    name: str
    _seed: bytes = field(repr=False)

    @classmethod
    def generate(cls, name: str) -> Self:
        """Return a new key."""
        return cls(name, secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def from_seed(cls, seed: bytes, name: str) -> Self:
        """Return the key of a 32-byte seed."""
        return cls(_check_name(name), seed)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the key in a file of `save`. Raises SettingsError if it is missing, malformed, or open to others."""
        text = _read_private(path, "signing key").decode(errors="replace").strip()
        name, _, rest = text.removeprefix(_PRIVATE).partition("+")
        digits, _, encoded = rest.partition("+")
        data = from_base64(encoded)
        if not text.startswith(_PRIVATE) or data[:1] != ED25519 or len(data) != 1 + SECRET_BYTES:
            raise SettingsError(f"signing key {path}: not a private key of signed notes; {_MAKE}")
        key = cls(name, data[1:])
        if key.public.key_id != digits:
            raise SettingsError(f"signing key {path}: its name and its key do not fit; restore it from your backup")
        return key

    @property
    def public(self) -> PublicKey:
        """The public half, which verifies."""
        return PublicKey(self.name, self._private.public_key().public_bytes_raw())

    def save(self, path: Path) -> None:
        """Write a file that only its owner can read. Raises SettingsError if the file exists."""
        encoded = base64.b64encode(ED25519 + self._seed).decode()
        _write(path, f"{_PRIVATE}{self.name}+{self.public.key_id}+{encoded}\n".encode(), 0o600)

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._private.sign(message)

    @property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._seed)


def new_signing_key(private: Path, public: Path, name: str) -> PublicKey:
    """Write a new key pair to two files, and return its public half. Raises SettingsError if one of them exists."""
    key = SigningKey.generate(_check_name(name))
    key.save(private)
    _write(public, f"{key.public}\n".encode(), 0o644)
    return key.public


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


def _read(path: Path, name: str, remedy: str = _MAKE) -> bytes:
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
