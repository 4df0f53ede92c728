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
        subparsers,
        "keys",
        run,
        "make the keys of a service: the pair that releases and receipts are signed with, and its two secrets",
        instance=False,
    )
    parser.add_argument("action", choices=["new"], help="what to do")
    parser.add_argument(
        "--to", type=Path, default=Path("keys"), metavar="FOLDER", help="where to write it (default: keys)"
    )


def run(args: argparse.Namespace) -> int:
    """Write signing.pem, noise.key, receipt.key (secret, 0600) and signing.pub; what is there is never overwritten."""
    from streamtopic.signing import new_secret, new_signing_key

    files = {name: args.to / name for name in ("signing.pem", "signing.pub", "noise.key", "receipt.key")}
    if there := [path for path in files.values() if path.exists()]:
        raise UsageError(f"{there[0]} is there already: choose another folder with --to")
    key_id = new_signing_key(files["signing.pem"], files["signing.pub"])
    new_secret(files["noise.key"])
    new_secret(files["receipt.key"])
    if args.json:
        named = {"private": files["signing.pem"], "public": files["signing.pub"]}
        named |= {"noise": files["noise.key"], "receipt": files["receipt.key"]}
        print(json.dumps({name: str(path) for name, path in named.items()} | {"key_id": key_id}))
        return 0
    print(f"private key  {files['signing.pem']}  (keep it secret; setting signing_key)")
    print(f"public key   {files['signing.pub']}  (give it to subscribers; setting public_key)")
    print(f"key id       {key_id}")
    print(f"noise key    {files['noise.key']}  (keep it secret, with a backup; setting noise_key)")
    print(f"receipt key  {files['receipt.key']}  (keep it secret; setting receipt_key)")
    return 0
