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


def test_who_is_answered_keeps_the_place(server):
    """An answer is not cut off for a newcomer; one that has its answer waits again, as the newest."""
    listener, come = server
    crowd = [come() for _ in range(4)]
    for _, peer in crowd[:2]:
        listener.note(peer, waits=False)
    listener.note(crowd[1][1], waits=True)
    come()
    until(lambda: [ended(one) for one, _ in crowd] == [False, False, True, False])


def test_who_has_sent_something_that_was_not_read_yet_keeps_the_place(server):
    """A server that is busy takes nobody for silent who is not."""
    _, come = server
    crowd = [come()[0] for _ in range(4)]
    crowd[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    come()
    until(lambda: [ended(one) for one in crowd] == [False, True, False, False])


def test_an_address_whose_connections_are_all_answered_gets_no_more(server):
    """Half of the places are left for others, whatever one address asks for."""
    listener, come = server
    for _ in range(4):
        listener.note(come()[1], waits=False)
    refused, _ = come()
    until(lambda: ended(refused))
    assert not ended(come("127.0.0.2")[0])
