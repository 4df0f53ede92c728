"""A Redis for faults, on a port of its own and with an append-only file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import redis

from servers.ports import quiet_port
from streamtopic.errors import ComponentUnreachable
from streamtopic.local.local_redis import find_server, write_anew

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from campaign.processes import Guard

__all__ = ["RedisServer", "cut_end", "written_out"]

_READY_SECONDS = 120.0


def written_out(client: redis.Redis) -> int:
    """Wait until the append-only file has everything that was answered; return its size at the last start."""
    while True:
        state = client.info("persistence")
        # While the disk is slow, a server answers up to two seconds before it writes: SIGKILL would lose that too.
        if not int(state["aof_buffer_length"]):
            return int(state["aof_base_size"])
        time.sleep(0.02)


def cut_end(folder: Path, size: int, known: int) -> None:
    """Cut the last `size` bytes off the newest append-only file of a server that was ended.

    known: its first bytes, which stay: they were safe on the disk when the server last started.
    """
    newest = max(folder.rglob("*.aof"), key=lambda file: file.stat().st_mtime_ns)
    os.truncate(newest, max(known, newest.stat().st_size - size))


class RedisServer:
    """A real redis-server on the loopback, which writes everything to its append-only file.

    folder: its data.
    port: where it listens.
    door: where a proxy stands for it.
    guard: ends it with this program.
    client: of this server, past the proxy.
    """

    def __init__(self, folder: Path, port: int, guard: Guard) -> None:
        self.port = port
        self.door = quiet_port()
        self._folder = folder
        self._guard = guard
        self._server: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(host="127.0.0.1", port=port, protocol=2, socket_timeout=60)

    @property
    def url(self) -> str:
        """Address without the proxy."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def masters(self) -> Sequence[redis.Redis]:
        """Its client, past the proxy."""
        return [self.client]

    def value(self, key: str) -> bytes | None:
        """Return the value of a key. Raises redis-py's errors."""
        found: bytes | None = self.client.get(key)  # type: ignore[assignment]
        return found

    def start(self) -> None:
        """Start it and wait until it has loaded its data. Raises ComponentUnreachable."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder.parent / "redis.log").open("ab") as output:
            self._server = subprocess.Popen(
                [str(find_server()), *self._options()], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._guard.watch(self._server.pid)
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self.client.ping()
            except redis.exceptions.RedisError as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise ComponentUnreachable(f"redis-server on port {self.port} did not start: {error}") from None
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._guard.forget(self._server.pid)
            self._server = None

    def pause(self, milliseconds: int) -> None:
        """Make it answer no client for a while."""
        self.client.execute_command("CLIENT", "PAUSE", milliseconds)  # type: ignore[no-untyped-call]

    def limit(self, size: int) -> None:
        """Limit its memory to `size` bytes, 0 for no limit. Beyond the limit it refuses writes."""
        self.client.config_set("maxmemory", size)

    def copy(self, to: Path) -> None:
        """Copy the data as they are at this moment."""
        # Suspended, so that the copy is what a crash at this moment would have left.
        with self.suspended():
            shutil.copytree(self._folder, to)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Stop it as long as the block runs: it takes connections and answers nobody."""
        server = self._server
        if server is not None:
            server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if server is not None:
                server.send_signal(signal.SIGCONT)

    def restore(self, copy: Path) -> None:
        """Start again from an older copy of the data."""
        self.kill()
        shutil.rmtree(self._folder)
        shutil.copytree(copy, self._folder)
        self.start()

    def lose(self, size: int, which: int = 0) -> None:  # noqa: ARG002  there is one server
        """Start again without the last `size` bytes that were written since the last start, wherever that cuts."""
        known = written_out(self.client)
        self.kill()
        cut_end(self._folder, size, known)
        self.start()
        # As docs/faults.md asks of an operator.
        write_anew(self.client)

    def _options(self) -> list[str]:
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": self._folder,
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "aof-use-rdb-preamble": "yes",
            "maxmemory-policy": "noeviction",
        }
        return [word for name, value in options.items() for word in (f"--{name}", str(value))]
