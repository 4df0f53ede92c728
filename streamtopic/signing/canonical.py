"""Canonical msgpack: keys sorted, arrays as {dtype, shape, little-endian data}, floats always 64 bits wide."""

import math
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from streamtopic.errors import InvalidRelease

__all__ = ["pack", "unpack"]

ARRAY_FIELDS = {"data", "dtype", "shape"}
DTYPES = {"<f4", "<f8", "<i4", "<i8"}


def pack(value: object) -> bytes:
    """Bytes of a value of maps with text keys, lists, arrays, text, bytes, numbers, booleans and None.

    Equal values give equal bytes, whatever the order of keys, the memory layout or the byte order of arrays. Raises
    TypeError for anything else, NaN and infinities included: they compare to nothing.
    """
    return bytes(msgpack.packb(_plain(value), strict_types=True))


def unpack(data: bytes) -> Any:  # noqa: ANN401 -- whatever was packed
    """The value of canonical bytes, sequences as lists. Raises InvalidRelease for bytes that `pack` does not make."""
    try:
        plain = msgpack.unpackb(data)
        value = _rich(plain)
        canonical = pack(value) == data
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidRelease(f"signed content cannot be read: {type(error).__name__}") from error
    if not canonical:
        raise InvalidRelease("signed content is not in canonical form")
    return value


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return _plain_array(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("keys of canonical maps are text")
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value} has no canonical form")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    raise TypeError(f"a {type(value).__name__} has no canonical form")


def _plain_array(array: np.ndarray[Any, np.dtype[Any]]) -> dict[str, object]:
    dtype = array.dtype.newbyteorder("<").str
    if dtype not in DTYPES:
        raise TypeError(f"arrays of {array.dtype} have no canonical form")
    return {"data": array.astype(dtype).tobytes("C"), "dtype": dtype, "shape": list(array.shape)}


def _rich(value: object) -> object:
    if isinstance(value, list):
        return [_rich(item) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) != ARRAY_FIELDS:
        return {key: _rich(item) for key, item in value.items()}
    data, dtype, shape = value["data"], value["dtype"], value["shape"]
    if dtype not in DTYPES or not isinstance(data, bytes):
        raise TypeError("unknown array")
    return np.frombuffer(data, dtype).reshape(shape)
