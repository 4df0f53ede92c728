"""`streamtopic keys`: make the keys of a service, and change the signing key while subscribers run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    answer,
    command,
    instance_settings,
    open_instance,
    option,
    settings_of,
)
from streamtopic.console import aligned
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.settings import Settings
    from streamtopic.signed import KeyList, PublicKey

__all__ = ["COMMANDS"]

_LIST = "keys.list"
# Files of each set of new keys, with what to do with them.
_NEW = {
    "new": {
        "private": ("signing.key", "keep it secret"),
        "public": ("signing.pub", "give it to subscribers"),
        "noise": ("noise.key", "keep it secret, with a backup"),
        "receipt": ("receipt.key", "keep it secret"),
    },
    "root": {
        "private": ("root.key", "keep it offline; `keys rotate` and `revoke` take it"),
        "public": ("root.pub", "give it to subscribers in place of signing.pub"),
    },
    "suppression": {
        "suppression": (
            "suppression.key",
            "keep it secret, with a backup; every `ingest` then needs it in its folder of keys",
        ),
    },
}


@command(
    option(
        "new|rotate|revoke|suppression",
        "new: the keys of a service; rotate: replace the one that signs, and publish the list of those that did; "
        "revoke: declare one stolen; suppression: the key by which ids are suppressed",
    ),
    option("KEY_ID", "revoke: id of the key, as `keys rotate` printed it", nargs="?"),
    option("--to FOLDER", "where to write (default: the folder of the setting keys, else keys)"),
    option("--root", "new: make a root key pair, which signs key lists, instead"),
    option(
        "--name NAME",
        "new: name of the ledger, which ends in the model's: example.org/news (default: streamtopic/MODEL)",
    ),
    option("--root-key FILE", "rotate, revoke: root.key"),
    option(
        "--from INDEX", "revoke: first entry of the ledger that does not count any more (default: none)", dest="first"
    ),
)
def _keys(args: argparse.Namespace) -> int:
    """Make the keys of a service; replace or revoke those that sign.

    No key file is ever overwritten.
    """
    if args.action in _NEW:
        return _new(args)
    if args.root_key is None:
        raise UsageError(f"keys {args.action} signs a key list: give --root-key root.key (`keys new --root` makes one)")
    if (args.action == "revoke") != (args.key_id is not None):
        raise UsageError("give a key id with `keys revoke`, and with nothing else")
    from streamtopic.service.assembly import publisher_of
    from streamtopic.service.instance import held_signing_key
    from streamtopic.service.leading import publish
    from streamtopic.service.upkeep.key_lists import KeyKeeper, new_pair
    from streamtopic.signed import SigningKey

    root = SigningKey.load(args.root_key)
    with open_instance(args) as service:
        settings = service.settings
        folder = _folder(args, settings)
        listed, own = folder / _LIST, held_signing_key(settings)
        keeper = KeyKeeper(settings.model, service.log, service.connection, own, service.clock, root, listed)
        made = None
        if args.action == "rotate":
            made = new_pair(folder, keeper.name)
            keys = keeper.rotate(SigningKey.load(made))
        else:
            keys = keeper.revoke(args.key_id, args.first)
        # The list goes out before the new key is put to use: a crash between the two leaves a key that no signature
        # needs, and not signatures of a key that no list names.
        signing = _take_into_use(folder, root.public, made)
        # Versions that a revoked key proved need new proofs; a service that runs makes them by itself.
        if args.action == "revoke" and service.leads:
            publish(publisher_of(service, service.state, service.ledger))
    return _tell(args, keys, listed, signing)


def _folder(args: argparse.Namespace, settings: Settings) -> Path:
    """Return where keys are written."""
    return Path(args.to or settings.key_folder or "keys")


def _take_into_use(folder: Path, root: PublicKey, made: Path | None) -> Path | None:
    """Put the root key and a new signing key into a folder of keys; return the file of the new key, None without one.

    made: private half of the new key, None if the signing key stays.
    """
    from streamtopic.service.upkeep.key_lists import replace_signing_key

    if not (folder / "root.pub").exists():
        (folder / "root.pub").write_text(f"{root}\n", encoding="ascii")
    if made is None:
        return None
    replace_signing_key(folder / "signing.key", made)
    return folder / "signing.key"


def _tell(args: argparse.Namespace, keys: KeyList, file: Path, signing: Path | None) -> int:
    found: dict[str, Any] = {
        "list": str(file),
        "sequence": keys.sequence,
        "current": keys.current.key_id,
        "previous": [key.key_id for key in keys.previous],
        "revoked": [revoked.key.key_id for revoked in keys.revoked],
        "private": None if signing is None else str(signing),
    }
    lines = aligned(found)
    if args.first is not None:
        lines.append(
            f"entries from {args.first} on are void: `streamtopic rebuild` lets their deletions get receipts again"
        )
    if signing is not None:
        lines.append("start `schedule` or `run` again: they sign with the new key then")
    return answer(args, found, *lines)


def _new(args: argparse.Namespace) -> int:
    """Write new keys, secret ones for their owner alone. Raises UsageError if a file is there already."""
    from streamtopic.signed import SigningKey, new_secret

    kind = "root" if args.root else args.action
    # Checked, so that a mistyped folder does not become one of an instance.
    settings = settings_of(args) if args.dir is None else instance_settings(args)
    folder = _folder(args, settings)
    files = {name: folder / file for name, (file, _) in _NEW[kind].items()}
    # All are looked at before any is written: a noise key that is lost cannot draw a version again, and half a set of
    # new keys would go with half a set of old ones.
    for path in files.values():
        if path.exists():
            raise UsageError(f"{path} is there already: choose another folder with --to")
    found = {name: str(path) for name, path in files.items()}
    shown: dict[str, object] = {name: f"{files[name]}  ({about})" for name, (_, about) in _NEW[kind].items()}
    if "private" in files:
        name = args.name or f"streamtopic/{settings.model}"
        key = SigningKey.generate(f"{name}/root" if args.root else name)
        key.save(files.pop("private"))
        del files["public"]
        found |= {"name": key.name, "key_id": key.public.key_id}
        shown["key"] = key.public
    for path in files.values():
        new_secret(path)
    return answer(args, found, *aligned(shown))


COMMANDS = (_keys,)
