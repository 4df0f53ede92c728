"""Compiled loops of the segment codec: pairs of a chunk to streams of small bytes, and back.

Columns become gaps, half a byte each with 15 as the escape. The pairs of a flush take few distinct values, since most
lie in one document and are w_L h_i h_j, so values become ranks in a table of the frequent ones: one byte for the
first 192, two for the next 16,128, and a literal for the rest.
"""

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.state import varints

__all__ = ["frequent_values", "pack_columns", "pack_integers", "pack_values", "unpack_columns", "unpack_integers",
           "unpack_values"]  # fmt: skip

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

ONE_BYTE = 192
TABLE = ONE_BYTE + (255 - ONE_BYTE) * 256
_ESCAPE = 255
_LARGE_GAP = np.int64(15)
_SLOTS = 1 << 16
_MOST_DISTINCT = 40_000


@numba.njit(cache=True, nogil=True)
def pack_integers(values: Int64) -> Bytes:
    """Write signed integers one after the other."""
    out = np.empty(varints.LONGEST * len(values) + 1, np.uint8)
    at = 0
    for value in values:
        at = varints.put(out, at, varints.zigzag(value))
    return out[:at].copy()


@numba.njit(cache=True, nogil=True)
def unpack_integers(data: Bytes, count: int) -> tuple[Int64, bool]:
    """Undo `pack_integers`; the flag says whether the bytes were exactly `count` integers."""
    if count < 0 or count > len(data):
        return np.empty(0, np.int64), False
    out = np.empty(count, np.int64)
    at = 0
    for k in range(count):
        value, at = varints.get(data, at)
        if at < 0:
            return out, False
        out[k] = varints.unzigzag(value)
    return out, at == len(data)


@numba.njit(cache=True, nogil=True)
def pack_columns(rows: Int32, sizes: Int64, columns: Int32) -> tuple[Bytes, Bytes]:
    """Return gaps, two to a byte, and the gaps that were too large for half a byte.

    rows, sizes: the rows and how many of `columns` each holds; columns ascend in a row and none is left of it.
    """
    small = np.empty((len(columns) + 1) // 2, np.uint8)
    large = np.empty(5 * len(columns) + varints.LONGEST, np.uint8)
    start = 0
    at = 0
    half = np.int64(0)
    for r in range(len(rows)):
        previous = np.int64(rows[r]) - 1
        for k in range(start, start + sizes[r]):
            column = np.int64(columns[k])
            gap = column - previous - 1
            previous = column
            # Written whether it counts or not: what gaps are large cannot be foreseen, and a wrong guess costs more.
            rest = gap - _LARGE_GAP
            large[at] = rest & 127
            at += int(rest >= 0)
            if rest > 127:
                at = varints.put(large, at - 1, np.uint64(rest))
            half |= min(gap, _LARGE_GAP) << ((k & 1) << 2)
            small[k >> 1] = half
            half *= 1 - (k & 1)
        start += sizes[r]
    return small, large[:at].copy()


@numba.njit(cache=True, nogil=True)
def unpack_columns(rows: Int32, sizes: Int64, small: Bytes, large: Bytes, n_words: int) -> tuple[Int32, bool]:
    """Undo `pack_columns`; the flag says whether all columns are below n_words and the bytes were used up."""
    pairs = np.int64(0)
    for size in sizes:
        pairs += size
    if len(small) != (pairs + 1) // 2:
        return np.empty(0, np.int32), False
    columns = np.empty(pairs, np.int32)
    k = 0
    at = 0
    for r in range(len(rows)):
        previous = np.int64(rows[r]) - 1
        for _ in range(sizes[r]):
            gap = np.int64((small[k >> 1] >> ((k & 1) << 2)) & 15)
            if gap == _LARGE_GAP:
                more, at = varints.get(large, at)
                if at < 0 or more > np.uint64(n_words):
                    return columns, False
                gap += np.int64(more)
            previous += 1 + gap
            if previous >= n_words:
                return columns, False
            columns[k] = previous
            k += 1
    return columns, at == len(large)


@numba.njit(cache=True, nogil=True, inline="always")
def _home(value: np.int64, slots: int) -> np.int64:
    """Return the first of `slots` places, a power of two, to look for `value`."""
    mixed = np.uint64(value) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(mixed >> np.uint64(40)) & np.int64(slots - 1)


@numba.njit(cache=True, nogil=True, inline="always")
def _slot(keys: Int64, value: np.int64) -> np.int64:
    """Find where `value` is or belongs among a power of two of slots; 0 marks an empty one: no stored value is 0."""
    mask = len(keys) - 1
    slot = _home(value, len(keys))
    while keys[slot] != 0 and keys[slot] != value:
        slot = (slot + 1) & mask
    return np.int64(slot)


@numba.njit(cache=True, nogil=True)
def frequent_values(values: Int64, step: int = 1) -> tuple[Int64, Int64]:
    """Return distinct values and how often each occurs, by looking at every step-th only.

    Beyond the first 40,000, new ones are left out.
    """
    keys = np.zeros(_SLOTS, np.int64)
    times = np.zeros(_SLOTS, np.int64)
    distinct = 0
    for k in range(0, len(values), step):
        value = values[k]
        slot = _slot(keys, value)
        if keys[slot] == 0:
            if distinct == _MOST_DISTINCT:
                continue
            keys[slot] = value
            distinct += 1
        times[slot] += 1
    used = np.nonzero(keys)[0]
    return keys[used], times[used]


@numba.njit(cache=True, nogil=True)
def pack_values(values: Int64, table: Int64) -> tuple[Bytes, Bytes, Bytes]:
    """Return first bytes, one a pair, second bytes, and literals, for ranks in `table`."""
    slots = 64
    while slots < 8 * len(table):
        slots *= 2
    keys = np.zeros(slots, np.int64)
    codes = np.zeros(slots, np.uint16)
    for rank in range(len(table)):
        slot = _home(table[rank], slots)
        # One look at one place is what makes this quick; a rarer value whose place is taken is written as a literal.
        if keys[slot] == 0:
            keys[slot] = table[rank]
            codes[slot] = rank << 8 if rank < ONE_BYTE else (ONE_BYTE << 8) + rank - ONE_BYTE
    first = np.empty(len(values), np.uint8)
    second = np.empty(len(values) + 1, np.uint8)
    literal = np.empty(varints.LONGEST * len(values) + 1, np.uint8)
    seconds = 0
    at = 0
    for k in range(len(values)):
        slot = _home(values[k], slots)
        if keys[slot] == values[k]:
            code = codes[slot]
            first[k] = code >> 8
            second[seconds] = code & 255
            seconds += code >= ONE_BYTE << 8
        else:
            first[k] = _ESCAPE
            at = varints.put(literal, at, varints.zigzag(values[k]))
    return first, second[:seconds].copy(), literal[:at].copy()


@numba.njit(cache=True, nogil=True)
def unpack_values(first: Bytes, second: Bytes, literal: Bytes, table: Int64) -> tuple[Int64, bool]:
    """Undo `pack_values`; the flag says whether the bytes were sound."""
    values = np.empty(len(first), np.int64)
    seconds = 0
    at = 0
    for k in range(len(first)):
        rank = np.int64(first[k])
        if rank == _ESCAPE:
            coded, at = varints.get(literal, at)
            if at < 0:
                return values, False
            values[k] = varints.unzigzag(coded)
            continue
        if rank >= ONE_BYTE:
            if seconds == len(second):
                return values, False
            rank = ONE_BYTE + ((rank - ONE_BYTE) << 8) + np.int64(second[seconds])
            seconds += 1
        if rank >= len(table):
            return values, False
        values[k] = table[rank]
    return values, seconds == len(second) and at == len(literal)
