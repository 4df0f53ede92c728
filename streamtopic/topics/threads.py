"""Threads of a pass over Q: as many as there are cores. A result never depends on their number."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

__all__ = ["CORES", "chunks", "each", "each_span", "even_spans", "workers"]


def _usable() -> int:
    """Return how many cores this process may use."""
    # A container may allow fewer cores than the machine has; not every system can say so.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = max(1, min(8, _usable()))
"""Cores that this process may use, eight at most."""


def workers() -> int:
    """Return how many threads a pass that releases the interpreter should use."""
    return CORES


def each(work: Callable[..., object], parts: Iterable[Sequence[object]]) -> None:
    """Call a function with each of some lists of arguments, by all workers. The function releases the interpreter.

    An exception of one call is raised once the others are done.
    """
    tasks = list(parts)
    count = workers()
    if min(count, len(tasks)) <= 1:
        for part in tasks:
            work(*part)
        return
    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(work, *part) for part in tasks]
        # Asked for each result, since a pool keeps exceptions to itself.
        for task in running:
            task.result()


def each_span(work: Callable[..., object], same: Sequence[object], spans: Iterable[Sequence[object]]) -> None:
    """Call a function with the same arguments and each of some spans behind them, as `each` does."""
    each(work, [(*same, *span) for span in spans])


def even_spans(n: int, parts: int) -> list[tuple[int, int]]:
    """Cut 0 ... n - 1 into spans, from start to stop, of about one length."""
    edges = np.linspace(0, n, parts + 1).astype(np.int64)
    return list(pairwise(edges.tolist()))


def chunks(n: int, size: int) -> list[tuple[int, int]]:
    """Cut 0 ... n - 1 into spans, from start to stop, of one size; the last one may be shorter."""
    return [(start, min(start + size, n)) for start in range(0, n, size)]
