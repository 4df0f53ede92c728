"""`streamtopic status`: where an instance stands."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from streamtopic.commands.options import command, instance_settings
from streamtopic.console import number

if TYPE_CHECKING:
    from streamtopic.commands.options import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "status", run, "show documents, forget set, last decision and health")


def run(args: argparse.Namespace) -> int:
    """Print the state of the instance without changing it."""
    from streamtopic.service.runner import Service

    with Service(instance_settings(args)) as service:
        status = service.status()
    if args.json:
        print(json.dumps(status))
        return 0
    width = max(map(len, status))
    for name, value in status.items():
        print(f"{name.replace('_', ' '):{width}}  {_shown(value)}")
    return 0


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items()) or "-"
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "-"
    if isinstance(value, float):
        return number(value)
    return "-" if value is None else str(value)
