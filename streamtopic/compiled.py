"""Compiled functions: the options that all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["kernel"]

F = TypeVar("F", bound="Callable[..., object]")


def kernel(function: F) -> F:
    """Compile a function at its first call, and keep the machine code for later runs.

    A kernel runs without the interpreter's lock. It divides as numpy does, so a division by zero raises nothing.
    """
    # Nobody passes a kernel to C as a pointer, and a check of each division would be compiled as well: both are left
    # out, because the first run on a machine waits for everything that is compiled.
    options: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    return cast("F", numba.njit(**options)(function))
