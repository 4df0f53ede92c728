"""How many threads: as many as cores for passes over Q, one for small dense algebra.

A second thread of BLAS that spins while others want its core makes small dense algebra ten times slower.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

import scipy.linalg  # noqa: F401  its library must be loaded before the controller looks for libraries
from threadpoolctl import ThreadpoolController

__all__ = ["CORES", "each", "leaving_one", "one_thread", "workers"]

CORES = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
"""Cores that this process may use, as far as they are of use to it."""

_taken = threading.local()


def workers() -> int:
    """Return how many threads a pass that releases the interpreter should use."""
    return max(1, CORES - int(getattr(_taken, "cores", 0)))


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


@contextmanager
def leaving_one() -> Iterator[None]:
    """Leave a core to what another thread is doing: passes started by this one use the others."""
    _taken.cores = 1
    try:
        yield
    finally:
        _taken.cores = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Have BLAS and LAPACK use one thread meanwhile; whoever enters first sees to it, for all, until it leaves.

    Changing their number waits for what they are at, so those who enter meanwhile, here or in other threads, do not.
    """
    if not _first.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _first.release()


_first = threading.Lock()


@cache
def _controller() -> ThreadpoolController:
    # Looking for libraries takes milliseconds, so it is done once.
    return ThreadpoolController()
