"""A Redis Cluster on this machine, for one program: three masters without replicas."""

import contextlib
import random
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import redis

from streamtopic.errors import ComponentUnreachable
from streamtopic.local.child import Child
from streamtopic.local.local_redis import find_server

__all__ = ["local_redis_cluster"]

_MASTERS = 3
_SLOTS = 16384
_READY_SECONDS = 60.0
# Nodes of a cluster speak to each other on the port that is this far above their own.
_BUS = 10_000
# Below the ports of outgoing connections.
_PORTS = range(10_000, 20_000)


@contextmanager
def local_redis_cluster() -> Iterator[str]:
    """Start the masters, and yield the address for `Connection`. They end with the block or with the program.

    Raises ComponentUnreachable if no server can be found or started.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamtopic-")))
        ports = [_free_port() for _ in range(_MASTERS)]
        for port in ports:
            own = folder / str(port)
            own.mkdir()
            command = [str(find_server()), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(own)]
            options = ["--cluster-enabled", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
            stack.callback(Child([*command, *options], own / "redis.log", None, folder).end)
        clients = [stack.enter_context(closing(_client(port))) for port in ports]
        _join(clients, ports[0])
        yield "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in ports)


def _join(clients: Sequence[redis.Redis], first_port: int) -> None:
    """Share the slots out, let the masters know each other, and wait until each of them serves all slots."""
    for number, client in enumerate(clients):
        _await(client.ping)
        slots = range(_SLOTS * number // _MASTERS, _SLOTS * (number + 1) // _MASTERS)
        client.execute_command("CLUSTER ADDSLOTS", *slots)  # type: ignore[no-untyped-call]
        client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)  # type: ignore[no-untyped-call]
        client.execute_command("CLUSTER MEET", "127.0.0.1", first_port)  # type: ignore[no-untyped-call]
    for client in clients:
        _await(partial(_serves, client))


def _serves(client: redis.Redis) -> bool:
    return bool(client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")  # type: ignore[no-untyped-call]


def _await(ready: Callable[[], object]) -> None:
    """Return once `ready` is true; a server that does not answer yet is not. Raises ComponentUnreachable."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.exceptions.RedisError):
            if ready():
                return
        time.sleep(0.05)
    raise ComponentUnreachable(f"the local Redis Cluster is not ready after {_READY_SECONDS:.0f} s: try again")


def _client(port: int) -> redis.Redis:
    return redis.Redis(host="127.0.0.1", port=port, socket_timeout=5, protocol=2)


def _free_port() -> int:
    """Return a port that nobody uses, and whose port for other nodes is free too."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + _BUS))
            return port
