"""Make key lists of a model, sign them with the root key, and write them to its ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamtopic.errors import StateError, StateMismatch, UsageError
from streamtopic.service.instance import missing_key
from streamtopic.service.publish.ledger_writer import LedgerWriter
from streamtopic.signed import KeyList, KeyRing, Keys, PublicKey, Revoked, SigningKey, seal_keys
from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamtopic.state import Connection
    from streamtopic.streams import EventLog

__all__ = ["KeyKeeper", "new_pair", "replace_signing_key"]

# A running service writes pages at the same time: the list is then signed again for a longer ledger.
_ATTEMPTS = 20


@dataclass(slots=True)
class KeyKeeper:
    """Changes the key list of a model. Each change is written to the ledger, and may be repeated after any error.

    model: its name.
    log: of the service.
    connection: to its Redis.
    signing: the service's signing key; None if this machine does not have it.
    clock: seconds since 1970.
    root: signs key lists and nothing else, so it can stay offline.
    file: keeps the note of the list, for readers offline.
    """

    model: str
    log: EventLog
    connection: Connection
    signing: SigningKey | None
    clock: Callable[[], float]
    root: SigningKey
    file: Path
    _ring: KeyRing = field(init=False)
    _present: LedgerWriter = field(init=False)

    def __post_init__(self) -> None:
        """Read the ledger to its end. Raises UsageError if there is no ledger."""
        topic = TopicNames(self.model).ledger
        if not self.log.partitions(topic):
            raise UsageError(f"topic {topic} does not exist: create it with `streamtopic init`")
        # A lost key can be replaced on a machine that has the root key only.
        own = self.signing
        # The service's own key counts too, as it does before the first list.
        self._ring = KeyRing(self.root.public, self.model, () if own is None else (own.public,))
        self._present = self._writer(own)
        self._present.catch_up()

    @property
    def name(self) -> str:
        """The name of the ledger, which each of its keys bears."""
        return (self._ring.keys or self._first()).origin

    def rotate(self, new: SigningKey) -> KeyList:
        """Write the next list, or the first one, in which `new` signs. It signs the page, too, if not the first.

        A service that runs knows no list yet: it goes on after a page that its own key has signed.
        """
        key = self._own() if self._ring.keys is None else new
        return self._append(lambda _: (self._ring.keys or self._first()).rotated(new.public, self._now()), key)

    def revoke(self, key_id: str, first: int | None = None) -> KeyList:
        """Write the next list, in which a previous key is revoked.

        key_id: of the key.
        first: index of the first entry that does not count any more; None if all that it has count.

        Raises UsageError for a key that is not in the list, and if the service does not sign with the present key.
        """
        there = self._ring.keys
        if there is None:
            raise UsageError("there is no key list yet: `streamtopic keys rotate` makes the first")
        revoked = next((key for key in there.trusted if key.key_id == key_id), None)
        if revoked is None:
            names = ", ".join(key.key_id for key in there.previous) or "none"
            raise UsageError(f"key {key_id} is not in list {there.sequence}: its previous keys are {names}")
        key = self._own()
        if key.public != there.current:
            raise UsageError(
                f"key {key.public.key_id} does not sign any more: put that of key {there.current.key_id} in the "
                "place of signing.key"
            )

        def without(size: int) -> KeyList:
            return there.without(Revoked(revoked, size if first is None else min(first, size), size, self._now()))

        return self._append(without, key)

    def _append(self, change: Callable[[int], KeyList], key: SigningKey) -> KeyList:
        """Write a list to the ledger and to the file; return it.

        change: the number of entries before it to the list. What a revoked key signs after them does not count.
        key: signs the page.

        Raises StateError if other writers are always faster, ComponentUnreachable.
        """
        writer = self._writer(key)
        for _ in range(_ATTEMPTS):
            self._present.catch_up()
            # A draft of a service that was killed: a new key may not sign it.
            self._present.complete()
            writer.catch_up()
            keys = change(writer.ledger.size)
            note = seal_keys(keys, self.root)
            try:
                done = writer.append([Keys(note)])
            except StateMismatch:
                raise
            except StateError:
                # The service has begun a page since, which a new key may not sign.
                done = False
            if done:
                self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.file.write_text(note, encoding="utf-8")
                return keys
        raise StateError(f"the service was faster {_ATTEMPTS} times: stop `streamtopic schedule`, and run this again")

    def _own(self) -> SigningKey:
        """Return the service's signing key. Raises SettingsError if it is not here."""
        if self.signing is None:
            raise missing_key("signing.key")
        return self.signing

    def _first(self) -> KeyList:
        key = self._own()
        return KeyList(key.name, 1, self._now(), key.public)

    def _writer(self, key: SigningKey | None) -> LedgerWriter:
        return LedgerWriter(self.connection, self.log, self.model, self._ring, key)

    def _now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self.clock() * 1000)


def replace_signing_key(private: Path, new: Path) -> None:
    """Put a new pair in the place of the one that signs. The old pair stays in its folder, under its key id.

    private, new: private halves; a public half lies next to each. The old pair may be lost.
    """
    public = private.with_suffix(".pub")
    # The old pair, or what is left of it, is kept: it signed a part of the ledger.
    if private.exists():
        private.rename(private.with_name(f"signing-{SigningKey.load(private).public.key_id}.key"))
    if public.exists():
        public.rename(public.with_name(f"signing-{PublicKey.load(public).key_id}.pub"))
    new.rename(private)
    new.with_suffix(".pub").rename(public)


def new_pair(folder: Path, name: str) -> Path:
    """Make a signing key pair under its key id; return the path of its private half. name: origin of the ledger."""
    key = SigningKey.generate(name)
    private = folder / f"signing-{key.public.key_id}.key"
    key.save(private)
    return private
