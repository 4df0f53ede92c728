"""Ports of this machine for servers of tests."""

import contextlib
import random
import socket

# Below the ports of outgoing connections: one of those could take a port before its server listens, or while the server
# is away for a moment.
_QUIET = range(6_100, 20_000)
BUS = 10_000
"""Nodes of a Redis Cluster speak to each other on the port that lies this far above their own."""


def quiet_ports(count):
    """Return different TCP ports that are free now, and that no program is given unless it asks for them.

    Each has a port for the bus of a cluster above it that is free too.
    """
    with contextlib.ExitStack() as stack:
        found = []
        while len(found) < count:
            port = random.choice(_QUIET)
            probe, bus = (stack.enter_context(socket.socket()) for _ in range(2))
            # Held until all are found, so that none is found twice.
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + BUS))
                found.append(port)
        return found


def quiet_port():
    """Return one such port."""
    return quiet_ports(1)[0]
