"""`streamtopic delete-model` ends the ledger of a model and deletes all else of it, and checks proofs of such ends."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import add_key, command, file_errors, instance_settings, verifier_of
from streamtopic.console import instant, progress, say, say_json, warn
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.settings import Settings
    from streamtopic.signed import End

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = command(subparsers, "delete-model", _run, "delete a whole model with a proof of its end, or check one")
    parser.add_argument("file", type=Path, metavar="FILE", help="a new file for the proof")
    parser.add_argument("--yes", action="store_true", help="do not ask for the model's name")
    parser.add_argument(
        "--keep-ledger",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the topic of the ledger stays, with the end as its last entry: it is evidence (default: yes)",
    )
    parser.add_argument("--keep-keys", action="store_true", help="leave the key files, as where other models use them")
    parser.add_argument("--verify", action="store_true", help="only check the proof in FILE; it deletes nothing")
    add_key(parser, prefix="verify: ")


def _run(args: argparse.Namespace) -> int:
    """Delete the model, or check the proof."""
    if args.verify:
        return _verify(args)
    from streamtopic.service.app import Service
    from streamtopic.service.upkeep.model_removal import facts_of, only_keys_left, remove, remove_files

    settings = instance_settings(args)
    told: dict[str, Any] = {"model": settings.model, "proof": str(args.file)}
    if not only_keys_left(settings, args.file):
        with Service(settings) as service:
            end = facts_of(service, keep_ledger=args.keep_ledger)
            if not args.yes:
                _ask(settings.model, end, as_json=args.json)
            with file_errors("write", args.file), progress("removing", "keys", quiet=args.json) as update:
                done = remove(service, args.file, end, update)
        told |= dataclasses.asdict(done)
    with file_errors("remove the files of", settings.dir or args.file):
        files = remove_files(settings, keep_keys=args.keep_keys)
    told["files"] = [str(path) for path in files]
    if args.json:
        say_json(told)
    else:
        _tell(settings, told, args.file)
    return 0


def _ask(model: str, end: End, *, as_json: bool) -> None:
    """Ask for the model's name. Raises UsageError for another answer, and where nobody can be asked."""
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


def _tell(settings: Settings, told: dict[str, Any], proof: Path) -> None:
    """Print what was removed, and what is left to do. proof: the file that proves the end."""
    if "topics" in told:
        say(f"removed {', '.join(told['topics'])}, and {told['redis_keys']} keys of Redis")
    for name in told["files"]:
        say(f"removed {name}")
    say(f"{proof} proves the end of {settings.model}: keep it, with the public key and the ledger")
    if settings.redis_url is not None:
        say("Redis's append-only file holds the model until it is written anew: `redis-cli BGREWRITEAOF`, on each node")
    say("backups of Redis, of Kafka and of the keys hold the model too: destroy them")


def _verify(args: argparse.Namespace) -> int:
    from streamtopic.service.upkeep.model_removal import end_in

    keys = verifier_of(args)
    with file_errors("read", args.file):
        proof, end = end_in(args.file, keys)
    if args.json:
        say_json({"passed": True, "model": keys.model, "index": proof.index, **dataclasses.asdict(end)})
        return 0
    say(f"ok    model {keys.model} was deleted at {instant(end.made)}, says the holder of the key")
    say(f"ok    it had {end.documents} documents; its last version was {end.version}")
    say(f"ok    its ledger ends with entry {proof.index}")
    if end.waiting:
        say(f"      {end.waiting} deletions had no receipt yet")
    return 0
