"""The options that all functions compiled by numba share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Whole", "fetch_early", "kernel", "once", "remember_answers", "short"]

F = TypeVar("F", bound="Callable[..., object]")


Whole = int | np.int64
"""A whole number in a kernel. A loop begins with np.int64(0): numba compiles a callee once more for a literal."""

# Objects of numba and llvmlite, which have no types for mypy.
_Numba = Any

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

It reads nothing by itself, so a place behind the end of the array does no harm. numba has no function for it.
"""


def remember_answers() -> None:
    """Make numba look up once how an operator works on given types, and remember the answer, in this whole process.

    For a process that does nothing but compile. numba asks again at each place of an operator, and in each round of
    its work on types: ten times for each different question. The answer depends on the operator and on the types only.
    """
    # Here, since no other process needs this place inside numba.
    from numba.core.types.functions import BaseFunction

    functions: Any = BaseFunction
    look_up = functions.get_call_type
    answers: dict[Any, Any] = {}

    def remembered(self: Any, context: Any, args: Any, kws: Any) -> Any:  # noqa: ANN401  as numba calls it
        if kws:
            return look_up(self, context, args, kws)
        question = self, tuple(args)
        answer = answers.get(question)
        # Where there is no answer numba raises an error, which is not kept: types may be known better in a later round.
        if answer is None:
            answer = answers[question] = look_up(self, context, args, kws)
        return answer

    functions.get_call_type = remembered
