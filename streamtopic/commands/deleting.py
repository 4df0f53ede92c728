"""`streamtopic delete-model` deletes a whole model, with a last signed statement, and checks such statements."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, file_errors, instance_settings, verifier_of
from streamtopic.console import instant, progress, say, say_json, warn
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.settings import Settings
    from streamtopic.signed import ModelDeletion

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(
        subparsers, "delete-model", _run, "delete a whole model with a last signed statement, or check one"
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="a new file for the last signed statement")
    parser.add_argument("--yes", action="store_true", help="do not ask for the model's name")
    parser.add_argument(
        "--keep-receipts",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the receipts topic stays, with the statement at its end: both are evidence (default: it stays)",
    )
    parser.add_argument("--keep-keys", action="store_true", help="leave the key files, as where other models use them")
    parser.add_argument("--verify", action="store_true", help="only check the statement in FILE; it deletes nothing")
    parser.add_argument("--public-key", metavar="KEY", help="verify: signing.pub, or the key in hexadecimal digits")
    parser.add_argument("--key-list", type=Path, metavar="FILE", help="verify: keys.list, with root.pub as public key")


def _run(args: argparse.Namespace) -> int:
    """Delete the model, or check the statement."""
    if args.verify:
        return _verify(args)
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.model_removal import facts_of, only_keys_left, remove, remove_files

    settings = instance_settings(args)
    told: dict[str, Any] = {"model": settings.model, "statement": str(args.file)}
    if not only_keys_left(settings, args.file):
        with Service(settings) as service:
            deletion = facts_of(service, keep_receipts=args.keep_receipts)
            if not args.yes:
                _ask(deletion, as_json=args.json)
            with file_errors("write", args.file), progress("removing", "keys", quiet=args.json) as update:
                done = remove(service, args.file, deletion, update)
        told |= dataclasses.asdict(done)
    with file_errors("remove the files of", settings.dir or args.file):
        files = remove_files(settings, keep_keys=args.keep_keys)
    told["files"] = [str(path) for path in files]
    if args.json:
        say_json(told)
    else:
        _tell(settings, told, args.file)
    return 0


def _ask(deletion: ModelDeletion, *, as_json: bool) -> None:
    """Ask for the model's name. Raises UsageError for another answer, and where nobody can be asked."""
    if as_json or not sys.stdin.isatty():
        raise UsageError(f"this deletes model {deletion.model} for good: repeat it with --yes")
    warn(f"this deletes model {deletion.model} for good: {deletion.documents} documents, version {deletion.version}")
    if deletion.waiting:
        warn(
            f"{deletion.waiting} deletions have no receipt yet, and will get none: `streamtopic unlearn` makes them; "
            "`streamtopic deletions list` shows requests that wait"
        )
    warn("type the model's name to go on:")
    if sys.stdin.readline().strip() != deletion.model:
        raise UsageError("that is not the model's name: nothing was deleted")


def _tell(settings: Settings, told: dict[str, Any], statement: Path) -> None:
    """Print what was removed, and what is left to do. statement: the file with the last statement."""
    if "topics" in told:
        say(f"removed {', '.join(told['topics'])}, and {told['redis_keys']} keys of Redis")
    for name in told["files"]:
        say(f"removed {name}")
    say(f"{statement} is the last statement of {settings.model}: keep it, with the public key and the receipts")
    if settings.redis_url is not None:
        say("Redis's append-only file holds the model until it is written anew: `redis-cli BGREWRITEAOF`, on each node")
    say("backups of Redis, of Kafka and of `streamtopic backup` hold the model too: destroy them")


def _verify(args: argparse.Namespace) -> int:
    from streamtopic.signed import open_deletion_line

    key = verifier_of(args)
    try:
        with file_errors("read", args.file):
            statement = open_deletion_line(args.file.read_text(encoding="utf-8"), key)
    except UnicodeDecodeError:
        raise UsageError(f"{args.file} is not a statement: give a file that `streamtopic delete-model` wrote") from None
    if args.json:
        say_json({"passed": True} | dataclasses.asdict(statement))
        return 0
    say(f"ok    model {statement.model} was deleted at {instant(statement.made)}, says the holder of the key")
    say(f"ok    it had {statement.documents} documents; its last version was {statement.version} {statement.digest}")
    head = statement.head or "-"
    say(f"ok    its last receipt was number {statement.receipts}: check receipts with --head {head}")
    if statement.waiting:
        say(f"      {statement.waiting} deletions had no receipt yet")
    return 0
