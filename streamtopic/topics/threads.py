"""How many threads: as many as cores for passes over Q, one for small dense algebra.

A second thread of BLAS that spins while others want its core makes small dense algebra ten times slower.
"""

import os
from contextlib import AbstractContextManager
from functools import cache

import scipy.linalg  # noqa: F401  its library must be loaded before the controller looks for libraries
from threadpoolctl import ThreadpoolController

__all__ = ["CORES", "one_thread"]

CORES = max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
"""Threads for passes that release the interpreter."""


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS and LAPACK use one thread."""
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> ThreadpoolController:
    # Looking for libraries takes milliseconds, so it is done once.
    return ThreadpoolController()
