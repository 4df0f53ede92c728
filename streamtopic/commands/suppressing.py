"""`streamtopic suppress` and `lift`: whether ids and subjects that were forgotten may come back."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.changes import finish, read_ids
from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add both commands."""
    for name, does in (
        ("suppress", "refuse documents under these ids, or about these subjects, whenever they are sent again"),
        ("lift", "take documents under these ids, or about these subjects, again"),
    ):
        parser = command(subparsers, name, partial(_run, name), does)
        parser.add_argument(
            "--id", action="append", default=[], metavar="ID", help="id of a document (may be repeated)"
        )
        parser.add_argument("--subject", action="append", default=[], metavar="ID", help="a person (may be repeated)")
        parser.add_argument(
            "--from", dest="source", type=Path, metavar="FILE", help="a file of document ids, one a line (- for stdin)"
        )


def _run(name: str, args: argparse.Namespace) -> int:
    """Write the records, then bring the model up to date unless another process is doing so."""
    from streamtopic.service.app import Service

    settings = instance_settings(args)
    ids = [*args.id, *(read_ids(args.source) if args.source else [])]
    if not ids and not args.subject:
        raise UsageError(f"whom? give --id ID, --subject ID, or a file of ids with --from FILE, to {name}")
    with Service(settings) as service:
        named = service.suppress(ids, args.subject, suppressed=name == "suppress")
        return finish(service, {"sent": named}, as_json=args.json)
