"""A model's signing keys over time, in a list that only the root key signs.

The root key stays offline: it signs nothing but lists. A reader who has its public half learns from the newest list
which key signs now, which keys signed before, and which keys a thief may have.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease, UnknownKey, UsageError
from streamtopic.formats import KEY_LIST, refusal
from streamtopic.signed.sealed import pack, reading_fields, seal, unpack_fields, unseal
from streamtopic.signed.signing_keys import PublicKey, SigningKey

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KeyList", "KeyRing", "Revoked", "open_keys", "seal_keys"]

FORMAT = KEY_LIST.written
KIND = "keys"


@dataclass(frozen=True, slots=True)
class Revoked:
    """A key that no longer counts, with the releases and receipts that it signed before and that still count.

    key: the revoked key.
    releases: version to SHA-256 of its sealed bytes, hexadecimal.
    receipts: number of the last receipt that counts, and SHA-256 of its sealed bytes; the chain proves all before it.
    revoked: milliseconds since 1970.
    """

    key: PublicKey
    releases: Mapping[int, str]
    receipts: tuple[int, str]
    revoked: int


@dataclass(frozen=True, slots=True)
class KeyList:
    """One list.

    sequence: its number, from 1.
    created: milliseconds since 1970.
    current: the key that signs now.
    previous: keys that signed before; their signatures stay valid.
    revoked: keys that no longer count.
    """

    model: str
    sequence: int
    created: int
    current: PublicKey
    previous: tuple[PublicKey, ...] = ()
    revoked: tuple[Revoked, ...] = ()

    @property
    def all_keys(self) -> tuple[PublicKey, ...]:
        """Every key of the list, revoked ones included."""
        revoked = [entry.key for entry in self.revoked]
        return (self.current, *self.previous, *revoked)

    def rotated(self, new: PublicKey, created: int) -> "KeyList":
        """Return the next list, in which `new` signs. Raises UsageError for a key that is in the list already.

        created: milliseconds since 1970.
        """
        # No reader would accept what a revoked key signs from now on.
        if new in self.all_keys:
            raise UsageError(f"key {new.key_id} is in the key list already: make a new one")
        previous = (*self.previous, self.current)
        sequence = self.sequence + 1
        return replace(
            self,
            sequence=sequence,
            created=created,
            current=new,
            previous=previous,
        )

    def without(self, revoked: Revoked) -> "KeyList":
        """Return the next list, in which a previous key is revoked. Raises UsageError for any other key."""
        if revoked.key not in self.previous:
            raise UsageError(
                f"key {revoked.key.key_id} cannot be revoked: it is not among the previous keys of list "
                f"{self.sequence}; a key that signs now must be rotated first"
            )
        previous = tuple(key for key in self.previous if key != revoked.key)
        all_revoked = (*self.revoked, revoked)
        sequence = self.sequence + 1
        return replace(
            self,
            sequence=sequence,
            created=revoked.revoked,
            previous=previous,
            revoked=all_revoked,
        )


def seal_keys(keys: KeyList, root: SigningKey) -> bytes:
    """Return the signed bytes of a list."""
    previous = [key.raw for key in keys.previous]
    revoked = [_pack_revoked(entry) for entry in keys.revoked]
    fields: dict[str, Any] = {
        "format": FORMAT,
        "model": keys.model,
        "sequence": keys.sequence,
        "created": keys.created,
        "current": keys.current.raw,
        "previous": previous,
        "revoked": revoked,
    }
    parts = {"keys": pack(fields)}
    return seal(KIND, parts, root)


def open_keys(data: bytes, root: PublicKey) -> KeyList:
    """Return the list in signed bytes. Raises InvalidRelease unless `root` signed exactly these bytes."""
    parts = unseal(KIND, data, root)
    with reading_fields("key list"):
        fields = unpack_fields(parts["keys"])
        if fields["format"] != FORMAT:
            raise InvalidRelease(refusal(KEY_LIST, fields["format"]))
        previous = [_public_key(raw) for raw in fields["previous"]]
        revoked = [_unpack_revoked(entry) for entry in fields["revoked"]]
        current = _public_key(fields["current"])
        return KeyList(
            model=str(fields["model"]),
            sequence=int(fields["sequence"]),
            created=int(fields["created"]),
            current=current,
            previous=tuple(previous),
            revoked=tuple(revoked),
        )


@dataclass(slots=True)
class KeyRing:
    """The keys that a reader of a model trusts, which change as newer lists arrive (a Verifier).

    pinned: the key that the user gave. It is the root key of the lists, or the one key that signs while there is no
        list.
    model: name of the model.
    also: keys that are trusted without a list, such as a service's own.
    keys: the newest list; None before the first.
    """

    pinned: PublicKey
    model: str
    also: tuple[PublicKey, ...] = ()
    keys: KeyList | None = field(default=None)

    @classmethod
    def load(
        cls, source: "KeyRing | PublicKey | str | bytes | Path", model: str, also: Iterable[PublicKey] = ()
    ) -> "KeyRing":
        """Return a ring of a public key, in any form that `PublicKey.load` takes; a ring is returned as it is."""
        if isinstance(source, KeyRing):
            return source
        pinned = PublicKey.load(source)
        return cls(pinned, model, tuple(also))

    @property
    def sequence(self) -> int:
        """Number of the newest list, 0 before the first."""
        return 0 if self.keys is None else self.keys.sequence

    def take(self, data: bytes) -> bool:
        """Take in a sealed list, and return whether it is newer than all before.

        Raises InvalidRelease unless the pinned key signed it for this model.
        """
        keys = open_keys(data, self.pinned)
        if keys.model != self.model:
            raise InvalidRelease(f"it is the key list of model {keys.model}, not of {self.model}")
        # Anybody may write an old list again: it must not bring a revoked key back.
        if keys.sequence <= self.sequence:
            return False
        self.keys = keys
        return True

    def named(self, key_id: str) -> PublicKey:
        """Return the trusted key with this id. Raises UnknownKey."""
        for key in self._known():
            if key.key_id == key_id:
                return key
        raise UnknownKey(f"key {key_id} is not known: give the root key, or a newer key list")

    @classmethod
    def of_list(cls, pinned: PublicKey, data: bytes) -> "KeyRing":
        """Return a ring of the keys in a list of any model. Raises InvalidRelease unless `pinned` signed the list."""
        keys = open_keys(data, pinned)
        return cls(pinned, keys.model, keys=keys)

    def verify(self, signature: bytes, message: bytes, key_id: str | None = None) -> str:
        """See Verifier.verify."""
        wanted = [key for key in self._known() if key_id in (None, key.key_id)]
        if not wanted:
            raise UnknownKey(self._unknown(str(key_id)[:16]))
        # The file of a report does not name the signer, so each of these keys may have signed it.
        for key in wanted[:-1]:
            try:
                return key.verify(signature, message)
            except InvalidRelease:
                continue
        return wanted[-1].verify(signature, message)

    def admit(self, key_id: str, kind: str, number: int, digest: str) -> None:
        """See Verifier.admit."""
        revoked = () if self.keys is None else self.keys.revoked
        for entry in revoked:
            if entry.key.key_id == key_id and not _still_counts(entry, kind, number, digest):
                raise InvalidRelease(
                    f"{kind} {number} is signed with key {key_id}, which was revoked, and is not from before: do not "
                    "use it"
                )

    def _unknown(self, key_id: str) -> str:
        ids = [key.key_id for key in self._known()]
        names = ", ".join(ids)
        if self.keys is not None:
            return (
                f"signed with key {key_id!r}, which key list {self.sequence} does not name (it names {names}): do not "
                "use this unless a newer list does"
            )
        return (
            f"signed with key {key_id!r}, not {names}: give its writer's public key, or the root key that its key list "
            "is signed with"
        )

    def _known(self) -> list[PublicKey]:
        # With a list the pinned key is the root key, which signs nothing but lists.
        signing = (self.pinned,) if self.keys is None else self.keys.all_keys
        trusted = (*signing, *self.also)
        return list(dict.fromkeys(trusted))


def _still_counts(revoked: Revoked, kind: str, number: int, digest: str) -> bool:
    # Exact bytes, not numbers: a thief can sign another release 3, and a time in it is the thief's to choose.
    if kind == "release":
        return revoked.releases.get(number) == digest
    if kind == "receipt":
        last, head = revoked.receipts
        # Receipts before the last one are named by its chain of digests.
        return number < last or (number, digest) == (last, head)
    return False


def _pack_revoked(revoked: Revoked) -> dict[str, Any]:
    releases = {str(version): digest for version, digest in revoked.releases.items()}
    return {
        "key": revoked.key.raw,
        "releases": releases,
        "receipts": list(revoked.receipts),
        "revoked": revoked.revoked,
    }


def _public_key(raw: object) -> PublicKey:
    # bytes(n) of a number n is n zeros, and a list may hold any number here.
    if not isinstance(raw, bytes):
        raise TypeError(f"a key is a {type(raw).__name__}")
    return PublicKey(raw)


def _unpack_revoked(fields: Mapping[str, Any]) -> Revoked:
    key = _public_key(fields["key"])
    releases = {int(version): str(digest) for version, digest in fields["releases"].items()}
    number, head = fields["receipts"]
    last = int(number), str(head)
    return Revoked(key, releases, last, int(fields["revoked"]))
