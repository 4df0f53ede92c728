"""Clients of redis-py for an address: one server, the primary that sentinels name, or a Redis Cluster; their errors.

redis-py sends a command twice at most if its outcome is unknown; `Connection` says why that is safe.
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

from streamtopic.errors import ComponentFull, ComponentUnreachable, SettingsError, StateError, StreamtopicError
from streamtopic.security.concealing import clear_address, conceal
from streamtopic.security.tls_faults import tls_fault

__all__ = ["Client", "clients_at", "close", "combined", "mapped"]

_CONNECT_SECONDS = 5.0
_SENTINEL_PORT = 26379


Client = redis.Redis | RedisCluster

_errors = redis.exceptions
_CROSS_SLOT = "same key slot"


# Errors that may pass by themselves, or once an operator has acted: the processes of a service wait and go on. All
# others are faults of the state or of the program, and are a StateError. {} is the text of the error.
_BY_CODE = {
    "LOADING": "is loading its data ({}): wait until it has",
    "OOM": "is out of memory ({}): raise maxmemory; nothing was written",
    "MISCONF": "cannot write to its disk ({}): make room there, and see its log; nothing was written",
    "BUSY": "is busy with somebody's script ({}): wait until it has ended, or end it with SCRIPT KILL",
    "NOREPLICAS": "has too few replicas to write ({}): bring them back; nothing was written",
    "READONLY": "is a read-only replica ({}): use the address of the primary",
    "CLUSTERDOWN": "cannot serve now ({}): check its nodes and replicas",
    "MASTERDOWN": "cannot serve now ({}): check its nodes and replicas",
    "TRYAGAIN": "is moving this slot to another node ({}): wait until it has moved, and see `redis-cli --cluster "
    "check`; nothing was written",
}
"""By the first word of an answer. redis-py may have no class for it, or Redis 6.2 packs it into that of a script."""

_UNANSWERED = "does not answer ({}): start it, or correct its address"
_BY_CLASS: dict[type, str] = {
    _errors.BusyLoadingError: _BY_CODE["LOADING"],
    _errors.OutOfMemoryError: _BY_CODE["OOM"],
    _errors.ReadOnlyError: _BY_CODE["READONLY"],
    _errors.ClusterDownError: _BY_CODE["CLUSTERDOWN"],
    _errors.SlotNotCoveredError: _BY_CODE["CLUSTERDOWN"],
    _errors.ClusterError: _BY_CODE["TRYAGAIN"],
    _errors.TryAgainError: _BY_CODE["TRYAGAIN"],
    _errors.AskError: "is a node of a cluster ({}): give redis+cluster:// with some of its nodes",  # and MovedError
    _errors.RedisClusterException: "does not answer as a cluster ({}): check its nodes",
    redis.sentinel.MasterNotFoundError: "has no primary now ({}): check the name of the service, its servers and "
    "sentinels",
    _errors.ConnectionError: _UNANSWERED,
    _errors.TimeoutError: _UNANSWERED,
}
_FULL = frozenset({_BY_CODE["OOM"], _BY_CODE["MISCONF"]})


def mapped(error: Exception, address: str, act: str = "") -> StreamtopicError:
    """Return this package's error for one of redis-py's, with the remedy.

    act: the command and key that were sent.
    """
    text = conceal(str(error)) or type(error).__name__
    if _CROSS_SLOT in text:
        return StateError(f"Redis at {address} cannot change keys of several slots in one step")
    refusal = _refusal(error, address, text, act)
    if refusal is not None:
        return refusal
    told = _passing(error)
    if told is None:
        return StateError(f"Redis at {address} refused a command: {text}")
    kind = ComponentFull if told in _FULL else ComponentUnreachable
    # MISCONF goes on with sentences about settings of Redis.
    return kind(f"Redis at {address} {told.format(text.partition('. Commands that')[0])}")


def _passing(error: Exception) -> str | None:
    """Return what is told of an error that may pass, None for one that does not."""
    text = str(error)
    for code, told in _BY_CODE.items():
        if text.startswith(f"{code} ") or f" -{code} " in text:
            return told
    # The nearest first: classes of redis-py are derived from each other.
    return next((_BY_CLASS[kind] for kind in type(error).__mro__ if kind in _BY_CLASS), None)


def _refusal(error: Exception, address: str, text: str, act: str) -> StreamtopicError | None:
    """Return the error of a user or a client that is refused; None if it is not."""
    fault = tls_fault(error)
    if fault is not None:
        return SettingsError(f"Redis at {address} cannot be reached safely; {fault}")
    forbidden = isinstance(error, _errors.NoPermissionError)
    if forbidden or isinstance(error, _errors.AuthenticationError | _errors.AuthorizationError):
        lacking = f"; it lacks the right {act}" if act and forbidden else ""
        return SettingsError(
            f"Redis at {address} refuses this user ({text}){lacking}: check the user, password and ACL"
        )
    told = f"Redis at {address} does not answer ({text})"
    unanswered = isinstance(error, _errors.TimeoutError) and "connecting" in text
    if unanswered and address.startswith("rediss"):
        # A server without TLS waits for the rest of the greeting, which it takes for a command.
        return ComponentUnreachable(f"{told}: use redis:// if it has no TLS, or start it")
    hung_up = isinstance(error, _errors.ConnectionError) and "reset by peer" in text
    if hung_up and address.startswith("redis"):
        return ComponentUnreachable(f"{told}: use rediss:// if it speaks TLS, or see its log")
    return None


def clients_at(url: str, timeout: float) -> Callable[[], Client]:
    """Return what makes the client of an address that `clear_address` can read. A cluster is asked for its slots then.

    timeout: seconds that an answer may take.

    Raises ValueError or TypeError for an address that cannot be used; nothing is sent.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "socket_timeout": timeout,
        "socket_connect_timeout": min(timeout, _CONNECT_SECONDS),
        "retry": _once_more(),
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
    if isinstance(client, RedisCluster):
        client.disconnect_connection_pools()  # type: ignore[no-untyped-call]
    elif isinstance(client.connection_pool, SentinelConnectionPool):
        client.connection_pool.sentinel_manager.close()


def _once_more() -> Retry:
    return Retry(NoBackoff(), 1)


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
    asking = {"protocol": 2, "retry": _once_more(), **shared, **login}
    sentinels = Sentinel(places, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    client: redis.Redis = sentinels.master_for(service, **named)  # type: ignore[no-untyped-call]
    return lambda: client


def _cluster(places: Sequence[tuple[str, int]], login: str, named: Mapping[str, Any]) -> Callable[[], RedisCluster]:
    """Return what makes the client of a cluster, of whose nodes one must answer."""
    (host, port), *others = places
    _checked(redis.Redis(connection_pool=ConnectionPool(host=host, port=port, **named)))
    # RedisCluster passes some options on and drops the rest: all of them are given to the pools directly.
    pool = partial(ConnectionPool, **named)
    return lambda: RedisCluster(
        url=f"{login}{f'[{host}]' if ':' in host else host}:{port}",
        startup_nodes=[ClusterNode(host, port) for host, port in others],  # type: ignore[no-untyped-call]
        connection_pool_class=pool,
        protocol=2,
        retry=_once_more(),
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
    """Return INFO of several masters as that of one: numbers added up, and each different text once."""
    if len(found) == 1:
        return dict(found[0])
    joined = dict[str, Any]()
    for name in found[0]:
        values = [info.get(name, "") for info in found]
        numbers = all(isinstance(value, int) for value in values)
        # A text changes with that of any master, so also if another server takes a master's place.
        joined[name] = sum(values) if numbers else " ".join(sorted(set(map(str, values))))
    return joined
