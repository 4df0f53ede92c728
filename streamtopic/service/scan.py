"""Compiled loops that read plain adds: msgpack maps of `op`, `text` or `counts`, `labels` and `ts`.

They take only what is beyond doubt: ASCII text, or counts within their limits. Of everything else, what is unusual or
wrong, they say that it was left, and `events.decode` reads it and names the reason. What they take is what it would
give.
"""

import numba
import numpy as np
import numpy.typing as npt

from streamtopic.state.lexicon import Table, Whole, find
from streamtopic.text import MAX_PASSAGE, MAX_WORD

__all__ = ["LEFT", "TAKEN", "partitions_of", "scan"]

Bytes = npt.NDArray[np.uint8]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

LEFT, TAKEN = 0, 1

_MAX_TEXT = 1_000_000
_MAX_COUNT = 8_192
_OP, _TEXT, _COUNTS, _TS, _LABELS = 1, 2, 4, 8, 16
_NO_STRING = -1
# Lower case of the bytes that words consist of, 0 for the others.
_LOWER = np.array([ord(chr(k).lower()) if k < 128 and chr(k).isalnum() else 0 for k in range(256)], np.uint8)


@numba.njit(cache=True, nogil=True)
def scan(
    data: Bytes, ends: Int64, first: Whole, table: Table, marks: Int64,
    kinds: Bytes, lengths: Int64, stops: Int64, labels: Int64, entries: Int32, counts: Int32,
) -> Whole:  # fmt: skip
    """Read values from `first` on, until the table or `marks` has no room; return the value to go on with.

    data, ends: values one behind the other. marks: for every entry that there may be, where it stands in `entries`;
    less than where the present value begins means not yet.
    kinds, lengths, stops: of each value TAKEN or LEFT, L, and where its words end. labels: (values, 2) where its
    labels are, msgpack, or zeros. entries, counts: words in the order in which they first occur.
    """
    used = stops[first - 1] if first else np.int64(0)
    start = ends[first - 1] if first else np.int64(0)
    for k in range(first, len(ends)):
        stop = ends[k]
        kinds[k], lengths[k] = LEFT, 0
        what, at, until = _fields(data, start, stop, labels[k])
        if what == _TEXT:
            length, used = _tokens(data, at, until, table, marks, entries, counts, used)
        elif what == _COUNTS:
            length, used = _counts(data, at, table, marks, entries, counts, used)
        else:
            length = np.int64(-1)
        if table[4][1]:
            return k
        if length >= 0:
            kinds[k], lengths[k] = TAKEN, length
        stops[k] = used
        start = stop
    return len(ends)


@numba.njit(cache=True, nogil=True)
def _string(data: Bytes, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Return where the string at `at` begins and ends, or _NO_STRING."""
    if at >= stop:
        return _NO_STRING, 0
    kind = data[at]
    if 0xA0 <= kind <= 0xBF:
        begin, size = at + 1, np.int64(kind & 0x1F)
    elif kind == 0xD9 and at + 2 <= stop:
        begin, size = at + 2, np.int64(data[at + 1])
    elif kind == 0xDA and at + 3 <= stop:
        begin, size = at + 3, (np.int64(data[at + 1]) << 8) | np.int64(data[at + 2])
    elif kind == 0xDB and at + 5 <= stop:
        begin = at + 5
        size = np.int64(0)
        for k in range(at + 1, at + 5):
            size = (size << 8) | np.int64(data[k])
    else:
        return _NO_STRING, 0
    if begin + size > stop:
        return _NO_STRING, 0
    return begin, begin + size


@numba.njit(cache=True, nogil=True)
def _map(data: Bytes, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Return how many pairs the map at `at` has, -1 for none, and where they begin."""
    if at < stop and 0x80 <= data[at] <= 0x8F:
        return np.int64(data[at] & 0x0F), at + 1
    if at + 3 <= stop and data[at] == 0xDE:
        return (np.int64(data[at + 1]) << 8) | np.int64(data[at + 2]), at + 3
    return np.int64(-1), at


@numba.njit(cache=True, nogil=True)
def _unsigned(data: Bytes, at: Whole, stop: Whole) -> tuple[Whole, Whole]:
    """Return the whole number at `at`, -1 where there is none of at most 2**48, and where it ends."""
    if at >= stop:
        return np.int64(-1), at
    kind = data[at]
    if kind < 0x80:
        return np.int64(kind), at + 1
    if kind < 0xCC or kind > 0xCF:
        return np.int64(-1), at
    size = 1 << (kind - 0xCC)
    if at + 1 + size > stop or (size == 8 and (data[at + 1] or data[at + 2])):
        return np.int64(-1), at
    value = np.int64(0)
    for k in range(at + 1, at + 1 + size):
        value = (value << 8) | np.int64(data[k])
    return value, at + 1 + size


@numba.njit(cache=True, nogil=True)
def _is(data: Bytes, begin: Whole, end: Whole, text: bytes) -> bool:
    if end - begin != len(text):
        return False
    same = True
    for k in range(len(text)):
        same &= data[begin + k] == text[k]
    return same


@numba.njit(cache=True, nogil=True)
def _fields(data: Bytes, at: Whole, stop: Whole, labels: Int64) -> tuple[Whole, Whole, Whole]:  # noqa: C901, PLR0911, PLR0912 -- a format is branches
    """Return _TEXT or _COUNTS and where that is, or 0 for a value that is to be left."""
    labels[:] = 0
    left = (0, 0, 0)
    number, at = _map(data, at, stop)
    seen = 0
    begin: Whole = 0
    end: Whole = 0
    for _ in range(number):
        name, behind = _string(data, at, stop)
        if name < 0:
            return left
        if _is(data, name, behind, b"op"):
            field = _OP
            name, at = _string(data, behind, stop)
            if name < 0 or not _is(data, name, at, b"add"):
                return left
        elif _is(data, name, behind, b"text"):
            field = _TEXT
            begin, end = _string(data, behind, stop)
            at = end
            if begin < 0 or end - begin > _MAX_TEXT:
                return left
        elif _is(data, name, behind, b"counts"):
            field = _COUNTS
            begin = behind
            end = at = _skip_counts(data, behind, stop)
        elif _is(data, name, behind, b"ts"):
            field = _TS
            value, at = _unsigned(data, behind, stop)
            if value < 0:
                return left
        elif _is(data, name, behind, b"labels"):
            field = _LABELS
            at = _skip_labels(data, behind, stop)
            labels[0], labels[1] = behind, at
        else:
            return left
        if at < 0 or seen & field:
            return left
        seen |= field
    what = seen & (_TEXT | _COUNTS)
    if at != stop or not seen & _OP or what == _TEXT | _COUNTS:
        return left
    return what, begin, end


@numba.njit(cache=True, nogil=True)
def _skip_labels(data: Bytes, at: Whole, stop: Whole) -> Whole:
    """Return the end of a map of strings to strings, -1 if it is none."""
    number, at = _map(data, at, stop)
    if number < 0:
        return -1
    for _ in range(2 * number):
        name, at = _string(data, at, stop)
        if name < 0:
            return -1
    return at


@numba.njit(cache=True, nogil=True)
def _skip_counts(data: Bytes, at: Whole, stop: Whole) -> Whole:
    """Return the end of a map of words to counts, -1 where a word or a count is out of bounds."""
    number, at = _map(data, at, stop)
    if number < 0 or number > _MAX_COUNT:
        return -1
    for _ in range(number):
        word, at = _string(data, at, stop)
        if word < 0 or not 0 < at - word <= MAX_WORD:
            return -1
        count, at = _unsigned(data, at, stop)
        if not 0 < count <= _MAX_COUNT:
            return -1
    return at


@numba.njit(cache=True, nogil=True)
def _counts(
    data: Bytes, at: Whole, table: Table, marks: Int64, entries: Int32, counts: Int32, used: Whole
) -> tuple[Whole, Whole]:
    """Take the words of a map that `_skip_counts` has passed; return L, -1 to leave it, and where its words end."""
    number, at = _map(data, at, len(data))
    begin, length = used, np.int64(0)
    for _ in range(number):
        word, behind = _string(data, at, len(data))
        count, at = _unsigned(data, behind, len(data))
        plain = True
        for k in range(word, behind):
            plain &= data[k] < 0x80
        # Other words are taken if they are known, since then they were found to be sound before.
        entry = find(data, word, behind, table, plain)
        if entry < 0 or marks[entry] >= begin:
            return _leave(marks, entries, begin, used)
        marks[entry] = used
        entries[used], counts[used] = entry, count
        used += 1
        length += count
    if length > MAX_PASSAGE:
        return _leave(marks, entries, begin, used)
    return length, used


@numba.njit(cache=True, nogil=True)
def _leave(marks: Int64, entries: Int32, begin: Whole, used: Whole) -> tuple[Whole, Whole]:
    for k in range(begin, used):
        marks[entries[k]] = -1
    return -1, begin


@numba.njit(cache=True, nogil=True)
def _tokens(
    data: Bytes, at: Whole, stop: Whole, table: Table, marks: Int64, entries: Int32, counts: Int32, used: Whole
) -> tuple[Whole, Whole]:
    """Take the words of ASCII text, which becomes lower case in place; return as `_counts` does."""
    begin, length = used, np.int64(0)
    for k in range(at, stop):
        if data[k] > 0x7F:
            return -1, begin
    while at < stop:
        letter = _LOWER[data[at]]
        if letter == 0:
            at += 1
            continue
        word = at
        while letter and at < stop:
            data[at] = letter
            at += 1
            letter = _LOWER[data[at]] if at < stop else np.uint8(0)
        if at - word < 2:
            continue
        length += 1
        if at - word > MAX_WORD:
            continue
        entry = find(data, word, at, table, 1)
        if entry < 0 or length > MAX_PASSAGE:
            return _leave(marks, entries, begin, used)
        if marks[entry] >= begin:
            counts[marks[entry]] += 1
        else:
            marks[entry] = used
            entries[used], counts[used] = entry, 1
            used += 1
    return length, used


@numba.njit(cache=True, nogil=True)
def partitions_of(keys: Bytes, ends: Int64, partitions: Whole) -> Int32:
    """Return the partition of each key, as `streams.partition_of`, for keys one behind the other."""
    homes = np.empty(len(ends), np.int32)
    start = np.int64(0)
    for k in range(len(ends)):
        homes[k] = np.int64(_murmur2(keys, start, ends[k]) & np.uint32(0x7FFFFFFF)) % partitions
        start = ends[k]
    return homes


@numba.njit(cache=True, nogil=True)
def _murmur2(data: Bytes, start: Whole, stop: Whole) -> np.uint32:
    factor = np.uint32(0x5BD1E995)
    mixed = np.uint32(0x9747B28C) ^ np.uint32(stop - start)
    at = start
    while stop - at >= 4:
        block = np.uint32(0)
        for k in range(4):
            block |= np.uint32(data[at + k]) << np.uint32(8 * k)
        block = np.uint32(block * factor)
        block = np.uint32((block ^ (block >> np.uint32(24))) * factor)
        mixed = np.uint32(mixed * factor) ^ block
        at += 4
    if at < stop:
        rest = np.uint32(0)
        for k in range(stop - at):
            rest |= np.uint32(data[at + k]) << np.uint32(8 * k)
        mixed = np.uint32((mixed ^ rest) * factor)
    mixed = np.uint32((mixed ^ (mixed >> np.uint32(13))) * factor)
    return mixed ^ (mixed >> np.uint32(15))
