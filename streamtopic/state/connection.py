"""The one place where Redis is spoken to, and where its errors become this package's."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import msgpack
import redis

from streamtopic.errors import ComponentFull, ComponentUnreachable, SettingsError, StateError, StreamtopicError
from streamtopic.security.concealing import clear_address, conceal, shown_address
from streamtopic.security.tls_faults import tls_fault
from streamtopic.state.redis_servers import OneServer, Servers, combined, key_of, servers_at
from streamtopic.state.scripts import SCAN_HASH

__all__ = ["Connection", "mapped"]

T = TypeVar("T")
Command = Sequence[str | bytes | int]

_TIMEOUT = 30.0
_LONG = 1 << 16
_MANY = 1 << 13
_errors = redis.exceptions
_FORM = (
    "give redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://..., unix:///PATH, redis+cluster://HOST:PORT,HOST:PORT or "
    "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE, with /, ?, #, @ and % in a password written as %2F, %3F, %23, %40 "
    "and %25"
)
# Two nodes that name each other for a slot would otherwise send a command to and fro for ever.
_REDIRECTIONS = 16
# A server that says "not now" is asked again for so long. Electing another master takes longer than that mostly; then
# the whole step is repeated by its process, as after any fault.
_PATIENCE = 5.0
_PAUSE = 0.05
_NOT_NOW = (
    _errors.BusyLoadingError,
    _errors.ClusterDownError,
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
        text = _said(error)
        return isinstance(error, self.kinds) or any(text.startswith(f"{c} ") or f" -{c} " in text for c in self.codes)


def _said(error: BaseException) -> str:
    """Return the text of an error. Of a transaction redis-py quotes the command first, and so what documents said."""
    return str(error).rpartition(" of pipeline caused error: ")[2]


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
        (_errors.TryAgainError,),
        ("TRYAGAIN",),
        "Redis at {} is moving this slot to another node ({}): wait until it has moved; nothing was written",
    ),
    _Passing(
        (_errors.ClusterDownError, _errors.SlotNotCoveredError),  # MASTERDOWN is derived from the first
        ("CLUSTERDOWN", "MASTERDOWN"),
        "Redis at {} cannot serve now ({}): check its nodes and replicas",
    ),
    _Passing(
        (_errors.AskError,),  # and MovedError
        (),
        "Redis at {} sends this command from node to node ({}): see `redis-cli --cluster check`",
    ),
    _Passing((_errors.RedisClusterException,), (), "Redis at {} does not answer as a cluster ({}): check its nodes"),
)


def mapped(error: Exception, address: str, act: str = "") -> StreamtopicError:
    """Return this package's error for one of redis-py's, with the remedy.

    act: the command and key that were sent.
    """
    text = conceal(_said(error)) or type(error).__name__
    refusal = _refusal(error, address, text, act)
    if refusal is not None:
        return refusal
    for passing in _PASSING:
        if passing.fits(error):
            # MISCONF goes on with sentences about settings of Redis.
            return passing.error(passing.told.format(address, text.partition(". Commands that")[0]))
    return StateError(f"Redis at {address} refused a command: {text}")


def _refusal(error: Exception, address: str, text: str, act: str) -> StreamtopicError | None:
    """Return the error of a user or a client that is refused; None where it is not."""
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


class _Packer:
    """Commands as bytes for the socket: a flush has many arguments, and redis-py's own packer is slow with those."""

    def pack(self, *arguments: str | bytes | float | memoryview) -> list[bytes | memoryview]:
        """Return what to send, long arguments by themselves so that they are not copied."""
        # redis-py names some commands by two words.
        command = arguments[0]
        first = command.split() if isinstance(command, str | bytes) else [command]
        whole = (*first, *arguments[1:])
        found: list[bytes | memoryview] = []
        parts: list[bytes | memoryview] = [b"*%d\r\n" % len(whole)]
        for argument in whole:
            value = argument if isinstance(argument, bytes | memoryview) else _bytes(argument)
            parts.append(b"$%d\r\n" % len(value))
            if len(value) > _LONG:
                found += [b"".join(parts), value]
                parts = [b"\r\n"]
            else:
                parts += (value, b"\r\n")
            if len(parts) > _MANY:
                # Each part takes some 40 bytes beside its own: those of 100,000 words are not held at once.
                found.append(b"".join(parts))
                parts = []
        found.append(b"".join(parts))
        return found


def _bytes(value: str | float) -> bytes:
    return value.encode() if isinstance(value, str) else repr(value).encode()


@dataclass(frozen=True, slots=True)
class _Request:
    """Commands that go to one server in one piece. script: the text, where the one command runs a Lua script."""

    commands: Sequence[Command]
    atomic: bool = False
    script: str | None = None

    def send(self, client: redis.Redis, *, asking: bool = False) -> list[Any]:
        """Return the answers. An error of one command among several is its answer, unless they are atomic.

        asking: to a node that is taking over the slot from another one.
        """
        if len(self.commands) == 1 and not self.atomic and not asking:
            return [client.execute_command(*self.commands[0])]  # type: ignore[no-untyped-call]
        pipeline = client.pipeline(transaction=self.atomic)
        if asking:
            # It holds for the next command on this connection, and for a transaction as a whole.
            pipeline.immediate_execute_command("ASKING")  # type: ignore[no-untyped-call]
        for command in self.commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        # What redis-py raises by itself quotes the command, and with it what documents said.
        answers = list(pipeline.execute(raise_on_error=False))
        if self.atomic or asking:
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
        return answers


class Connection:
    """A Redis connection whose errors are StreamtopicErrors.

    url: redis://, rediss:// or unix://; redis+cluster:// with nodes of a cluster, redis+sentinel:// with sentinels and
    the name of the service (rediss+... for TLS). A cluster behind redis:// is recognised.

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
        self._url, self._timeout = url, timeout
        self._servers = self._at(url)
        # Over a socket in the file system it is a server of this machine, mostly the program's own.
        self._looked = not url.startswith(("redis://", "rediss://"))
        self._lock = threading.Lock()
        self._digests: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the sockets back."""
        self._servers.close()

    def ping(self) -> None:
        """Raise ComponentUnreachable unless every server that holds keys answers."""
        self._everywhere(lambda client: client.ping())

    def information(self) -> dict[str, Any]:
        """Return the server's INFO with `maxmemory_policy` and `aof_enabled` among it; of masters the `combined`."""
        of_each = list(self.servers().values())
        return combined(of_each)

    def servers(self) -> dict[str, dict[str, Any]]:
        """Return INFO of each server that holds keys, by host and port, or the address where there is one."""
        found = self._everywhere(lambda client: (_place(client), dict(client.info())))
        return dict(found) if len(found) > 1 else {self.address: found[0][1]}

    def names(self, pattern: str) -> Iterator[bytes]:
        """Yield keys that match a pattern. Redis removes those that have expired as it comes by."""
        servers = self._everywhere(lambda client: client)
        for number in range(len(servers)):
            cursor = 0
            while True:
                command = ("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
                answer = self._nth(number, command)
                cursor = int(answer[0])
                yield from answer[1]
                if cursor == 0:
                    break

    def time_ms(self, key: str | None = None) -> int:
        """Return milliseconds since 1970 by the clock of the server that has a key."""
        seconds, micros = self._run(lambda: self._servers.of(key).time())
        return int(seconds) * 1000 + int(micros) // 1000

    def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis answers depends on the command
        """Send one command that may safely be sent twice; one without a key goes to some server."""
        request = _Request((command,))
        return self._serve(request)[0]

    def everywhere(self, *command: str | bytes | int) -> list[Any]:
        """Send one command without a key to every server that holds keys."""
        return self._everywhere(lambda client: client.execute_command(*command))  # type: ignore[no-untyped-call]

    def batch(self, commands: Iterable[Command], *, atomic: bool = False) -> list[Any]:
        """Send commands together that may safely be sent twice.

        atomic: nothing comes between them, so all keys must lie in one slot. Else commands of one key keep their order.
        """
        todo = list(commands)
        if not todo:
            return []
        if atomic:
            servers = self._run(lambda: self._by_server(todo))
            if len(servers) > 1:
                # Each server would send it to the other, for ever.
                raise StateError(f"Redis at {self.address} cannot change keys of several slots in one step")
            return self._serve(_Request(todo, atomic=True))
        answers: list[Any] = [None] * len(todo)
        for places in self._run(lambda: self._by_server(todo)):
            together = [todo[place] for place in places]
            found = self._serve(_Request(together))
            for place, answer in zip(places, found, strict=True):
                if isinstance(answer, _errors.AskError):
                    self._go_on_as_cluster()
                if isinstance(answer, Exception) and self._may_go_on(answer):
                    answers[place] = self.call(*todo[place])
                elif isinstance(answer, Exception):
                    raise mapped(answer, self.address, _act(todo[place])) from answer
                else:
                    answers[place] = answer
        return answers

    def script(self, text: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:  # noqa: ANN401 - as call
        """Run a Lua script that recognises its own repetition. All keys must lie in one slot."""
        digest = self._digests.get(text)
        if digest is None:
            digest = self._digests[text] = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        command = ("EVALSHA", digest, len(keys), *keys, *arguments)
        request = _Request((command,), script=text)
        return self._serve(request)[0]

    def scan(self, key: str, count: int = 2000) -> Iterator[tuple[bytes, bytes]]:
        """Yield the fields of a hash in slices, so that Redis is never busy for long.

        A field that is there all the time comes exactly once; one that comes or goes meanwhile may be missing.
        """
        cursor = 0
        seen = set[bytes]()
        changes = self._servers.changes
        while True:
            answer = self.script(SCAN_HASH, [key], [cursor, count])
            # A cursor is a place in the hash table of one process: another server, or the same one started again, has
            # another order, and fields would be passed over.
            if cursor and changes != self._servers.changes:
                cursor, changes = 0, self._servers.changes
                continue
            changes = self._servers.changes
            cursor = int(answer[0])
            flat = msgpack.unpackb(answer[1], raw=True)
            for field, value in zip(flat[::2], flat[1::2], strict=True):
                if field not in seen:
                    seen.add(field)
                    yield field, value
            if cursor == 0:
                return

    def _serve(self, request: _Request) -> list[Any]:
        """Return the answers to a request, from whichever server has its first key by then."""
        first = request.commands[0]
        key = key_of(first)
        attempt = _Attempt(_act(first))
        named: redis.Redis | None = None
        redirections = 0

        def send() -> list[Any]:
            nonlocal named, redirections
            while True:
                # The node that an ASK names is asked once: the next command may find the slot anywhere.
                asked, named = named, None
                attempt.client = asked or self._servers.of(key)
                try:
                    return request.send(attempt.client, asking=asked is not None)
                except _errors.NoScriptError:
                    # A server that was started again, or took another one's place, knows no script.
                    if request.script is None or attempt.loaded:
                        raise
                    attempt.loaded = True
                    attempt.client.script_load(request.script)
                    named = asked
                except _errors.AskError as error:  # and MovedError
                    redirections += 1
                    if redirections > _REDIRECTIONS:
                        raise
                    self._go_on_as_cluster()
                    named = self._servers.redirected(error)
                    attempt.loaded = False

        return self._run(send, attempt)

    def _everywhere(self, send: Callable[[redis.Redis], T]) -> list[T]:
        """Return the answers of all servers that hold keys."""
        return self._run(lambda: [send(client) for client in self._servers.all()])

    def _nth(self, number: int, command: Command) -> Any:  # noqa: ANN401 - as call
        """Return the answer of one of several servers, that of an end where a server has left meanwhile."""

        def send() -> Any:  # noqa: ANN401 - as call
            clients = self._servers.all()
            if number >= len(clients):
                return 0, ()
            return clients[number].execute_command(*command)  # type: ignore[no-untyped-call]

        return self._run(send)

    def _by_server(self, commands: Sequence[Command]) -> list[list[int]]:
        """Return the places of commands that go to the same server."""
        found: dict[int, list[int]] = {}
        for place, command in enumerate(commands):
            server = self._servers.of(key_of(command))
            found.setdefault(id(server), []).append(place)
        return list(found.values())

    def _run(self, send: Callable[[], T], attempt: "_Attempt | None" = None) -> T:
        """Return what `send` returns, which is called again as far as that is safe; see the class."""
        repeated, until = False, 0.0
        while True:
            try:
                self._recognise()
                return send()
            except (_errors.RedisError, _errors.RedisClusterException) as error:
                fault = _cause(error)
            act = attempt.act if attempt else ""
            asked = attempt.client if attempt else None
            if self._may_go_on(fault):
                until = until or time.monotonic() + _PATIENCE
                if time.monotonic() >= until:
                    raise mapped(fault, self.address, act) from fault
                time.sleep(_PAUSE)
            elif repeated or not _outcome_unknown(fault):
                raise mapped(fault, self.address, act) from fault
            else:
                repeated = True
            try:
                self._servers.lost(asked)
            except (_errors.RedisError, _errors.RedisClusterException) as error:
                raise mapped(_cause(error), self.address) from fault

    def _may_go_on(self, error: BaseException) -> bool:
        """Whether an error says that nothing was done, and that it may be done in a moment."""
        if isinstance(error, _errors.AskError) or _REPLICA.fits(error):
            # Behind a plain address stands one server, which stays what it is. Others come to have another primary.
            return not isinstance(self._servers, OneServer)
        return isinstance(error, _NOT_NOW)

    def _recognise(self) -> None:
        """Look, once, whether the server of a plain address is a node of a cluster."""
        if self._looked:
            return
        with self._lock:
            if not self._looked:
                try:
                    found = self._servers.of(None).info("cluster")
                except _errors.NoPermissionError:
                    # A user that may not look is told by the first MOVED.
                    found = {}
                clustered = int(found.get("cluster_enabled", 0))
                if clustered:
                    self._go_on_as_cluster()
                self._looked = True

    def _go_on_as_cluster(self) -> None:
        """Take the servers for the cluster that they are."""
        plain = self._url.startswith(("redis://", "rediss://"))
        if plain and isinstance(self._servers, OneServer):
            scheme, _, rest = self._url.partition("://")
            alone = self._servers
            self._servers = self._at(f"{scheme}+cluster://{rest}")
            alone.lost(None)

    def _at(self, url: str) -> Servers:
        try:
            return servers_at(url, self._timeout, _Packer())
        except (ValueError, TypeError):
            # What redis-py says of it may quote a part of the password.
            raise SettingsError(f"Redis address {self.address} cannot be used: {_FORM}") from None


@dataclass(slots=True)
class _Attempt:
    """The server that a request went to last. act: its command and key. loaded: whether it was given the script."""

    act: str
    client: redis.Redis | None = None
    loaded: bool = False


def _act(command: Command) -> str:
    """Return a command and its key, for errors; arguments may say what documents say."""
    key = key_of(command)
    parts = [command[0]] if key is None else [command[0], key]
    texts = [part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in parts]
    return " ".join(texts)


def _outcome_unknown(error: BaseException) -> bool:
    refused = _errors.AuthenticationError | _errors.AuthorizationError | _errors.MaxConnectionsError
    lost = isinstance(error, _errors.ConnectionError | _errors.TimeoutError)
    return lost and not isinstance(error, refused)


def _cause(error: Exception) -> Exception:
    """Return what a server answered where redis-py only says that it could not read the map of a cluster."""
    cause = error.__cause__
    known = isinstance(error, _errors.RedisClusterException) and isinstance(cause, _errors.RedisError)
    return cause if known and isinstance(cause, Exception) else error


def _place(client: redis.Redis) -> str:
    named = client.connection_pool.connection_kwargs
    host = named.get("host", "")
    port = named.get("port", "")
    return f"{host}:{port}"
