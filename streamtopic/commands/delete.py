"""`streamtopic delete`: ask an instance to forget documents."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "delete", run, "delete documents by id")
    parser.add_argument("ids", nargs="*", metavar="ID", help="document ids")
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="a file of ids, one a line (- for stdin)"
    )


def run(args: argparse.Namespace) -> int:
    """Write delete events, then bring the model up to date unless another process is doing so."""
    from streamtopic.commands.forms import warn_of_other_forms
    from streamtopic.commands.outcome import finish
    from streamtopic.service.app import Service

    settings = instance_settings(args)
    ids = list(dict.fromkeys([*args.ids, *(_read(args.source) if args.source else [])]))
    if not ids:
        raise UsageError("which documents? give ids, or a file of ids with --from FILE")
    with Service(settings) as service:
        warn_of_other_forms(service, ids)
        requests = service.delete(ids)
        salts = [request.salt for request in requests]
        return finish(service, {"sent": len(ids), "requests": requests, "salts": salts}, as_json=args.json)


def _read(path: Path) -> list[str]:
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8: expected one document id a line") from None
    return [line.strip() for line in text.splitlines() if line.strip()]
