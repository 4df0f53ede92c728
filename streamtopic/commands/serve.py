"""`streamtopic serve`: the HTTP server of pages, metrics of the model, and requests for deletions."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from streamtopic.commands.common_arguments import (
    answer,
    command,
    file_errors,
    instance_settings,
    log_events,
    option,
    whole_number,
)
from streamtopic.console import warn
from streamtopic.errors import UsageError

__all__ = ["COMMANDS"]

PORT = 8787


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


COMMANDS = (_serve,)
