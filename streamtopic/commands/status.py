"""`streamtopic status`: the state of an instance, and whether it makes progress."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import number, say, say_json

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "status", run, "show documents, forget set, last decision and health")


def run(args: argparse.Namespace) -> int:
    """Print the state of the instance without changing it."""
    from streamtopic.service.app import Service

    with Service(instance_settings(args)) as service:
        status = service.status()
    if args.json:
        say_json(status)
        return 0
    width = max(map(len, status))
    # How many deletions wait is enough for a person; --json has since when.
    status["residue"] = {name: one["documents"] for name, one in status["residue"]["waiting"].items()}
    for name, value in status.items():
        say(f"{name.replace('_', ' '):{width}}  {_shown(value)}")
    return 0


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {'-' if part is None else part}" for name, part in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "-"
    if isinstance(value, float):
        return number(value)
    return "-" if value is None else str(value)
