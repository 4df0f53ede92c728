"""`streamtopic ingest`, `schedule` and `publish`: the parts of the service as processes of their own."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, settings_of
from streamtopic.console import log_to_stderr, say, say_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.settings import Settings

__all__ = ["register", "saying", "stopping"]


def register(subparsers: Subparsers) -> None:
    """Add the three commands."""
    command(subparsers, "ingest", _ingest, "count documents as they come, as one process of several")
    schedule = command(
        subparsers, "schedule", _schedule, "decide, unlearn and retrain; the first leads, others stand by"
    )
    publish = command(subparsers, "publish", _publish, "publish what is staged, and receipts")
    for parser in (schedule, publish):
        parser.add_argument(
            "--interval", type=float, default=0.2, metavar="SECONDS", help="pause when idle (default: 0.2)"
        )


def stopping() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set: what runs finishes its batch and leaves with status 0."""
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    return stop


def _ingest(args: argparse.Namespace) -> int:
    from streamtopic.service.processes import run_ingest
    from streamtopic.service.watched_process import watched

    settings = settings_of(args)
    say = saying(settings, "ingest", as_json=args.json)
    with watched(settings, "ingest", say) as watch:
        run_ingest(settings, stopping(), say, watch=watch)
    return 0


def _schedule(args: argparse.Namespace) -> int:
    from streamtopic.service.processes import run_schedule
    from streamtopic.service.watched_process import watched

    settings = settings_of(args)
    say = saying(settings, "schedule", as_json=args.json)
    with watched(settings, "schedule", say) as watch:
        run_schedule(settings, stopping(), say, interval=args.interval, watch=watch)
    return 0


def _publish(args: argparse.Namespace) -> int:
    from streamtopic.service.processes import run_publish
    from streamtopic.service.watched_process import watched

    settings = settings_of(args)
    say = saying(settings, "publish", as_json=args.json)
    with watched(settings, "publish", say) as watch:
        run_publish(settings, stopping(), say, interval=args.interval, watch=watch)
    return 0


def saying(settings: Settings, role: str, *, as_json: bool) -> Callable[[dict[str, Any]], None]:
    """Return what prints an event of the service, one a line; what is logged goes to standard error.

    Both are JSON where nobody watches at a terminal. as_json: events are so in any case.
    """
    from streamtopic.logs import JsonLines, bound

    process = {"role": role, "model": settings.model}
    log_to_stderr(detailed=True, lines=None if sys.stderr.isatty() else JsonLines(process))
    as_json = as_json or not sys.stdout.isatty()
    # Its own lines, several a second while a broker is away, say less than the one line of what is waited for.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)

    def tell(event: dict[str, Any]) -> None:
        if as_json:
            # The event comes first, since people and scripts look for it at the beginning of a line.
            say_json({"event": event["event"], **bound(process, time.time()), **event})
            return
        kind = event["event"]
        shown = "; ".join(f"{name} {_plain(value)}" for name, value in event.items() if name != "event" and value != [])
        say(f"{kind}: {shown}")

    return tell


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
