"""`streamtopic topics`: the topics of a published model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import say_json, show, table

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["heads_table", "register", "run", "table_of"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "topics", run, "show the topics of a published version, and the words of its heads")
    # Not stored as `version`: the program's own --version has that name.
    parser.add_argument("--version", dest="number", type=int, metavar="N", help="which version (default: the newest)")
    parser.add_argument(
        "--top", type=int, default=10, metavar="K", help="words for each topic (default: 10, at most 20)"
    )


def run(args: argparse.Namespace) -> int:
    """Print topics, largest share first, and the words that speak for each class of a head."""
    from streamtopic.service.app import Service
    from streamtopic.service.published import heads_of, topics_of

    with Service(instance_settings(args)) as service:
        release = service.release(args.number)
        shown = release.payload.A is not None
        found = topics_of(release, args.top) if shown else []
        heads = heads_of(release, args.top)
    if args.json:
        say_json({"version": release.version, "topics": found, "heads": heads})
        return 0
    blocks = [f"version {release.version}", table_of(found) if shown else "its topics are withheld"]
    if heads:
        blocks.append(heads_table(heads))
    show("\n\n".join(blocks))
    return 0


def heads_table(heads: dict[str, dict[str, Any]]) -> str:
    """Lay out the heads of a release for a person: a line for each class."""
    rows = []
    for task, head in heads.items():
        rows += [[task, name, " ".join(words)] for name, words in head["classes"].items()]
    return table(["task", "class", "words that speak for it"], rows)


def table_of(topics: list[dict[str, Any]]) -> str:
    """Lay out topics for a person, largest share first."""
    ordered = sorted(topics, key=lambda topic: -topic["share"])
    # Rows are sorted and numbers are kept: `transform`, pages and notebooks name a topic by its number.
    rows = [[topic["topic"], f"{topic['share']:6.1%}", " ".join(topic["words"])] for topic in ordered]
    return table(["topic", "share", "words"], rows)
