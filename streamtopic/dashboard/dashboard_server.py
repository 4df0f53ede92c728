"""The server of the dashboard: Uvicorn, on this machine alone unless a host is named."""

from __future__ import annotations

import secrets
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamtopic.dashboard.gate import Access
from streamtopic.errors import SettingsError, UsageError
from streamtopic.monitoring.endpoint import is_loopback

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import ASGIApp

    from streamtopic.settings import Settings

__all__ = ["TlsFiles", "access_of", "address_of", "dashboard_server", "leave_quietly", "listening"]

_MOST_REQUESTS = 64
REQUEST_SECONDS = 20.0
"""Seconds within which a connection sends a whole request, from its begin or from the answer before."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of a certificate and its private key, with which the server speaks TLS."""

    certificate: Path
    key: Path


def access_of(settings: Settings, host: str, *, drawn: bool) -> Access:
    """Return what the token guards.

    drawn: whether a token is drawn where none is set. It opens visits that may act; reading needs none then.

    Raises SettingsError for a host that others reach, without a token.
    """
    set_by_hand = settings.dashboard_token
    if set_by_hand is not None:
        return Access(set_by_hand.get_secret_value(), reading=True)
    if not is_loopback(host):
        raise SettingsError(
            f"--host {host} lets other machines read: set `dashboard_token`, 16 characters or more, in "
            "STREAMTOPIC_DASHBOARD_TOKEN or a file of secrets; or leave out --host"
        )
    return Access(secrets.token_urlsafe(18) if drawn else None, reading=False)


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


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections. port: 0 for any that is free. Raises UsageError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"cannot listen on {host}, port {port} ({error}): name a port that is free, --port PORT"
        ) from None


class Punctual(H11Protocol):
    """Ends a connection that does not send a whole request in time.

    Uvicorn waits for ever, and each connection takes one of the places: somebody who says nothing, or a letter now and
    then, would shut everybody else out.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn narrows it
        """Give a new connection its time."""
        super().connection_made(transport)
        self._set_time()

    def data_received(self, data: bytes) -> None:
        """Take data. More time is not given for a part of a request."""
        super().data_received(data)
        if not self._awaits_request:
            self._unset_time()

    def on_response_complete(self) -> None:
        """Give the next request its time."""
        super().on_response_complete()
        self._unset_time()
        if self._awaits_request:
            self._set_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time."""
        self._unset_time()
        super().connection_lost(exc)

    @property
    def _awaits_request(self) -> bool:
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def _set_time(self) -> None:
        self._late = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _unset_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def dashboard_server(
    pages: ASGIApp, certificate: TlsFiles | None = None, started: Callable[[], None] = lambda: None
) -> uvicorn.Server:
    """Return the server of some pages; `run(sockets=[...])` serves until a signal, or until `should_exit` is set.

    started: called once requests are answered.
    """

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

    # Addresses are not logged, and no header of a stranger says who asks.
    config = uvicorn.Config(
        pages,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=Punctual,
        limit_concurrency=_MOST_REQUESTS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=5,
        ssl_certfile=certificate.certificate if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )
    return Server(config)
