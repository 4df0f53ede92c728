"""`streamtopic run`: the service in one process. `ingest`, `schedule` and `publish`: its parts as processes."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import command, instance_settings, settings_of
from streamtopic.console import log_to_stderr, say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.app import Service
    from streamtopic.settings import Settings

__all__ = ["register"]


def register(subparsers: Subparsers) -> None:
    """Add the four commands."""
    whole = command(subparsers, "run", _run, "run the service in one process until it is told to stop")
    whole.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="pause when idle (default: 1)")
    whole.add_argument("--once", action="store_true", help="bring the model up to date, then leave")
    command(subparsers, "ingest", _ingest, "count documents as they come, as one process of several")
    schedule = command(
        subparsers, "schedule", _schedule, "decide, unlearn and retrain; the first leads, others stand by"
    )
    publish = command(subparsers, "publish", _publish, "publish versions that wait, and receipts")
    for parser in (schedule, publish):
        parser.add_argument(
            "--interval", type=float, default=0.2, metavar="SECONDS", help="pause when idle (default: 0.2)"
        )


def _run(args: argparse.Namespace) -> int:
    """Ingest, decide, learn and publish in turn, until a signal or, with --once, until nothing is left to do."""
    settings = instance_settings(args, must_exist=False)
    stop = _stop_event()
    # Partitions of a Kafka topic are shared with other processes by a consumer group; --once takes them all at once.
    if settings.kafka is not None and not args.once:
        from streamtopic.service.processes import run_all
        from streamtopic.service.watched_process import watched

        tell = _event_printer(settings, "run", as_json=args.json)
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
    """Bring an instance up to date again and again, and print its news."""
    said = ""
    while True:
        settled = service.settle(stopped=stop.is_set)
        service.watch.moved("run")
        decision = str(settled.decision)
        if args.json:
            say_json(settled.as_json())
        # An idle instance decides the same every second: only news is worth a line.
        elif decision != said or settled.versions:
            said = decision
            versions = [f"published version {one['version']} ({one['kind']})" for one in settled.versions]
            published = f"{', '.join(versions)}; " if versions else ""
            say(f"{published}{decision}")
        if args.once or stop.wait(args.interval):
            return 0


def _ingest(args: argparse.Namespace) -> int:
    from streamtopic.service.processes import run_ingest
    from streamtopic.service.watched_process import watched

    settings = settings_of(args)
    tell = _event_printer(settings, "ingest", as_json=args.json)
    with watched(settings, "ingest", tell) as watch:
        run_ingest(settings, _stop_event(), tell, watch=watch)
    return 0


def _schedule(args: argparse.Namespace) -> int:
    from streamtopic.service.processes import run_schedule
    from streamtopic.service.watched_process import watched

    settings = settings_of(args)
    tell = _event_printer(settings, "schedule", as_json=args.json)
    with watched(settings, "schedule", tell) as watch:
        run_schedule(settings, _stop_event(), tell, interval=args.interval, watch=watch)
    return 0


def _publish(args: argparse.Namespace) -> int:
    from streamtopic.service.processes import run_publish
    from streamtopic.service.watched_process import watched

    settings = settings_of(args)
    tell = _event_printer(settings, "publish", as_json=args.json)
    with watched(settings, "publish", tell) as watch:
        run_publish(settings, _stop_event(), tell, interval=args.interval, watch=watch)
    return 0


def _stop_event() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set.

    The process then finishes its batch and leaves with status 0, so that its successor finds nothing half done.
    """
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    return stop


def _event_printer(settings: Settings, role: str, *, as_json: bool) -> Callable[[dict[str, Any]], None]:
    """Return a function that prints an event of the service as one line; log records go to standard error.

    Both are JSON unless they are printed to a terminal.

    role: the role of this process, which each line names.
    as_json: whether events are JSON at a terminal too.
    """
    from streamtopic.logs import JsonLines, bound

    process = {"role": role, "model": settings.model}
    log_to_stderr(detailed=True, lines=None if sys.stderr.isatty() else JsonLines(process))
    as_json = as_json or not sys.stdout.isatty()
    # kafka-python logs several lines a second while a broker is away; the service says once what it waits for.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)

    def tell(event: dict[str, Any]) -> None:
        if as_json:
            # The event comes first, since people and scripts look for it at the beginning of a line.
            say_json({"event": event["event"], **bound(process, time.time()), **event})
            return
        fields = [f"{name} {_plain(value)}" for name, value in event.items() if name != "event" and value != []]
        say(f"{event['event']}: {'; '.join(fields)}")

    return tell


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
