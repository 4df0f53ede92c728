"""`streamtopic backup` writes keys and state of a model into one file, `restore` puts them back."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, file_errors, instance_settings
from streamtopic.console import progress, say, say_json, warn
from streamtopic.errors import UsageError
from streamtopic.security.private_files import open_to_others

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.settings import Settings

__all__ = ["register"]

_SHORTEST = 12


def register(subparsers: Subparsers) -> None:
    """Add both commands."""
    saving = command(subparsers, "backup", _backup, "write keys and state of a model into one encrypted file")
    putting = command(
        subparsers, "restore", _restore, "put a backup into an empty Redis, then count the log from there on"
    )
    saving.add_argument("file", type=Path, metavar="FILE", help="a new file")
    putting.add_argument("file", type=Path, metavar="FILE", help="a file of `backup`")
    for parser in (saving, putting):
        parser.add_argument(
            "--passphrase-file",
            type=Path,
            required=True,
            metavar="FILE",
            help="a file with the passphrase, 12 characters or more (- for stdin)",
        )


def _backup(args: argparse.Namespace) -> int:
    """Write the file and say what it holds."""
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.backup import backup

    passphrase = _passphrase(args.passphrase_file)
    with Service(instance_settings(args)) as service, progress("backing up", "keys", quiet=args.json):
        found = backup(service, args.file, passphrase)
    told = {"file": str(args.file), "model": found.model, "made": found.made, "documents": found.documents}
    if args.json:
        say_json(told | {"positions": list(found.positions), "keys": sorted(found.keys)})
        return 0
    say(f"{found.documents} documents in {len(found.positions)} partition(s), and {len(found.keys)} key files")
    say(f"written to {args.file}; it holds deleted documents from {_date(found.made)} on: destroy it in time")
    return 0


def _restore(args: argparse.Namespace) -> int:
    """Read the whole file first; then write key files and Redis, and count the log."""
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.backup import contents, restore, restore_keys

    passphrase = _passphrase(args.passphrase_file)
    settings = _settings_to_restore(args)
    found = contents(args.file, passphrase)
    with file_errors("write keys for", args.file):
        written = restore_keys(settings, found)
    with Service(settings) as service:
        if settings.dir is not None and not service.leads:
            raise UsageError(f"a process runs the instance in {settings.dir}: stop it first")
        with progress("restoring", "records", quiet=args.json) as update:
            made = restore(service, args.file, passphrase, found, update)
        _warn_of_foreign_lists(service)
    if args.json:
        say_json(dataclasses.asdict(made) | {"keys": [str(path) for path in written]})
        return 0
    say(f"state of {_date(made.made)} restored, {made.records} records of the log counted since")
    say(f"{made.documents} documents, {len(written)} key files written; now run `streamtopic verify`")
    return 0


def _settings_to_restore(args: argparse.Namespace) -> Settings:
    """Return the settings. Raises UsageError for an instance in a folder whose log is not there."""
    settings = instance_settings(args, must_exist=False)
    if settings.dir is None or settings.kafka is not None:
        return instance_settings(args)
    # Opening the folder would make an empty log, and keys that nobody knows.
    topic = settings.dir / "log" / f"{settings.model}.documents"
    if not topic.exists():
        raise UsageError(
            f"{topic} is not there, and a restore counts its records: bring the folder's log/ and streamtopic.toml "
            "back first"
        )
    return settings


def _warn_of_foreign_lists(service: Service) -> None:
    """Warn where a backup from before the root key has brought back a key that a list may have revoked since."""
    from streamtopic.signed import foreign_key_lists

    if foreign_key_lists(service.log, service.settings.model, service.keys):
        warn(
            f"{service.names.releases} holds key lists of a root key that is not known here: before anything is "
            "signed, name root.pub and the newest signing key; `streamtopic doctor` says where"
        )


def _date(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _passphrase(path: Path) -> bytes:
    """Return the passphrase in a file, without the end of its line.

    Raises UsageError for a short one, one of several lines, and a file that is open to others.
    """
    with file_errors("read", path):
        if str(path) == "-":
            # Somebody who types ends with the line; a pipe is read to its end, to see whether there are more lines.
            found = sys.stdin.buffer.readline() if sys.stdin.isatty() else sys.stdin.buffer.read()
        else:
            if open_to_others(path):
                raise UsageError(f"passphrase {path} can be read by others: run `chmod 600 {path}`")
            found = path.read_bytes()
    passphrase = found.strip()
    # A script that takes the first line, and one that takes all, would make two passphrases of it.
    if b"\n" in passphrase:
        raise UsageError(f"the passphrase in {path} has several lines: use one")
    if len(passphrase) < _SHORTEST:
        raise UsageError(f"the passphrase has {len(passphrase)} characters: use {_SHORTEST} or more")
    return passphrase
