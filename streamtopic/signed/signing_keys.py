"""Ed25519 keys in the form of signed notes, such notes, lists of a ledger's keys, and secrets in files.

A key has a name, which is in each of its signatures: the origin of the ledger that it signs. A note is a text, and
lines of signatures below it. Formats: c2sp.org/signed-note, c2sp.org/tlog-cosignature.

The keys of a ledger change over time. Their list is signed by the root key alone, which stays offline: a reader who has
its public half learns from the newest list which key signs now, which keys signed before, and which keys a thief may
have. A list is a signed note of two lines: `streamtopic keys`, and the KeyList as canonical JSON.
"""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import PlainSerializer, PlainValidator

from streamtopic.errors import InvalidRelease, SettingsError, UnknownKey, UsageError
from streamtopic.security.private_files import new_file, open_to_others
from streamtopic.signed.canonical import Whole, from_base64, parse, write

__all__ = [
    "COSIGNATURE",
    "ED25519",
    "KeyList",
    "KeyRing",
    "Note",
    "PublicKey",
    "Revoked",
    "SigningKey",
    "check_origin",
    "cosigned",
    "key_hash",
    "load_secret",
    "new_secret",
    "open_keys",
    "open_note",
    "read_note",
    "seal_keys",
    "sign_note",
    "signature_line",
]

SECRET_BYTES = 32
ED25519 = b"\x01"
"""The type of a plain Ed25519 key and its signatures, in the first byte of an encoded key."""
COSIGNATURE = b"\x04"
"""The type of the key of a witness (c2sp.org/tlog-cosignature)."""

_PRIVATE = "PRIVATE+KEY+"
_TITLE = "streamtopic keys\n"
_DASH = "— "
_MOST_SIGNATURES = 64
_LONGEST = 64 << 10
_SIGNATURE_BYTES = 64
_TIME_BYTES = 8
# Control characters, and halves of a character, which JSON may hold and UTF-8 may not.
_UNUSABLE = re.compile("[\x00-\x09\x0b-\x1f\ud800-\udfff]")
_LONGEST_NAME = 200
_GIVE_PUBLIC = "give signing.pub or root.pub, as `streamtopic keys new` made it"
_MAKE = "make one with `streamtopic keys new`"


def _parts(text: str) -> tuple[str, str, bytes]:
    """Return name, hash and bytes of a key in the form name+hash+base64."""
    name, _, rest = text.partition("+")
    digits, _, encoded = rest.partition("+")
    return name, digits, from_base64(encoded)


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
        name, digits, data = _parts(text)
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
    _private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls, name: str) -> Self:
        """Return a new key. Raises SettingsError for a name that notes cannot carry."""
        return cls.from_seed(secrets.token_bytes(SECRET_BYTES), name)

    @classmethod
    def from_seed(cls, seed: bytes, name: str) -> Self:
        """Return the key of a 32-byte seed. Raises as `generate`."""
        return cls(_check_name(name), Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the key in a file of `save`. Raises SettingsError if it is missing, malformed, or open to others."""
        text = _read_private(path, "signing key").decode(errors="replace").strip()
        name, digits, data = _parts(text.removeprefix(_PRIVATE))
        if not text.startswith(_PRIVATE) or data[:1] != ED25519 or len(data) != 1 + SECRET_BYTES:
            raise SettingsError(f"signing key {path}: not a private key of signed notes; {_MAKE}")
        key = cls.from_seed(data[1:], name)
        if key.public.key_id != digits:
            raise SettingsError(f"signing key {path}: its name and its key do not fit; restore it from your backup")
        return key

    @property
    def public(self) -> PublicKey:
        """The public half, which verifies."""
        return PublicKey(self.name, self._private.public_key().public_bytes_raw())

    def save(self, path: Path) -> None:
        """Write a file that only its owner can read, and the public half beside it, with the ending `.pub`.

        Raises SettingsError if one of them exists; nothing is written then.
        """
        public = path.with_suffix(".pub")
        if public.exists() and not path.exists():
            raise SettingsError(
                f"{path} is missing beside its public half {public}: restore it from your backup, or move the public "
                "half away to make a new pair"
            )
        encoded = base64.b64encode(ED25519 + self._private.private_bytes_raw()).decode()
        _write(path, f"{_PRIVATE}{self.name}+{self.public.key_id}+{encoded}\n".encode(), 0o600)
        _write(public, f"{self.public}\n".encode(), 0o644)

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._private.sign(message)


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


@dataclass(frozen=True, slots=True)
class Note:
    """A note as it was read; nothing in it is verified yet.

    text: with its last newline.
    signatures: name, hash of the key and bytes of each signature.
    """

    text: str
    signatures: tuple[tuple[str, bytes, bytes], ...]


def sign_note(text: str, key: SigningKey) -> str:
    """Return a text with the signature of a key below it. text: ends in a newline."""
    return f"{text}\n{signature_line(key.name, key.public.hash, key.sign(text.encode()))}"


def signature_line(name: str, key: bytes, signature: bytes) -> str:
    """Return the line of a signature. key: hash of the key."""
    return f"{_DASH}{name} {base64.b64encode(key + signature).decode()}\n"


def read_note(note: str) -> Note:
    """Return the parts of a note. Raises InvalidRelease for a text that is none."""
    text, blank, rest = note.rpartition("\n\n")
    lines = rest.splitlines()
    plain = len(note) <= _LONGEST and not _UNUSABLE.search(note)
    if not blank or not plain or not rest.endswith("\n") or not 0 < len(lines) <= _MOST_SIGNATURES:
        raise InvalidRelease("this is not a signed note: it has no lines of signatures")
    return Note(f"{text}\n", tuple(map(_signature, lines)))


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, space, encoded = line.removeprefix(_DASH).partition(" ")
    data = from_base64(encoded)
    if not line.startswith(_DASH) or not name or not space or len(data) <= 4:
        raise InvalidRelease("this is not a signed note: a line of a signature is malformed")
    return name, data[:4], data[4:]


def open_note(note: str, keys: Iterable[PublicKey]) -> tuple[str, PublicKey]:
    """Return the text of a note and the key among `keys` that signed it.

    Raises InvalidRelease for a signature of one of them that does not verify, UnknownKey if none of them signed.
    """
    found = read_note(note)
    signer = None
    by_name = {(key.name, key.hash): key for key in keys}
    for name, key_id, signature in found.signatures:
        key = by_name.get((name, key_id))
        if key is not None:
            key.verify(signature, found.text.encode())
            signer = signer or key
    if signer is None:
        names = ", ".join(f"{name} {key_id.hex()}" for name, key_id, _ in found.signatures[:3])
        known = ", ".join(f"{key.name} {key.key_id}" for key in by_name.values()) or "no key"
        raise UnknownKey(
            f"signed with {names[:300]}, and {known} is known here: give the key of the ledger, or its root key"
        )
    return found.text, signer


def cosigned(note: str, witness: PublicKey) -> bool:
    """Return whether a checkpoint has a cosignature of a witness that verifies.

    witness: its key, of kind COSIGNATURE.
    """
    found = read_note(note)
    for name, key_id, signature in found.signatures:
        own = (name, key_id) == (witness.name, witness.hash)
        if own and len(signature) == _TIME_BYTES + _SIGNATURE_BYTES:
            seconds = int.from_bytes(signature[:_TIME_BYTES])
            with suppress(InvalidRelease):
                witness.verify(signature[_TIME_BYTES:], f"cosignature/v1\ntime {seconds}\n{found.text}".encode())
                return True
    return False


KeyText = Annotated[PublicKey, PlainValidator(PublicKey.parse), PlainSerializer(str)]


@dataclass(frozen=True, slots=True)
class Revoked:
    """A key that no longer counts, and the entries that were signed with it and do not count.

    key: the revoked key.
    first: index of the first entry that does not count.
    size: entries that the ledger had when the key was revoked; those from `first` up to here are void.
    revoked: milliseconds since 1970.
    """

    key: KeyText
    first: Whole
    size: Whole
    revoked: Whole


@dataclass(frozen=True, slots=True)
class KeyList:
    """One list.

    origin: name of the ledger, which each key of it bears.
    sequence: its number, from 1.
    created: milliseconds since 1970.
    current: the key that signs now.
    previous: keys that signed before; their signatures stay valid.
    revoked: keys that no longer count.
    """

    origin: str
    sequence: Whole
    created: Whole
    current: KeyText
    previous: tuple[KeyText, ...] = ()
    revoked: tuple[Revoked, ...] = ()

    @property
    def trusted(self) -> tuple[PublicKey, ...]:
        """The keys whose signatures count."""
        return (self.current, *self.previous)

    def rotated(self, new: PublicKey, created: int) -> "KeyList":
        """Return the next list, in which `new` signs. Raises UsageError for a key that is in the list already.

        created: milliseconds since 1970.
        """
        # No reader would accept what a revoked key signs from now on.
        if new in {*self.trusted, *(entry.key for entry in self.revoked)}:
            raise UsageError(f"key {new.key_id} is in the key list already: make a new one")
        previous = (*self.previous, self.current)
        return replace(self, sequence=self.sequence + 1, created=created, current=new, previous=previous)

    def without(self, revoked: Revoked) -> "KeyList":
        """Return the next list, in which a previous key is revoked. Raises UsageError for any other key."""
        if revoked.key not in self.previous:
            raise UsageError(
                f"key {revoked.key.key_id} cannot be revoked: it is not among the previous keys of list "
                f"{self.sequence}; a key that signs now must be rotated first"
            )
        previous = tuple(key for key in self.previous if key != revoked.key)
        sequence = self.sequence + 1
        all_revoked = (*self.revoked, revoked)
        return replace(self, sequence=sequence, created=revoked.revoked, previous=previous, revoked=all_revoked)


def seal_keys(keys: KeyList, root: SigningKey) -> str:
    """Return the signed note of a list."""
    return sign_note(f"{_TITLE}{write(keys)}\n", root)


def open_keys(note: str, root: PublicKey) -> KeyList:
    """Return the list in a signed note. Raises InvalidRelease unless `root` signed it."""
    text, _ = open_note(note, [root])
    found = parse(KeyList, text.removeprefix(_TITLE).removesuffix("\n"), "key list")
    if not text.startswith(_TITLE) or any(key.name != found.origin for key in found.trusted):
        raise InvalidRelease("a signed key list has another title, or a key of another ledger: update this program")
    return found


def check_origin(key: PublicKey | SigningKey, model: str) -> None:
    """Raise SettingsError if a key is of another ledger than that of a model.

    Two models under one origin would sign two histories of one ledger.
    """
    if not _is_of(key.name, model):
        raise SettingsError(
            f"key {key.name} is not of model {model}: its name must be {model} or end in /{model}; make one with "
            f"`streamtopic keys new --name example.org/{model}`"
        )


def _is_of(origin: str, model: str) -> bool:
    """Whether a ledger of this name is that of a model."""
    return origin == model or origin.endswith(f"/{model}")


@dataclass(slots=True)
class KeyRing:
    """The keys that a reader of a ledger trusts, which change as newer lists arrive.

    pinned: the key that the user gave. It is the root key of the lists, or the one key that signs while there is no
        list.
    model: name of the model.
    also: keys that are trusted before the first list, such as a service's own.
    keys: the newest list; None before the first.
    note: its signed note, "" before the first.
    """

    pinned: PublicKey
    model: str
    also: tuple[PublicKey, ...] = ()
    keys: KeyList | None = field(default=None)
    note: str = ""

    @classmethod
    def load(
        cls, source: "KeyRing | PublicKey | str | Path", model: str | None = None, also: Iterable[PublicKey] = ()
    ) -> "KeyRing":
        """Return a ring of a public key, in any form that `PublicKey.load` takes; a ring is returned as it is.

        model: None for that of the key's name.
        """
        if isinstance(source, KeyRing):
            return source
        pinned = PublicKey.load(source)
        return cls(pinned, model or pinned.name.rpartition("/")[2], tuple(also))

    @property
    def sequence(self) -> int:
        """Number of the newest list, 0 before the first."""
        return 0 if self.keys is None else self.keys.sequence

    @property
    def trusted(self) -> tuple[PublicKey, ...]:
        """The keys whose signatures count now, each of a ledger of this model."""
        # With a list the pinned key is the root key, which signs nothing but lists.
        # No key counts but those of a list: others would not see what such a key has signed, and the ledger
        # of this reader would go on without them.
        signing = (self.pinned, *self.also) if self.keys is None else self.keys.trusted
        return tuple(key for key in dict.fromkeys(signing) if _is_of(key.name, self.model))

    @property
    def revoked(self) -> tuple[Revoked, ...]:
        """The keys that no longer count."""
        return () if self.keys is None else self.keys.revoked

    def void(self, index: int) -> Revoked | None:
        """Return the revoked key by which an entry does not count, None if it counts."""
        return next((one for one in self.revoked if one.first <= index < one.size), None)

    def take(self, note: str) -> bool:
        """Take in the note of a list, and return whether it is newer than all before.

        Raises InvalidRelease unless the pinned key signed it for this model.
        """
        if note == self.note != "":
            return False
        keys = open_keys(note, self.pinned)
        if not _is_of(keys.origin, self.model):
            raise InvalidRelease(f"it is the key list of ledger {keys.origin}, not of {self.model}")
        if self.keys is not None and keys.origin != self.keys.origin:
            raise InvalidRelease(f"it is the key list of ledger {keys.origin}, not of {self.keys.origin}")
        # Anybody may write an old list again: it must not bring a revoked key back.
        if keys.sequence <= self.sequence:
            return False
        self.keys, self.note = keys, note
        return True

    def with_list(self, note: str) -> "KeyRing":
        """Return the ring as it is once this list is taken in. Raises as `take`."""
        ring = replace(self)
        ring.take(note)
        return ring

    def signer_of(self, note: str, size: int | None = None) -> PublicKey:
        """Return the key that signed a note of the ledger.

        size: entries of the tree that the note signs, if its place in the topic vouches for it: what a revoked key
            had signed before stays in the tree. None for a note that is alone.

        Raises InvalidRelease, and UnknownKey if no key that counts has signed it.
        """
        before = [one.key for one in self.revoked if size is not None and size <= one.size]
        try:
            return open_note(note, (*self.trusted, *before))[1]
        except UnknownKey as error:
            named = [(name, key_id) for name, key_id, _ in read_note(note).signatures]
            if any((one.key.name, one.key.hash) in named for one in self.revoked):
                raise UnknownKey(f"{error}; its key was revoked: do not use this, and ask for a newer proof") from None
            raise
