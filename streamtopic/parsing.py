"""Bytes of a record to values, msgpack, or JSON where the first byte is `{`, at a bounded cost.

An empty list takes one byte in a record and 64 in this process, and a list may claim to be longer than it is. So a
record that may hold many values is examined first, without making any of them.
"""

import json
import re
from itertools import islice

import msgpack

__all__ = ["MAX_VALUES", "TooManyValues", "parse"]

MAX_VALUES = 1 << 16
"""The most values of a record, nested values and keys of maps included."""

# msgpack makes room for a list when it reads the length. Lists of up to 15 values have shorter forms than these.
_LONG_LISTS = (b"\xdc", b"\xdd")
_SHORT_LIST, _LISTS = range(0x90, 0xA0), (0xDC, 0xDD)
_SHORT_MAP, _MAPS = range(0x80, 0x90), (0xDE, 0xDF)
# A string without an end is one too: otherwise each quote in it would be tried as the beginning of another.
# Every value but the first has one of the characters in the group in front of it. Empty lists and maps hold no value.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|\[\s*+\]|\{\s*+\}|([\[{,:])', re.DOTALL)


class TooManyValues(ValueError):
    """A record holds more than MAX_VALUES."""

    def __init__(self) -> None:
        super().__init__(f"the record holds more than {MAX_VALUES:,} values")


def parse(value: bytes) -> object:
    """Return the value in a record.

    Raises TooManyValues for a record with more than MAX_VALUES, ValueError, RecursionError or msgpack.UnpackException
    for other bytes that are not a value.
    """
    if value[:1] == b"{":
        return _parse_json(value)
    # A value takes one byte or more, so a short record without long lists is within the limit.
    if len(value) > MAX_VALUES or any(mark in value for mark in _LONG_LISTS):
        _check_msgpack(value)
    return msgpack.unpackb(value)


def _parse_json(value: bytes) -> object:
    """Return the value in JSON text of any Unicode encoding."""
    text = value.decode(json.detect_encoding(value), "surrogatepass")
    # A cheap count first, in which commas within strings count too; only where it is large is the text examined.
    if len(text) > MAX_VALUES:
        marks = sum(map(text.count, "[{,:"))
        if marks >= MAX_VALUES:
            _check_json(text)
    return json.loads(text, parse_constant=_refuse)


def _check_json(text: str) -> None:
    """Raise TooManyValues for a text with more than MAX_VALUES."""
    marks = (token for token in _TOKEN.finditer(text) if token[1])
    if any(islice(marks, MAX_VALUES - 1, None)):
        raise TooManyValues


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{constant} is not JSON")


def _check_msgpack(value: bytes) -> None:
    """Raise TooManyValues, or msgpack.OutOfData where a list claims to be longer than the record."""
    _unpacker(value).skip()
    if len(value) > MAX_VALUES:
        _count_msgpack(value)


def _count_msgpack(value: bytes) -> None:
    """Raise TooManyValues for a value with more than MAX_VALUES."""
    unpacker = _unpacker(value)
    seen = 0
    left = 1
    while left:
        seen += 1
        left -= 1
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
    """Return a reader of the value that can skip parts."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(value))
    unpacker.feed(value)
    return unpacker
