"""The one place where Redis is spoken to, where its errors become this package's, and values its bytes."""

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgpack
import redis
from pydantic import TypeAdapter

from streamtopic.errors import (
    ComponentFull,
    ComponentUnreachable,
    SettingsError,
    StateCorrupt,
    StateError,
    StreamtopicError,
)
from streamtopic.security.concealing import clear_address, conceal, shown_address
from streamtopic.security.tls_faults import tls_fault
from streamtopic.state.redis_servers import Client, Clustered, clients_at, close, combined
from streamtopic.state.scripts import CHANGE, Check, Command, Outcome, outcome

__all__ = ["Codec", "Command", "Connection", "mapped"]

T = TypeVar("T")

_TIMEOUT = 30.0
_errors = redis.exceptions
_FORM = (
    "give redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://..., unix:///PATH, redis+cluster://HOST:PORT,HOST:PORT or "
    "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE, with /, ?, #, @ and % in a password written as %2F, %3F, %23, %40 "
    "and %25"
)
_CROSS_SLOT = "same key slot"
# A server that says "not now" is asked again for so long. Electing another master takes longer than that mostly; then
# the whole step is repeated by its process, as after any fault.
_PATIENCE = 5.0
_PAUSE = 0.05
_NOT_NOW = (
    _errors.BusyLoadingError,
    _errors.ClusterDownError,
    _errors.ClusterError,  # redirected, or told to try again, too often: a slot is moving
    _errors.SlotNotCoveredError,
    _errors.TryAgainError,
    redis.sentinel.MasterNotFoundError,
)


@dataclass(frozen=True, slots=True)
class _Passing:
    """An error that may pass by itself, or once an operator has acted: the processes of a service wait and go on.

    kinds: classes of redis-py.
    codes: first words of an answer that redis-py has no class for, or that Redis 6.2 packs into an error of a script.
    told: the text for users. {} are address and text.
    error: class of this package's error.
    """

    kinds: tuple[type[Exception], ...]
    codes: tuple[str, ...]
    told: str
    error: type[ComponentUnreachable] = ComponentUnreachable

    def fits(self, error: BaseException) -> bool:
        """Whether it is this error."""
        text = str(error)
        return isinstance(error, self.kinds) or any(text.startswith(f"{c} ") or f" -{c} " in text for c in self.codes)


_REPLICA = _Passing(
    (_errors.ReadOnlyError,), ("READONLY",), "Redis at {} is a read-only replica ({}): use the address of the primary"
)
# The first that fits counts: classes of redis-py are derived from each other. All other errors of commands are faults
# of the state or of the program, and are a StateError.
_PASSING = (
    _Passing((_errors.BusyLoadingError,), ("LOADING",), "Redis at {} is loading its data ({}): wait until it has"),
    _Passing(
        (redis.sentinel.MasterNotFoundError,),
        (),
        "Redis at {} has no primary now ({}): check the name of the service, its servers and sentinels",
    ),
    _Passing(
        (_errors.ConnectionError, _errors.TimeoutError),
        (),
        "Redis at {} does not answer ({}): start it, or correct its address",
    ),
    _Passing(
        (_errors.OutOfMemoryError,),
        ("OOM",),
        "Redis at {} is out of memory ({}): raise maxmemory; nothing was written",
        ComponentFull,
    ),
    _Passing(
        (),
        ("MISCONF",),
        "Redis at {} cannot write to its disk ({}): make room there, and see its log; nothing was written",
        ComponentFull,
    ),
    _Passing(
        (),
        ("BUSY",),
        "Redis at {} is busy with somebody's script ({}): wait until it has ended, or end it with SCRIPT KILL",
    ),
    _Passing(
        (), ("NOREPLICAS",), "Redis at {} has too few replicas to write ({}): bring them back; nothing was written"
    ),
    _REPLICA,
    _Passing(
        (_errors.ClusterDownError, _errors.SlotNotCoveredError),  # MASTERDOWN is derived from the first
        ("CLUSTERDOWN", "MASTERDOWN"),
        "Redis at {} cannot serve now ({}): check its nodes and replicas",
    ),
    _Passing(
        (_errors.AskError,),  # and MovedError
        (),
        "Redis at {} is a node of a cluster ({}): give redis+cluster:// with some of its nodes",
    ),
    _Passing(
        (_errors.ClusterError, _errors.TryAgainError),
        ("TRYAGAIN",),
        "Redis at {} is moving this slot to another node ({}): wait until it has moved, and see `redis-cli --cluster "
        "check`; nothing was written",
    ),
    _Passing((_errors.RedisClusterException,), (), "Redis at {} does not answer as a cluster ({}): check its nodes"),
)


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
    for passing in _PASSING:
        if passing.fits(error):
            # MISCONF goes on with sentences about settings of Redis.
            return passing.error(passing.told.format(address, text.partition(". Commands that")[0]))
    return StateError(f"Redis at {address} refused a command: {text}")


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


class Connection:
    """A Redis connection whose errors are StreamtopicErrors.

    url: redis://, rediss:// or unix://; redis+cluster:// with nodes of a cluster, redis+sentinel:// with sentinels and
    the name of the service (rediss+... for TLS).

    Automatic retries are off in redis-py, since it repeats commands whose outcome is unknown and so can apply an
    increment twice. Here a command is sent once more after a lost connection only because every write of this package
    recognises that it was already applied. An answer that says that nothing was done, such as MOVED, ASK, TRYAGAIN,
    CLUSTERDOWN or LOADING, is no such case: the command is sent again for some seconds, where it belongs by then.

    Raises SettingsError for a malformed address; nothing is sent before the first command.
    """

    def __init__(self, url: str, *, timeout: float = _TIMEOUT) -> None:
        self.address = shown_address(url)
        if clear_address(url) is None:
            raise SettingsError(f"Redis address {self.address} is malformed: {_FORM}")
        try:
            self._make = clients_at(url, timeout)
        except (ValueError, TypeError):
            # What redis-py says of it may quote a part of the password.
            raise SettingsError(f"Redis address {self.address} cannot be used: {_FORM}") from None
        self._made: Client | None = None
        self._lock = threading.Lock()
        self._digests: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the sockets back."""
        if self._made is not None:
            close(self._made)

    @property
    def client(self) -> Client:
        """The client of redis-py. That of a cluster is made at the first command, and raises redis-py's errors."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def ping(self) -> None:
        """Raise ComponentUnreachable unless every server that holds keys answers."""
        self._everywhere(lambda client: client.ping())

    def information(self) -> dict[str, Any]:
        """Return the server's INFO with `maxmemory_policy` and `aof_enabled` among it; of masters the `combined`."""
        of_each = list(self.servers().values())
        return combined(of_each)

    def servers(self) -> dict[str, dict[str, Any]]:
        """Return INFO of each server that holds keys, by host and port, or the address if there is one."""
        found = self._everywhere(lambda client: (_place(client), dict(client.info())))
        return dict(found) if len(found) > 1 else {self.address: found[0][1]}

    def names(self, pattern: str) -> Iterator[bytes]:
        """Yield keys that match a pattern. Redis removes those that have expired as it comes by."""
        for server in self._run(self._masters):
            cursor = 0
            while True:
                scan = partial(server.execute_command, "SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                cursor, found = self._run(scan)
                yield from found
                if cursor == 0:
                    break

    def time_ms(self, key: str | None = None) -> int:
        """Return milliseconds since 1970 by the clock of the server that has a key."""
        seconds, micros = self._run(lambda: self._server(("GET", key or "")).time())
        return int(seconds) * 1000 + int(micros) // 1000

    def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis answers depends on the command
        """Send one command that may safely be sent twice; one without a key goes to some server."""
        return self._run(lambda: self.client.execute_command(*command), command)  # type: ignore[no-untyped-call]

    def everywhere(self, *command: str | bytes | int) -> list[Any]:
        """Send one command without a key to every server that holds keys."""
        return self._everywhere(lambda client: client.execute_command(*command))  # type: ignore[no-untyped-call]

    def batch(self, commands: Iterable[Command]) -> list[Any]:
        """Send commands together that may safely be sent twice; those of one key keep their order."""
        todo = list(commands)
        if not todo:
            return []
        answers = self._run(lambda: self._pipelines(todo), todo[0])
        for place, answer in enumerate(answers):
            if isinstance(answer, Exception) and self._may_go_on(answer):
                answers[place] = self.call(*todo[place])
            elif isinstance(answer, Exception):
                raise mapped(answer, self.address, _act(todo[place])) from answer
        return answers

    def _pipelines(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to commands, errors among them. redis-py's own for a cluster sends some of them again."""
        by_server: dict[redis.Redis, list[int]] = {}
        for place, command in enumerate(commands):
            by_server.setdefault(self._server(command), []).append(place)
        answers: list[Any] = [None] * len(commands)
        for server, places in by_server.items():
            pipeline = server.pipeline(transaction=False)
            for place in places:
                pipeline.execute_command(*commands[place])  # type: ignore[no-untyped-call]
            # What redis-py raises by itself quotes the command, and with it what documents said.
            for place, answer in zip(places, pipeline.execute(raise_on_error=False), strict=True):
                answers[place] = answer
        return answers

    def script(self, text: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:  # noqa: ANN401 - as call
        """Run a Lua script that recognises its own repetition. All keys must lie in one slot."""
        digest = self._digests.get(text)
        if digest is None:
            digest = self._digests[text] = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        rest = (len(keys), *keys, *arguments)

        def send() -> Any:  # noqa: ANN401 - as call
            try:
                return self.client.execute_command("EVALSHA", digest, *rest)  # type: ignore[no-untyped-call]
            except _errors.NoScriptError:
                # A server that was started again, or took another one's place, knows no script.
                return self.client.execute_command("EVAL", text, *rest)  # type: ignore[no-untyped-call]

        return self._run(send, ("EVALSHA", digest, *rest))

    def change(
        self,
        steps: Iterable[Command],
        *,
        guards: Sequence[Check] = (),
        done: tuple[Command, str | bytes] | None = None,
        clock: tuple[str, str] | None = None,
    ) -> Outcome:
        """Write all of some commands, or none. All keys must lie in one slot.

        steps: commands, each with its key as the second part.
        guards: what must be so; the first that is not makes it Stale.
        done: a command that reads, and its answer if the change was made before; it is looked at first.
        clock: a hash and its field that gets the time, milliseconds since 1970.
        """
        keys: dict[str, int] = {}

        def numbered(command: Command) -> list[str | bytes | int]:
            name, key, *rest = command
            # As text: a number of Lua has 53 bits.
            texts = [str(part) if type(part) is int else part for part in rest]
            return [name, keys.setdefault(str(key), len(keys) + 1), *texts]

        plan: dict[str, object] = {"guards": [[numbered(command), value, why] for command, value, why in guards]}
        if done is not None:
            plan["done"] = [numbered(done[0]), done[1]]
        plan["steps"] = [numbered(command) for command in steps]
        if clock is not None:
            plan["clock"] = numbered(("HSET", *clock))
        # Redis reads the kinds of msgpack from before it told bytes and text apart.
        packed = bytes(msgpack.packb(plan, use_bin_type=False))
        return outcome(self.script(CHANGE, list(keys), [packed]))

    def _server(self, command: Command) -> redis.Redis:
        """Return the client of the server that a command belongs to."""
        client = self.client
        if not isinstance(client, Clustered):
            return client
        slot = int(client.determine_slot(*command) or 0)
        return client.get_redis_connection(client.nodes_manager.get_node_from_slot(slot))

    def _masters(self) -> list[redis.Redis]:
        """Return a client for each server that holds keys."""
        client = self.client
        if not isinstance(client, Clustered):
            return [client]
        masters = client.nodes_manager.get_nodes_by_server_type("primary")
        return [client.get_redis_connection(node) for node in masters]

    def _everywhere(self, send: Callable[[redis.Redis], T]) -> list[T]:
        """Return the answers of all servers that hold keys."""
        return self._run(lambda: [send(client) for client in self._masters()])

    def _run(self, send: Callable[[], T], command: Command = ()) -> T:
        """Return what `send` returns, which is called again as far as that is safe; see the class.

        command: that is sent, for errors.
        """
        repeated, until = False, 0.0
        while True:
            try:
                return send()
            except (_errors.RedisError, _errors.RedisClusterException) as error:
                fault = _cause(error)
            except LookupError:
                # redis-py takes for granted that some master has a slot, and that each slot had one.
                fault = _errors.RedisClusterException("none of its nodes serves a slot")
            act = _act(command) if command else ""
            if self._may_go_on(fault):
                until = until or time.monotonic() + _PATIENCE
                if time.monotonic() >= until:
                    raise mapped(fault, self.address, act) from fault
                time.sleep(_PAUSE)
            elif repeated or not _outcome_unknown(fault):
                raise mapped(fault, self.address, act) from fault
            else:
                repeated = True
            self._look_anew()

    def _look_anew(self) -> None:
        """Ask a cluster who is master; else drop the connections that lie idle, which are as dead."""
        with contextlib.suppress(_errors.RedisError, _errors.RedisClusterException, LookupError):
            if isinstance(self.client, Clustered):
                self.client.nodes_manager.initialize()
            else:
                self.client.connection_pool.disconnect(inuse_connections=False)

    def _may_go_on(self, error: BaseException) -> bool:
        """Whether an error says that nothing was done, and that it may be done in a moment."""
        if isinstance(error, _errors.AskError) or _REPLICA.fits(error):
            # A server by itself stays what it is. A cluster and sentinels come to have another primary.
            return not self.address.startswith(("redis://", "rediss://", "unix://"))
        return isinstance(error, _NOT_NOW)


def _act(command: Command) -> str:
    """Return a command and its key, for errors; arguments may say what documents say."""
    key = 3 if command[0] == "EVALSHA" else 1
    texts = [part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in command]
    return " ".join([texts[0], *texts[key : key + 1]])


def _outcome_unknown(error: BaseException) -> bool:
    refused = _errors.AuthenticationError | _errors.AuthorizationError | _errors.MaxConnectionsError
    lost = isinstance(error, _errors.ConnectionError | _errors.TimeoutError)
    return lost and not isinstance(error, refused)


def _cause(error: Exception) -> Exception:
    """Return what a server answered if redis-py only says that it could not read the map of a cluster."""
    cause = error.__cause__
    known = isinstance(error, _errors.RedisClusterException) and isinstance(cause, _errors.RedisError)
    return cause if known and isinstance(cause, Exception) else error


def _place(client: redis.Redis) -> str:
    named = client.connection_pool.connection_kwargs
    host = named.get("host", "")
    port = named.get("port", "")
    return f"{host}:{port}"


class Codec(Generic[T]):
    """Packs and unpacks values of one class.

    kind: a dataclass; its fields may be dataclasses, mappings, sequences and enums of texts as well.
    told: the error text for bytes that are no such value, with the remedy.
    use_list: whether sequences of values of any type are lists; a key of a mapping may be a tuple only if not.
    """

    def __init__(self, kind: type[T], told: str, *, use_list: bool = True) -> None:
        self._types = TypeAdapter(kind)
        self._told = told
        self._use_list = use_list

    def pack(self, value: T) -> bytes:
        """Return the bytes that Redis keeps."""
        return bytes(msgpack.packb(value, default=_plain))

    def unpack(self, data: bytes) -> T:
        """Undo `pack`. Raises StateCorrupt."""
        try:
            found = msgpack.unpackb(data, use_list=self._use_list, strict_map_key=False)
            return self._types.validate_python(found)
        except (ValueError, TypeError, msgpack.UnpackException):
            # What pydantic says of it may quote what documents said.
            raise StateCorrupt(self._told) from None


def _plain(value: object) -> dict[Any, Any]:
    """Return what msgpack writes for a dataclass, or for a mapping of another class than dict."""
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return dict(value)  # type: ignore[call-overload, no-any-return]
