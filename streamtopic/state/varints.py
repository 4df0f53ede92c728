"""Whole numbers in few bytes: varints of seven bits a byte, the lowest first (LEB128), and arrays of them."""

import numpy as np
import numpy.typing as npt

from streamtopic.compiled import Whole, kernel, short
from streamtopic.errors import StateCorrupt

__all__ = ["LONGEST_VARINT", "get_varint", "pack_gaps", "pack_numbers", "put_varint", "unpack_gaps", "unpack_numbers"]

Bytes = npt.NDArray[np.uint8]
Int64 = npt.NDArray[np.int64]

LONGEST_VARINT = 10
"""Bytes of the longest varint, that of a number of 64 bits."""


def pack_numbers(values: Int64) -> bytes:
    """Return numbers of 0 or more as varints."""
    out = np.empty(LONGEST_VARINT * len(values), np.uint8)
    used = _pack(values, out)
    return out[:used].tobytes()


def unpack_numbers(data: bytes, number: int) -> Int64:
    """Undo `pack_numbers`. number: how many there are. Raises StateCorrupt for other bytes."""
    # Each takes a byte at least: with a damaged `number` the array would take all memory.
    values = np.empty(max(0, min(number, len(data))), np.int64)
    # A copy that can be written to: numba compiles a kernel once more for an array that cannot.
    if not _unpack(np.frombuffer(bytearray(data), np.uint8), values) or len(values) != number:
        raise StateCorrupt("numbers in Redis cannot be read: run `streamtopic rebuild`")
    return values


def pack_gaps(indptr: Int64, columns: Int64) -> bytes:
    """Return the columns of rows, which ascend in each row, as the gaps between them."""
    gaps = np.diff(columns, prepend=np.int64(0)) - 1
    starts = indptr[:-1][np.diff(indptr) > 0]
    gaps[starts] = columns[starts]
    return pack_numbers(gaps)


def unpack_gaps(data: bytes, indptr: Int64) -> Int64:
    """Undo `pack_gaps`. Raises StateCorrupt for other bytes."""
    steps = unpack_numbers(data, int(indptr[-1])) + 1
    sizes = np.diff(indptr)
    filled = indptr[:-1][sizes > 0]
    totals = np.cumsum(steps)
    before = totals[filled] - steps[filled]
    return totals - np.repeat(before, sizes[sizes > 0]) - 1


@short
def put_varint(out: Bytes, at: Whole, value: np.uint64) -> Whole:
    """Write `value` at `at`; return the position after it. The caller sees to LONGEST_VARINT free bytes.

    at: np.int64 in a kernel also at the beginning, since numba compiles the function again for a literal.
    """
    rest = np.uint64(value)
    while rest > np.uint64(127):
        out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@short
def get_varint(data: Bytes, at: Whole) -> tuple[np.uint64, Whole]:
    """Read an integer at `at`; return it and the position after it, which is -1 for a malformed one.

    With a position of -1 it returns -1 again, so that a caller may read several integers and look once.
    """
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


@kernel
def _pack(values: Int64, out: Bytes) -> Whole:
    """Write the numbers; return the end of the last one."""
    at: Whole = np.int64(0)
    for value in values:
        at = put_varint(out, at, np.uint64(value))
    return at


@kernel
def _unpack(data: Bytes, values: Int64) -> bool:
    """Read the numbers; return whether the bytes are just these."""
    at: Whole = np.int64(0)
    for k in range(len(values)):
        value, at = get_varint(data, at)
        if at < 0 or value >> np.uint64(63):
            return False
        values[k] = np.int64(value)
    return at == len(data)
