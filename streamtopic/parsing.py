"""Bytes of a record to values, msgpack, or JSON where the first byte is `{`, at a bounded cost.

A list of nothing takes one byte in a record and 64 in this process, and a list may say that it is longer than it is.
So what may hold many values is looked through first, without making any.
"""

import json
import re
from itertools import islice

import msgpack

__all__ = ["MAX_VALUES", "TooManyValues", "parse"]

MAX_VALUES = 1 << 16
"""Values of a record, those in other values and the keys of maps included."""

# Room for a list is made when its length is read. Lists of up to 15 values have shorter forms than these.
_LONG_LISTS = (b"\xdc", b"\xdd")
_SHORT_LIST, _LISTS = range(0x90, 0xA0), (0xDC, 0xDD)
_SHORT_MAP, _MAPS = range(0x80, 0x90), (0xDE, 0xDF)
# A string without an end is one too: otherwise each quote in it would be tried as the beginning of another.
# In front of every value but the first stands one of the characters in the group. Lists and maps of nothing have none.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|\[\s*+\]|\{\s*+\}|([\[{,:])', re.DOTALL)


class TooManyValues(ValueError):
    """A record holds more than MAX_VALUES."""

    def __init__(self) -> None:
        super().__init__(f"the record holds more than {MAX_VALUES:,} values")


def parse(value: bytes) -> object:
    """Return what a record says. Raises ValueError, RecursionError or msgpack.UnpackException; TooManyValues."""
    if value[:1] == b"{":
        return _parse_json(value)
    # A value takes a byte at least.
    if len(value) > MAX_VALUES or any(mark in value for mark in _LONG_LISTS):
        _check_msgpack(value)
    return msgpack.unpackb(value)


def _parse_json(value: bytes) -> object:
    text = value.decode(json.detect_encoding(value), "surrogatepass")
    # Commas of a text are counted as well, which costs little; only where there are many is it looked at closely.
    if len(text) > MAX_VALUES and sum(map(text.count, "[{,:")) >= MAX_VALUES:
        _check_json(text)
    return json.loads(text, parse_constant=_refuse)


def _check_json(text: str) -> None:
    if any(islice((token for token in _TOKEN.finditer(text) if token[1]), MAX_VALUES - 1, None)):
        raise TooManyValues


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _check_msgpack(value: bytes) -> None:
    """Raise TooManyValues, or msgpack.OutOfData where a list is said to be longer than what follows."""
    _unpacker(value).skip()
    if len(value) > MAX_VALUES:
        _count_msgpack(value)


def _count_msgpack(value: bytes) -> None:
    unpacker = _unpacker(value)
    seen, left = 0, 1
    while left:
        seen, left = seen + 1, left - 1
        if seen > MAX_VALUES:
            raise TooManyValues
        kind = value[unpacker.tell()]
        if kind in _SHORT_LIST or kind in _LISTS:
            left += unpacker.read_array_header()
        elif kind in _SHORT_MAP or kind in _MAPS:
            left += 2 * unpacker.read_map_header()
        else:
            unpacker.skip()


def _unpacker(value: bytes) -> msgpack.Unpacker:
    unpacker = msgpack.Unpacker(max_buffer_size=len(value))
    unpacker.feed(value)
    return unpacker
