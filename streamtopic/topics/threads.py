"""One thread for small dense algebra: a second one that spins while others want its core makes it ten times slower."""

from contextlib import AbstractContextManager
from functools import cache

import scipy.linalg  # noqa: F401  its library must be loaded before the controller looks for libraries
from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which BLAS and LAPACK use one thread."""
    limited: AbstractContextManager[object] = _controller().limit(limits=1, user_api="blas")
    return limited


@cache
def _controller() -> ThreadpoolController:
    # Looking for libraries takes milliseconds, so it is done once.
    return ThreadpoolController()
