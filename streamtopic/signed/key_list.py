"""A ledger's signing keys over time, in a list that only the root key signs.

The root key stays offline: it signs nothing but lists. A reader who has its public half learns from the newest list
which key signs now, which keys signed before, and which keys a thief may have. A list is a signed note of two lines:
`streamtopic keys`, and the KeyList as canonical JSON.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidRelease, SettingsError, UnknownKey, UsageError
from streamtopic.signed.canonical import KeyText, parse, write
from streamtopic.signed.signing_keys import PublicKey, SigningKey, open_note, read_note, sign_note

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KeyList", "KeyRing", "Revoked", "check_origin", "open_keys", "seal_keys"]

_TITLE = "streamtopic keys\n"


@dataclass(frozen=True, slots=True)
class Revoked:
    """A key that no longer counts, and the entries that were signed with it and do not count.

    key: the revoked key.
    first: index of the first entry that does not count.
    size: entries that the ledger had when the key was revoked; those from `first` up to here are void.
    revoked: milliseconds since 1970.
    """

    key: KeyText
    first: int
    size: int
    revoked: int


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
    sequence: int
    created: int
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
    def load(cls, source: "KeyRing | PublicKey | str | Path", model: str, also: Iterable[PublicKey] = ()) -> "KeyRing":
        """Return a ring of a public key, in any form that `PublicKey.load` takes; a ring is returned as it is."""
        if isinstance(source, KeyRing):
            return source
        pinned = PublicKey.load(source)
        return cls(pinned, model, tuple(also))

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

    def open(self, note: str, size: int | None = None) -> tuple[str, PublicKey]:
        """Return the text of a note of the ledger and the key that signed it.

        size: entries of the tree that the note signs, if its place in the topic vouches for it: what a revoked key
            had signed before stays in the tree. None for a note that is alone.

        Raises InvalidRelease, and UnknownKey if no key that counts has signed it.
        """
        before = [one.key for one in self.revoked if size is not None and size <= one.size]
        try:
            return open_note(note, (*self.trusted, *before))
        except UnknownKey as error:
            named = [(name, key_id) for name, key_id, _ in read_note(note).signatures]
            if any((one.key.name, one.key.hash) in named for one in self.revoked):
                raise UnknownKey(f"{error}; its key was revoked: do not use this, and ask for a newer proof") from None
            raise
