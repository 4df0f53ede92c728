"""A listening socket that has a place for everybody: open connections are few, and none lasts for ever.

A connection waits until it has sent a whole request, and is answered from then on. A newcomer gets a place, if need be
that of a connection that waits: of its own network if that has half of all places, else of the network of which most
connections wait. So a crowd that says nothing, however often it comes again, shuts nobody else out.
"""

import contextlib
import ipaddress
import select
import socket
import time
from collections import Counter
from typing import Any

__all__ = ["OpenConnections", "is_loopback"]

MOST = 128
"""Open connections of a server."""
MOST_OF_NETWORK = 64
"""Open connections of one address, or of one /64 in IPv6, which one machine may have."""
REQUEST_SECONDS = 10.0
"""Seconds within which a connection sends a whole request, from its begin or from the answer before."""
ANSWER_SECONDS = 300.0
"""Seconds for an answer, until its reader has taken it."""

WAITING = 4096
"""Connections that the system holds until they are taken; it has a limit of its own too.

Beyond them it drops newcomers, which come again after 1, 2, 4 ... seconds: a probe among a crowd might never get in.
"""
PAUSE = 0.002
"""Seconds after a newcomer that found all places taken, in which others send their requests and nobody comes in."""

Peer = tuple[Any, ...]
"""Address and port of the other end of a connection, which name it."""


class OpenConnections(socket.socket):
    """A socket that takes connections, for a server that calls its `accept`, as that of asyncio does.

    The server tells when a connection has sent a whole request, and when it waits again; it calls `end_late` now and
    then, all in the thread that calls `accept`.
    """

    def __init__(self, listener: socket.socket) -> None:
        """Take over a listening socket."""
        super().__init__(fileno=listener.detach())
        self.listen(WAITING)
        self._open: dict[Peer, _Connection] = {}
        self._crowded = False

    def accept(self) -> tuple[socket.socket, Peer]:
        """Return a connection and its other end. One that finds no place has ended already.

        Raises BlockingIOError, which servers take for "none yet", right after a newcomer that found all places taken:
        they read what others have sent, and ask again.
        """
        if self._crowded:
            self._crowded = False
            time.sleep(PAUSE)
            raise BlockingIOError
        plain, peer = super().accept()
        connection = _Connection(plain, peer, self)
        if self._make_room(connection.network):
            self._open[peer] = connection
        else:
            connection.end()
        return connection, peer

    def note(self, peer: Peer, *, waits: bool) -> None:
        """Take that a connection waits, as it has its answer, or that it does not, as it has sent a whole request."""
        connection = self._open.get(peer)
        if connection is not None and connection.waits is not waits:
            connection.waits, connection.since = waits, time.monotonic()

    def end_late(self) -> None:
        """End connections that have had their time."""
        for one in [one for one in self._open.values() if one.is_late]:
            one.end()

    def leave(self, connection: "_Connection") -> None:
        """Forget a connection that is closed."""
        # The other end may have used its port again, for a connection that has the place now.
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]

    def _make_room(self, network: str) -> bool:
        """Return whether a newcomer of a network gets a place; one that waits may be ended for it."""
        own = sum(one.network == network for one in self._open.values())
        if own < MOST_OF_NETWORK and len(self._open) < MOST:
            return True
        self._crowded = True
        silent = [one for one in self._open.values() if one.is_silent]
        if own < MOST_OF_NETWORK and silent:
            ((network, _),) = Counter(one.network for one in silent).most_common(1)
        crowd = [one for one in silent if one.network == network]
        if not crowd:
            return False
        oldest = min(crowd, key=lambda one: one.since)
        del self._open[oldest.peer]
        oldest.end()
        return True


class _Connection(socket.socket):
    """A connection that tells when it is closed, also if it never came to a protocol, as before its TLS is agreed.

    waits: whether it has yet to send a whole request.
    since: when it began to wait, or to be answered; in seconds of a clock that nobody sets.
    """

    def __init__(self, plain: socket.socket, peer: Peer, server: OpenConnections) -> None:
        super().__init__(fileno=plain.detach())
        self._server = server
        self.peer = peer
        self.network = _network(peer[0])
        self.waits = True
        self.since = time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether it has had its time."""
        return time.monotonic() - self.since > (REQUEST_SECONDS if self.waits else ANSWER_SECONDS)

    @property
    def is_silent(self) -> bool:
        """Whether it waits, and has sent nothing that the server has yet to read."""
        sent = select.poll()
        sent.register(self, select.POLLIN)
        return self.waits and not sent.poll(0)

    def end(self) -> None:
        """End it; the server reads the end, and closes it."""
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._server.leave(self)
        super().close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _network(host: str) -> str:
    """Return the address that connections are counted by; in IPv6 its network."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))
