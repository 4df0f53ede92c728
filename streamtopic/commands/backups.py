"""`streamtopic backup` writes keys and state of a model into one file, `restore` puts them back."""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, file_errors, instance_settings
from streamtopic.console import pass_on, progress, say, say_json, warn
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from typing import IO

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.settings import Settings

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add both commands."""
    saving = command(subparsers, "backup", _backup, "write keys and state of a model into one file")
    saving.add_argument("file", type=Path, metavar="FILE", help="a new file (- for stdout, to be encrypted)")
    putting = command(
        subparsers, "restore", _restore, "put a backup into an empty Redis, then count the log from there on"
    )
    putting.add_argument("file", type=Path, metavar="FILE", help="a file of `backup` (- for stdin)")


def _backup(args: argparse.Namespace) -> int:
    """Write the file and say what it holds."""
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.backup import backup, write_backup

    piped = str(args.file) == "-"
    if piped and sys.stdout.isatty():
        raise UsageError("standard output is a terminal, and a backup holds secret keys: pipe it, or name a file")
    with Service(instance_settings(args)) as service, progress("backing up", "keys", quiet=args.json):
        if piped:
            # A file without a name: an attempt during which the state changed is written again.
            with tempfile.TemporaryFile() as file, file_errors("write", args.file):
                write_backup(service, file)
                file.seek(0)
                pass_on(file)
            return 0
        found = backup(service, args.file)
    told = {"file": str(args.file), "model": found.model, "made": found.made, "documents": found.documents}
    if args.json:
        say_json(told | {"positions": list(found.positions), "keys": sorted(found.keys)})
        return 0
    say(f"{found.documents} documents in {len(found.positions)} partition(s), and {len(found.keys)} key files")
    say(f"written to {args.file}, readable for its owner; it holds secret keys in plain form")
    say(f"it holds deleted documents from {_date(found.made)} on, too: destroy it in time")
    return 0


def _restore(args: argparse.Namespace) -> int:
    """Read the whole file first; then write key files and Redis, and count the log."""
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.backup import contents, restore, restore_keys

    settings = _settings_to_restore(args)
    with _seekable(args.file) as file:
        found = contents(file)
        with file_errors("write keys for", args.file):
            written = restore_keys(settings, found)
        with Service(settings) as service:
            if settings.dir is not None and not service.leads:
                raise UsageError(f"a process runs the instance in {settings.dir}: stop it first")
            with progress("restoring", "records", quiet=args.json) as update:
                made = restore(service, file, found, update)
            _warn_of_foreign_list(service)
    if args.json:
        say_json(dataclasses.asdict(made) | {"keys": [str(path) for path in written]})
        return 0
    say(f"state of {_date(made.made)} restored, {made.records} records of the log counted since")
    say(f"{made.documents} documents, {len(written)} key files written; now run `streamtopic verify`")
    return 0


def _seekable(path: Path) -> IO[bytes]:
    """Open a backup. A pipe is copied into a file without a name, since a restore reads all before it writes."""
    with file_errors("read", path):
        file = sys.stdin.buffer if str(path) == "-" else path.open("rb")
        if file.seekable():
            return file
        with file:
            copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
            shutil.copyfileobj(file, copy)
        return copy


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


def _warn_of_foreign_list(service: Service) -> None:
    """Warn where a backup from before the root key has brought back a key that a list may have revoked since."""
    service.ledger.catch_up()
    if service.ledger.ledger.foreign:
        warn(
            f"{service.names.ledger} holds a key list of a root key that is not known here: before anything is "
            "signed, name root.pub and the newest signing key; `streamtopic doctor` says where"
        )


def _date(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
