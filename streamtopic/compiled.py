"""The options that all functions compiled by numba share, and a notice for those who wait for the compiler."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core.event import Listener, install_listener
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Whole",
    "allocating",
    "compiling_is_said",
    "duration_is_said",
    "fetch_early",
    "inner",
    "kernel",
    "once",
]

F = TypeVar("F", bound="Callable[..., object]")


Whole = int | np.int64
"""A whole number in a kernel. A loop begins with np.int64(0): numba compiles a callee once more for a literal."""

# Objects of numba and llvmlite, which have no types for mypy.
_Numba = Any

# Nobody passes a kernel to C as a pointer, and a check of each division would be compiled as well: both are left out,
# because the first run on a machine waits for everything that is compiled.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True, "error_model": "numpy"}


# A function that makes no array and returns none has no references to count: a third of all instructions.
_KERNEL: dict[str, Any] = {"_nrt": False, **_OPTIONS}
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, **_KERNEL}


def kernel(function: F) -> F:
    """Compile a function at its first call, and keep the machine code for later runs.

    A kernel runs without the interpreter's lock. It divides as numpy does, so a division by zero raises nothing. It
    makes no array and returns none: arrays are its arguments, and views of them.
    """
    return cast("F", numba.njit(**_KERNEL)(function))


def allocating(function: F) -> F:
    """Compile a function that makes arrays or returns them; in all else it is a kernel. It takes longer to compile."""
    return cast("F", numba.njit(**_OPTIONS)(function))


class _Inner(CPUDispatcher):
    """A compiled function that Python cannot call: the call would end the interpreter with a fault of memory."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self.py_func.__qualname__} has no code for a call from Python: only kernels call it")


def inner(function: F) -> F:
    """Compile a function that kernels alone call. A call from Python raises TypeError.

    Code that takes arguments from Python is often longer than the function itself.
    """
    compiled = numba.njit(**_INNER)(function)
    # If numba's compiler is switched off this is a plain function, which Python calls.
    if isinstance(compiled, CPUDispatcher):
        compiled.__class__ = _Inner
    return cast("F", compiled)


def once(function: F) -> F:
    """Compile a function as a part of the single kernel that calls it.

    A function of its own would be compiled twice: by itself, and again inside the kernel.
    """
    return cast("F", numba.njit(inline="always", **_KERNEL)(function))


@intrinsic
def _prefetch(_: _Numba, array: _Numba, place: _Numba) -> _Numba:
    """Give LLVM's instruction for a read soon, near the processor."""

    def build(context: _Numba, builder: _Numba, signature: _Numba, values: _Numba) -> _Numba:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        address = builder.bitcast(builder.gep(data, [values[1]]), byte)
        # For a read, into all caches, of data.
        builder.call(instruction, [address, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return numba.types.void(array, place), build


fetch_early: Callable[[Any, Whole], None] = cast("Any", _prefetch)
"""fetch_early(array, place): have the processor fetch the cache line of an entry that a kernel is about to read.

It reads nothing by itself, so a place after the end of the array does no harm. numba has no function for it.
"""


logger = logging.getLogger("streamtopic")

# So many seconds of compiling pass without a word: a new type of array costs one or two.
_PATIENCE = 2.0


class _Notice(Listener):
    """Says once in a process that this package is compiled, as soon as that has taken a while."""

    said = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = list[float]()
        self._spent = 0.0

    def on_start(self, event: _Numba) -> None:
        """Note that a function begins to be compiled."""
        del event
        self._begun.append(self._clock())

    def on_end(self, event: _Numba) -> None:
        """Note that it is compiled."""
        began = self._begun.pop()
        # A function that another one calls is compiled on the way, within its time.
        if not self._begun:
            self._spent += self._clock() - began
        own = event.data["dispatcher"].py_func.__module__.startswith("streamtopic.")
        if own and self._spent > _PATIENCE and not _Notice.said:
            _Notice.said = True
            logger.warning(
                "compiling for this machine: the first run takes up to half a minute longer, later ones do not",
                extra={"event": "compiling"},
            )


@contextmanager
def compiling_is_said(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Log a notice if code is compiled in this block and takes a while. Code that is in numba's cache is silent.

    It is a warning, since Python prints these to a notebook or a terminal where logging was not set up.
    """
    with install_listener("numba:compile", _Notice(clock)):
        yield


@contextmanager
def duration_is_said(done: str, said: bool, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:  # noqa: FBT001  the user's own choice
    """Log what a block did and how long it took, if that is wanted. As a warning, for the reason named above."""
    start = clock()
    yield
    if said:
        logger.warning("%s: %.1f s", done, clock() - start, extra={"event": "duration"})
