"""The one place where Redis is spoken to, and where its errors become this package's."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import msgpack
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from streamtopic.concealing import clear_address, conceal, shown_address
from streamtopic.errors import ComponentUnreachable, SettingsError, StateError, StreamtopicError
from streamtopic.state.scripts import SCAN_HASH

__all__ = ["Connection", "mapped"]

T = TypeVar("T")
_TIMEOUT = 30.0
_LONG = 1 << 16
_MANY = 1 << 13
_errors = redis.exceptions
_FORM = (
    "give redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://... or unix:///PATH, with /, ?, #, @ and % in a password "
    "written as %2F, %3F, %23, %40 and %25"
)


def mapped(error: redis.exceptions.RedisError, address: str) -> StreamtopicError:
    """Return this package's error for one of redis-py's, with the remedy."""
    text = conceal(str(error)) or type(error).__name__
    if isinstance(error, _errors.AuthenticationError | _errors.AuthorizationError | _errors.NoPermissionError):
        return SettingsError(f"Redis at {address} refuses this user ({text}): check the user, password and ACL")
    if isinstance(error, _errors.OutOfMemoryError) or text.startswith("OOM"):
        return StateError(f"Redis at {address} is out of memory: raise maxmemory, or compact; nothing was written")
    if isinstance(error, _errors.ConnectionError | _errors.TimeoutError):
        return ComponentUnreachable(f"Redis at {address} does not answer ({text}): start it, or correct its address")
    if isinstance(error, _errors.ClusterDownError | _errors.TryAgainError | _errors.MasterDownError):
        return ComponentUnreachable(f"Redis at {address} cannot serve now ({text}): check its nodes and replicas")
    if isinstance(error, _errors.ReadOnlyError) or text.startswith("READONLY"):
        return ComponentUnreachable(f"Redis at {address} is a read-only replica: use the address of the primary")
    return StateError(f"Redis at {address} refused a command: {text}")


class _Packer:
    """Commands as bytes for the socket: a flush has many arguments, and redis-py's own packer is slow with those."""

    def pack(self, *arguments: str | bytes | float | memoryview) -> list[bytes | memoryview]:
        """Return what to send, long arguments by themselves so that they are not copied."""
        # redis-py names some commands by two words.
        first = arguments[0].split() if isinstance(arguments[0], str | bytes) else [arguments[0]]
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


class Connection:
    """A Redis connection whose errors are StreamtopicErrors.

    url: redis://, rediss:// or unix://. Automatic retries are off in redis-py, since it repeats commands whose outcome
    is unknown and so can apply an increment twice. Here a command is sent once more after a lost connection only
    because every write of this package recognises that it was already applied.

    Raises SettingsError for a malformed address; nothing is sent before the first command.
    """

    def __init__(self, url: str, *, timeout: float = _TIMEOUT) -> None:
        self.address = shown_address(url)
        if clear_address(url) is None:
            raise SettingsError(f"Redis address {self.address} is malformed: {_FORM}")
        try:
            self._redis = redis.Redis.from_url(
                url,
                protocol=2,
                retry=Retry(NoBackoff(), 0),
                retry_on_error=[],
                socket_timeout=timeout,
                socket_connect_timeout=min(timeout, 5.0),
                command_packer=_Packer(),
            )
            # redis-py looks at the parameters of an address only when it makes a connection.
            pool = self._redis.connection_pool
            pool.connection_class(**pool.connection_kwargs)
        except (ValueError, TypeError):
            # What redis-py says of it may quote a part of the password.
            raise SettingsError(f"Redis address {self.address} cannot be used: {_FORM}") from None
        self._scripts: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the sockets back."""
        self._redis.close()

    def ping(self) -> None:
        """Raise ComponentUnreachable unless the server answers."""
        self._run(self._redis.ping)

    def information(self) -> dict[str, Any]:
        """Return the server's INFO with `maxmemory_policy` and `aof_enabled` among it."""
        return dict(self._run(self._redis.info))

    def names(self, pattern: str) -> Iterator[bytes]:
        """Yield keys that match a pattern. Redis removes those that have expired as it comes by."""
        cursor = 0
        while True:
            answer = self.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            cursor = int(answer[0])
            yield from answer[1]
            if cursor == 0:
                return

    def time_ms(self) -> int:
        """Return milliseconds since 1970 by the server's clock."""
        seconds, micros = self._run(self._redis.time)
        return int(seconds) * 1000 + int(micros) // 1000

    def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis answers depends on the command
        """Send one command that may safely be sent twice."""
        return self._run(lambda: self._redis.execute_command(*command))  # type: ignore[no-untyped-call]

    def batch(self, commands: Iterable[Sequence[str | bytes | int]], *, atomic: bool = False) -> list[Any]:
        """Send commands together that may safely be sent twice; `atomic`: nothing comes between them."""
        todo = list(commands)

        def send() -> list[Any]:
            pipeline = self._redis.pipeline(transaction=atomic)
            for command in todo:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            return list(pipeline.execute())

        return self._run(send) if todo else []

    def script(self, text: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:  # noqa: ANN401 - as call
        """Run a Lua script that recognises its own repetition."""
        script = self._scripts.get(text)
        if script is None:
            script = self._scripts[text] = self._redis.register_script(text)
        return self._run(lambda: script(keys=list(keys), args=list(arguments)))

    def scan(self, key: str, count: int = 2000) -> Iterator[tuple[bytes, bytes]]:
        """Yield the fields of a hash in slices, so that Redis is never busy for long.

        A field that is there all the time comes exactly once; one that comes or goes meanwhile may be missing.
        """
        cursor, seen = 0, set[bytes]()
        while True:
            answer = self.script(SCAN_HASH, [key], [cursor, count])
            cursor, flat = int(answer[0]), msgpack.unpackb(answer[1], raw=True)
            for field, value in zip(flat[::2], flat[1::2], strict=True):
                if field not in seen:
                    seen.add(field)
                    yield field, value
            if cursor == 0:
                return

    def _run(self, send: Callable[[], T]) -> T:
        try:
            try:
                return send()
            except (_errors.ConnectionError, _errors.TimeoutError) as error:
                if isinstance(error, _errors.AuthenticationError | _errors.BusyLoadingError):
                    raise
                # Those that lie idle are as dead as this one; those in use belong to other threads.
                with contextlib.suppress(_errors.RedisError):
                    self._redis.connection_pool.disconnect(inuse_connections=False)
                return send()
        except _errors.RedisError as error:
            raise mapped(error, self.address) from error
