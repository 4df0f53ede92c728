"""Threads of a pass over Q: as many as there are cores. No decision ever depends on their number."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

__all__ = ["CORES", "each", "workers"]

CORES = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
"""Cores that this process may use, eight at most."""


def workers() -> int:
    """Return how many threads a pass that releases the interpreter should use."""
    return CORES


def each(work: Callable[..., object], parts: Iterable[Sequence[object]]) -> None:
    """Call `work`, which releases the interpreter, with each of some lists of arguments, by all workers."""
    tasks, count = list(parts), workers()
    if min(count, len(tasks)) <= 1:
        for part in tasks:
            work(*part)
        return
    with ThreadPoolExecutor(count) as pool:
        for task in [pool.submit(work, *part) for part in tasks]:
            task.result()
