"""`streamtopic receipts`: take the receipts elsewhere, and check them there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings, verifier_of
from streamtopic.console import say, say_json, warn
from streamtopic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.signed import Audit

__all__ = ["register", "run"]

SHOWN = 10


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "receipts", run, "export all receipts, or verify an exported file offline")
    parser.add_argument("action", choices=["export", "verify"], help="what to do")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="verify: the file that `export` wrote")
    parser.add_argument("--to", type=Path, metavar="FILE", help="export: where to write one JSON object a line")
    parser.add_argument("--public-key", metavar="KEY", help="verify: signing.pub, or the key in hexadecimal digits")
    parser.add_argument("--key-list", type=Path, metavar="FILE", help="verify: keys.list, with root.pub as public key")
    parser.add_argument(
        "--head", metavar="DIGEST", help="verify: digest of the newest receipt, as `export` printed it at the time"
    )


def run(args: argparse.Namespace) -> int:
    """Export or verify; status 1 where a receipt is forged, missing or competes with another."""
    return _export(args) if args.action == "export" else _verify(args)


def _export(args: argparse.Namespace) -> int:
    from streamtopic.service.assembly import Parts
    from streamtopic.signed import ReceiptReader, export_line

    if args.to is None:
        raise UsageError("where to? give --to FILE")
    with Parts(instance_settings(args)) as parts:
        reader = ReceiptReader(parts.log, parts.settings.model, parts.keys)
        count = sum(1 for _ in reader.read())
        try:
            with args.to.open("w", encoding="ascii") as file:
                file.writelines(export_line(receipt, r.value or b"") + "\n" for receipt, r in reader.records())
        except OSError as error:
            raise UsageError(f"cannot write {args.to}: {error.strerror}") from None
    head = reader.chain.head
    if args.json:
        fields = {"file": str(args.to), "receipts": count, "last": head.sequence, "head": head.digest}
        say_json(fields | {"skipped": reader.skipped})
    else:
        say(f"{count} receipts written to {args.to}; number {head.sequence} has digest {head.digest or '-'}")
        if reader.skipped:
            warn(f"{reader.skipped} records of the topic are not receipts signed by this key and were passed over")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from streamtopic.signed import audit

    if args.file is None:
        raise UsageError("which file? give one that `streamtopic receipts export` wrote")
    key = verifier_of(args)
    try:
        with args.file.open(encoding="utf-8") as lines:
            found = audit(lines, key)
    except OSError as error:
        raise UsageError(f"cannot read {args.file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{args.file} is not a file of exported receipts") from None
    return _report(found, args)


def _report(found: Audit, args: argparse.Namespace) -> int:
    problems = [*found.problems]
    if args.head is not None and args.head != found.head:
        problems.append((0, "the newest receipt is not the one that --head names: receipts are missing at the end"))
    if args.json:
        listed = [{"line": line, "problem": problem} for line, problem in problems]
        fields: dict[str, object] = {
            "receipts": found.receipts,
            "completions": found.completions,
            "completed": found.completed,
        }
        fields |= {"first": found.first, "last": found.last, "head": found.head}
        say_json({"passed": not problems, **fields, "problems": listed})
        return 1 if problems else 0
    for line, problem in problems[:SHOWN]:
        say(f"FAIL  {f'line {line}: ' if line else ''}{problem}")
    if problems:
        raise CheckFailed(f"{args.file}: {len(problems)} problems in {found.receipts} receipts")
    say(
        f"ok    {found.receipts} receipts, signed by key {args.public_key}, {found.first} to {found.last} without a gap"
    )
    say(f"ok    {found.completions} completions: nothing is left of {found.completed} deletions")
    return 0
