"""The HTTP server of a process for its monitoring system: `/livez`, `/readyz`, `/metrics` and `/status`.

The server is that of the standard library: four addresses that are only read, by one monitoring system, need neither
a framework nor its updates. Each request has a thread of its own and a few seconds, so that a slow reader holds up
nobody; nothing of the work waits for it. Readers are few, so that a stranger takes no files from the work.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol

from streamtopic.errors import SettingsError
from streamtopic.monitoring.open_connections import OpenConnections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamtopic.monitoring.health import Verdict

__all__ = ["Asked", "is_loopback", "serving"]

LOOPBACK = "127.0.0.1"
_SECONDS = 5.0
_PLAIN = "text/plain; charset=utf-8"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Asked(Protocol):
    """What a process can be asked."""

    def verdict(self) -> Verdict:
        """Return how it is."""

    def text(self) -> bytes:
        """Return its metrics as Prometheus reads them."""

    def status(self) -> dict[str, Any]:
        """Return where it stands."""


class _Server(ThreadingHTTPServer):
    """A server whose connections are few and short: files and threads belong to the work of the process."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - http.server's signature
        super().__init__(*arguments)
        self.socket: OpenConnections = OpenConnections(self.socket)

    def service_actions(self) -> None:
        """End connections that have taken their time, however much they send. The server calls this all the time."""
        self.socket.end_late()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's signature
        """Say nothing: a reader that went away, or sent no HTTP, is not an event of the service."""


@contextmanager
def serving(address: str, asked: Asked) -> Iterator[str]:
    """Answer at an address, `[HOST:]PORT`, as long as the block runs; yields the address in use.

    Without a host only this machine can ask; port 0: any that is free. Raises SettingsError where it cannot be had.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or LOOPBACK

    class Server(_Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    class Handler(_Handler):
        of = asked

    try:
        server = Server((host, int(port)), Handler)
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"setting `metrics_address`: {address} cannot be listened on ({error}): name a port that is free, for each "
            "process of this machine its own"
        ) from None
    thread = threading.Thread(target=server.serve_forever, name="endpoint", daemon=True)
    thread.start()
    try:
        yield f"[{host}]:{server.server_port}" if ":" in host else f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    of: Asked
    server: _Server
    timeout = _SECONDS
    server_version = "streamtopic"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        self.server.socket.answering(self.client_address)
        if "content-length" in self.headers and "transfer-encoding" in self.headers:
            self._answer(HTTPStatus.BAD_REQUEST, b"a request says its length once\n", _PLAIN)
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            # Prometheus' own text format; any version of it reads this one.
            self._answer(HTTPStatus.OK, self.of.text(), "text/plain; version=0.0.4; charset=utf-8")
        elif path in {"/livez", "/readyz"}:
            verdict = self.of.verdict()
            well = verdict.live if path == "/livez" else verdict.ready
            status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, _said(verdict, well=well), _PLAIN)
        elif path == "/status":
            facts = json.dumps(self.of.status())
            self._answer(HTTPStatus.OK, f"{facts}\n".encode(), "application/json")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"ask /livez, /readyz, /metrics or /status\n", _PLAIN)

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's signature
        """Say nothing: a scrape every few seconds is not an event."""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _said(verdict: Verdict, *, well: bool) -> bytes:
    """Return a verdict in lines: each fault, or the reason why no fault would be found."""
    lines = list(verdict.findings)
    lines += [f"waits: {verdict.waiting}"] if verdict.waiting and not lines else []
    lines += [f"{what} for {seconds:.0f} s" for what, seconds in verdict.busy.items()]
    nothing = "ok" if well else "has not begun yet"
    text = "\n".join(lines or [nothing])
    return f"{text}\n".encode()
