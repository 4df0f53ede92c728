"""`streamtopic keys new`: make a signing key pair."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.options import command
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.options import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(
        subparsers, "keys", run, "make the key pair that releases and receipts are signed with", instance=False
    )
    parser.add_argument("action", choices=["new"], help="what to do")
    parser.add_argument(
        "--to", type=Path, default=Path("keys"), metavar="FOLDER", help="where to write it (default: keys)"
    )


def run(args: argparse.Namespace) -> int:
    """Write signing.pem (private, 0600) and signing.pub; keys that are there are never overwritten."""
    from streamtopic.signing import new_signing_key

    private, public = args.to / "signing.pem", args.to / "signing.pub"
    if private.exists() or public.exists():
        raise UsageError(f"{args.to} already holds a signing key: choose another folder with --to")
    key_id = new_signing_key(private, public)
    if args.json:
        print(json.dumps({"private": str(private), "public": str(public), "key_id": key_id}))
    else:
        print(f"private key  {private}  (keep it secret)")
        print(f"public key   {public}  (give it to subscribers)")
        print(f"key id       {key_id}")
    return 0
