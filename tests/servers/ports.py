"""Ports of this machine for servers of tests."""

import contextlib
import random
import socket

# Below the ports of outgoing connections: one of those could take a port before its server listens, or while the server
# is away for a moment.
_QUIET = range(6_100, 10_000)


def quiet_ports(count):
    """Return different TCP ports that are free now, and that no program is given unless it asks for them."""
    with contextlib.ExitStack() as stack:
        found = []
        while len(found) < count:
            port = random.choice(_QUIET)
            probe = stack.enter_context(socket.socket())
            # Held until all are found, so that none is found twice.
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
        return found


def quiet_port():
    """Return one such port."""
    return quiet_ports(1)[0]
