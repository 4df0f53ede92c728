"""A kept embedded instance: what lies where in its folder, and who may work on it.

DIR/streamtopic.toml     settings
DIR/log/                 event log
DIR/redis/               Redis data
DIR/keys/                signing.pem, signing.pub, noise.key
DIR/instance.lock        held by the process that works on it
"""

from __future__ import annotations

import fcntl
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from streamtopic.errors import ComponentUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["InstanceLock", "Layout"]

WAIT = 60.0  # seconds; another command is done by then, unless it learns a very large model


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths within an instance's folder."""

    root: Path

    @property
    def log(self) -> Path:
        """Folder of the event log."""
        return self.root / "log"

    @property
    def redis(self) -> Path:
        """Folder of Redis's data."""
        return self.root / "redis"

    @property
    def signing_key(self) -> Path:
        """Private key, unless settings name another."""
        return self.root / "keys" / "signing.pem"

    @property
    def public_key(self) -> Path:
        """Public key, for subscribers."""
        return self.root / "keys" / "signing.pub"

    @property
    def noise_key(self) -> Path:
        """Secret that noise is drawn from, unless settings name another."""
        return self.root / "keys" / "noise.key"

    @property
    def receipt_key(self) -> Path:
        """Secret that receipts digest document ids with."""
        return self.root / "keys" / "receipt.key"

    @property
    def compacted(self) -> Path:
        """A file as old as the last compaction of the log."""
        return self.root / "log" / "compacted"

    @property
    def initialised(self) -> Path:
        """A file that is there once the instance has all its keys."""
        return self.root / "keys" / "complete"


class InstanceLock:
    """At most one process works on an instance; others send events to it, or wait until a short command is done.

    service: whether this process stays, so that others send events to it in place of waiting.
    """

    def __init__(self, root: Path, *, service: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._service = service
        self._clock = clock
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Take the instance; False where a service runs it. Raises ComponentUnreachable if a command never ends."""
        self._root.mkdir(parents=True, exist_ok=True)
        file = (self._root / "instance.lock").open("a+", encoding="ascii")
        deadline = self._clock() + WAIT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                if file.read() == "service":
                    file.close()
                    return False
                if self._clock() > deadline:
                    file.close()
                    raise ComponentUnreachable(
                        f"another command has worked on {self._root} for {WAIT:.0f} s: try later"
                    ) from None
                time.sleep(0.05)
                continue
            file.truncate(0)
            file.write("service" if self._service else "command")
            file.flush()
            self._file = file
            return True

    def release(self) -> None:
        """Give the instance back; it also ends with the process."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None
