"""Commands that make a model's state, serve it, and end it.

`streamtopic init` makes the topics and the state, and `rebuild` makes the state again from the log. `run` is the
service in one process; `ingest` and `schedule` are its parts as processes, and `serve` is the HTTP server of pages,
metrics of the model, and requests for deletions. `delete-model` ends the ledger of a model, and deletes all else of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import logging
import signal
import sys
import threading
import time
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
    option,
    whole_number,
)
from streamtopic.console import aligned, plain, progress, say, say_json, table_of, warn
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.service.processes import Role
    from streamtopic.settings import Settings
    from streamtopic.signed import End

__all__ = ["COMMANDS"]

PORT = 8787
# New objects between two searches for garbage. A batch of records makes some ten thousand, and drops them itself.
_OBJECTS = 50_000


@command()
def _init(args: argparse.Namespace) -> int:
    """Make the topics and the state of a model, or check those that exist.

    A second run changes nothing.
    """
    from streamtopic.service.instance import provision, topic_settings
    from streamtopic.state import ModelState

    with open_instance(args, must_exist=False) as service:
        settings = service.settings
        topics = provision(service.log, service.names, settings.partitions, topic_settings(settings))
        # Asked before `service.state`, which makes the state if it is missing.
        known = ModelState.find(service.connection, settings.model) is not None
        fixed = service.state.settings
    action = "found" if known else "made"
    state = {"action": action, "partitions": fixed.partitions, "cap": fixed.cap}
    made = [dataclasses.asdict(topic) for topic in topics]
    rows = table_of(made, "topic", "action", "partitions", "changed")
    return answer(args, {"topics": made, "state": state}, *aligned(state), "", block=rows)


@command()
def _run(args: argparse.Namespace) -> int:
    """Run the service in one process until it is told to stop."""
    return _part("run", args)


@command()
def _ingest(args: argparse.Namespace) -> int:
    """Count documents as they come, as one process of several."""
    return _part("ingest", args)


@command()
def _schedule(args: argparse.Namespace) -> int:
    """Decide, unlearn, retrain and publish; the first leads, others stand by."""
    return _part("schedule", args)


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


@command(
    option("--host HOST", "where to listen (default: 127.0.0.1)", default="127.0.0.1"),
    option("--port PORT", f"default: {PORT}; 0: any that is free", type=whole_number(0, 65_535), default=PORT),
    option(
        "--name NAME", "a name by which browsers reach it, as of a proxy; may be repeated", action="append", default=[]
    ),
    option("--certificate FILE", "speak TLS with this certificate (PEM)"),
    option("--key FILE", "private key of the certificate (PEM)"),
    option("--open", "open it in a browser"),
)
def _serve(args: argparse.Namespace) -> int:
    """Serve pages, metrics and requests over HTTP until told to stop."""
    try:
        from streamtopic.monitoring import http_server
        from streamtopic.pages.gate import access_of
        from streamtopic.pages.web_pages import web_pages
    except ModuleNotFoundError as error:
        raise UsageError(f"the server needs {error.name}: pip install 'streamtopic[serve]'") from None
    from streamtopic.monitoring.open_connections import is_loopback
    from streamtopic.pages.service_view import ServiceView

    settings = instance_settings(args)
    certificate = _certificate(args)
    access = access_of(settings, args.host)
    if certificate is None and not is_loopback(args.host):
        warn(
            "the token and all pages cross the network in the clear: give --certificate and --key, or a proxy with TLS"
        )
    view = ServiceView(settings)
    pages = web_pages(view, access, frozenset(name.lower() for name in [*args.name, args.host]))
    with http_server.listening(args.host, args.port) as listener:
        address = http_server.address_of(listener, secure=certificate is not None)
        log_events("serve", settings.model)
        # The server tells each step, and each stranger who does not speak HTTP. Its errors are failures of a page.
        for name in ("uvicorn.error", "asyncio"):
            logger = logging.getLogger(name)
            logger.setLevel(logging.ERROR)
            logger.addFilter(_failed)
        server = http_server.http_server(pages, listener, certificate, lambda: _tell(args, address))
        http_server.leave_quietly(server)
        try:
            server.run(sockets=[listener])
        finally:
            view.close()
    return 0


def _certificate(args: argparse.Namespace) -> tuple[Path, Path] | None:
    """Return its files. Raises UsageError for one file without the other, or one that cannot be read."""
    if (args.certificate is None) != (args.key is None):
        raise UsageError("--certificate and --key belong together: give both, or none of them")
    if args.certificate is None:
        return None
    for path in (args.certificate, args.key):
        with file_errors("read", path), path.open("rb"):
            pass
    return args.certificate, args.key


def _tell(args: argparse.Namespace, address: str) -> None:
    """Say where the server is."""
    answer(args, {"event": "serve", "address": address}, f"serving at {address}")
    if args.open:
        import webbrowser

        webbrowser.open(address)


def _failed(record: logging.LogRecord) -> bool:
    """Take an error of the server for one of this program, under the name of its event."""
    record.name, record.event = __name__, "serve_failed"
    return True


@command(option("--yes", "take away the state that exists, and lead in place of others"))
def _rebuild(args: argparse.Namespace) -> int:
    """Rebuild the state in Redis from the log.

    Without --yes it is refused if Redis holds counts already.
    """
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
    told = dataclasses.asdict(made) | {"seconds": round(time.perf_counter() - start, 3)}
    last = "the next version will be a new base model; `streamtopic verify` compares the counts with the log"
    return answer(args, told, *aligned(told), last)


@command(
    option("FILE", "a new file for the proof"),
    option("--yes", "do not ask for the model's name"),
    option(
        "--keep-ledger",
        "whether the topic of the ledger stays, with the end as its last entry: it is evidence (default: yes)",
        action=argparse.BooleanOptionalAction,
        default=True,
    ),
    option("--keep-keys", "leave the key files, as where other models use them"),
)
def _delete_model(args: argparse.Namespace) -> int:
    """Delete a whole model, and write a proof of its end."""
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
    return answer(args, told, *aligned(told), *_left_to_do(settings, args.file))


def _what_ends(end: End) -> Iterator[str]:
    yield f"it has {end.documents} documents, and its newest version is {end.version}"
    if end.waiting:
        yield (
            f"{end.waiting} deletions have no receipt yet, and will get none: `streamtopic unlearn` makes them; "
            "`streamtopic deletions list` shows requests that wait"
        )


def _left_to_do(settings: Settings, proof: Path) -> Iterator[str]:
    """Say what is left to do. proof: the file that proves the end."""
    yield f"{proof} proves the end of {settings.model}: keep it, with the public key and the ledger"
    if settings.redis_url is not None:
        yield "Redis's append-only file holds the model until it is rewritten: `redis-cli BGREWRITEAOF`, on each node"
    yield "backups of Redis, of Kafka and of the keys hold the model too: destroy them"


COMMANDS = (_init, _run, _ingest, _schedule, _serve, _rebuild, _delete_model)
