"""A model's signing keys over time, in a list that only the root key signs.

The root key stays offline: it signs nothing but lists. Whoever knows its public half learns from the newest list which
key signs now, which signed before, and of which a thief may have a copy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamtopic.errors import InvalidRelease, UnknownKey, UsageError
from streamtopic.signed.canonical import pack, unpack
from streamtopic.signed.sealed import seal, unseal
from streamtopic.signed.signing_keys import PublicKey, SigningKey

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KeyList", "KeyRing", "Revoked", "open_keys", "seal_keys"]

FORMAT = 1
KIND = "keys"


@dataclass(frozen=True, slots=True)
class Revoked:
    """A key that no longer counts, and what it signed before that still does.

    releases: version to SHA-256 of its sealed bytes. receipts: number of the last receipt in the chain, and SHA-256 of
    its sealed bytes, which stands for all before it. revoked: milliseconds since 1970.
    """

    key: PublicKey
    releases: Mapping[int, str]
    receipts: tuple[int, str]
    revoked: int


@dataclass(frozen=True, slots=True)
class KeyList:
    """One list. sequence: its number, from 1; created: milliseconds since 1970.

    current: the key that signs; previous: keys that signed before, whose signatures stay valid.
    """

    model: str
    sequence: int
    created: int
    current: PublicKey
    previous: tuple[PublicKey, ...] = ()
    revoked: tuple[Revoked, ...] = ()

    def rotated(self, new: PublicKey, created: int) -> "KeyList":
        """Return the next list, in which `new` signs. Raises UsageError for a key that is in the list already."""
        if new in {self.current, *self.previous, *(revoked.key for revoked in self.revoked)}:
            raise UsageError(f"key {new.key_id} is in the key list already: make a new one")
        return replace(
            self,
            sequence=self.sequence + 1,
            created=created,
            current=new,
            previous=(*self.previous, self.current),
        )

    def without(self, revoked: Revoked) -> "KeyList":
        """Return the next list, in which a previous key is revoked. Raises UsageError for one that is not previous."""
        if revoked.key not in self.previous:
            raise UsageError(
                f"key {revoked.key.key_id} cannot be revoked: it is not among the previous keys of list "
                f"{self.sequence}; a key that signs now must be rotated first"
            )
        return replace(
            self,
            sequence=self.sequence + 1,
            created=revoked.revoked,
            previous=tuple(key for key in self.previous if key != revoked.key),
            revoked=(*self.revoked, revoked),
        )


def seal_keys(keys: KeyList, root: SigningKey) -> bytes:
    """Signed bytes of a list."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "model": keys.model,
        "sequence": keys.sequence,
        "created": keys.created,
        "current": keys.current.raw,
        "previous": [key.raw for key in keys.previous],
        "revoked": [_plain(revoked) for revoked in keys.revoked],
    }
    return seal(KIND, {"keys": pack(fields)}, root)


def open_keys(data: bytes, root: PublicKey) -> KeyList:
    """The list in signed bytes. Raises InvalidRelease unless `root` signed exactly these bytes."""
    parts = unseal(KIND, data, root)
    try:
        fields = unpack(parts["keys"])
        if fields["format"] != FORMAT:
            raise InvalidRelease(f"a key list of format {fields['format']}: this program reads {FORMAT}, update it")
        return KeyList(
            model=str(fields["model"]),
            sequence=int(fields["sequence"]),
            created=int(fields["created"]),
            current=PublicKey(_raw(fields["current"])),
            previous=tuple(PublicKey(_raw(raw)) for raw in fields["previous"]),
            revoked=tuple(_revoked(entry) for entry in fields["revoked"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise InvalidRelease(f"a signed key list has malformed fields ({error}): update this program") from error


@dataclass(slots=True)
class KeyRing:
    """The keys that a reader of `model` believes, which change as newer lists arrive (a Verifier).

    pinned: what its user gave it: the root key, or, as long as no list signed with that arrives, the one key that
    signs. also: keys that are believed without a list, such as a service's own. keys: the newest list.
    """

    pinned: PublicKey
    model: str
    also: tuple[PublicKey, ...] = ()
    keys: KeyList | None = field(default=None)

    @classmethod
    def load(
        cls, source: "KeyRing | PublicKey | str | bytes | Path", model: str, also: Iterable[PublicKey] = ()
    ) -> "KeyRing":
        """A ring from a public key, as `PublicKey.load` takes it; a ring stays as it is."""
        return source if isinstance(source, KeyRing) else cls(PublicKey.load(source), model, tuple(also))

    @property
    def sequence(self) -> int:
        """Number of the newest list, 0 before the first."""
        return 0 if self.keys is None else self.keys.sequence

    def take(self, data: bytes) -> bool:
        """Take in a list; whether it is newer than all before. Raises InvalidRelease unless the pinned key signed it.

        A list of an older number changes nothing, however late it arrives.
        """
        keys = open_keys(data, self.pinned)
        if keys.model != self.model:
            raise InvalidRelease(f"it is the key list of model {keys.model}")
        if keys.sequence <= self.sequence:
            return False
        self.keys = keys
        return True

    def named(self, key_id: str) -> PublicKey:
        """Return a key that is believed. Raises UnknownKey."""
        found = next((key for key in self._known() if key.key_id == key_id), None)
        if found is None:
            raise UnknownKey(f"key {key_id} is not known: give the root key, or a newer key list")
        return found

    @classmethod
    def of_list(cls, pinned: PublicKey, data: bytes) -> "KeyRing":
        """A ring of the keys in a list that `pinned` signed, of whatever model. Raises InvalidRelease."""
        keys = open_keys(data, pinned)
        return cls(pinned, keys.model, keys=keys)

    def verify(self, signature: bytes, message: bytes, key_id: str | None = None) -> str:
        """See Verifier.verify."""
        known = self._known()
        wanted = [key for key in known if key_id in (None, key.key_id)]
        if not wanted:
            raise UnknownKey(self._strange(str(key_id)[:16]))
        for key in wanted[:-1]:
            try:
                return key.verify(signature, message)
            except InvalidRelease:
                continue
        return wanted[-1].verify(signature, message)

    def admit(self, key_id: str, kind: str, number: int, digest: str) -> None:
        """See Verifier.admit."""
        revoked = next((entry for entry in self._revoked() if entry.key.key_id == key_id), None)
        if revoked is None:
            return
        last, head = revoked.receipts
        counts = (kind == "release" and revoked.releases.get(number) == digest) or (
            kind == "receipt" and (number < last or (number, digest) == (last, head))
        )
        if not counts:
            raise InvalidRelease(
                f"{kind} {number} is signed with key {key_id}, which was revoked, and is not from before: do not use it"
            )

    def _strange(self, key_id: str) -> str:
        names = ", ".join(key.key_id for key in self._known())
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
        if self.keys is None:
            return list(dict.fromkeys((self.pinned, *self.also)))
        listed = (self.keys.current, *self.keys.previous, *(revoked.key for revoked in self.keys.revoked))
        return list(dict.fromkeys((*listed, *self.also)))

    def _revoked(self) -> tuple[Revoked, ...]:
        return () if self.keys is None else self.keys.revoked


def _plain(revoked: Revoked) -> dict[str, Any]:
    return {
        "key": revoked.key.raw,
        "releases": {str(version): digest for version, digest in revoked.releases.items()},
        "receipts": list(revoked.receipts),
        "revoked": revoked.revoked,
    }


def _raw(value: object) -> bytes:
    # bytes() of a number would be as many zeros, however many.
    if not isinstance(value, bytes):
        raise TypeError(f"a key is a {type(value).__name__}")
    return value


def _revoked(fields: Mapping[str, Any]) -> Revoked:
    number, head = fields["receipts"]
    releases = {int(version): str(digest) for version, digest in fields["releases"].items()}
    return Revoked(PublicKey(_raw(fields["key"])), releases, (int(number), str(head)), int(fields["revoked"]))
