"""Ingest processes of a benchmark, each kept to a core, and the processor seconds that processes have used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from streamtopic.bench.feed import Feed

__all__ = ["ANY_CORE", "IngestProcesses", "processor_seconds"]

ANY_CORE = -1


class IngestProcesses:
    """Processes that own the partitions of a model, each its own, and count when they are told to.

    feed: the model and its servers.
    shares: for each process its core (ANY_CORE: it may use all) and its partitions. Cores are counted from 0, and
        begin again at 0 if there are fewer.

    On entry all of them have counted what the log holds, so everything is loaded and compiled. They end on exit.
    """

    def __init__(self, feed: Feed, shares: Sequence[tuple[int, Sequence[int]]]) -> None:
        self._children = [_child(feed, core, partitions) for core, partitions in shares]

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [child.pid for child in self._children]

    def __enter__(self) -> Self:
        try:
            for child in self._children:
                _answer(child)
        except CheckFailed:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        for child in self._children:
            child.communicate()

    def count(self) -> int:
        """Have all of them count the log to its end, at the same time; return the number of records."""
        for child in self._children:
            if child.stdin is not None:
                child.stdin.write("\n")
                child.stdin.flush()
        return sum([_answer(child) for child in self._children])


def processor_seconds(pids: Iterable[int | None]) -> float:
    """Return what these processes have used so far, user and system; a process that is gone, or None, has none."""
    used = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            continue
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")


def _child(feed: Feed, core: int, partitions: Sequence[int]) -> subprocess.Popen[str]:
    place = [feed.servers, feed.redis_url, feed.names.model, str(feed.partitions)]
    module = "streamtopic.bench.ingest_child"
    program = [sys.executable, "-P", "-m", module, *place, str(core), *map(str, partitions)]
    return subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603  this very program


def _answer(child: subprocess.Popen[str]) -> int:
    line = child.stdout.readline() if child.stdout is not None else ""
    if not line:
        raise CheckFailed("an ingest process of the benchmark ended early: see its output above")
    return int(line)
