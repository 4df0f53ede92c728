"""Make key lists of a model, sign them with the root key, and publish them in the releases topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.signed import (
    KeyList,
    KeyRing,
    ReceiptReader,
    ReleaseReader,
    Revoked,
    SigningKey,
    digest_of,
    follow_keys,
    keys_message,
    new_signing_key,
    seal_keys,
)

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.service.assembly import Parts
    from streamtopic.signed import PublicKey

__all__ = ["KeyKeeper", "new_pair", "replace_signing_key"]


@dataclass(slots=True)
class KeyKeeper:
    """Changes the key list of a model.

    parts: log, settings and signing key of the service.
    root: signs key lists and nothing else, so it can stay offline.
    """

    parts: Parts
    root: SigningKey

    def present(self) -> KeyList | None:
        """Return the newest list in the topic, None before the first. Raises UsageError without a releases topic."""
        parts = self.parts
        if not parts.log.partitions(parts.names.releases):
            raise UsageError(f"topic {parts.names.releases} does not exist: create it with `streamtopic init`")
        # Without the service's own key: only lists that this root key signed count.
        keys = KeyRing(self.root.public, parts.settings.model)
        follow_keys(parts.log, parts.settings.model, keys)
        return keys.keys

    def first(self) -> KeyList:
        """Return the first list, with the service's present signing key. Raises UsageError where there is a list."""
        if (there := self.present()) is not None:
            raise UsageError(
                f"key list {there.sequence} exists already: `streamtopic keys rotate` and `revoke` change it"
            )
        return KeyList(self.parts.settings.model, 1, self._now(), self.parts.signing_key.public)

    def rotated(self, new: PublicKey) -> KeyList:
        """Return the next list, in which `new` signs."""
        return (self.present() or self.first()).rotated(new, self._now())

    def revoked(self, key_id: str, *, version: int | None = None, receipt: int | None = None) -> KeyList:
        """Return the next list, in which a previous key is revoked.

        key_id: of the key.
        version, receipt: numbers of the last release and the last receipt of this key that still count, None for all
            that the topics hold now.

        Raises UsageError for a key that is not in the list, InvalidRelease where the receipt is not in the topic.
        """
        there = self.present()
        if there is None:
            raise UsageError("there is no key list yet: `streamtopic keys publish` makes the first")
        known = (there.current, *there.previous)
        key = next((key for key in known if key.key_id == key_id), None)
        if key is None:
            names = ", ".join(key.key_id for key in there.previous) or "none"
            raise UsageError(f"key {key_id} is not in list {there.sequence}: its previous keys are {names}")
        keys = KeyRing(self.root.public, there.model, keys=there)
        releases = self._releases(keys, key_id, version)
        return there.without(Revoked(key, releases, self._receipts(keys, receipt), self._now()))

    def publish(self, keys: KeyList, file: Path | None = None) -> bytes:
        """Sign a list, publish it, and write it to a file; return its bytes."""
        data = seal_keys(keys, self.root)
        self.parts.log.append_many(self.parts.names.releases, [keys_message(data)])
        if file is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_bytes(data)
        return data

    def _releases(self, keys: KeyRing, key_id: str, last: int | None) -> dict[int, str]:
        """Return the versions that a key signed, up to `last`, with their digests."""
        reader = ReleaseReader(self.parts.log, keys.model, keys)
        reader.catch_up()
        # Digests, since a thief could sign other bytes under the same numbers.
        signed = reader.signed_with(key_id)
        return {version: digest for version, digest in signed.items() if last is None or version <= last}

    def _receipts(self, keys: KeyRing, last: int | None) -> tuple[int, str]:
        """Return number and digest of the last receipt that still counts."""
        reader = ReceiptReader(self.parts.log, keys.model, keys)
        reader.catch_up()
        head = reader.chain.head
        if last is None or last >= head.sequence:
            return head.sequence, head.digest
        for receipt, record in reader.records():
            if receipt.sequence == last:
                return last, digest_of(record.value or b"")
        # 0: not one of the key's receipts counts. The chain before the first has no digest.
        if last == 0:
            return 0, ""
        raise InvalidRelease(f"receipt {last} is not in the topic, so its digest is not known: name another")

    def _now(self) -> int:
        """Return milliseconds since 1970."""
        return int(self.parts.clock() * 1000)


def replace_signing_key(private: Path, public: Path, new: Path) -> None:
    """Put a new pair in the place of an instance's own. The old pair stays beside it, under its key id.

    private, public: the instance's own pair.
    new: the private half of the new pair; its public half lies beside it, with the ending `.pub`.
    """
    # The old pair is kept: releases and receipts that it signed still verify with it.
    old = SigningKey.load(private).public.key_id
    private.rename(private.with_name(f"signing-{old}.pem"))
    public.rename(public.with_name(f"signing-{old}.pub"))
    new.rename(private)
    new.with_suffix(".pub").rename(public)


def new_pair(folder: Path) -> Path:
    """Make a signing key pair under its key id; return the path of its private half."""
    # The id is known only once the key is made: a pair that a crash left under this name was never in use.
    made = folder / "signing-new.pem"
    made.unlink(missing_ok=True)
    made.with_suffix(".pub").unlink(missing_ok=True)
    key_id = new_signing_key(made, made.with_suffix(".pub"))
    private = folder / f"signing-{key_id}.pem"
    made.with_suffix(".pub").rename(private.with_suffix(".pub"))
    return made.rename(private)
