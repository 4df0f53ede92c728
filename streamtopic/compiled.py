"""The options that all functions compiled by numba share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Whole", "kernel", "once", "short"]

F = TypeVar("F", bound="Callable[..., object]")


Whole = int | np.int64
"""A whole number in a kernel. A loop begins with np.int64(0): numba compiles a callee once more for a literal."""

# Nobody passes a kernel to C as a pointer, and a check of each division would be compiled as well: both are left out,
# because the first run on a machine waits for everything that is compiled.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


def kernel(function: F) -> F:
    """Compile a function at its first call, and keep the machine code for later runs.

    A kernel runs without the interpreter's lock. It divides as numpy does, so a division by zero raises nothing.
    """
    return cast("F", numba.njit(**_OPTIONS)(function))


def short(function: F) -> F:
    """Compile a function of a few lines, which several kernels call in their inner loops.

    Its machine code is copied to each place of a call, so that a call costs nothing. numba works on it once only.
    """
    return cast("F", numba.njit(forceinline=True, **_OPTIONS)(function))


def once(function: F) -> F:
    """Compile a function as a part of the single kernel that calls it.

    A function of its own would be compiled twice: by itself, and again inside the kernel.
    """
    return cast("F", numba.njit(inline="always", **_OPTIONS)(function))
