"""Commands that make a model's state, serve it, and end it.

`streamtopic init` makes the topics and the state, and `rebuild` makes the state again from the log. `run` is the
service in one process; `ingest` and `schedule` are its parts as processes. `delete-model` ends the ledger of a model,
and deletes all else of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    answer,
    command,
    confirm,
    file_errors,
    instance_settings,
    log_events,
    open_instance,
)
from streamtopic.console import duration, number_of, plain, progress, say, say_json
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamtopic.commands.common_arguments import Subparsers
    from streamtopic.service.processes import Role
    from streamtopic.settings import Settings
    from streamtopic.signed import End

__all__ = ["register"]

_ROLES: Mapping[Role, str] = {
    "run": "run the service in one process until it is told to stop",
    "ingest": "count documents as they come, as one process of several",
    "schedule": "decide, unlearn, retrain and publish; the first leads, others stand by",
}
# New objects between two searches for garbage. A batch of records makes some ten thousand, and drops them itself.
_OBJECTS = 50_000


def register(subparsers: Subparsers) -> None:
    """Add the six commands."""
    command(subparsers, "init", _run_init, "make the topics and the state of a model, or check those that exist")
    for role, does in _ROLES.items():
        command(subparsers, role, partial(_part, role), does)
    parser = command(subparsers, "rebuild", _run_rebuild, "rebuild the state in Redis from the log")
    parser.add_argument(
        "--yes", action="store_true", help="take away the state that exists, and lead in place of others"
    )
    parser = command(subparsers, "delete-model", _run_delete, "delete a whole model, and write a proof of its end")
    parser.add_argument("file", type=Path, metavar="FILE", help="a new file for the proof")
    parser.add_argument("--yes", action="store_true", help="do not ask for the model's name")
    parser.add_argument(
        "--keep-ledger",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the topic of the ledger stays, with the end as its last entry: it is evidence (default: yes)",
    )
    parser.add_argument("--keep-keys", action="store_true", help="leave the key files, as where other models use them")


def _run_init(args: argparse.Namespace) -> int:
    """Print each topic and the state as made, changed or found; a second run changes nothing."""
    from streamtopic.service.instance import provision, topic_settings
    from streamtopic.state import ModelState

    with open_instance(args, must_exist=False) as service:
        settings = service.settings
        topics = provision(service.log, service.names, settings.partitions, topic_settings(settings))
        # Asked before `service.state`, which makes the state if it is missing.
        known = ModelState.find(service.connection, settings.model) is not None
        fixed = service.state.settings
    action = "found" if known else "made"
    state = {"action": action, "partitions": fixed.partitions, "cap": fixed.cap, "partitioner": fixed.partitioner}
    lines = []
    for topic in topics:
        lines.append(f"{topic.action:8} {topic.topic}, {number_of(topic.partitions, 'partition')}")
        for name, (before, now) in topic.changed.items():
            lines.append(f"           {name} = {now} (it was {before or 'not set'})")
    found = {"topics": [dataclasses.asdict(topic) for topic in topics], "state": state}
    return answer(args, found, *lines, f"{action:8} state of {settings.model} in Redis")


def _part(name: Role, args: argparse.Namespace) -> int:
    """Do the work of one part, or of all, as a process of its own until a signal."""
    # Before the code of the service is loaded, which takes seconds: a supervisor may change its mind meanwhile.
    stop = _stop_event()
    settings = instance_settings(args, must_exist=False)
    _spare_objects()
    from streamtopic.service.processes import run_part
    from streamtopic.service.watching import watched

    tell = _event_printer(settings, name, as_json=args.json)
    with watched(settings, name, tell) as watch:
        run_part(name, settings, stop, tell, watch=watch)
    return 0


def _spare_objects() -> None:
    """Leave all objects that there are now out of Python's search for garbage, and search less often.

    Most objects are those of compiled functions, which stay to the end. A search through them every few flushes took a
    seventh of the time of ingest.
    """
    # It brings all of the service's code, which each of these processes needs anyway.
    importlib.import_module("streamtopic.service.leading")
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, 20, 100)


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
    from streamtopic.monitoring.logs import bound

    process = {"role": role, "model": settings.model}
    log_events(role, settings.model)
    as_json = as_json or not sys.stdout.isatty()

    def tell(event: dict[str, Any]) -> None:
        if as_json:
            # The event comes first, since people and scripts look for it at the beginning of a line.
            say_json({"event": event["event"], **bound(process, time.time()), **event})
            return
        fields = [f"{name} {plain(value)}" for name, value in event.items() if name != "event" and value != []]
        say(f"{event['event']}: {'; '.join(fields)}")

    return tell


def _run_rebuild(args: argparse.Namespace) -> int:
    """Count the whole log again; without --yes, refuse if Redis holds counts already."""
    from streamtopic.service.upkeep.rebuild_state import present, rebuild

    start = time.perf_counter()
    _spare_objects()
    with open_instance(args) as service:
        # The lock of a folder says for certain whether a process runs it. Of a service's processes Redis knows only the
        # scheduler that leads: the refusal below names all, and --yes is the operator's word that they are stopped.
        service.refuse_others()
        found = present(service.connection, service.settings.model)
        if found is not None and not args.yes:
            raise UsageError(f"{found}: stop all `ingest`, `schedule` and `run` processes, then repeat with --yes")
        with progress("rebuilding", "records", quiet=args.json) as update:
            made = rebuild(service, update)
    seconds = time.perf_counter() - start
    return answer(
        args,
        dataclasses.asdict(made) | {"seconds": round(seconds, 3)},
        f"{number_of(made.documents, 'document')} counted from {number_of(made.records, 'record')} in "
        f"{number_of(made.partitions, 'partition')}, {duration(seconds)}",
        "the next version will be a new base model; `streamtopic verify` compares the counts with the log",
    )


def _run_delete(args: argparse.Namespace) -> int:
    """Delete the model, and prove its end."""
    from streamtopic.service.opened import opened
    from streamtopic.service.upkeep.model_removal import end_of, only_keys_left, remove, remove_files

    settings = instance_settings(args)
    told: dict[str, Any] = {"model": settings.model, "proof": str(args.file)}
    if not only_keys_left(settings, args.file):
        with opened(settings) as service:
            end = end_of(service, keep_ledger=args.keep_ledger)
            what = f"this deletes model {settings.model} for good"
            confirm(args, what, settings.model, *_what_ends(end))
            with file_errors("write", args.file), progress("removing", "keys", quiet=args.json) as update:
                done = remove(service, args.file, end, update)
        told |= dataclasses.asdict(done)
    with file_errors("remove the files of", settings.dir or args.file):
        files = remove_files(settings, keep_keys=args.keep_keys)
    told["files"] = [str(path) for path in files]
    return answer(args, told, *_removed(settings, told, args.file))


def _what_ends(end: End) -> Iterator[str]:
    yield f"it has {end.documents} documents, and its newest version is {end.version}"
    if end.waiting:
        yield (
            f"{end.waiting} deletions have no receipt yet, and will get none: `streamtopic unlearn` makes them; "
            "`streamtopic deletions list` shows requests that wait"
        )


def _removed(settings: Settings, told: dict[str, Any], proof: Path) -> Iterator[str]:
    """Say what was removed, and what is left to do. proof: the file that proves the end."""
    if "topics" in told:
        yield f"removed {', '.join(told['topics'])}, and {told['redis_keys']} keys of Redis"
    for name in told["files"]:
        yield f"removed {name}"
    yield f"{proof} proves the end of {settings.model}: keep it, with the public key and the ledger"
    if settings.redis_url is not None:
        yield "Redis's append-only file holds the model until it is rewritten: `redis-cli BGREWRITEAOF`, on each node"
    yield "backups of Redis, of Kafka and of the keys hold the model too: destroy them"
