"""`streamtopic receipts`: take the receipts elsewhere, and check them there."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.options import command, instance_settings, settings_of
from streamtopic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from streamtopic.commands.options import Subparsers
    from streamtopic.receipts import Audit

__all__ = ["register", "run"]

SHOWN = 10


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "receipts", run, "export all receipts, or verify an exported file offline")
    parser.add_argument("action", choices=["export", "verify"], help="what to do")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="verify: the file that `export` wrote")
    parser.add_argument("--to", type=Path, metavar="FILE", help="export: where to write one JSON object a line")
    parser.add_argument("--public-key", metavar="KEY", help="verify: signing.pub, or the key in hexadecimal digits")
    parser.add_argument(
        "--head", metavar="DIGEST", help="verify: digest of the newest receipt, as `export` printed it at the time"
    )


def run(args: argparse.Namespace) -> int:
    """Export or verify; status 1 where a receipt is forged, missing or competes with another."""
    return _export(args) if args.action == "export" else _verify(args)


def _export(args: argparse.Namespace) -> int:
    from streamtopic.receipts import ReceiptReader, export_line
    from streamtopic.service.parts import Parts

    if args.to is None:
        raise UsageError("where to? give --to FILE")
    with Parts(instance_settings(args)) as parts:
        reader = ReceiptReader(parts.log, parts.settings.model, parts.public_key)
        count = sum(1 for _ in reader.read())
        try:
            with args.to.open("w", encoding="ascii") as file:
                file.writelines(export_line(receipt, r.value or b"") + "\n" for receipt, r in reader.records())
        except OSError as error:
            raise UsageError(f"cannot write {args.to}: {error.strerror}") from None
    head = reader.chain.head
    if args.json:
        print(json.dumps({"file": str(args.to), "receipts": count, "last": head.sequence, "head": head.digest}))
    else:
        print(f"{count} receipts written to {args.to}; number {head.sequence} has digest {head.digest or '-'}")
    return 0


def _verify(args: argparse.Namespace) -> int:
    from streamtopic.receipts import audit
    from streamtopic.signing import PublicKey

    if args.file is None:
        raise UsageError("which file? give one that `streamtopic receipts export` wrote")
    source = args.public_key or settings_of(args).public_key
    if source is None:
        raise UsageError("which key? give --public-key signing.pub")
    key = PublicKey.load(source)
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
        fields = {"receipts": found.receipts, "first": found.first, "last": found.last, "head": found.head}
        print(json.dumps({"passed": not problems, **fields, "problems": listed}))
        return 1 if problems else 0
    for line, problem in problems[:SHOWN]:
        print(f"FAIL  {f'line {line}: ' if line else ''}{problem}")
    if problems:
        raise CheckFailed(f"{args.file}: {len(problems)} problems in {found.receipts} receipts")
    print(
        f"ok    {found.receipts} receipts, signed by key {args.public_key}, {found.first} to {found.last} without a gap"
    )
    return 0
