"""Places of a server's open connections: who keeps one, and who loses one for a newcomer."""

import contextlib
import socket

import pytest

from streamtopic.monitoring import open_connections
from streamtopic.monitoring.open_connections import OpenConnections
from waiting import until


@pytest.fixture
def server(monkeypatch):
    """A listening socket with six places, four for one address, and what connects and is taken in."""
    monkeypatch.setattr(open_connections, "MOST", 6)
    monkeypatch.setattr(open_connections, "MOST_OF_NETWORK", 4)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(OpenConnections(socket.create_server(("127.0.0.1", 0))))

        def come(source="127.0.0.1"):
            there = socket.create_connection(listener.getsockname(), timeout=60, source_address=(source, 0))
            try:
                here, peer = listener.accept()
            except BlockingIOError:
                here, peer = listener.accept()
            stack.enter_context(there)
            stack.enter_context(here)
            return there, peer

        yield listener, come


def ended(connection):
    """Whether the server has ended a connection: its system may tell so a moment later."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_newcomer_gets_the_place_of_the_oldest_that_waits(server):
    """Of its own address: others lose nothing."""
    _, come = server
    other, _ = come("127.0.0.2")
    crowd = [come()[0] for _ in range(6)]
    until(lambda: [ended(one) for one in crowd] == [True, True, False, False, False, False])
    assert not ended(other)


def test_an_address_whose_connections_are_all_answered_gets_no_more(server):
    """Half of the places are left for others, whatever one address asks for."""
    listener, come = server
    for _ in range(4):
        listener.note(come()[1], waits=False)
    refused, _ = come()
    until(lambda: ended(refused))
    assert not ended(come("127.0.0.2")[0])
