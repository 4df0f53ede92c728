"""A server as a child of this program: it ends with it, whatever ends it."""

import fcntl
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from streamtopic.errors import ComponentUnreachable

__all__ = ["Child", "owns_folder"]

# Closing its standard input, which the kernel does even when this process is killed, ends the server. One that does not
# end within ten seconds (it may be stopped) is killed. A temporary folder goes with it.
_WATCHDOG = """
read _
kill -TERM "$0" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$0" 2>/dev/null || break; sleep 1; done
kill -KILL "$0" 2>/dev/null
if [ -n "$1" ]; then rm -rf "$1"; fi
"""
_END_SECONDS = 30


class Child:
    """A running server and the watchdog that ends it if this process is killed.

    log: where its output goes. lock: held by the server until it has really ended. temporary: a folder that goes too.
    """

    def __init__(self, command: Sequence[str], log: Path, lock: IO[bytes] | None, temporary: Path | None) -> None:
        with log.open("ab") as output:
            self._server = subprocess.Popen(  # noqa: S603 - a path that was looked up, arguments made by the caller
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=() if lock is None else (lock.fileno(),),
                umask=0o077,  # what it writes is what documents said
                start_new_session=True,  # Ctrl-C must not stop it before this program has written its last records
            )
        self._watchdog = subprocess.Popen(  # noqa: S603 - fixed text; both arguments are made here
            ["/bin/sh", "-c", _WATCHDOG, str(self.pid), str(temporary or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._server.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._server.poll() is None

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server and wait for it; one that does not listen is killed."""
        self._server.send_signal(how)
        try:
            self._server.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        # Last, so that the server also ends if this program is killed while it waits.
        self._watchdog.kill()
        self._watchdog.communicate()


def owns_folder(lock: IO[bytes], attached: Callable[[], bool], seconds: float, folder: Path, name: str) -> bool:
    """Take a folder by its lock, or attach to the server that has it; one that starts or stops is waited for.

    attached: whether that server answers. Raises ComponentUnreachable after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if attached():
                return False
            time.sleep(0.05)
        else:
            return True
    raise ComponentUnreachable(f"{folder} is used by a {name} that does not answer: stop it, then try again")
