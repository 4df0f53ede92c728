"""Ingest processes of a benchmark, each kept to a core, and the processor seconds that processes have used.

`python -m streamtopic.bench.ingest_processes SERVERS REDIS MODEL COUNT CORE PARTITION...` owns some of the COUNT
partitions and runs on one core (-1: on any). It counts the records that are there and prints how many, and does so
again for each line of its input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from streamtopic.bench.feed import feed
from streamtopic.errors import CheckFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

    from streamtopic.bench.feed import Feed
    from streamtopic.service.ingest.partition_ingest import Ingest

__all__ = ["ANY_CORE", "IngestProcesses", "processor_seconds"]

ANY_CORE = -1


class IngestProcesses:
    """Processes that own the partitions of a model, each its own, and count when they are told to.

    model: with its servers.
    shares: for each process its core (ANY_CORE: it may use all) and its partitions. Cores are counted from 0, and
        begin again at 0 if there are fewer.

    On entry all of them have counted what the log holds, so everything is loaded and compiled. They end on exit.
    """

    def __init__(self, model: Feed, shares: Sequence[tuple[int, Sequence[int]]]) -> None:
        self._children = [_child(model, core, partitions) for core, partitions in shares]

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


def _child(model: Feed, core: int, partitions: Sequence[int]) -> subprocess.Popen[str]:
    place = [model.servers, model.redis_url, model.names.model, str(model.partitions)]
    program = [sys.executable, "-P", "-m", __name__, *place, str(core), *map(str, partitions)]
    return subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603  this very program


def _answer(child: subprocess.Popen[str]) -> int:
    line = child.stdout.readline() if child.stdout is not None else ""
    if not line:
        raise CheckFailed("an ingest process of the benchmark ended early: see its output above")
    return int(line)


def _own(servers: str, redis_url: str, model: str, count: str, core: str, *partitions: str) -> None:
    """Count, and count again for each line of standard input, until it ends."""
    if int(core) != ANY_CORE and hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {usable[int(core) % len(usable)]})
    with feed(servers, redis_url, model, int(count)) as found:
        ingests = [found.ingest(int(partition)) for partition in partitions]
        print(_count(ingests), flush=True)
        for _ in sys.stdin:
            print(_count(ingests), flush=True)


def _count(ingests: list[Ingest]) -> int:
    """Count to the end of the log, a flush of each partition in turn; return the number of records."""
    records = 0
    while found := sum([ingest.step().records for ingest in ingests]):
        records += found
        for ingest in ingests:
            ingest.sum_if_due()
    return records


if __name__ == "__main__":
    _own(*sys.argv[1:])
