"""`streamtopic topics`: the topics of a published model."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from streamtopic.commands.options import command, instance_settings

if TYPE_CHECKING:
    from streamtopic.commands.options import Subparsers

__all__ = ["register", "run", "table_of"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "topics", run, "show the topics of a published model")
    parser.add_argument("--version", dest="number", type=int, metavar="N", help="which version (default: the newest)")
    parser.add_argument(
        "--top", type=int, default=10, metavar="K", help="words for each topic (default: 10, at most 20)"
    )


def run(args: argparse.Namespace) -> int:
    """Print topics in display order, largest share first."""
    from streamtopic.service.report import topics_of
    from streamtopic.service.runner import Service

    with Service(instance_settings(args)) as service:
        release = service.release(args.number)
        found = topics_of(release, args.top)
    if args.json:
        print(json.dumps({"version": release.version, "topics": found}))
    else:
        print(f"version {release.version}\n\n{table_of(found)}")
    return 0


def table_of(topics: list[dict[str, Any]]) -> str:
    """Lay out topics for a person, largest share first."""
    from streamtopic.console import table

    ordered = sorted(topics, key=lambda topic: -topic["share"])
    return table(
        ["topic", "share", "words"], [[t["topic"], f"{t['share']:6.1%}", " ".join(t["words"])] for t in ordered]
    )
