"""Unsigned and signed integers in as few bytes as they need: seven bits a byte, the lowest first (LEB128).

Readers return a negative position for bytes that end too early or run too long, since compiled code does not raise.
"""

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["LONGEST", "get", "put", "unzigzag", "zigzag"]

Bytes = npt.NDArray[np.uint8]

LONGEST = 10
"""Bytes of the longest integer."""


@numba.njit(cache=True, nogil=True, inline="always")
def put(out: Bytes, at: int, value: np.uint64) -> int:
    """Write `value` at `at`; return the position behind it. There must be room for LONGEST bytes."""
    rest = np.uint64(value)
    while rest > np.uint64(127):
        out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@numba.njit(cache=True, nogil=True, inline="always")
def get(data: Bytes, at: int) -> tuple[np.uint64, int]:
    """Read an integer at `at`; return it and the position behind it, or -1 for a malformed one."""
    value = np.uint64(0)
    shift = np.uint64(0)
    if at < 0:
        return value, -1
    while at < len(data) and shift < np.uint64(70):
        byte = data[at]
        at += 1
        value |= np.uint64(byte & np.uint8(127)) << shift
        if byte < np.uint8(128):
            return value, at
        shift += np.uint64(7)
    return value, -1


@numba.njit(cache=True, nogil=True, inline="always")
def zigzag(value: np.int64) -> np.uint64:
    """Map small numbers of either sign to small unsigned ones."""
    return np.uint64((np.int64(value) << np.int64(1)) ^ (np.int64(value) >> np.int64(63)))


@numba.njit(cache=True, nogil=True, inline="always")
def unzigzag(value: np.uint64) -> np.int64:
    """Undo `zigzag`."""
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
