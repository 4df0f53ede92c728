"""LAPACK without the interpreter's lock: scipy holds it for as long as a decomposition takes.

The library is the one that scipy links; ctypes lets go of the lock while it runs.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import get_cython_function_address
from scipy.linalg import LinAlgError

__all__ = ["largest_pairs"]

Float = npt.NDArray[np.float64]
_ARGUMENTS = 21


def largest_pairs(matrix: Float, wanted: int, *, overwrite: bool = False) -> tuple[Float, Float]:
    """Return the `wanted` largest eigenvalues of a symmetric matrix (c, c), ascending, and their vectors as columns.

    The method of relatively robust representations, as `scipy.linalg.eigh` has it, by its lower triangle. overwrite: a
    matrix in C order may be destroyed, and its upper triangle counts. Raises LinAlgError where it does not converge.
    """
    c = len(matrix)
    a = matrix.T if overwrite else np.array(matrix, np.float64, order="F")
    values, vectors = np.empty(c), np.empty((c, wanted), order="F")
    support, found = np.empty(2 * max(1, wanted), np.int32), ctypes.c_int()
    work, integers = np.empty(1), np.empty(1, np.int32)
    for asked in (True, False):
        if not asked:
            work, integers = np.empty(int(work[0])), np.empty(int(integers[0]), np.int32)
        info = ctypes.c_int()
        size = -1 if asked else len(work), -1 if asked else len(integers)
        _dsyevr()(
            b"V", b"I", b"L", _int(c), _at(a), _int(c), _real(0.0), _real(0.0), _int(c - wanted + 1), _int(c),
            _real(0.0), ctypes.byref(found), _at(values), _at(vectors), _int(c), _at(support),
            _at(work), _int(size[0]), _at(integers), _int(size[1]), ctypes.byref(info),
        )  # fmt: skip
        if info.value or (not asked and found.value != wanted):
            raise LinAlgError(f"the eigenvalues of a matrix of {c} rows were not found: dsyevr gave {info.value}")
    return values[:wanted], vectors


@cache
def _dsyevr() -> Any:
    address = get_cython_function_address("scipy.linalg.cython_lapack", "dsyevr")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * _ARGUMENTS)(address)


def _int(value: int) -> Any:
    return ctypes.byref(ctypes.c_int(value))


def _real(value: float) -> Any:
    return ctypes.byref(ctypes.c_double(value))


def _at(array: npt.NDArray[Any]) -> int:
    return int(array.ctypes.data)
