"""Finds the Redis server of a key: the only one, the primary that sentinels name, or a master of a cluster.

`Connection` sends the commands. Here it learns which server to send one to, and looks again where that has changed.

redis-py's own cluster client is not used for sending: it repeats commands by rules of its own, asks servers for the
table of all commands, and packs commands slowly. Its map of a cluster, the NodesManager, is used.
"""

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, NodesManager, get_node_name
from redis.connection import ConnectionPool, parse_url
from redis.crc import key_slot
from redis.exceptions import AskError, MovedError, RedisClusterException, RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from streamtopic.security.concealing import clear_address

__all__ = ["Clustered", "OneServer", "Sentinels", "Servers", "combined", "key_of", "servers_at"]

_CONNECT_SECONDS = 5.0
_SENTINEL_PORT = 26379
# Commands whose first argument is no key; of two of these words only the second tells what is asked.
_WITHOUT_KEY = frozenset(
    "ACL BGREWRITEAOF CLIENT CLUSTER CONFIG DBSIZE INFO PING SCAN SCRIPT SLOWLOG TIME WAIT".split()  # noqa: SIM905
)
_KEY_COMES_SECOND = frozenset({"MEMORY", "OBJECT", "XINFO"})
_KEYS_ARE_COUNTED = frozenset({"EVAL", "EVALSHA"})


def key_of(command: Sequence[str | bytes | float]) -> str | bytes | None:
    """Return the first key of a command, None for one without: all its keys lie in one slot."""
    first = command[0]
    name = first.decode() if isinstance(first, bytes) else str(first)
    word = name.split()[0].upper()
    if word in _WITHOUT_KEY:
        return None
    place = 2 if word in _KEY_COMES_SECOND else 1
    if word in _KEYS_ARE_COUNTED:
        place = 3 if int(command[2]) else len(command)
    if place >= len(command):
        return None
    key = command[place]
    return key if isinstance(key, str | bytes) else str(key)


class Servers(Protocol):
    """The servers behind an address.

    changes: how often a connection was made, or a key was found on another server. A cursor holds for one server only.
    """

    changes: int

    def of(self, key: str | bytes | None) -> redis.Redis:
        """Return the client of the server that has this key; of any for None. Raises redis-py's errors."""

    def all(self) -> Sequence[redis.Redis]:
        """Return a client for each server that may be written to."""

    def redirected(self, error: MovedError | AskError) -> redis.Redis | None:
        """Note where a key is by now; return the client that an ASK names, None where `of` gives the right one."""

    def lost(self, client: redis.Redis | None) -> None:
        """Take in that a server does not answer, or is not what it was: the next `of` looks anew."""

    def close(self) -> None:
        """Give the sockets back."""


class OneServer:
    """The server that an address names."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.changes = 0
        self.client = redis.Redis.from_url(url, **_counting(self, options))
        # redis-py looks at the parameters of an address only when it makes a connection.
        pool = self.client.connection_pool
        pool.connection_class(**pool.connection_kwargs)

    def of(self, key: str | bytes | None) -> redis.Redis:  # noqa: ARG002 - one server has every key
        """Return the client."""
        return self.client

    def all(self) -> Sequence[redis.Redis]:
        """Return the client."""
        return (self.client,)

    def redirected(self, error: MovedError | AskError) -> redis.Redis | None:
        """Raise the error: only a cluster redirects, and this was taken for a server by itself."""
        raise error

    def lost(self, client: redis.Redis | None) -> None:  # noqa: ARG002 - there is one
        """Close the connections that lie idle, which are as dead; those in use belong to other threads."""
        _drop_idle(self.client)

    def close(self) -> None:
        """Give the sockets back."""
        self.client.close()


class Sentinels:
    """The primary of a service, as a majority of sentinels knows it. Each new connection asks them for it."""

    def __init__(
        self, sentinels: Sequence[tuple[str, int]], service: str, login: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        self.changes = 0
        times = {name: value for name, value in options.items() if name.startswith("socket_")}
        tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
        secure = "ssl" in options
        asking = {"protocol": 2, "retry": Retry(NoBackoff(), 0), "ssl": secure, **times, **tls, **login}
        self._sentinels = Sentinel(sentinels, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
        self.client: redis.Redis = self._sentinels.master_for(  # type: ignore[no-untyped-call]
            service, **_counting(self, options)
        )

    def of(self, key: str | bytes | None) -> redis.Redis:  # noqa: ARG002 - the primary has every key
        """Return the client of the primary."""
        return self.client

    def all(self) -> Sequence[redis.Redis]:
        """Return the client of the primary."""
        return (self.client,)

    def redirected(self, error: MovedError | AskError) -> redis.Redis | None:
        """Raise the error: sentinels do not look after clusters."""
        raise error

    def lost(self, client: redis.Redis | None) -> None:  # noqa: ARG002 - there is one
        """Close the connections that lie idle: new ones ask the sentinels again."""
        _drop_idle(self.client)

    def close(self) -> None:
        """Give the sockets back."""
        self.client.close()
        self._sentinels.close()


class Clustered:
    """The masters of a Redis Cluster. Nothing is asked of it before the first command.

    nodes: some of its nodes, of which one must answer; the others are found from there.
    """

    def __init__(self, nodes: Sequence[tuple[str, int]], options: Mapping[str, Any]) -> None:
        self.changes = 0
        self._nodes = nodes
        self._options = _counting(self, options)
        self._lock = threading.Lock()
        self._known: NodesManager | None = None
        self._made: list[redis.Redis] = []
        self._asked: dict[str, ClusterNode] = {}

    @property
    def _map(self) -> NodesManager:
        with self._lock:
            if self._known is None:
                self._known = _KeepingMap(
                    self._made,
                    [_node(host, port) for host, port in self._nodes],
                    from_url=True,  # so that every option reaches the pools
                    require_full_coverage=False,  # one lost master must not stop the partitions of the others
                    connection_pool_class=ConnectionPool,
                    **self._options,
                )
            return self._known

    def of(self, key: str | bytes | None) -> redis.Redis:
        """Return the client of the master whose slot a key is in."""
        if key is None:
            return self.all()[0]
        data = key.encode() if isinstance(key, str) else key
        slot = key_slot(data)
        return self._client(self._map.get_node_from_slot(slot))

    def all(self) -> Sequence[redis.Redis]:
        """Return a client for each master."""
        masters = self._map.get_nodes_by_server_type("primary")
        found = [self._client(node) for node in masters]
        if not found:
            raise RedisClusterException("none of its nodes serves a slot")
        return found

    def redirected(self, error: MovedError | AskError) -> redis.Redis | None:
        """Note a MOVED; return the client that an ASK names. redis-py derives MovedError from AskError."""
        self.changes += 1
        if isinstance(error, MovedError):
            try:
                self._map.move_slot(error)
            except KeyError:
                # Nobody had the slot when the map was read.
                self._map.initialize(additional_startup_nodes_info=[(error.host, error.port)])
            return None
        name = get_node_name(error.host, error.port)
        node = self._map.get_node(node_name=name) or self._asked.setdefault(name, _node(error.host, error.port))
        return self._client(node)

    def lost(self, client: redis.Redis | None) -> None:
        """Ask the other nodes who has which slot by now."""
        self.changes += 1
        if client is not None:
            _drop_idle(client)
        nodes = self._map.nodes_cache.values()
        unanswered = (node.name for node in nodes if node.redis_connection is client)
        failed = next(unanswered, None)
        # IndexError: redis-py takes for granted that some master has a slot.
        with contextlib.suppress(IndexError):
            self._map.initialize(last_failed_node_name=failed)
        serving = {id(node.redis_connection) for node in self._map.nodes_cache.values()}
        for made in self._made:
            if id(made) not in serving:
                _drop_idle(made)

    def close(self) -> None:
        """Give the sockets back."""
        for client in self._made:
            client.connection_pool.disconnect()

    def _client(self, node: ClusterNode) -> redis.Redis:
        if node.redis_connection is None:
            # A node that a redirection named first.
            self._map.create_redis_connections([node])  # type: ignore[no-untyped-call]
        client: redis.Redis = node.redis_connection
        return client


class _KeepingMap(NodesManager):
    """A map of a cluster that adds every client it makes to `made`.

    redis-py drops the client of a node that left, and its sockets stay open until Python looks for garbage.
    """

    def __init__(self, made: list[redis.Redis], nodes: list[ClusterNode], **options: Any) -> None:  # noqa: ANN401 - redis-py's own options
        self._made = made
        super().__init__(nodes, **options)

    def create_redis_node(self, *place: Any, **options: Any) -> redis.Redis:  # noqa: ANN401 - as redis-py calls it
        """Make a client and note it."""
        client: redis.Redis = super().create_redis_node(*place, **options)  # type: ignore[no-untyped-call]
        self._made.append(client)
        return client


def servers_at(url: str, timeout: float, packer: object) -> Servers:
    """Return the servers behind an address that `clear_address` can read. Raises ValueError, TypeError.

    timeout: seconds that an answer may take.
    packer: see redis-py's `command_packer`.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, _CONNECT_SECONDS),
        "command_packer": packer,
    }
    alone = options | {"retry": Retry(NoBackoff(), 0), "retry_on_error": []}
    found = clear_address(url)
    if found is None:
        raise ValueError("it is malformed")
    scheme, plus, kind = found["scheme"].partition("+")
    if not plus:
        if "," in found["server"]:
            raise ValueError("it names several servers")
        return OneServer(url, alone)
    login = "" if found["user"] is None else f"{found['user']}@"
    # redis-py reads one host; login and parameters are the same for all.
    parsed: dict[str, Any] = dict(parse_url(f"{scheme}://{login}localhost{found['query'] or ''}"))  # type: ignore[no-untyped-call]
    named = {name: value for name, value in parsed.items() if name not in {"host", "port", "db"}}
    if kind == "cluster":
        if (found["path"] or "/") not in {"/", "/0"}:
            raise ValueError("a cluster has no database but 0")
        nodes = _places(found["server"], 6379)
        made = Clustered(nodes, options | named)
        _tried(nodes[0], alone | named)
        return made
    if kind != "sentinel":
        raise ValueError(f"{kind} is unknown")
    _, service, *number = (found["path"] or "/").split("/")
    if not service or len(number) > 1:
        raise ValueError("name the service")
    of_sentinels = [name for name in named if name.startswith("sentinel_")]
    asked = {name.removeprefix("sentinel_"): named.pop(name) for name in of_sentinels}
    if named.pop("connection_class", None) is not None:
        named["ssl"] = True
    nodes = _places(found["server"], _SENTINEL_PORT)
    database = int(*number or (0,))
    return Sentinels(nodes, service, asked, alone | named | {"db": database})


def combined(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return INFO of several masters as that of one: sums of memory, and of everything else the worst.

    run_id: changes with each of theirs, so also where another server takes a master's place.
    """
    first = dict(found[0])
    if len(found) == 1:
        return first
    limits = [int(info.get("maxmemory", 0)) for info in found]
    statuses: dict[str, Any] = {}
    for name in ("aof_last_write_status", "aof_last_bgrewrite_status"):
        if name in first:
            failed = (info[name] for info in found if info.get(name) != "ok")
            statuses[name] = next(failed, "ok")
    busy: dict[str, Any] = {}
    for name in ("loading", "aof_rewrite_in_progress", "aof_rewrite_scheduled"):
        of_each = [int(info.get(name, 0)) for info in found]
        busy[name] = max(of_each)
    names = sorted(str(info["run_id"]) for info in found)
    persistent = (int(info.get("aof_enabled", 0)) for info in found)
    used = (int(info["used_memory"]) for info in found)
    return {
        **first,
        **statuses,
        **busy,
        "run_id": " ".join(names),
        "aof_enabled": min(persistent),
        "used_memory": sum(used),
        "maxmemory": sum(limits) if all(limits) else 0,
    }


def _node(host: str, port: int) -> ClusterNode:
    return ClusterNode(host, port, "primary")  # type: ignore[no-untyped-call]


def _places(server: str, port: int) -> list[tuple[str, int]]:
    """Return host and port of each of `host:port,host:port`. Raises ValueError."""
    found = []
    for place in server.split(","):
        host, colon, number = place.rpartition(":") if not place.endswith("]") else (place, "", "")
        found.append((host.strip("[]"), int(number)) if colon else (place.strip("[]"), port))
    return found


def _counting(servers: Servers, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by which every new connection counts as a change."""

    def connected(connection: redis.Connection) -> None:
        connection.on_connect()  # type: ignore[no-untyped-call]
        servers.changes += 1

    return {**options, "redis_connect_func": connected}


def _tried(place: tuple[str, int], options: Mapping[str, Any]) -> None:
    """Make, without connecting, what would be made later: parameters that redis-py does not know are refused here."""
    pool = ConnectionPool(host=place[0], port=place[1], **options)
    pool.connection_class(**pool.connection_kwargs)


def _drop_idle(client: redis.Redis) -> None:
    with contextlib.suppress(RedisError):
        client.connection_pool.disconnect(inuse_connections=False)
