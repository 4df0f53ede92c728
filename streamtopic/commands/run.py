"""`streamtopic run`: the service in one process."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.commands.roles import saying, stopping
from streamtopic.console import say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    import threading

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.settings import Settings

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "run", run, "run the service in one process until it is told to stop")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="pause when idle (default: 1)")
    parser.add_argument("--once", action="store_true", help="bring the model up to date, then leave")


def run(args: argparse.Namespace) -> int:
    """Ingest, decide, learn and publish in turn; SIGTERM and Ctrl-C finish the batch first."""
    settings = instance_settings(args, must_exist=False)
    stop = stopping()
    if settings.kafka is not None and not args.once:
        from streamtopic.service.processes import run_all
        from streamtopic.service.watched_process import watched

        tell = saying(settings, "run", as_json=args.json)
        with watched(settings, "run", tell) as watch:
            run_all(settings, stop, tell, interval=args.interval, watch=watch)
        return 0
    return _run_instance(args, settings, stop)


def _run_instance(args: argparse.Namespace, settings: Settings, stop: threading.Event) -> int:
    from streamtopic.service.app import Service
    from streamtopic.service.looks import looked_at
    from streamtopic.service.watched_process import watched

    def tell(event: dict[str, Any]) -> None:
        if args.json:
            say_json(event)
        else:
            say(f"metrics: {event['address']}")

    with watched(settings, "run", tell) as watch, Service(settings, resident=True, watch=watch) as service:
        if not service.leads:
            raise UsageError(f"another process already runs the instance in {settings.dir}: stop it first")
        with looked_at(service):
            return _settle(args, service, stop)


def _settle(args: argparse.Namespace, service: Service, stop: threading.Event) -> int:
    said = ""
    while True:
        settled = service.settle(stopped=stop.is_set)
        service.watch.moved("run")
        if args.json:
            say_json(settled.as_json())
        elif str(settled.decision) != said or settled.versions:
            said = str(settled.decision)
            published = ", ".join(f"published version {v['version']} ({v['kind']})" for v in settled.versions)
            say(f"{published + '; ' if published else ''}{said}")
        if args.once or stop.wait(args.interval):
            return 0
