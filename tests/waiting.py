"""Waits of tests for what other processes do: one patience for all, since a busy machine takes any time."""

import time
from pathlib import Path

PATIENCE = 300.0
"""Seconds after which a test says that what it waits for does not come. A wait that ends well never depends on it."""


def until(condition, what="what is waited for", pause=0.05):
    """Wait until a condition holds; return what it answered.

    condition: answers with something true once it holds; what it raises ends the wait.
    what: the thing that did not come, for the error; a function where only the end can say it.
    """
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what() if callable(what) else what} did not come within {PATIENCE:.0f} s")
        time.sleep(pause)
    return found


def until_written(connection):
    """Wait until Redis has handed its append-only file to the system all that it has answered.

    A file that is being synced to a slow disk holds back what was answered meanwhile. A test that kills the server, or
    that reads or cuts its file, waits for that first.
    """
    until(lambda: connection.information().get("aof_buffer_length", 0) == 0, "what Redis holds back in its file")


def flipped(data, place=-1):
    """Return bytes of which one is certainly another one: a byte that is set may have had that value already."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def alive(pid):
    """Return whether a process runs (and is no zombie that nobody waited for)."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
