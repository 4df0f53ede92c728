"""The HTTP server: Uvicorn, of `streamtopic serve` and of what a process tells its monitoring system.

http_server  serves any pages
listening    the socket that it has, with a place for everybody
"""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamtopic.errors import UsageError
from streamtopic.monitoring.open_connections import OpenConnections

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["address_of", "http_server", "leave_quietly", "listening"]

LOOPBACK = "127.0.0.1"

MOST_BYTES = 16_384
"""Bytes of the head of a request."""


def address_of(listener: socket.socket, *, secure: bool) -> str:
    """Return the address of a socket that takes connections, as a browser reads it. secure: whether it speaks TLS."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{shown}:{port}/"


def leave_quietly(server: uvicorn.Server) -> None:
    """Let SIGTERM and Ctrl-C end the server, also before it serves, and nothing after it."""

    def leave(*_: object) -> None:
        server.should_exit = True

    # Uvicorn takes these signals over once it runs, and then sends them once more to whoever had them before.
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, leave)


def listening(host: str, port: int) -> OpenConnections:
    """Return a socket that takes connections. port: 0 for any that is free. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return OpenConnections(socket.create_server((host, port), family=family))
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {host}, port {port} ({error}): name a port that is free") from None


class _Requests(h11.Connection):
    """Reads requests, and refuses one that says its length in two ways: a proxy may read it as two requests."""

    def next_event(self) -> Any:  # noqa: ANN401  as h11 has it
        """Return what was read. Raises RemoteProtocolError, which is answered with status 400 and the end."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if names >= {b"content-length", b"transfer-encoding"}:
                raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding in one request")
        return event


class _Protocol(H11Protocol):
    """Tells the listening socket which connections wait for a request."""

    connections_of: OpenConnections

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  as uvicorn has them
        super().__init__(*arguments, **named)
        self.conn = _Requests(h11.SERVER, MOST_BYTES)

    def data_received(self, data: bytes) -> None:
        """Take data."""
        super().data_received(data)
        self._tell()

    def on_response_complete(self) -> None:
        """Wait for the next request, if it is not there already."""
        super().on_response_complete()
        self._tell()

    def _tell(self) -> None:
        peer = self.transport.get_extra_info("peername")
        self.connections_of.note(peer, waits=self.conn.their_state in {h11.IDLE, h11.SEND_BODY})


def http_server(
    pages: Callable[..., Any],
    listener: OpenConnections,
    certificate: tuple[Path, Path] | None = None,
    started: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """Return the server of some pages; `run(sockets=[listener])` serves until a signal, or until `should_exit` is set.

    certificate: files of a certificate and of its private key, with which the server speaks TLS.
    started: called once requests are answered.
    """

    class Protocol(_Protocol):
        connections_of = listener

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

        async def on_tick(self, counter: int) -> bool:
            listener.end_late()
            return await super().on_tick(counter)

    # Addresses are not logged, and no header of a stranger says who asks.
    config = uvicorn.Config(
        pages,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=Protocol,
        # Other loops do not call the listener's own `accept`.
        loop="asyncio",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        ssl_certfile=certificate[0] if certificate else None,
        ssl_keyfile=certificate[1] if certificate else None,
    )
    return Server(config)
