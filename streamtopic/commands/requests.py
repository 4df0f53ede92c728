"""`streamtopic unlearn` and `streamtopic retrain`: ask the scheduler to act now."""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING

from streamtopic.commands.add_delete import say_versions
from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.console import say, say_json
from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add both commands."""
    for kind, does in (
        ("unlearn", "ask for a version without the documents deleted since the last one"),
        ("retrain", "ask for a model trained anew, with an empty forget set"),
    ):
        parser = command(subparsers, kind, partial(run, kind), does)
        parser.add_argument(
            "--wait", type=float, default=0.0, metavar="SECONDS", help="wait until the scheduler has acted (default: 0)"
        )


def run(kind: str, args: argparse.Namespace) -> int:
    """Act at once on an instance that nobody runs; else leave the request to its scheduler."""
    from streamtopic.service.app import Service

    settled = None
    with Service(instance_settings(args)) as service:
        # Noted in Redis first: if this process is killed, the next one that decides acts on it.
        service.state.request(kind)
        if service.leads:
            settled = service.settle()
        else:
            _await(service, kind, args.wait)
    if args.json:
        outcome = {"running": True} if settled is None else settled.as_json()
        say_json({"requested": kind} | outcome)
    elif settled is not None:
        say_versions(settled)
    else:
        say(f"asked for: {kind}; `streamtopic versions` shows what comes of it, `streamtopic status` why nothing does")
    return 0


def _await(service: Service, kind: str, seconds: float) -> None:
    # Not the time of day: a clock that is set meanwhile must neither end the wait nor prolong it.
    deadline = time.monotonic() + seconds
    while seconds and service.state.requested() is not None:
        if time.monotonic() > deadline:
            raise CheckFailed(
                f"no scheduler has acted on the {kind} for {seconds:g} s: is `streamtopic schedule` running, or busy?"
            )
        time.sleep(0.1)
