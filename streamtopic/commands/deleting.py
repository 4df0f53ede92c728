"""`streamtopic delete-model` ends the ledger of a model, and deletes all else of it."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import answer, command, file_errors, instance_settings
from streamtopic.console import progress, warn
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.settings import Settings
    from streamtopic.signed import End

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "delete-model", _run, "delete a whole model, and write a proof of its end")
    parser.add_argument("file", type=Path, metavar="FILE", help="a new file for the proof")
    parser.add_argument("--yes", action="store_true", help="do not ask for the model's name")
    parser.add_argument(
        "--keep-ledger",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the topic of the ledger stays, with the end as its last entry: it is evidence (default: yes)",
    )
    parser.add_argument("--keep-keys", action="store_true", help="leave the key files, as where other models use them")


def _run(args: argparse.Namespace) -> int:
    """Delete the model, and prove its end."""
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.model_removal import only_keys_left, remove_files

    settings = instance_settings(args)
    told: dict[str, Any] = {"model": settings.model, "proof": str(args.file)}
    if not only_keys_left(settings, args.file):
        with Service(settings) as service:
            end = service.end(keep_ledger=args.keep_ledger)
            if not args.yes:
                _ask(settings.model, end, as_json=args.json)
            with file_errors("write", args.file), progress("removing", "keys", quiet=args.json) as update:
                done = service.remove(args.file, end, update)
        told |= dataclasses.asdict(done)
    with file_errors("remove the files of", settings.dir or args.file):
        files = remove_files(settings, keep_keys=args.keep_keys)
    told["files"] = [str(path) for path in files]
    return answer(args, told, *_removed(settings, told, args.file))


def _ask(model: str, end: End, *, as_json: bool) -> None:
    """Ask for the model's name. Raises UsageError for another answer, and if nobody can be asked."""
    if as_json or not sys.stdin.isatty():
        raise UsageError(f"this deletes model {model} for good: repeat it with --yes")
    warn(f"this deletes model {model} for good: {end.documents} documents, version {end.version}")
    if end.waiting:
        warn(
            f"{end.waiting} deletions have no receipt yet, and will get none: `streamtopic unlearn` makes them; "
            "`streamtopic deletions list` shows requests that wait"
        )
    warn("type the model's name to go on:")
    if sys.stdin.readline().strip() != model:
        raise UsageError("that is not the model's name: nothing was deleted")


def _removed(settings: Settings, told: dict[str, Any], proof: Path) -> Iterator[str]:
    """Say what was removed, and what is left to do. proof: the file that proves the end."""
    if "topics" in told:
        yield f"removed {', '.join(told['topics'])}, and {told['redis_keys']} keys of Redis"
    for name in told["files"]:
        yield f"removed {name}"
    yield f"{proof} proves the end of {settings.model}: keep it, with the public key and the ledger"
    if settings.redis_url is not None:
        yield "Redis's append-only file holds the model until it is rewritten: `redis-cli BGREWRITEAOF`, on each node"
    yield "backups of Redis, of Kafka and of the keys hold the model too: destroy them"
