"""`streamtopic verify`: recount and relearn, and compare."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from streamtopic.commands.options import command, instance_settings

if TYPE_CHECKING:
    from streamtopic.commands.options import Subparsers

__all__ = ["register", "run"]

SHOWN = {True: "ok  ", False: "FAIL", None: "-   "}


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    command(subparsers, "verify", run, "recount from the log against the counts; relearn against the current model")


def run(args: argparse.Namespace) -> int:
    """Print the checks; status 1 if one failed. One that cannot be made says why."""
    from streamtopic.console import progress
    from streamtopic.service.runner import Service

    with (
        Service(instance_settings(args)) as service,
        progress("verifying", "records", quiet=args.json) as update,
    ):
        found = service.verify(update)
    if args.json:
        print(json.dumps(found.as_json()))
    else:
        for check in found.checks:
            print(f"{SHOWN[check.passed]}  {check.name}: {check.detail}")
    return 0 if found.passed else 1
