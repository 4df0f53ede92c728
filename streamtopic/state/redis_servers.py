"""Clients of redis-py for an address: one server, the primary that sentinels name, or a Redis Cluster.

redis-py repeats nothing by itself here: a command whose outcome is unknown may have been done. `Connection` decides.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import ConnectionPool, parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from streamtopic.security.concealing import clear_address

__all__ = ["Client", "Clustered", "clients_at", "close", "combined"]

_CONNECT_SECONDS = 5.0
_SENTINEL_PORT = 26379


class Clustered(RedisCluster):
    """redis-py's client of a cluster, which also follows an ASK to a node that has no slot yet."""

    def get_node(
        self, host: str | None = None, port: int | None = None, node_name: str | None = None
    ) -> ClusterNode | None:
        """Return a node; redis-py looks up by this what a redirection names."""
        if node_name is not None:
            return self.node_asked(node_name)
        return self.nodes_manager.get_node(host, port)

    def node_asked(self, name: str) -> ClusterNode:
        """Return the node that an ASK names, HOST:PORT, also if it has no slot yet."""
        host, _, port = name.rpartition(":")
        node = ClusterNode(host, int(port), "primary")  # type: ignore[no-untyped-call]
        return self.nodes_manager.nodes_cache.setdefault(name, node)


Client = redis.Redis | Clustered


def clients_at(url: str, timeout: float) -> Callable[[], Client]:
    """Return what makes the client of an address that `clear_address` can read. A cluster is asked for its slots then.

    timeout: seconds that an answer may take.

    Raises ValueError or TypeError for an address that cannot be used; nothing is sent.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, _CONNECT_SECONDS),
        "retry": _once(),
    }
    found = clear_address(url)
    if found is None:
        raise ValueError("it is malformed")
    scheme, plus, kind = found["scheme"].partition("+")
    if not plus:
        if "," in found["server"]:
            raise ValueError("it names several servers")
        return _checked(redis.Redis.from_url(url, **options))
    login = "" if found["user"] is None else f"{found['user']}@"
    # redis-py reads one host; login and parameters are the same for all.
    parsed: dict[str, Any] = dict(parse_url(f"{scheme}://{login}localhost{found['query'] or ''}"))  # type: ignore[no-untyped-call]
    named = options | {name: value for name, value in parsed.items() if name not in {"host", "port", "db"}}
    if kind == "cluster":
        if (found["path"] or "/") not in {"/", "/0"}:
            raise ValueError("a cluster has no database but 0")
        return _cluster(_places(found["server"], 6379), f"{scheme}://{login}", named)
    if kind != "sentinel":
        raise ValueError(f"{kind} is unknown")
    _, service, *number = (found["path"] or "/").split("/")
    if not service or len(number) > 1:
        raise ValueError("name the service")
    named["db"] = int(*number or (0,))
    return _behind_sentinels(_places(found["server"], _SENTINEL_PORT), service, named)


def close(client: Client) -> None:
    """Give all sockets back, those to sentinels and those of the pools that a cluster's client has made included."""
    client.close()
    if isinstance(client, Clustered):
        client.disconnect_connection_pools()  # type: ignore[no-untyped-call]
    elif isinstance(client.connection_pool, SentinelConnectionPool):
        client.connection_pool.sentinel_manager.close()


def _once() -> Retry:
    return Retry(NoBackoff(), 0)


def _checked(client: redis.Redis) -> Callable[[], redis.Redis]:
    # redis-py looks at the parameters of an address only when it makes a connection.
    pool = client.connection_pool
    pool.connection_class(**pool.connection_kwargs)
    return lambda: client


def _behind_sentinels(
    places: Sequence[tuple[str, int]], service: str, named: dict[str, Any]
) -> Callable[[], redis.Redis]:
    """Return the client of the primary, whose new connections ask the sentinels for it."""
    of_sentinels = [name for name in named if name.startswith("sentinel_")]
    login = {name.removeprefix("sentinel_"): named.pop(name) for name in of_sentinels}
    if named.pop("connection_class", None) is not None:
        named["ssl"] = True
    shared = {name: value for name, value in named.items() if name.startswith(("socket_", "ssl"))}
    asking = {"protocol": 2, "retry": _once(), **shared, **login}
    sentinels = Sentinel(places, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    client: redis.Redis = sentinels.master_for(service, **named)  # type: ignore[no-untyped-call]
    return lambda: client


def _cluster(places: Sequence[tuple[str, int]], login: str, named: Mapping[str, Any]) -> Callable[[], Clustered]:
    """Return what makes the client of a cluster, of whose nodes one must answer."""
    (host, port), *others = places
    _checked(redis.Redis(connection_pool=ConnectionPool(host=host, port=port, **named)))
    # RedisCluster passes some options on and drops the rest: all of them are given to the pools directly.
    pool = partial(ConnectionPool, **named)
    return lambda: Clustered(
        url=f"{login}{f'[{host}]' if ':' in host else host}:{port}",
        startup_nodes=[ClusterNode(host, port) for host, port in others],  # type: ignore[no-untyped-call]
        connection_pool_class=pool,
        protocol=2,
        retry=_once(),
        require_full_coverage=False,  # one lost master must not stop the partitions of the others
    )


def _places(server: str, port: int) -> list[tuple[str, int]]:
    """Return host and port of each of `host:port,host:port`. Raises ValueError."""
    found = []
    for place in server.split(","):
        host, colon, number = place.rpartition(":") if not place.endswith("]") else (place, "", "")
        found.append((host.strip("[]"), int(number)) if colon else (place.strip("[]"), port))
    return found


def combined(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return INFO of several masters as that of one: sums of memory, and of everything else the worst.

    run_id: changes with each of theirs, so also if another server takes a master's place.
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
